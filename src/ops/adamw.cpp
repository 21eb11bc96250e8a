#include "ops/adamw.hpp"

#include <cmath>

#include "ops/bodies.hpp"
#include "ops/update_parts.hpp"

namespace sluice::ops {

AdamwFactors adamw_factors(const AdamwArgs& args) {
  const double t = static_cast<double>(args.count);
  AdamwFactors f{};
  const bool is_decoupled = args.decay == AdamDecay::kDecoupled;
  f.decay = is_decoupled ? static_cast<float>(1.0 - args.learning_rate * args.weight_decay) : 1.0F;
  f.gradient_decay = is_decoupled ? 0.0F : static_cast<float>(args.weight_decay);
  f.beta1 = static_cast<float>(args.beta1);
  f.one_minus_beta1 = static_cast<float>(1.0 - args.beta1);
  f.beta2 = static_cast<float>(args.beta2);
  f.one_minus_beta2 = static_cast<float>(1.0 - args.beta2);
  f.step_size = static_cast<float>(args.learning_rate / (1.0 - std::pow(args.beta1, t)));
  f.root_correction = static_cast<float>(std::sqrt(1.0 - std::pow(args.beta2, t)));
  f.eps = static_cast<float>(args.eps);
  return f;
}

void adamw(const Context& ctx, const AdamwArgs& args) {
  check_update("adamw", args, args.moment1 != nullptr && args.moment2 != nullptr);
  SLUICE_CHECK(args.count >= 1, "adamw's step count starts at 1, not at ", args.count);
  SLUICE_CHECK(args.beta1 >= 0 && args.beta1 < 1 && args.beta2 >= 0 && args.beta2 < 1, "adamw's betas ", args.beta1, ", ", args.beta2,
               " are outside [0, 1)");
  const AdamwFactors factors = adamw_factors(args);
  return wants_reference(ctx) ? reference::adamw(args, factors) : cpu::adamw(ctx, args, factors);
}

}  // namespace sluice::ops

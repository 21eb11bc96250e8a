#include "ops/adamw.hpp"

#include <cmath>

#include "base/check.hpp"
#include "ops/bodies.hpp"

namespace sluice::ops {

AdamwFactors adamw_factors(const AdamwArgs& args) {
  const double t = static_cast<double>(args.count);
  AdamwFactors f;
  f.decay = static_cast<float>(1.0 - args.learning_rate * args.weight_decay);
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
  SLUICE_CHECK(args.n >= 0, "adamw of ", args.n, " elements");
  SLUICE_CHECK(args.n == 0 || (args.param != nullptr && args.grad != nullptr && args.moment1 != nullptr && args.moment2 != nullptr),
               "adamw without one of its arrays");
  SLUICE_CHECK(args.count >= 1, "adamw's step count starts at 1, not at ", args.count);
  SLUICE_CHECK(args.beta1 >= 0 && args.beta1 < 1 && args.beta2 >= 0 && args.beta2 < 1, "adamw's betas ", args.beta1, ", ", args.beta2,
               " are outside [0, 1)");
  SLUICE_CHECK(args.copy == nullptr || args.copy_dtype == DType::kBF16 || args.copy_dtype == DType::kF16, "adamw's copy in ",
               name_of(args.copy_dtype));
  const AdamwFactors factors = adamw_factors(args);
  return wants_reference(ctx) ? reference::adamw(args, factors) : cpu::adamw(ctx, args, factors);
}

}  // namespace sluice::ops

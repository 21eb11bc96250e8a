#include "ops/lion.hpp"

#include "ops/bodies.hpp"
#include "ops/update_parts.hpp"

namespace sluice::ops {

LionFactors lion_factors(const LionArgs& args) {
  LionFactors f{};
  f.decay = static_cast<float>(1.0 - args.learning_rate * args.weight_decay);
  f.learning_rate = static_cast<float>(args.learning_rate);
  f.beta1 = static_cast<float>(args.beta1);
  f.one_minus_beta1 = static_cast<float>(1.0 - args.beta1);
  f.beta2 = static_cast<float>(args.beta2);
  f.one_minus_beta2 = static_cast<float>(1.0 - args.beta2);
  return f;
}

void lion(const Context& ctx, const LionArgs& args) {
  check_update("lion", args, args.moment != nullptr);
  SLUICE_CHECK(args.beta1 >= 0 && args.beta1 < 1 && args.beta2 >= 0 && args.beta2 < 1, "lion's betas ", args.beta1, ", ", args.beta2,
               " are outside [0, 1)");
  const LionFactors factors = lion_factors(args);
  return wants_reference(ctx) ? reference::lion(args, factors) : cpu::lion(ctx, args, factors);
}

}  // namespace sluice::ops

#include "ops/bodies.hpp"

namespace sluice::ops::reference {

// In f32, operation by operation as the fast bodies do it, so that all give the same bits.
void lion(const LionArgs& args, const LionFactors& f) {
  for (std::int64_t i = 0; i < args.n; ++i) {
    const float g = args.grad[i] * args.grad_scale;
    const float m = args.moment[i];
    const float c = f.beta1 * m + f.one_minus_beta1 * g;
    const float sign = c > 0 ? 1.0f : c < 0 ? -1.0f : c;
    args.param[i] = args.param[i] * f.decay - f.learning_rate * sign;
    args.moment[i] = f.beta2 * m + f.one_minus_beta2 * g;
  }
  if (args.copy != nullptr) narrow(args.param, args.n, args.copy_dtype, args.copy);
}

}  // namespace sluice::ops::reference

#include <cmath>

#include "ops/bodies.hpp"

namespace sluice::ops::reference {

// In f32, operation by operation as the fast bodies do it, so that all give the same bits.
void adamw(const AdamwArgs& args, const AdamwFactors& f) {
  for (std::int64_t i = 0; i < args.n; ++i) {
    const float g = args.grad[i] * args.grad_scale + f.gradient_decay * args.param[i];
    const float m = f.beta1 * args.moment1[i] + f.one_minus_beta1 * g;
    const float v = f.beta2 * args.moment2[i] + f.one_minus_beta2 * g * g;
    args.moment1[i] = m;
    args.moment2[i] = v;
    args.param[i] = args.param[i] * f.decay - f.step_size * (m / (std::sqrt(v) / f.root_correction + f.eps));
  }
  if (args.copy != nullptr) narrow(args.param, args.n, args.copy_dtype, args.copy);
}

}  // namespace sluice::ops::reference

#include "ops/bodies.hpp"

namespace sluice::ops::reference {

// In f32, operation by operation as the fast bodies do it, so that all give the same bits.
void sgd(const SgdArgs& args, const SgdFactors& f) {
  for (std::int64_t i = 0; i < args.n; ++i) {
    const float p = args.param[i];
    float g = args.grad[i] * args.grad_scale + f.gradient_decay * p;
    if (args.buffer != nullptr) {
      const float buffer = f.momentum * args.buffer[i] + f.gradient_part * g;
      args.buffer[i] = buffer;
      g = args.nesterov ? g + f.look_ahead * buffer : buffer;
    }
    args.param[i] = p - f.learning_rate * g;
  }
  if (args.copy != nullptr) narrow(args.param, args.n, args.copy_dtype, args.copy);
}

}  // namespace sluice::ops::reference

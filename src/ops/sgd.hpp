#pragma once
#include <cstdint>

#include "base/dtype.hpp"
#include "ops/context.hpp"

namespace sluice::ops {

/// One update of n elements by stochastic gradient descent, in place, one pass (20 B an element of traffic in f32, 12 without momentum):
///   g' = g * grad_scale + weight_decay * p
///   with momentum:  buf = momentum * buf + (1 - dampening) * g', in the first update buf = g'
///                   g' = buf, with Nesterov's rule g' + momentum * buf
///   p -= lr * g'
/// Source  torch.optim.SGD. Which update is the first is told by `count`, as a resumed run knows it, too.
/// An element's result doesn't depend on where it stands in the array or on threads.
struct SgdArgs {
  std::int64_t n = 0;
  float* param = nullptr;
  const float* grad = nullptr;
  float* buffer = nullptr;  // not null iff momentum > 0; finite in the first update
  double learning_rate = 0;
  double momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  std::int64_t count = 0;         // of updates with this one, from 1
  float grad_scale = 1;           // clip factor over loss scale
  std::uint16_t* copy = nullptr;  // as AdamwArgs::copy
  DType copy_dtype = DType::kBF16;
};
void sgd(const Context& ctx, const SgdArgs& args);

}  // namespace sluice::ops

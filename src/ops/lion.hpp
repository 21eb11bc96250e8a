#pragma once
#include <cstdint>

#include "base/dtype.hpp"
#include "ops/context.hpp"

namespace sluice::ops {

/// One Lion update of n elements, in place, one pass (20 B an element of traffic in f32):
///   g' = g * grad_scale;  p -= lr * weight_decay * p;  p -= lr * sign(b1 m + (1-b1) g');  m = b2 m + (1-b2) g'
/// where sign(0) is 0, so what belongs to no parameter stays zero, and the sign of what is no number is that, so a divergence shows.
/// Source  Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2, in the order of lion-pytorch.
/// An element's result doesn't depend on where it stands in the array or on threads.
struct LionArgs {
  std::int64_t n = 0;
  float* param = nullptr;
  const float* grad = nullptr;
  float* moment = nullptr;
  double learning_rate = 0;
  double beta1 = 0, beta2 = 0, weight_decay = 0;
  float grad_scale = 1;           // clip factor over loss scale
  std::uint16_t* copy = nullptr;  // as AdamwArgs::copy
  DType copy_dtype = DType::kBF16;
};
void lion(const Context& ctx, const LionArgs& args);

}  // namespace sluice::ops

#pragma once
#include <cstdint>

#include "base/dtype.hpp"
#include "ops/context.hpp"

namespace sluice::ops {

/// Where weight decay enters Adam.
enum class AdamDecay : std::uint8_t {
  kDecoupled,   // AdamW: the parameter shrinks by itself
  kInGradient,  // Adam: the gradient of an L2 penalty
};

/// One AdamW or Adam update of n elements, in place, one pass (28 B an element of traffic in f32):
///   g' = g * grad_scale
///   decoupled: p -= lr * weight_decay * p      in the gradient: g' += weight_decay * p
///   m = b1 m + (1-b1) g';  v = b2 v + (1-b2) g'^2;  p -= (lr / (1 - b1^t)) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)
/// Source  Loshchilov & Hutter 2019, "Decoupled Weight Decay Regularization", algorithm 2, both lines of it, in PyTorch's order of
///         operations.
/// An element's result doesn't depend on where it stands in the array or on threads (n is a multiple of 256 in training, any
/// n is right).
struct AdamwArgs {
  std::int64_t n = 0;
  float* param = nullptr;
  const float* grad = nullptr;
  float* moment1 = nullptr;
  float* moment2 = nullptr;
  double learning_rate = 0;
  double beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  std::int64_t count = 0;  // t, from 1
  float grad_scale = 1;    // clip factor over loss scale
  /// Not null: `param` rounded to `copy_dtype` (kBF16 or kF16) is written here as well, in the same pass (30 B an element).
  std::uint16_t* copy = nullptr;
  DType copy_dtype = DType::kBF16;
  AdamDecay decay = AdamDecay::kDecoupled;
};
void adamw(const Context& ctx, const AdamwArgs& args);

}  // namespace sluice::ops

#pragma once
// What a model asks for; parallel/ supplies it sharded or whole. A model names no communicator.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "ops/attention.hpp"
#include "ops/context.hpp"
#include "ops/dropout.hpp"

namespace sluice::model {

/// What a linear layer is to its block: where tensor parallelism cuts it.
enum class LinearRole : std::uint8_t { kColumn, kRow };  // q, k, v, gate, up: column-parallel; out and down: row-parallel

/// How a weight is stored: as transformers' checkpoints have it, so that reading and writing them is copying.
enum class WeightOrder : std::uint8_t { kInOut, kOutIn };  // Conv1D of GPT-2; torch.nn.Linear

/// y = x W + b with W [in, out] or stored transposed; the bias, and either gradient, may be null. Forward and the two backward products can
/// be called apart. y and dy are [tokens, out] at stride ld, so that several layers can write one buffer side by side; x and dx [tokens,
/// in].
class Linear {
 public:
  Linear() = default;
  Linear(const Linear&) = delete;
  Linear& operator=(const Linear&) = delete;
  virtual ~Linear() = default;
  virtual std::int64_t in() const = 0;  // of this rank's shard
  virtual std::int64_t out() const = 0;
  /// gelu_out (may be null, at ld too) = gelu_tanh(y).
  virtual void forward(const ops::Context& ctx, std::int64_t tokens, const float* x, const float* weight, const float* bias, float* y,
                       std::int64_t ld, float* gelu_out) const = 0;
  /// dx overwritten, or added to if `accumulate`.
  virtual void backward_input(const ops::Context& ctx, std::int64_t tokens, const float* dy, std::int64_t ld, const float* weight,
                              float* dx, bool accumulate) const = 0;
  virtual void backward_weight(const ops::Context& ctx, std::int64_t tokens, const float* dy, std::int64_t ld, const float* x,
                               float* dweight, bool accumulate_weight, float* dbias, bool accumulate_bias) const = 0;
};

/// Supplies modules for one rank of a mesh.
class ModuleFactory {
 public:
  ModuleFactory() = default;
  ModuleFactory(const ModuleFactory&) = delete;
  ModuleFactory& operator=(const ModuleFactory&) = delete;
  virtual ~ModuleFactory() = default;
  virtual std::unique_ptr<Linear> linear(LinearRole role, std::int64_t in, std::int64_t out, WeightOrder order) const = 0;
  /// Heads of this rank's attention core, out of so many; asked for those of queries and for those of keys and values.
  virtual std::int64_t local_heads(std::int64_t heads) const = 0;
};

}  // namespace sluice::model

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
enum class LinearRole : std::uint8_t { kColumn, kRow };  // qkv and fc1: column-parallel; proj and fc2: row-parallel

/// y = x W + b with W [in, out] (GPT-2's Conv1D order). Forward and the two backward products can be called apart.
class Linear {
 public:
  Linear() = default;
  Linear(const Linear&) = delete;
  Linear& operator=(const Linear&) = delete;
  virtual ~Linear() = default;
  virtual std::int64_t in() const = 0;  // of this rank's shard
  virtual std::int64_t out() const = 0;
  /// y [tokens, out]; gelu_out (may be null) [tokens, out] = gelu_tanh(y).
  virtual void forward(const ops::Context& ctx, std::int64_t tokens, const float* x, const float* weight, const float* bias, float* y,
                       float* gelu_out) const = 0;
  /// dx [tokens, in] overwritten.
  virtual void backward_input(const ops::Context& ctx, std::int64_t tokens, const float* dy, const float* weight, float* dx) const = 0;
  virtual void backward_weight(const ops::Context& ctx, std::int64_t tokens, const float* dy, const float* x, float* dweight,
                               bool accumulate_weight, float* dbias, bool accumulate_bias) const = 0;
};

/// Supplies modules for one rank of a mesh.
class ModuleFactory {
 public:
  ModuleFactory() = default;
  ModuleFactory(const ModuleFactory&) = delete;
  ModuleFactory& operator=(const ModuleFactory&) = delete;
  virtual ~ModuleFactory() = default;
  virtual std::unique_ptr<Linear> linear(LinearRole role, std::int64_t in, std::int64_t out) const = 0;
  /// Heads of this rank's attention core.
  virtual std::int64_t local_heads(std::int64_t heads) const = 0;
};

}  // namespace sluice::model

#pragma once
// What segments are made of, together with where a call has its parameters: norms and linear layers.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "model/family.hpp"
#include "model/model.hpp"
#include "model/modules.hpp"
#include "model/pieces.hpp"

namespace sluice::model {

/// A norm over rows of hidden width, or of one head. gain, bias: indices into Model::params; gain -1: no norm, bias -1: no bias.
struct NormOptions {
  NormKind kind = NormKind::kRms;
  double eps = 0;
  int gain = -1, bias = -1;
};

/// A linear layer. weight, bias: indices into Model::params; weight -1: no layer, bias -1: no bias.
struct LinearOptions {
  std::int64_t in = 0, out = 0;
  WeightOrder order = WeightOrder::kOutIn;
  int weight = -1, bias = -1;
};

/// The parameters of a segment in the order of its calls, as its parts ask for them.
class ParamList {
 public:
  /// Place in the list of the parameter with this index in Model::params; -1 for -1.
  int add(int param) {
    if (param < 0) return -1;
    params_.push_back(param);
    return static_cast<int>(params_.size()) - 1;
  }
  std::vector<int> take() { return std::move(params_); }

 private:
  std::vector<int> params_;
};

/// Layer norm or RMS norm. What it learns of each vector in forward (statistics) it needs again in backward.
class Norm {
 public:
  Norm(const NormOptions& options, std::int64_t width, ParamList& params);

  /// Offsets of the statistics of n vectors among the pieces of a buffer.
  struct Statistics {
    std::int64_t mean, rstd;
  };
  Statistics book(Pieces& pieces, std::int64_t n) const;

  /// y [n, width] from x [n, width]; y may alias x. `n` vectors, which need not be all of the call's tokens.
  void forward(const SegmentCall& call, std::int64_t n, const float* x, float* y, const Statistics& at) const;
  /// dx [n, width], overwritten or added to, given dy; gradients of the call, added to where its flags say so or `accumulate` is set.
  /// `op`: workspace_bytes() of scratch.
  void backward(const SegmentCall& call, std::int64_t n, const float* x, const float* dy, float* dx, bool dx_accumulate, bool accumulate,
                const Statistics& at, std::byte* op) const;
  std::int64_t workspace_bytes(int threads) const;

  Work forward_work(std::int64_t n) const;
  Work backward_work(std::int64_t n) const;

 private:
  NormKind kind_;
  double eps_;
  std::int64_t width_;
  int gain_, bias_;
};

/// RMS norm of `heads` vectors of `width` in each of n rows `ld` apart (Qwen3's norm of queries and keys).
class HeadNorm {
 public:
  HeadNorm(const NormOptions& options, std::int64_t heads, std::int64_t width, ParamList& params);
  std::int64_t statistics(Pieces& pieces, std::int64_t n) const { return pieces.floats(n * heads_); }
  /// y at ld too.
  void forward(const SegmentCall& call, std::int64_t n, std::int64_t ld, const float* x, float* y, float* rstd) const;
  /// d becomes d loss / d x in place.
  void backward(const SegmentCall& call, std::int64_t n, std::int64_t ld, const float* x, const float* rstd, float* d, std::byte* op) const;
  std::int64_t workspace_bytes(int threads) const;

 private:
  double eps_;
  std::int64_t heads_, width_;
  int gain_;
};

/// A linear layer of the factory's.
class Projection {
 public:
  Projection(const LinearOptions& options, LinearRole role, const ModuleFactory& factory, ParamList& params);
  std::int64_t in() const { return linear_->in(); }
  std::int64_t out() const { return linear_->out(); }

  void forward(const SegmentCall& call, const float* x, float* y, std::int64_t ld, float* gelu_out) const;
  void backward_weight(const SegmentCall& call, const float* dy, std::int64_t ld, const float* x) const;
  void backward_input(const SegmentCall& call, const float* dy, std::int64_t ld, float* dx, bool accumulate) const;

  Work forward_work(std::int64_t n) const;
  /// Of both products and the bias.
  Work backward_work(std::int64_t n) const;

 private:
  std::unique_ptr<Linear> linear_;
  int weight_, bias_;
};

}  // namespace sluice::model

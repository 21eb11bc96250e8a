#include "parallel/unsharded.hpp"

#include "ops/matmul.hpp"

namespace sluice::parallel {
namespace {

class WholeLinear final : public model::Linear {
 public:
  WholeLinear(std::int64_t in, std::int64_t out, model::WeightOrder order)
      : in_(in), out_(out), is_transposed_(order == model::WeightOrder::kOutIn) {}

  std::int64_t in() const override { return in_; }
  std::int64_t out() const override { return out_; }

  void forward(const ops::Context& ctx, std::int64_t tokens, const float* x, const float* weight, const float* bias, float* y,
               std::int64_t ld, float* gelu_out) const override {
    ops::matmul(ctx, {.m = tokens,  // y [tokens, out] = x [tokens, in] W + b
                      .n = out_,
                      .k = in_,
                      .a = x,
                      .ld_a = in_,
                      .transpose_a = false,
                      .b = weight,
                      .ld_b = ld_weight(),
                      .transpose_b = is_transposed_,
                      .c = y,
                      .ld_c = ld,
                      .bias = bias,
                      .gelu_out = gelu_out});
  }

  void backward_input(const ops::Context& ctx, std::int64_t tokens, const float* dy, std::int64_t ld, const float* weight, float* dx,
                      bool accumulate) const override {
    ops::matmul(ctx, {.m = tokens,  // dx [tokens, in] = dy [tokens, out] W^T
                      .n = in_,
                      .k = out_,
                      .a = dy,
                      .ld_a = ld,
                      .transpose_a = false,
                      .b = weight,
                      .ld_b = ld_weight(),
                      .transpose_b = !is_transposed_,
                      .c = dx,
                      .ld_c = in_,
                      .accumulate = accumulate});
  }

  void backward_weight(const ops::Context& ctx, std::int64_t tokens, const float* dy, std::int64_t ld, const float* x, float* dweight,
                       bool accumulate_weight, float* dbias, bool accumulate_bias) const override {
    if (dweight != nullptr) {
      // dW [in, out] (+)= x^T dy, or [out, in] (+)= dy^T x
      ops::matmul(ctx, {.m = is_transposed_ ? out_ : in_,
                        .n = ld_weight(),
                        .k = tokens,
                        .a = is_transposed_ ? dy : x,
                        .ld_a = is_transposed_ ? ld : in_,
                        .transpose_a = true,
                        .b = is_transposed_ ? x : dy,
                        .ld_b = is_transposed_ ? in_ : ld,
                        .transpose_b = false,
                        .c = dweight,
                        .ld_c = ld_weight(),
                        .accumulate = accumulate_weight});
    }
    if (dbias != nullptr) ops::column_sum(ctx, dy, tokens, out_, ld, dbias, accumulate_bias);
  }

 private:
  std::int64_t ld_weight() const { return is_transposed_ ? in_ : out_; }

  std::int64_t in_, out_;
  bool is_transposed_;
};

class UnshardedModules final : public model::ModuleFactory {
 public:
  std::unique_ptr<model::Linear> linear(model::LinearRole, std::int64_t in, std::int64_t out, model::WeightOrder order) const override {
    return std::make_unique<WholeLinear>(in, out, order);
  }
  std::int64_t local_heads(std::int64_t heads) const override { return heads; }
};

}  // namespace

std::unique_ptr<model::ModuleFactory> make_unsharded_modules() {
  return std::make_unique<UnshardedModules>();
}

}  // namespace sluice::parallel

#include "parallel/unsharded.hpp"

#include "ops/matmul.hpp"

namespace sluice::parallel {
namespace {

class WholeLinear final : public model::Linear {
 public:
  WholeLinear(std::int64_t in, std::int64_t out) : in_(in), out_(out) {}

  std::int64_t in() const override { return in_; }
  std::int64_t out() const override { return out_; }

  void forward(const ops::Context& ctx, std::int64_t tokens, const float* x, const float* weight, const float* bias, float* y,
               float* gelu_out) const override {
    ops::matmul(ctx, {.m = tokens,  // y [tokens, out] = x [tokens, in] W [in, out] + b
                      .n = out_,
                      .k = in_,
                      .a = x,
                      .ld_a = in_,
                      .transpose_a = false,
                      .b = weight,
                      .ld_b = out_,
                      .transpose_b = false,
                      .c = y,
                      .ld_c = out_,
                      .bias = bias,
                      .gelu_out = gelu_out});
  }

  void backward_input(const ops::Context& ctx, std::int64_t tokens, const float* dy, const float* weight, float* dx) const override {
    ops::matmul(ctx, {.m = tokens,  // dx [tokens, in] = dy [tokens, out] W^T
                      .n = in_,
                      .k = out_,
                      .a = dy,
                      .ld_a = out_,
                      .transpose_a = false,
                      .b = weight,
                      .ld_b = out_,
                      .transpose_b = true,
                      .c = dx,
                      .ld_c = in_});
  }

  void backward_weight(const ops::Context& ctx, std::int64_t tokens, const float* dy, const float* x, float* dweight,
                       bool accumulate_weight, float* dbias, bool accumulate_bias) const override {
    ops::matmul(ctx, {.m = in_,  // dW [in, out] (+)= x^T dy
                      .n = out_,
                      .k = tokens,
                      .a = x,
                      .ld_a = in_,
                      .transpose_a = true,
                      .b = dy,
                      .ld_b = out_,
                      .transpose_b = false,
                      .c = dweight,
                      .ld_c = out_,
                      .accumulate = accumulate_weight});
    ops::column_sum(ctx, dy, tokens, out_, out_, dbias, accumulate_bias);
  }

 private:
  std::int64_t in_, out_;
};

class UnshardedModules final : public model::ModuleFactory {
 public:
  std::unique_ptr<model::Linear> linear(model::LinearRole, std::int64_t in, std::int64_t out) const override {
    return std::make_unique<WholeLinear>(in, out);
  }
  std::int64_t local_heads(std::int64_t heads) const override { return heads; }
};

}  // namespace

std::unique_ptr<model::ModuleFactory> make_unsharded_modules() {
  return std::make_unique<UnshardedModules>();
}

}  // namespace sluice::parallel

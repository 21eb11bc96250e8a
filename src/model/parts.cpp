#include "model/parts.hpp"

#include "base/check.hpp"
#include "model/segments.hpp"
#include "ops/fill.hpp"
#include "ops/layer_norm.hpp"
#include "ops/rms_norm.hpp"

namespace sluice::model {
namespace {

std::size_t place(int slot) {
  return static_cast<std::size_t>(slot);
}

bool accumulates(const SegmentCall& call, int slot) {
  return call.accumulate[place(slot)] != 0;
}

}  // namespace

Norm::Norm(const NormOptions& options, std::int64_t width, ParamList& params)
    : kind_(options.kind), eps_(options.eps), width_(width), gain_(params.add(options.gain)), bias_(params.add(options.bias)) {
  SLUICE_CHECK(gain_ >= 0 && (bias_ >= 0) == (kind_ == NormKind::kLayer), "a norm of kind ", static_cast<int>(kind_), " with gain ", gain_,
               ", bias ", bias_);
}

Norm::Statistics Norm::book(Pieces& pieces, std::int64_t n) const {
  const std::int64_t mean = pieces.floats(kind_ == NormKind::kLayer ? n : 0);
  return {mean, pieces.floats(n)};
}

void Norm::forward(const SegmentCall& call, std::int64_t n, const float* x, float* y, const Statistics& at) const {
  const float* const gain = call.params[place(gain_)];
  float* const rstd = floats_at(call.workspace, at.rstd);
  if (kind_ == NormKind::kRms) {
    ops::rms_norm_forward(*call.ops, {.rows = n, .width = width_}, x, gain, eps_, y, rstd);
  } else {
    ops::layer_norm_forward(*call.ops, x, gain, call.params[place(bias_)], eps_, n, width_, y, floats_at(call.workspace, at.mean), rstd);
  }
}

void Norm::backward(const SegmentCall& call, std::int64_t n, const float* x, const float* dy, float* dx, bool dx_accumulate,
                    bool accumulate, const Statistics& at, std::byte* op) const {
  const ops::Context& ctx = *call.ops;
  const float *const gain = call.params[place(gain_)], *const rstd = floats_at(call.workspace, at.rstd);
  float* const dgain = call.grads[place(gain_)];  // null where frozen
  bool adds_gain = accumulate || accumulates(call, gain_);
  if (kind_ == NormKind::kRms) {
    ops::rms_norm_backward(ctx, {.rows = n, .width = width_}, x, gain, rstd, dy, dx, dx_accumulate, dgain, adds_gain, op);
    return;
  }
  float* const dbias = call.grads[place(bias_)];
  const bool adds_bias = accumulate || accumulates(call, bias_);
  if (dgain == nullptr) {
    adds_gain = adds_bias;
  } else if (dbias != nullptr && adds_gain != adds_bias) {  // the op knows one flag: clear what is to be overwritten, then add to both
    ops::fill(ctx, adds_gain ? dbias : dgain, width_, 0.0f);
    adds_gain = true;
  }
  ops::layer_norm_backward(ctx, x, gain, floats_at(call.workspace, at.mean), rstd, dy, n, width_, dx, dx_accumulate, dgain, dbias,
                           adds_gain, op);
}

std::int64_t Norm::workspace_bytes(int threads) const {
  return kind_ == NormKind::kRms ? ops::rms_norm_workspace_bytes(threads, width_) : ops::layer_norm_workspace_bytes(threads, width_);
}

Work Norm::forward_work(std::int64_t n) const {
  const double rows = static_cast<double>(n), width = static_cast<double>(width_);
  if (kind_ == NormKind::kRms) return traffic(2 * rows * width + width + rows);  // x, y; gain; rstd
  return traffic(2 * rows * width + 2 * width + 2 * rows);                       // bias and mean too
}

Work Norm::backward_work(std::int64_t n) const {
  const double rows = static_cast<double>(n), width = static_cast<double>(width_);
  if (kind_ == NormKind::kRms) return traffic(3 * rows * width + 2 * width + rows);  // x, dy, dx; gain, dgain; rstd
  return traffic(3 * rows * width + 3 * width + 2 * rows);                           // dbias and mean too
}

HeadNorm::HeadNorm(const NormOptions& options, std::int64_t heads, std::int64_t width, ParamList& params)
    : eps_(options.eps), heads_(heads), width_(width), gain_(params.add(options.gain)) {
  SLUICE_CHECK(options.kind == NormKind::kRms && gain_ >= 0 && options.bias < 0, "heads have RMS norms alone");
}

void HeadNorm::forward(const SegmentCall& call, std::int64_t n, std::int64_t ld, const float* x, float* y, float* rstd) const {
  ops::rms_norm_forward(*call.ops, {.rows = n, .width = width_, .groups = heads_, .ld = ld}, x, call.params[place(gain_)], eps_, y, rstd);
}

void HeadNorm::backward(const SegmentCall& call, std::int64_t n, std::int64_t ld, const float* x, const float* rstd, float* d,
                        std::byte* op) const {
  ops::rms_norm_backward(*call.ops, {.rows = n, .width = width_, .groups = heads_, .ld = ld}, x, call.params[place(gain_)], rstd, d, d,
                         false, call.grads[place(gain_)], accumulates(call, gain_), op);
}

std::int64_t HeadNorm::workspace_bytes(int threads) const {
  return ops::rms_norm_workspace_bytes(threads, width_);
}

Projection::Projection(const LinearOptions& options, LinearRole role, const ModuleFactory& factory, ParamList& params)
    : linear_(factory.linear(role, options.in, options.out, options.order)),
      weight_(params.add(options.weight)),
      bias_(params.add(options.bias)) {
  SLUICE_CHECK(weight_ >= 0, "a linear layer without a weight");
}

void Projection::forward(const SegmentCall& call, const float* x, float* y, std::int64_t ld, float* gelu_out) const {
  linear_->forward(*call.ops, call.shape.tokens(), x, call.params[place(weight_)], bias_ >= 0 ? call.params[place(bias_)] : nullptr, y, ld,
                   gelu_out);
}

void Projection::backward_weight(const SegmentCall& call, const float* dy, std::int64_t ld, const float* x) const {
  float *const dweight = call.grads[place(weight_)], *const dbias = bias_ >= 0 ? call.grads[place(bias_)] : nullptr;
  if (dweight == nullptr && dbias == nullptr) return;
  linear_->backward_weight(*call.ops, call.shape.tokens(), dy, ld, x, dweight, accumulates(call, weight_), dbias,
                           bias_ >= 0 && accumulates(call, bias_));
}

void Projection::backward_input(const SegmentCall& call, const float* dy, std::int64_t ld, float* dx, bool accumulate) const {
  linear_->backward_input(*call.ops, call.shape.tokens(), dy, ld, call.params[place(weight_)], dx, accumulate);
}

Work Projection::forward_work(std::int64_t n) const {
  return product_work(n, out(), in()) + traffic(bias_ >= 0 ? static_cast<double>(out()) : 0);
}

Work Projection::backward_work(std::int64_t n) const {
  const Work products = product_work(n, in(), out()) + product_work(in(), out(), n);  // dx, dW
  if (bias_ < 0) return products;
  return products + traffic((static_cast<double>(n) + 1) * static_cast<double>(out()));  // dy again and db
}

}  // namespace sluice::model

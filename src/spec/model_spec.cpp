#include "spec/model_spec.hpp"

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "base/text.hpp"

namespace sluice::spec {
namespace {

class Validation {
 public:
  explicit Validation(const ModelSpec& model) : model_(model) {}

  template <typename T>
  void refuse(const char* key, const T& found, const std::string& expected) const {
    throw RequestError(cat("model \"", model_.name, "\": ", key, ": found ", found, ", expected ", expected));
  }
  void size(const char* key, std::int64_t value, std::int64_t least = 1) const {
    // 2^31 - 1: tokens are int32, and no two sizes' product leaves int64.
    if (value < least || value > std::numeric_limits<std::int32_t>::max())
      refuse(key, value, cat("a whole number from ", least, " to 2147483647"));
  }
  void rate(const char* key, double value) const {
    if (!(value >= 0 && value < 1)) refuse(key, value, "a rate in [0, 1)");
  }
  void positive(const char* key, double value) const {
    if (!(value > 0 && std::isfinite(value))) refuse(key, value, "a positive number");
  }

  void heads() const {
    size("heads", model_.heads);
    size("kv_heads", model_.kv_heads, 0);
    size("head_dim", model_.head_dim, 0);
    if (model_.head_dim == 0 && model_.hidden % model_.heads != 0)
      refuse("heads", model_.heads, cat("a divisor of hidden, which is ", model_.hidden));
    if (model_.heads % model_.key_value_heads() != 0)
      refuse("kv_heads", model_.kv_heads, cat("a divisor of heads, which is ", model_.heads));
  }

  void rope() const {
    const RopeSpec& rope = model_.rope;
    if (rope.theta == 0) {
      if (rope != RopeSpec{}) refuse("rope.theta", rope.theta, "a positive number where other keys of rope are given");
      return;
    }
    positive("rope.theta", rope.theta);
    if (model_.head_width() % 2 != 0) refuse("head_dim", model_.head_width(), "an even number, since its halves are rotated");
    positive("rope.factor", rope.factor);
    if (rope.scaling != RopeScaling::kLlama3) return;
    size("rope.original_context", rope.original_context);
    positive("rope.low_frequency_factor", rope.low_frequency_factor);
    if (!(rope.high_frequency_factor > rope.low_frequency_factor && std::isfinite(rope.high_frequency_factor)))
      refuse("rope.high_frequency_factor", rope.high_frequency_factor,
             cat("more than low_frequency_factor, which is ", rope.low_frequency_factor));
  }

 private:
  const ModelSpec& model_;
};

}  // namespace

void validate(const ModelSpec& model) {
  const Validation check(model);
  check.size("vocab", model.vocab);
  check.size("context", model.context);
  check.size("hidden", model.hidden);
  check.size("layers", model.layers);
  check.heads();
  check.size("ffn", model.ffn);
  check.size("sliding_window", model.sliding_window, 0);
  check.rope();
  if (!(model.norm_eps > 0 && model.norm_eps < 1)) check.refuse("norm_eps", model.norm_eps, "a number in (0, 1)");
  if (!(model.init_std >= 0 && std::isfinite(model.init_std))) check.refuse("init_std", model.init_std, "a finite number, 0 or more");
  check.rate("embedding_dropout", model.embedding_dropout);
  check.rate("attention_dropout", model.attention_dropout);
  check.rate("residual_dropout", model.residual_dropout);
  if (model.pad_token < -1 || model.pad_token >= model.vocab)
    check.refuse("pad_token", model.pad_token, cat("a token below vocab, which is ", model.vocab, ", or -1 for none"));
}

}  // namespace sluice::spec

#include "spec/model_spec.hpp"

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "base/text.hpp"

namespace sluice::spec {

void validate(const ModelSpec& model) {
  const auto refuse = [&](const char* key, const auto& found, const std::string& expected) {
    throw RequestError(cat("model \"", model.name, "\": ", key, ": found ", found, ", expected ", expected));
  };
  const auto size = [&](const char* key, std::int64_t value) {
    // 2^31 - 1: tokens are int32, and no two sizes' product leaves int64.
    if (value < 1 || value > std::numeric_limits<std::int32_t>::max()) refuse(key, value, "a whole number from 1 to 2147483647");
  };
  const auto rate = [&](const char* key, double value) {
    if (!(value >= 0 && value < 1)) refuse(key, value, "a rate in [0, 1)");
  };
  size("vocab", model.vocab);
  size("context", model.context);
  size("hidden", model.hidden);
  size("layers", model.layers);
  size("heads", model.heads);
  size("ffn", model.ffn);
  if (model.hidden % model.heads != 0) refuse("heads", model.heads, cat("a divisor of hidden, which is ", model.hidden));
  if (!(model.norm_eps > 0 && model.norm_eps < 1)) refuse("norm_eps", model.norm_eps, "a number in (0, 1)");
  if (!(model.init_std >= 0 && std::isfinite(model.init_std))) refuse("init_std", model.init_std, "a finite number, 0 or more");
  rate("embedding_dropout", model.embedding_dropout);
  rate("attention_dropout", model.attention_dropout);
  rate("residual_dropout", model.residual_dropout);
}

}  // namespace sluice::spec

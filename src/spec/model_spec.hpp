#pragma once
// What a model is, as a value: enough to plan for it without building it.

#include <cstdint>
#include <string>

namespace sluice::spec {

struct ModelSpec {
  std::string name;             // "gpt2-124m": the preset's name or the directory's
  std::string family = "gpt2";  // which builder in model/
  std::int64_t vocab = 0;
  std::int64_t context = 0;  // positions the model has; the sequence length is at most this
  std::int64_t hidden = 0;   // C
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t ffn = 0;  // the MLP's inner width, 4 * hidden in GPT-2
  double norm_eps = 1e-5;
  double init_std = 0.02;
  double embedding_dropout = 0.0;
  double attention_dropout = 0.0;
  double residual_dropout = 0.0;
  bool tied_head = true;

  std::int64_t head_dim() const { return hidden / heads; }
  friend bool operator==(const ModelSpec&, const ModelSpec&) = default;
};

/// Throws RequestError naming the key, what was found and what is allowed (positive sizes, hidden % heads == 0, rates in [0, 1)).
void validate(const ModelSpec& model);
std::string to_json(const ModelSpec& model);
/// `source` names the file in errors. Throws FormatError on unknown, missing or mistyped keys.
ModelSpec model_spec_from_json(const std::string& text, const std::string& source);

}  // namespace sluice::spec

#pragma once
// What a model is, as a value: enough to plan for it without building it.

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::spec {

/// How rotary frequencies are stretched for positions beyond those the model was first trained on.
enum class RopeScaling : std::uint8_t {
  kNone,
  kLinear,  // all divided by `factor`
  kLlama3   // long wavelengths divided by `factor`, short ones kept, those between blended
};

/// Rotary positions (Su et al. 2021, "RoFormer"): theta 0 = the model has none. Formulas: model/rotary.hpp.
struct RopeSpec {
  double theta = 0;  // base of the wavelengths
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;
  double low_frequency_factor = 1;    // llama3: wavelengths above original_context / this are long
  double high_frequency_factor = 4;   // llama3: wavelengths below original_context / this are short
  std::int64_t original_context = 0;  // llama3

  friend bool operator==(const RopeSpec&, const RopeSpec&) = default;
};

struct ModelSpec {
  std::string name;             // "gpt2-124m": the preset's name or the directory's
  std::string family = "gpt2";  // which builder in model/: transformers' model_type
  std::int64_t vocab = 0;
  std::int64_t context = 0;  // positions the model has
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
  // From here on the JSON form leaves out what has its default.
  std::int64_t kv_heads = 0;  // heads of keys and values; 0: as many as heads
  std::int64_t head_dim = 0;  // width of a head; 0: hidden / heads
  RopeSpec rope;
  std::int64_t sliding_window = 0;  // positions that a token sees, its own included; 0: all before it
  // Token ids, -1 where the model has none. Names in config.json: bos_token_id, eos_token_id (one or a list), pad_token_id.
  std::int64_t bos_token = -1;
  std::vector<std::int64_t> eos_tokens;
  std::int64_t pad_token = -1;

  std::int64_t key_value_heads() const { return kv_heads == 0 ? heads : kv_heads; }
  std::int64_t head_width() const { return head_dim == 0 ? hidden / heads : head_dim; }
  friend bool operator==(const ModelSpec&, const ModelSpec&) = default;
};

/// Throws RequestError naming the key, what was found and what is allowed (positive sizes, hidden % heads == 0 unless head_dim
/// is given, heads % kv_heads == 0, an even head_dim under rotary positions, rates in [0, 1), a whole rope scaling).
void validate(const ModelSpec& model);
std::string to_json(const ModelSpec& model);
/// `source` names the file in errors. Throws FormatError on unknown, missing or mistyped keys.
ModelSpec model_spec_from_json(const std::string& text, const std::string& source);

}  // namespace sluice::spec

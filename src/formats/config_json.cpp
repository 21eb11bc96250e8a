#include "formats/config_json.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "formats/input_file.hpp"
#include "spec/json_text.hpp"

namespace sluice::formats {
namespace {

using nlohmann::json;

/// Keys that a GPT-2 config.json may hold and that change nothing in training a language model: token ids, generation
/// defaults, heads of other tasks, what was used to save the file. From PretrainedConfig and GPT2Config of transformers 4 and 5.
const std::vector<std::string> kIgnored{"architectures",
                                        "auto_map",
                                        "bad_words_ids",
                                        "begin_suppress_tokens",
                                        "bos_token_id",
                                        "cross_attention_hidden_size",
                                        "decoder_start_token_id",
                                        "diversity_penalty",
                                        "do_sample",
                                        "dtype",
                                        "early_stopping",
                                        "encoder_no_repeat_ngram_size",
                                        "eos_token_id",
                                        "exponential_decay_length_penalty",
                                        "finetuning_task",
                                        "forced_bos_token_id",
                                        "forced_eos_token_id",
                                        "gradient_checkpointing",
                                        "id2label",
                                        "is_decoder",
                                        "keys_to_ignore_at_inference",
                                        "label2id",
                                        "length_penalty",
                                        "max_length",
                                        "min_length",
                                        "n_ctx",
                                        "n_special",
                                        "no_repeat_ngram_size",
                                        "num_beam_groups",
                                        "num_beams",
                                        "num_labels",
                                        "num_return_sequences",
                                        "output_attentions",
                                        "output_hidden_states",
                                        "output_past",
                                        "output_scores",
                                        "pad_token_id",
                                        "predict_special_tokens",
                                        "prefix",
                                        "problem_type",
                                        "remove_invalid_values",
                                        "repetition_penalty",
                                        "return_dict",
                                        "return_dict_in_generate",
                                        "sep_token_id",
                                        "summary_activation",
                                        "summary_first_dropout",
                                        "summary_proj_to_labels",
                                        "summary_type",
                                        "summary_use_proj",
                                        "suppress_tokens",
                                        "task_specific_params",
                                        "temperature",
                                        "tf_legacy_loss",
                                        "tokenizer_class",
                                        "top_k",
                                        "top_p",
                                        "torch_dtype",
                                        "torchscript",
                                        "transformers_version",
                                        "typical_p",
                                        "use_bfloat16",
                                        "use_cache"};

std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

class ConfigReader {
 public:
  ConfigReader(const json& config, const std::string& source) : config_(config), source_(source) {}

  std::int64_t size(const char* key) {
    const json* value = find(key);
    if (value == nullptr) throw FormatError(source_, cat("key \"", key, "\" is missing"));
    return whole(key, *value);
  }

  /// A size that null or absence leaves to `otherwise`.
  std::int64_t size_or(const char* key, std::int64_t otherwise) {
    const json* value = find(key);
    return value == nullptr || value->is_null() ? otherwise : whole(key, *value);
  }

  double number_or(const char* key, double otherwise) {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_number()) mistyped(key, *value, "a number");
    return value->get<double>();
  }

  bool flag_or(const char* key, bool otherwise) {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) mistyped(key, *value, "true or false");
    return value->get<bool>();
  }

  /// Absent or one of `allowed`.
  void require(const char* key, const std::vector<json>& allowed) {
    const json* value = find(key);
    if (value == nullptr || std::find(allowed.begin(), allowed.end(), *value) != allowed.end()) return;
    std::string expected;
    for (const json& each : allowed) expected += (expected.empty() ? "" : " or ") + shown(each);
    throw RequestError(cat(source_, ": key \"", key, "\": found ", shown(*value),
                           ", which changes the model in a way that is not supported; expected ", expected));
  }

  void finish() const {
    for (const auto& [key, value] : config_.items()) {
      if (key.starts_with('_') || contains(known_, key) || contains(kIgnored, key)) continue;
      std::vector<std::string> all = known_;
      all.insert(all.end(), kIgnored.begin(), kIgnored.end());
      const std::string near = spec::nearest_word(key, all);
      throw RequestError(cat(source_, ": key \"", key, "\" (", shown(value), ") is unknown and may change the model; ",
                             near.empty() ? std::string() : cat("the nearest known key is \"", near, "\"; "),
                             "remove it if the model does not depend on it"));
    }
  }

 private:
  static bool contains(const std::vector<std::string>& words, const std::string& word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  }

  const json* find(const char* key) {
    known_.emplace_back(key);
    const auto at = config_.find(key);
    return at == config_.end() ? nullptr : &*at;
  }

  std::int64_t whole(const char* key, const json& value) const {
    if (!value.is_number_unsigned() || !std::in_range<std::int64_t>(value.get<std::uint64_t>()))
      mistyped(key, value, "a whole number, 1 or more");
    return value.get<std::int64_t>();
  }

  [[noreturn]] void mistyped(const char* key, const json& value, const char* expected) const {
    throw FormatError(source_, cat("key \"", key, "\": found ", shown(value), ", expected ", expected));
  }

  const json& config_;
  const std::string& source_;
  std::vector<std::string> known_;
};

}  // namespace

spec::ModelSpec model_spec_from_config(const std::string& text, const std::string& source, const std::string& name) {
  const std::string problem = spec::json_problem(text);
  if (!problem.empty()) throw FormatError(source, problem);
  const json config = json::parse(text);
  if (!config.is_object()) throw FormatError(source, cat("found ", shown(config), ", expected an object {...}"));
  if (!config.contains("model_type")) throw FormatError(source, "key \"model_type\" is missing");

  ConfigReader read(config, source);
  read.require("model_type", {"gpt2"});
  spec::ModelSpec model;
  model.name = name;
  model.family = "gpt2";
  model.vocab = read.size("vocab_size");
  model.context = read.size("n_positions");
  model.hidden = read.size("n_embd");
  model.layers = read.size("n_layer");
  model.heads = read.size("n_head");
  model.ffn = read.size_or("n_inner", 4 * model.hidden);
  model.norm_eps = read.number_or("layer_norm_epsilon", 1e-5);
  model.init_std = read.number_or("initializer_range", 0.02);
  model.embedding_dropout = read.number_or("embd_pdrop", 0.1);
  model.attention_dropout = read.number_or("attn_pdrop", 0.1);
  model.residual_dropout = read.number_or("resid_pdrop", 0.1);
  model.tied_head = read.flag_or("tie_word_embeddings", true);
  // Both are 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
  read.require("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  read.require("scale_attn_weights", {true});
  read.require("scale_attn_by_inverse_layer_idx", {false});
  read.require("reorder_and_upcast_attn", {false});
  read.require("add_cross_attention", {false});
  read.require("is_encoder_decoder", {false});
  read.require("tie_encoder_decoder", {false});
  read.require("chunk_size_feed_forward", {0});
  read.require("pruned_heads", {json::object(), nullptr});
  read.require("quantization_config", {nullptr});
  read.finish();
  spec::validate(model);
  return model;
}

spec::ModelSpec load_config(const std::string& directory) {
  const std::filesystem::path path = std::filesystem::path(directory) / "config.json";
  // An absolute path without its trailing slash, so that "." and "models/" have names too.
  std::filesystem::path whole = std::filesystem::absolute(directory).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  return model_spec_from_config(read_whole_file(path.string(), 16 * kMiB), path.string(), whole.filename().string());
}

std::string config_from_model_spec(const spec::ModelSpec& model) {
  if (model.family != "gpt2") throw RequestError(cat("model family \"", model.family, "\" has no config.json yet; known: gpt2"));
  nlohmann::ordered_json config;
  config["architectures"] = {"GPT2LMHeadModel"};
  config["model_type"] = "gpt2";
  config["vocab_size"] = model.vocab;
  config["n_positions"] = model.context;
  config["n_ctx"] = model.context;  // read by transformers before 4.0
  config["n_embd"] = model.hidden;
  config["n_layer"] = model.layers;
  config["n_head"] = model.heads;
  config["n_inner"] = model.ffn;
  config["activation_function"] = "gelu_new";
  config["layer_norm_epsilon"] = model.norm_eps;
  config["initializer_range"] = model.init_std;
  config["embd_pdrop"] = model.embedding_dropout;
  config["attn_pdrop"] = model.attention_dropout;
  config["resid_pdrop"] = model.residual_dropout;
  config["scale_attn_weights"] = true;
  config["scale_attn_by_inverse_layer_idx"] = false;
  config["reorder_and_upcast_attn"] = false;
  config["tie_word_embeddings"] = model.tied_head;
  // The last token of the vocabulary ends a document, in GPT-2's tokenizer as in the byte tokenizer.
  config["bos_token_id"] = model.vocab - 1;
  config["eos_token_id"] = model.vocab - 1;
  config["torch_dtype"] = "float32";
  return config.dump(2) + "\n";
}

}  // namespace sluice::formats

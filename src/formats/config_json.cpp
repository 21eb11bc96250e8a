#include "formats/config_json.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/error.hpp"
#include "base/input_file.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "model/family.hpp"
#include "spec/json_text.hpp"

namespace sluice::formats {
namespace {

using nlohmann::json;

/// Keys that any config.json may hold and that change nothing in training a language model: generation defaults, heads of other
/// tasks, what was used to save the file. From PretrainedConfig and the families' configurations of transformers 4 and 5, and from
/// what published models add to them.
const std::vector<std::string> kIgnored{"architectures",
                                        "attn_implementation",
                                        "auto_map",
                                        "bad_words_ids",
                                        "begin_suppress_tokens",
                                        "cross_attention_hidden_size",
                                        "decoder_start_token_id",
                                        "diversity_penalty",
                                        "do_sample",
                                        "dtype",
                                        "early_stopping",
                                        "encoder_no_repeat_ngram_size",
                                        "exponential_decay_length_penalty",
                                        "finetuning_task",
                                        "forced_bos_token_id",
                                        "forced_eos_token_id",
                                        "gradient_checkpointing",
                                        "id2label",
                                        "is_decoder",
                                        "is_llama_config",
                                        "keys_to_ignore_at_inference",
                                        "label2id",
                                        "length_penalty",
                                        "max_length",
                                        "max_sequence_length",
                                        "min_length",
                                        "no_repeat_ngram_size",
                                        "num_beam_groups",
                                        "num_beams",
                                        "num_labels",
                                        "num_return_sequences",
                                        "output_attentions",
                                        "output_hidden_states",
                                        "output_past",
                                        "output_scores",
                                        "prefix",
                                        "problem_type",
                                        "remove_invalid_values",
                                        "repetition_penalty",
                                        "return_dict",
                                        "return_dict_in_generate",
                                        "sep_token_id",
                                        "suppress_tokens",
                                        "task_specific_params",
                                        "temperature",
                                        "tf_legacy_loss",
                                        "tokenizer_class",
                                        "top_k",
                                        "top_p",
                                        "torch_dtype",
                                        "torchscript",
                                        "transformers.js_config",
                                        "transformers_version",
                                        "typical_p",
                                        "unk_token_id",
                                        "unsloth_fixed",
                                        "unsloth_version",
                                        "use_bfloat16",
                                        "use_cache"};

std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

/// Reads an object key by key, and refuses in the end what nobody read.
class ConfigReader {
 public:
  /// `inside`: "" or the key that holds the object and a dot, for messages.
  ConfigReader(const json& config, const std::string& source, std::string inside = "")
      : config_(config), source_(source), inside_(std::move(inside)) {}

  std::int64_t size(const char* key) {
    const json* value = find(key);
    if (value == nullptr) throw FormatError(source_, cat("key \"", inside_, key, "\" is missing"));
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

  double number(const char* key) {
    if (!config_.contains(key)) throw FormatError(source_, cat("key \"", inside_, key, "\" is missing"));
    return number_or(key, 0);
  }

  bool flag_or(const char* key, bool otherwise) {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) mistyped(key, *value, "true or false");
    return value->get<bool>();
  }

  std::string text_or(const char* key, const std::string& otherwise) {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) mistyped(key, *value, "a text");
    return value->get<std::string>();
  }

  bool is_null(const char* key) const {
    const auto at = config_.find(key);
    return at != config_.end() && at->is_null();
  }

  /// A token id, none for null. Absent: transformers' default (-1: none), unless the vocabulary doesn't have it.
  std::optional<std::int64_t> token_or(const char* key, std::int64_t otherwise, std::int64_t vocab) {
    const json* value = find(key);
    if (value == nullptr) return otherwise >= 0 && otherwise < vocab ? std::optional(otherwise) : std::nullopt;
    if (value->is_null()) return std::nullopt;
    return token(key, *value);
  }

  /// One token id or a list of them.
  std::vector<std::int64_t> tokens_or(const char* key, std::int64_t otherwise, std::int64_t vocab) {
    const json* value = find(key);
    std::vector<std::int64_t> ids;
    if (value != nullptr && value->is_array()) {
      for (const json& each : *value) ids.push_back(token(key, each));
      return ids;
    }
    if (const auto id = token_or(key, otherwise, vocab)) ids.push_back(*id);
    return ids;
  }

  /// The object under a key; null where it is absent or null.
  const json* object(const char* key) {
    const json* value = find(key);
    if (value == nullptr || value->is_null()) return nullptr;
    if (!value->is_object()) mistyped(key, *value, "an object {...} or null");
    return value;
  }

  /// Marks keys as read whose values change nothing.
  void pass_over(const std::vector<const char*>& keys) { known_.insert(known_.end(), keys.begin(), keys.end()); }

  /// Absent or one of `allowed`.
  void require(const char* key, const std::vector<json>& allowed) {
    const json* value = find(key);
    if (value == nullptr || std::find(allowed.begin(), allowed.end(), *value) != allowed.end()) return;
    std::string expected;
    for (const json& each : allowed) expected += (expected.empty() ? "" : " or ") + shown(each);
    throw RequestError(cat(source_, ": key \"", inside_, key, "\": found ", shown(*value),
                           ", which changes the model in a way that is not supported; expected ", expected));
  }

  void finish() const {
    for (const auto& [key, value] : config_.items()) {
      if (contains(known_, key) || (inside_.empty() && (key.starts_with('_') || contains(kIgnored, key)))) continue;
      std::vector<std::string> all = known_;
      if (inside_.empty()) all.insert(all.end(), kIgnored.begin(), kIgnored.end());
      const std::string near = spec::nearest_word(key, all);
      throw RequestError(cat(source_, ": key \"", inside_, key, "\" (", shown(value), ") is unknown and may change the model; ",
                             near.empty() ? std::string() : cat("the nearest known key is \"", inside_, near, "\"; "),
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

  std::int64_t token(const char* key, const json& value) const {
    if (!value.is_number_integer() || (value.is_number_unsigned() && !std::in_range<std::int64_t>(value.get<std::uint64_t>())))
      mistyped(key, value, "a token id or null");
    return value.get<std::int64_t>();
  }

  [[noreturn]] void mistyped(const char* key, const json& value, const char* expected) const {
    throw FormatError(source_, cat("key \"", inside_, key, "\": found ", shown(value), ", expected ", expected));
  }

  const json& config_;
  const std::string& source_;
  std::string inside_;
  std::vector<std::string> known_;
};

/// Keys of every family whose other values aren't supported.
void require_common(ConfigReader& read) {
  read.require("add_cross_attention", {false});
  read.require("is_encoder_decoder", {false});
  read.require("tie_encoder_decoder", {false});
  read.require("chunk_size_feed_forward", {0});
  read.require("pruned_heads", {json::object(), nullptr});
  read.require("quantization_config", {nullptr});
  read.require("per_layer_config", {json::object(), nullptr});
}

/// Negative ids, which published files have, are no tokens; but nn.Embedding counts a negative padding_idx from the table's end.
void read_tokens(ConfigReader& read, spec::ModelSpec& model, std::int64_t bos, std::int64_t eos, std::int64_t pad) {
  model.bos_token = std::max<std::int64_t>(-1, read.token_or("bos_token_id", bos, model.vocab).value_or(-1));
  model.eos_tokens = read.tokens_or("eos_token_id", eos, model.vocab);
  std::erase_if(model.eos_tokens, [](std::int64_t id) { return id < 0; });
  const std::optional<std::int64_t> padding = read.token_or("pad_token_id", pad, model.vocab);
  const bool has_row = model::family_of(model).has_padding_row;
  if (!padding) {
    model.pad_token = -1;
  } else if (*padding < 0) {
    model.pad_token = has_row && *padding >= -model.vocab ? *padding + model.vocab : -1;
  } else {
    model.pad_token = has_row || *padding < model.vocab ? *padding : -1;  // validate() refuses a row beyond the table
  }
}

void read_gpt2(ConfigReader& read, spec::ModelSpec& model) {
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
  read_tokens(read, model, 50256, 50256, -1);
  // Both are 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
  read.require("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  read.require("scale_attn_weights", {true});
  read.require("scale_attn_by_inverse_layer_idx", {false});
  read.require("reorder_and_upcast_attn", {false});
  read.pass_over({"n_ctx", "n_special", "predict_special_tokens", "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
                  "summary_type", "summary_use_proj"});
}

void read_opt(ConfigReader& read, spec::ModelSpec& model) {
  model.vocab = read.size("vocab_size");
  model.context = read.size("max_position_embeddings");
  model.hidden = read.size("hidden_size");
  model.layers = read.size("num_hidden_layers");
  model.heads = read.size("num_attention_heads");
  model.ffn = read.size("ffn_dim");
  model.norm_eps = 1e-5;  // torch.nn.LayerNorm's own, which OPT doesn't change
  model.init_std = read.number_or("init_std", 0.02);
  model.attention_dropout = read.number_or("attention_dropout", 0.0);
  model.residual_dropout = read.number_or("dropout", 0.1);
  model.tied_head = read.flag_or("tie_word_embeddings", true);
  read_tokens(read, model, 2, 2, 1);
  read.require("activation_function", {"relu"});
  read.require("do_layer_norm_before", {true});
  read.require("_remove_final_layer_norm", {false});
  read.require("word_embed_proj_dim", {model.hidden, nullptr});
  read.require("enable_bias", {true});
  read.require("layer_norm_elementwise_affine", {true});
  read.require("layerdrop", {0});
  read.require("activation_dropout", {0});
}

/// `scaling`: of "rope_scaling" (transformers 4) or "rope_parameters" (5), which may hold the base too.
spec::RopeSpec read_rope(const json& scaling, const std::string& source, const std::string& key, double theta, std::int64_t context) {
  ConfigReader read(scaling, source, key + ".");
  spec::RopeSpec rope;
  rope.theta = read.number_or("rope_theta", theta);
  read.require("partial_rotary_factor", {1});
  const std::string older = read.text_or("type", "default"), kind = read.text_or("rope_type", older);
  if (kind == "default") {
    read.pass_over({"factor", "original_max_position_embeddings"});  // of no meaning then
  } else if (kind == "linear") {
    rope.scaling = spec::RopeScaling::kLinear;
    rope.factor = read.number("factor");
    read.pass_over({"original_max_position_embeddings"});
  } else if (kind == "llama3") {
    rope.scaling = spec::RopeScaling::kLlama3;
    rope.factor = read.number("factor");
    rope.low_frequency_factor = read.number("low_freq_factor");
    rope.high_frequency_factor = read.number("high_freq_factor");
    rope.original_context = read.size_or("original_max_position_embeddings", context);
  } else {
    throw RequestError(cat(source, ": key \"", key, ".", scaling.contains("rope_type") ? "rope_type" : "type", "\": found \"", kind,
                           "\", which changes the model in a way that is not supported; expected default, linear or llama3"));
  }
  read.finish();
  return rope;
}

/// LLaMA, Mistral, Qwen2, Qwen3.
void read_llama(ConfigReader& read, spec::ModelSpec& model, const std::string& source) {
  const bool is_llama = model.family == "llama", is_mistral = model.family == "mistral", is_qwen = !is_llama && !is_mistral;
  model.vocab = read.size("vocab_size");
  model.context = read.size("max_position_embeddings");
  model.hidden = read.size("hidden_size");
  model.layers = read.size("num_hidden_layers");
  model.heads = read.size("num_attention_heads");
  model.ffn = read.size("intermediate_size");
  // LLaMA's default is as many as heads; the others' is a number that fits one size of model, so it must be written.
  const std::int64_t kv_heads = is_llama ? read.size_or("num_key_value_heads", model.heads) : read.size("num_key_value_heads");
  model.kv_heads = kv_heads == model.heads ? 0 : kv_heads;
  const std::int64_t head_dim = read.size_or("head_dim", model.family == "qwen3" ? 128 : 0);
  model.head_dim = head_dim * model.heads == model.hidden ? 0 : head_dim;
  model.norm_eps = read.number_or("rms_norm_eps", 1e-6);
  model.init_std = read.number_or("initializer_range", 0.02);
  model.attention_dropout = read.number_or("attention_dropout", 0.0);
  model.tied_head = read.flag_or("tie_word_embeddings", false);
  read_tokens(read, model, is_qwen ? -1 : 1, is_qwen ? -1 : 2, -1);

  model.rope.theta = read.number_or("rope_theta", 10000.0);
  const json *const older = read.object("rope_scaling"), *const newer = read.object("rope_parameters");
  if (older != nullptr && newer != nullptr) {
    throw RequestError(cat(source, ": found both \"rope_scaling\" and \"rope_parameters\"; keep \"rope_parameters\""));
  }
  if (older != nullptr) model.rope = read_rope(*older, source, "rope_scaling", model.rope.theta, model.context);
  if (newer != nullptr) model.rope = read_rope(*newer, source, "rope_parameters", model.rope.theta, model.context);

  read.require("hidden_act", {"silu", "swish"});
  read.require("partial_rotary_factor", {1});
  read.require("attention_bias", {false});
  read.require("mlp_bias", {false});
  read.require("pretraining_tp", {1});
  read.require("rope_interleaved", {false});
  if (is_mistral) model.sliding_window = read.size_or("sliding_window", read.is_null("sliding_window") ? 0 : 4096);
  if (is_qwen) {
    read.require("use_sliding_window", {false});
    read.require("use_mrope", {false});
    read.require("layer_types", {std::vector<std::string>(static_cast<std::size_t>(model.layers), "full_attention"), nullptr});
    read.pass_over({"sliding_window", "max_window_layers"});  // of no meaning then
  }
}

const char* architecture_of(const std::string& family) {
  constexpr std::array<std::pair<const char*, const char*>, 6> kNames{{{"gpt2", "GPT2LMHeadModel"},
                                                                       {"opt", "OPTForCausalLM"},
                                                                       {"llama", "LlamaForCausalLM"},
                                                                       {"mistral", "MistralForCausalLM"},
                                                                       {"qwen2", "Qwen2ForCausalLM"},
                                                                       {"qwen3", "Qwen3ForCausalLM"}}};
  for (const auto& [name, architecture] : kNames) {
    if (family == name) return architecture;
  }
  throw RequestError(cat("model family \"", family, "\" has no config.json; known: ", model::family_names()));
}

nlohmann::ordered_json token_or_null(std::int64_t id) {
  if (id < 0) return nullptr;
  return id;
}

void write_gpt2(nlohmann::ordered_json& config, const spec::ModelSpec& model) {
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
}

void write_opt(nlohmann::ordered_json& config, const spec::ModelSpec& model) {
  config["max_position_embeddings"] = model.context;
  config["hidden_size"] = model.hidden;
  config["word_embed_proj_dim"] = model.hidden;
  config["num_hidden_layers"] = model.layers;
  config["num_attention_heads"] = model.heads;
  config["ffn_dim"] = model.ffn;
  config["activation_function"] = "relu";
  config["do_layer_norm_before"] = true;
  config["enable_bias"] = true;
  config["layer_norm_elementwise_affine"] = true;
  config["init_std"] = model.init_std;
  config["attention_dropout"] = model.attention_dropout;
  config["dropout"] = model.residual_dropout;
  config["layerdrop"] = 0.0;
}

/// Rotary positions in the keys of transformers 4, which 5 reads too (4 would pass over "rope_parameters").
void write_rope(nlohmann::ordered_json& config, const spec::RopeSpec& rope) {
  config["rope_theta"] = rope.theta;
  config["rope_scaling"] = nullptr;
  if (rope.scaling == spec::RopeScaling::kLinear) config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", rope.factor}};
  if (rope.scaling == spec::RopeScaling::kLlama3) {
    config["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", rope.factor},
                              {"low_freq_factor", rope.low_frequency_factor},
                              {"high_freq_factor", rope.high_frequency_factor},
                              {"original_max_position_embeddings", rope.original_context}};
  }
}

void write_llama(nlohmann::ordered_json& config, const spec::ModelSpec& model) {
  config["max_position_embeddings"] = model.context;
  config["hidden_size"] = model.hidden;
  config["num_hidden_layers"] = model.layers;
  config["num_attention_heads"] = model.heads;
  config["num_key_value_heads"] = model.key_value_heads();
  config["head_dim"] = model.head_width();
  config["intermediate_size"] = model.ffn;
  config["hidden_act"] = "silu";
  config["rms_norm_eps"] = model.norm_eps;
  config["initializer_range"] = model.init_std;
  config["attention_dropout"] = model.attention_dropout;
  write_rope(config, model.rope);
  if (model.family == "mistral") {
    config["sliding_window"] = model.sliding_window == 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(model.sliding_window);
  } else {
    if (model.family != "qwen2") config["attention_bias"] = false;
    if (model.family == "llama") config["mlp_bias"] = false;
    if (model.family != "llama") config["use_sliding_window"] = false;
  }
}

}  // namespace

spec::ModelSpec model_spec_from_config(const std::string& text, const std::string& source, const std::string& name) {
  const std::string problem = spec::json_problem(text);
  if (!problem.empty()) throw FormatError(source, problem);
  const json config = json::parse(text);
  if (!config.is_object()) throw FormatError(source, cat("found ", shown(config), ", expected an object {...}"));
  if (!config.contains("model_type")) throw FormatError(source, "key \"model_type\" is missing");

  ConfigReader read(config, source);
  spec::ModelSpec model;
  model.name = name;
  model.family = read.text_or("model_type", "");
  if (model::find_family(model.family) == nullptr) {
    throw RequestError(
        cat(source, ": key \"model_type\": found ", shown(config["model_type"]), ", expected one of ", model::family_names()));
  }
  require_common(read);
  if (model.family == "gpt2") {
    read_gpt2(read, model);
  } else if (model.family == "opt") {
    read_opt(read, model);
  } else {
    read_llama(read, model, source);
  }
  read.finish();
  spec::validate(model);
  return model;
}

spec::ModelSpec load_config(const std::string& directory) {
  const std::filesystem::path path = std::filesystem::path(directory) / "config.json";
  // An absolute path without its trailing slash, so that "." and "models/" have names too.
  std::filesystem::path whole = std::filesystem::absolute(directory).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  return model_spec_from_config(read_text(path.string(), 16 * kMiB), path.string(), whole.filename().string());
}

std::string config_from_model_spec(const spec::ModelSpec& model, DType dtype) {
  nlohmann::ordered_json config;
  config["architectures"] = {architecture_of(model.family)};
  config["model_type"] = model.family;
  config["vocab_size"] = model.vocab;
  if (model.family == "gpt2") {
    write_gpt2(config, model);
  } else if (model.family == "opt") {
    write_opt(config, model);
  } else {
    write_llama(config, model);
  }
  config["tie_word_embeddings"] = model.tied_head;
  config["bos_token_id"] = token_or_null(model.bos_token);
  config["eos_token_id"] = model.eos_tokens.size() > 1 ? nlohmann::ordered_json(model.eos_tokens)
                                                       : token_or_null(model.eos_tokens.empty() ? -1 : model.eos_tokens.front());
  config["pad_token_id"] = token_or_null(model.pad_token);
  SLUICE_CHECK(dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16, "weights of dtype ", name_of(dtype));
  config["torch_dtype"] = dtype == DType::kF32 ? "float32" : dtype == DType::kBF16 ? "bfloat16" : "float16";
  return config.dump(2) + "\n";
}

}  // namespace sluice::formats

#include "formats/config_json.hpp"

#include "base/error.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace sluice::formats {
namespace {

using testing::expect_error;
using testing::replaced;
using testing::TempDir;

/// config.json of the published GPT-2 (transformers 4).
const char* const kGpt2 = R"({
  "activation_function": "gelu_new",
  "architectures": ["GPT2LMHeadModel"],
  "attn_pdrop": 0.1,
  "bos_token_id": 50256,
  "embd_pdrop": 0.2,
  "eos_token_id": 50256,
  "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05,
  "model_type": "gpt2",
  "n_ctx": 1024,
  "n_embd": 768,
  "n_head": 12,
  "n_layer": 6,
  "n_positions": 1024,
  "resid_pdrop": 0.3,
  "summary_activation": null,
  "summary_first_dropout": 0.1,
  "summary_proj_to_labels": true,
  "summary_type": "cls_index",
  "summary_use_proj": true,
  "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
  "vocab_size": 50257
})";

/// As transformers 5 saves one.
const char* const kNewer = R"({
  "activation_function": "gelu_pytorch_tanh", "add_cross_attention": false, "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
  "bos_token_id": 50256, "dtype": "float32", "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon": 1e-06,
  "model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_inner": 24, "n_layer": 2, "n_positions": 16, "pad_token_id": null,
  "reorder_and_upcast_attn": false, "resid_pdrop": 0.1, "scale_attn_by_inverse_layer_idx": false, "scale_attn_weights": true,
  "summary_activation": null, "summary_first_dropout": 0.1, "summary_proj_to_labels": true, "summary_type": "cls_index",
  "summary_use_proj": true, "tie_word_embeddings": false, "transformers_version": "5.24.0", "use_cache": true, "vocab_size": 99,
  "_name_or_path": "x", "_anything": {}
})";

TEST(ConfigJson, ReadsGpt2) {
  const spec::ModelSpec m = model_spec_from_config(kGpt2, "config.json", "mine");
  EXPECT_EQ(m.name, "mine");
  EXPECT_EQ(m.family, "gpt2");
  EXPECT_EQ(m.vocab, 50257);
  EXPECT_EQ(m.context, 1024);
  EXPECT_EQ(m.hidden, 768);
  EXPECT_EQ(m.layers, 6);
  EXPECT_EQ(m.heads, 12);
  EXPECT_EQ(m.ffn, 3072);
  EXPECT_EQ(m.norm_eps, 1e-5);
  EXPECT_EQ(m.init_std, 0.02);
  EXPECT_EQ(m.embedding_dropout, 0.2);
  EXPECT_EQ(m.attention_dropout, 0.1);
  EXPECT_EQ(m.residual_dropout, 0.3);
  EXPECT_TRUE(m.tied_head);
}

TEST(ConfigJson, ReadsNewerFiles) {
  const spec::ModelSpec m = model_spec_from_config(kNewer, "config.json", "mine");
  EXPECT_EQ(m.ffn, 24);
  EXPECT_EQ(m.norm_eps, 1e-6);
  EXPECT_FALSE(m.tied_head);
  EXPECT_EQ(model_spec_from_config(replaced(kNewer, "\"n_inner\": 24", "\"n_inner\": null"), "c", "x").ffn, 32);
}

TEST(ConfigJson, TakesTransformersDefaults) {
  const spec::ModelSpec m = model_spec_from_config(
      R"({"model_type":"gpt2","vocab_size":9,"n_positions":8,"n_embd":4,"n_layer":1,"n_head":1})", "config.json", "x");
  EXPECT_EQ(m.ffn, 16);
  EXPECT_EQ(m.norm_eps, 1e-5);
  EXPECT_EQ(m.init_std, 0.02);
  EXPECT_EQ(m.embedding_dropout, 0.1);
  EXPECT_EQ(m.attention_dropout, 0.1);
  EXPECT_EQ(m.residual_dropout, 0.1);
  EXPECT_TRUE(m.tied_head);
}

TEST(ConfigJson, RefusesArithmeticThatIsNotOurs) {
  const auto refuse = [](const std::string& key, const std::string& value) {
    const std::string text = replaced(kGpt2, "\"n_ctx\": 1024", "\"" + key + "\": " + value);
    expect_error<RequestError>([&] { model_spec_from_config(text, "dir/config.json", "x"); },
                               {"dir/config.json", "\"" + key + "\"", "found " + value});
  };
  refuse("scale_attn_by_inverse_layer_idx", "true");
  refuse("scale_attn_weights", "false");
  refuse("reorder_and_upcast_attn", "true");
  refuse("add_cross_attention", "true");
  refuse("is_encoder_decoder", "true");
  refuse("tie_encoder_decoder", "true");
  refuse("chunk_size_feed_forward", "3");
  refuse("pruned_heads", R"({"1":[0]})");
  refuse("quantization_config", R"({"bits":4})");
  for (const char* activation : {"gelu", "relu", "silu", "gelu_fast", "quick_gelu"}) {
    expect_error<RequestError>([&] { model_spec_from_config(replaced(kGpt2, "gelu_new", activation), "c", "x"); },
                               {"\"activation_function\"", activation, "\"gelu_new\" or \"gelu_pytorch_tanh\""});
  }
  expect_error<RequestError>(
      [] { model_spec_from_config(replaced(kGpt2, "\"model_type\": \"gpt2\"", "\"model_type\": \"mixtral\""), "c", "x"); },
      {"\"model_type\"", "found \"mixtral\"", "expected one of gpt2, opt, llama, mistral, qwen2, qwen3"});
}

TEST(ConfigJson, AcceptsTheSupportedValueOfEachSuchKey) {
  for (const char* pair :
       {"\"chunk_size_feed_forward\": 0", "\"pruned_heads\": {}", "\"is_encoder_decoder\": false", "\"quantization_config\": null"}) {
    EXPECT_EQ(model_spec_from_config(replaced(kGpt2, "\"n_ctx\": 1024", pair), "c", "x").layers, 6) << pair;
  }
}

TEST(ConfigJson, RefusesUnknownMissingAndMistypedKeys) {
  expect_error<RequestError>([] { model_spec_from_config(replaced(kGpt2, "\"resid_pdrop\"", "\"residual_pdrop\""), "c.json", "x"); },
                             {"c.json", "\"residual_pdrop\" (0.3) is unknown", "\"resid_pdrop\""});
  expect_error<RequestError>([] { model_spec_from_config(replaced(kGpt2, "\"n_ctx\"", "\"rope_theta\""), "c.json", "x"); },
                             {"\"rope_theta\""});
  expect_error<FormatError>([] { model_spec_from_config(replaced(kGpt2, "\"n_layer\": 6,", ""), "c.json", "x"); },
                            {"c.json", "\"n_layer\" is missing"});
  expect_error<FormatError>([] { model_spec_from_config(replaced(kGpt2, "\"n_layer\": 6", "\"n_layer\": \"6\""), "c.json", "x"); },
                            {"\"n_layer\"", "found \"6\"", "a whole number"});
  expect_error<FormatError>([] { model_spec_from_config(replaced(kGpt2, "\"attn_pdrop\": 0.1", "\"attn_pdrop\": null"), "c.json", "x"); },
                            {"\"attn_pdrop\"", "found null", "a number"});
  expect_error<FormatError>([] { model_spec_from_config(replaced(kGpt2, "\"n_ctx\": 1024", "\"n_embd\": 768"), "c.json", "x"); },
                            {"\"n_embd\"", "twice"});
  expect_error<FormatError>([] { model_spec_from_config("[]", "c.json", "x"); }, {"c.json", "found []"});
  expect_error<FormatError>([] { model_spec_from_config("{}", "c.json", "x"); }, {"c.json", "\"model_type\" is missing"});
  expect_error<RequestError>([] { model_spec_from_config(replaced(kGpt2, "\"n_head\": 12", "\"n_head\": 7"), "c.json", "x"); },
                             {"heads: found 7"});
}

TEST(ConfigJson, LoadsADirectoryByItsName) {
  const TempDir dir;
  dir.write("gpt2-tiny/config.json", kNewer);
  EXPECT_EQ(load_config(dir / "gpt2-tiny").name, "gpt2-tiny");
  EXPECT_EQ(load_config(dir / "gpt2-tiny/").name, "gpt2-tiny");
  expect_error<IoError>([&] { load_config(dir.path()); }, {"config.json", "No such file"});
}

// ---- the other families, as their publishers wrote them

const char* const kOpt125m = R"({"_name_or_path": "facebook/opt-125m", "activation_dropout": 0.0, "activation_function": "relu",
  "architectures": ["OPTForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 2, "do_layer_norm_before": true, "dropout": 0.1,
  "eos_token_id": 2, "ffn_dim": 3072, "hidden_size": 768, "init_std": 0.02, "layerdrop": 0.0, "max_position_embeddings": 2048,
  "model_type": "opt", "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 1, "prefix": "</s>", "torch_dtype": "float16",
  "transformers_version": "4.21.0.dev0", "use_cache": true, "vocab_size": 50272, "word_embed_proj_dim": 768})";

const char* const kLlama2 = R"({"_name_or_path": "meta-llama/Llama-2-7b-hf", "architectures": ["LlamaForCausalLM"], "bos_token_id": 1,
  "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 11008,
  "max_position_embeddings": 4096, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
  "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "tie_word_embeddings": false, "torch_dtype": "float16",
  "transformers_version": "4.31.0.dev0", "use_cache": true, "vocab_size": 32000})";

const char* const kLlama31 = R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
  "intermediate_size": 14336, "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32,
  "num_hidden_layers": 32, "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
                   "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.42.3", "use_cache": true,
  "vocab_size": 128256})";

const char* const kSmolLm2 =
    R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 1,
  "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 576, "initializer_range": 0.041666666666666664, "intermediate_size": 1536,
  "is_llama_config": true, "max_position_embeddings": 8192, "mlp_bias": false, "model_type": "llama", "num_attention_heads": 9,
  "num_hidden_layers": 30, "num_key_value_heads": 3, "pad_token_id": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_interleaved": false, "rope_scaling": null, "rope_theta": 100000, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16", "fp16": "float16"}}, "transformers_version": "4.42.3",
  "use_cache": true, "vocab_size": 49152})";

const char* const kMistral = R"({"architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
  "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
  "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
  "sliding_window": 4096, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.34.0.dev0",
  "use_cache": true, "vocab_size": 32000})";

const char* const kQwen25 = R"({"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
  "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02, "intermediate_size": 4864,
  "max_position_embeddings": 32768, "max_window_layers": 24, "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true,
  "torch_dtype": "bfloat16", "transformers_version": "4.40.1", "use_cache": true, "use_mrope": false, "use_sliding_window": false,
  "vocab_size": 151936})";

const char* const kQwen3 = R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02,
  "intermediate_size": 3072, "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3", "num_attention_heads": 16,
  "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
  "sliding_window": null, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": true,
  "use_sliding_window": false, "vocab_size": 151936})";

spec::ModelSpec read(const std::string& text) {
  return model_spec_from_config(text, "dir/config.json", "mine");
}

TEST(ConfigJson, ReadsOpt) {
  EXPECT_EQ(read(kOpt125m), (spec::ModelSpec{.name = "mine",
                                             .family = "opt",
                                             .vocab = 50272,
                                             .context = 2048,
                                             .hidden = 768,
                                             .layers = 12,
                                             .heads = 12,
                                             .ffn = 3072,
                                             .norm_eps = 1e-5,
                                             .residual_dropout = 0.1,
                                             .bos_token = 2,
                                             .eos_tokens = {2},
                                             .pad_token = 1}));
}

TEST(ConfigJson, ReadsLlama) {
  const spec::ModelSpec llama2 = read(kLlama2);
  EXPECT_EQ(llama2, (spec::ModelSpec{.name = "mine",
                                     .family = "llama",
                                     .vocab = 32000,
                                     .context = 4096,
                                     .hidden = 4096,
                                     .layers = 32,
                                     .heads = 32,
                                     .ffn = 11008,
                                     .tied_head = false,
                                     .rope = {.theta = 10000},
                                     .bos_token = 1,
                                     .eos_tokens = {2}}));
  const spec::ModelSpec llama31 = read(kLlama31);
  EXPECT_EQ(llama31.key_value_heads(), 8);
  EXPECT_EQ(llama31.head_width(), 128);
  EXPECT_EQ(llama31.rope, (spec::RopeSpec{.theta = 500000,
                                          .scaling = spec::RopeScaling::kLlama3,
                                          .factor = 8,
                                          .low_frequency_factor = 1,
                                          .high_frequency_factor = 4,
                                          .original_context = 8192}));
  EXPECT_THAT(llama31.eos_tokens, ::testing::ElementsAre(128001, 128008, 128009));
  EXPECT_EQ(llama31.pad_token, -1);
  const spec::ModelSpec smol = read(kSmolLm2);
  EXPECT_EQ(smol.rope.theta, 100000);
  EXPECT_EQ(smol.pad_token, 2);
  EXPECT_EQ(smol.init_std, 0.041666666666666664);
  EXPECT_TRUE(smol.tied_head);
}

TEST(ConfigJson, ReadsMistralAndItsWindow) {
  const spec::ModelSpec mistral = read(kMistral);
  EXPECT_EQ(mistral.family, "mistral");
  EXPECT_EQ(mistral.sliding_window, 4096);
  EXPECT_EQ(mistral.context, 32768);
  EXPECT_EQ(read(replaced(kMistral, "\"sliding_window\": 4096", "\"sliding_window\": null")).sliding_window, 0);
  EXPECT_EQ(read(replaced(kMistral, "\"sliding_window\": 4096, ", "")).sliding_window, 4096);  // MistralConfig's default
}

TEST(ConfigJson, ReadsQwen) {
  const spec::ModelSpec qwen2 = read(kQwen25);
  EXPECT_EQ(qwen2.family, "qwen2");
  EXPECT_EQ(qwen2.key_value_heads(), 2);
  EXPECT_EQ(qwen2.head_dim, 0);
  EXPECT_EQ(qwen2.sliding_window, 0);
  EXPECT_EQ(qwen2.norm_eps, 1e-6);
  EXPECT_THAT(qwen2.eos_tokens, ::testing::ElementsAre(151643));
  const spec::ModelSpec qwen3 = read(kQwen3);
  EXPECT_EQ(qwen3.head_dim, 128);  // not 1024 / 16
  EXPECT_EQ(qwen3.head_width(), 128);
  EXPECT_EQ(read(replaced(kQwen3, "\"head_dim\": 128, ", "")).head_dim, 128);  // Qwen3Config's default
  EXPECT_EQ(read(replaced(kQwen3, "\"head_dim\": 128", "\"head_dim\": 64")).head_dim, 0);
}

TEST(ConfigJson, ReadsRopeInEitherSpelling) {
  std::string moved = kLlama31;
  moved = replaced(moved, "\"rope_scaling\": {", "\"rope_parameters\": {\"rope_theta\": 500000.0, ");
  moved = replaced(moved, "\"rope_theta\": 500000.0, \"tie_word", "\"tie_word");
  EXPECT_EQ(read(moved), read(kLlama31));
  const auto scaling = [](const std::string& value) { return replaced(kLlama2, "\"rope_scaling\": null", "\"rope_scaling\": " + value); };
  EXPECT_EQ(read(scaling(R"({"type": "linear", "factor": 2.5})")).rope,
            (spec::RopeSpec{.theta = 10000, .scaling = spec::RopeScaling::kLinear, .factor = 2.5}));
  EXPECT_EQ(read(scaling(R"({"rope_type": "default"})")).rope, spec::RopeSpec{.theta = 10000});
  // The positions the model was first trained on, where they aren't given.
  EXPECT_EQ(read(scaling(R"({"rope_type": "llama3", "factor": 2, "low_freq_factor": 1, "high_freq_factor": 4})")).rope.original_context,
            4096);
  const auto refuse = [&](const std::string& value, const std::vector<std::string>& pieces) {
    expect_error<RequestError>([&] { read(scaling(value)); }, pieces);
  };
  refuse(R"({"type": "dynamic", "factor": 2})", {"dir/config.json", "\"rope_scaling.type\"", "\"dynamic\"", "default, linear or llama3"});
  refuse(R"({"rope_type": "yarn", "factor": 2})", {"\"rope_scaling.rope_type\"", "\"yarn\""});
  refuse(R"({"rope_type": "longrope"})", {"\"longrope\""});
  refuse(R"({"rope_type": "linear", "factor": 2, "attention_factor": 1.2})", {"\"rope_scaling.attention_factor\" (1.2) is unknown"});
  refuse(R"({"rope_type": "default", "partial_rotary_factor": 0.5})", {"\"rope_scaling.partial_rotary_factor\"", "found 0.5"});
  refuse(R"({"rope_type": "linear", "factor": 0})", {"rope.factor: found 0"});
  expect_error<FormatError>([&] { read(scaling(R"({"type": "linear"})")); }, {"\"rope_scaling.factor\" is missing"});
  expect_error<FormatError>([&] { read(scaling("3")); }, {"\"rope_scaling\"", "found 3", "an object"});
  expect_error<RequestError>(
      [&] {
        read(replaced(scaling(R"({"rope_type": "default"})"), "\"use_cache\": true", R"("rope_parameters": {"rope_type": "default"})"));
      },
      {"found both \"rope_scaling\" and \"rope_parameters\""});
}

TEST(ConfigJson, ReadsTokenIds) {
  const auto with = [](const std::string& pair) { return read(replaced(kLlama2, "\"pretraining_tp\": 1", pair)); };
  EXPECT_EQ(with("\"pad_token_id\": null").pad_token, -1);
  EXPECT_EQ(with("\"pad_token_id\": 0").pad_token, 0);
  EXPECT_EQ(with("\"pad_token_id\": -1").pad_token, 31999);  // as nn.Embedding takes it
  expect_error<RequestError>([&] { with("\"pad_token_id\": 32000"); }, {"pad_token: found 32000"});
  expect_error<FormatError>([&] { with("\"pad_token_id\": \"<pad>\""); }, {"\"pad_token_id\"", "\"<pad>\"", "a token id or null"});
  const std::string absent = replaced(replaced(kLlama2, "\"bos_token_id\": 1,", ""), "\"eos_token_id\": 2,", "");
  EXPECT_EQ(read(absent).bos_token, 1);  // LlamaConfig's defaults
  EXPECT_THAT(read(absent).eos_tokens, ::testing::ElementsAre(2));
  EXPECT_EQ(read(replaced(kLlama2, "\"bos_token_id\": 1,", "\"bos_token_id\": null,")).bos_token, -1);
  EXPECT_THAT(read(replaced(kLlama2, "\"eos_token_id\": 2,", "\"eos_token_id\": null,")).eos_tokens, ::testing::IsEmpty());
  EXPECT_EQ(read(kGpt2).bos_token, 50256);
  const spec::ModelSpec small =
      read(R"({"model_type":"gpt2","vocab_size":9,"n_positions":8,"n_embd":4,"n_layer":1,"n_head":1,"pad_token_id":50257})");
  EXPECT_EQ(small.bos_token, -1);  // GPT2Config's default is beyond the vocabulary
  EXPECT_EQ(small.pad_token, -1);  // and GPT-2's embedding has no row for padding
}

TEST(ConfigJson, RefusesWhatTheOtherFamiliesDoNotCompute) {
  const auto refuse = [](const std::string& text, const std::string& key, const std::string& value) {
    const std::string changed = text.substr(0, text.rfind('}')) + ", \"" + key + "\": " + value + "}";
    expect_error<RequestError>([&] { read(changed); }, {"dir/config.json", "\"" + key + "\"", value});
  };
  refuse(replaced(kOpt125m, "\"do_layer_norm_before\": true, ", ""), "do_layer_norm_before", "false");
  refuse(replaced(kOpt125m, ", \"word_embed_proj_dim\": 768", ""), "word_embed_proj_dim", "512");
  refuse(replaced(kOpt125m, "\"activation_function\": \"relu\",", ""), "activation_function", "\"gelu\"");
  refuse(replaced(kOpt125m, "\"layerdrop\": 0.0,", ""), "layerdrop", "0.1");
  refuse(kOpt125m, "_remove_final_layer_norm", "true");
  refuse(kOpt125m, "enable_bias", "false");
  refuse(kOpt125m, "layer_norm_elementwise_affine", "false");
  refuse(kOpt125m, "num_key_value_heads", "4");
  for (const char* text : {kLlama2, kMistral, kQwen25}) {
    refuse(text, "attention_bias", "true");
    refuse(text, "mlp_bias", "true");
    refuse(text, "partial_rotary_factor", "0.5");
    refuse(text, "quantization_config", R"({"bits":4})");
    refuse(text, "num_experts", "8");
    refuse(replaced(text, "\"hidden_act\": \"silu\",", ""), "hidden_act", "\"gelu\"");
  }
  refuse(replaced(kLlama2, "\"pretraining_tp\": 1,", ""), "pretraining_tp", "2");
  refuse(kLlama2, "sliding_window", "4096");
  refuse(kMistral, "layer_types", "[\"full_attention\"]");
  refuse(kQwen25, "layer_types", "[\"sliding_attention\"]");
  refuse(replaced(kQwen25, ", \"use_sliding_window\": false", ""), "use_sliding_window", "true");
  expect_error<RequestError>([] { read(replaced(kLlama31, "\"num_key_value_heads\": 8", "\"num_key_value_heads\": 5")); },
                             {"kv_heads: found 5"});
  expect_error<FormatError>([] { read(replaced(kQwen25, "\"num_key_value_heads\": 2,", "")); }, {"\"num_key_value_heads\" is missing"});
}

TEST(ConfigJson, WritesWhatItReads) {
  for (const char* text : {kGpt2, kNewer, kOpt125m, kLlama2, kLlama31, kSmolLm2, kMistral, kQwen25, kQwen3}) {
    spec::ModelSpec m = read(text);
    m.ffn = 1000;
    if (m.family != "opt") m.norm_eps = 0.1 + 0.2;
    m.tied_head = !m.tied_head;
    EXPECT_EQ(read(config_from_model_spec(m, DType::kF32)), m) << text;
  }
  spec::ModelSpec m = read(kMistral);
  m.sliding_window = 0;
  m.rope = {.theta = 1e6, .scaling = spec::RopeScaling::kLinear, .factor = 3};
  m.head_dim = 96;
  EXPECT_EQ(read(config_from_model_spec(m, DType::kF32)), m);
  EXPECT_THAT(config_from_model_spec(m, DType::kBF16), ::testing::HasSubstr("\"torch_dtype\": \"bfloat16\""));
  EXPECT_THAT(config_from_model_spec(m, DType::kF16), ::testing::HasSubstr("\"torch_dtype\": \"float16\""));
  m.family = "gpt9";
  expect_error<RequestError>([&] { config_from_model_spec(m, DType::kF32); }, {"\"gpt9\""});
}

}  // namespace
}  // namespace sluice::formats

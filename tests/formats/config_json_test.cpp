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
      [] { model_spec_from_config(replaced(kGpt2, "\"model_type\": \"gpt2\"", "\"model_type\": \"llama\""), "c", "x"); },
      {"\"model_type\"", "found \"llama\"", "\"gpt2\""});
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

TEST(ConfigJson, WritesWhatItReads) {
  spec::ModelSpec m = model_spec_from_config(kGpt2, "config.json", "mine");
  m.ffn = 1000;
  m.norm_eps = 0.1 + 0.2;
  m.tied_head = false;
  EXPECT_EQ(model_spec_from_config(config_from_model_spec(m), "config.json", "mine"), m);
  m.family = "llama";
  expect_error<RequestError>([&] { config_from_model_spec(m); }, {"\"llama\""});
}

}  // namespace
}  // namespace sluice::formats

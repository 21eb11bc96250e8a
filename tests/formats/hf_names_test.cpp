#include "formats/hf_names.hpp"

#include "base/error.hpp"
#include "formats/safetensors_bytes.hpp"
#include "formats/safetensors_writer.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace sluice::formats {
namespace {

using testing::expect_error;
using testing::TempDir;

spec::ModelSpec family(const char* name) {
  return {.family = name};
}

TEST(HfNames, StripAndAddThePrefix) {
  EXPECT_EQ(parameter_name(family("gpt2"), "transformer.h.0.attn.c_attn.weight"), "h.0.attn.c_attn.weight");
  EXPECT_EQ(parameter_name(family("gpt2"), "h.0.attn.c_attn.weight"), "h.0.attn.c_attn.weight");
  EXPECT_EQ(parameter_name(family("gpt2"), "lm_head.weight"), "lm_head.weight");
  EXPECT_EQ(tensor_name(family("gpt2"), "wte.weight"), "transformer.wte.weight");
  EXPECT_EQ(tensor_name(family("gpt2"), "lm_head.weight"), "lm_head.weight");
  for (const char* name : {"llama", "mistral", "qwen2", "qwen3"}) {
    EXPECT_EQ(parameter_name(family(name), "model.layers.0.mlp.up_proj.weight"), "layers.0.mlp.up_proj.weight");
    EXPECT_EQ(parameter_name(family(name), "norm.weight"), "norm.weight");
    EXPECT_EQ(tensor_name(family(name), "norm.weight"), "model.norm.weight");
    EXPECT_EQ(tensor_name(family(name), "lm_head.weight"), "lm_head.weight");
  }
  for (const char* tensor : {"model.decoder.layers.1.fc1.bias", "decoder.layers.1.fc1.bias", "layers.1.fc1.bias"}) {
    EXPECT_EQ(parameter_name(family("opt"), tensor), "layers.1.fc1.bias");
  }
  EXPECT_EQ(tensor_name(family("opt"), "final_layer_norm.bias"), "model.decoder.final_layer_norm.bias");
  EXPECT_EQ(parameter_name(family("opt"), "model.fc1.bias"), "model.fc1.bias");
}

TEST(HfNames, KnowTheSavedConstants) {
  for (const char* name :
       {"h.0.attn.bias", "h.11.attn.bias", "h.95.attn.masked_bias", "layers.31.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq"}) {
    EXPECT_TRUE(is_saved_constant(name)) << name;
  }
  for (const char* name :
       {"h.0.attn.c_attn.bias", "h.attn.bias", "h..attn.bias", "h.0.attn.bias.x", "x.0.attn.bias", "h.0", "h.", "attn.bias",
        "layers.0.self_attn.q_proj.bias", "layers..self_attn.rotary_emb.inv_freq", "h.0.self_attn.rotary_emb.inv_freq"}) {
    EXPECT_FALSE(is_saved_constant(name)) << name;
  }
}

/// Some parameters of a GPT-2.
model::Model gpt2(bool is_tied) {
  model::Model model;
  std::vector<model::ParamSpec>& all = model.params;
  all.resize(3);
  all[0].name = "wte.weight";
  all[0].shape = {5, 2};
  all[1].name = "h.0.ln_1.weight";
  all[1].shape = {2};
  all[2].name = "ln_f.bias";
  all[2].shape = {2};
  if (!is_tied) {
    all.emplace_back();
    all[3].name = "lm_head.weight";
    all[3].shape = {5, 2};
  }
  return model;
}

Safetensors make(const TempDir& dir, const std::vector<TensorPlace>& tensors) {
  SafetensorsWriter::create(dir / "m.safetensors", tensors).finish();
  return Safetensors::open(dir / "m.safetensors");
}

std::vector<std::string> matched(const Safetensors& files, bool is_tied) {
  std::vector<std::string> names;
  for (const TensorInfo* tensor : match_parameters(files, gpt2(is_tied))) names.push_back(tensor->name);
  return names;
}

using ::testing::ElementsAre;

TEST(MatchParameters, TakesBothSpellingsAndPassesOverConstants) {
  const TempDir dir;
  EXPECT_THAT(
      matched(make(dir, {{"transformer.ln_f.bias", {2}}, {"transformer.h.0.ln_1.weight", {2}}, {"transformer.wte.weight", {5, 2}}}), true),
      ElementsAre("transformer.wte.weight", "transformer.h.0.ln_1.weight", "transformer.ln_f.bias"));
  EXPECT_THAT(matched(make(dir, {{"ln_f.bias", {2}},
                                 {"h.0.ln_1.weight", {2}},
                                 {"wte.weight", {5, 2}},
                                 {"h.0.attn.bias", {1, 1, 4, 4}},
                                 {"h.0.attn.masked_bias", {}}}),
                      true),
              ElementsAre("wte.weight", "h.0.ln_1.weight", "ln_f.bias"));
}

TEST(MatchParameters, KnowsTheOtherFamilies) {
  const TempDir dir;
  model::Model model;
  model.spec.family = "qwen3";
  model.params.resize(2);
  model.params[0].name = "embed_tokens.weight";
  model.params[0].shape = {5, 2};
  model.params[1].name = "layers.0.self_attn.k_norm.weight";
  model.params[1].shape = {4};
  const Safetensors files = make(
      dir,
      {{"lm_head.weight", {5, 2}}, {"model.layers.0.self_attn.k_norm.weight", {4}}, {"model.layers.0.self_attn.rotary_emb.inv_freq", {2}}});
  const auto tensors = match_parameters(files, model);  // tied, and only the head was kept
  EXPECT_EQ(tensors[0]->name, "lm_head.weight");
  EXPECT_EQ(tensors[1]->name, "model.layers.0.self_attn.k_norm.weight");
  model.params[1].shape = {2, 2};
  expect_error<FormatError>([&] { match_parameters(files, model); }, {"k_norm", "found shape [4]", "expected [2, 2]"});
}

TEST(MatchParameters, TreatsTheHeadAsTheModelDoes) {
  const TempDir dir;
  const std::vector<TensorPlace> rest{{"ln_f.bias", {2}}, {"h.0.ln_1.weight", {2}}};
  std::vector<TensorPlace> both = rest;
  both.push_back({"wte.weight", {5, 2}});
  both.push_back({"lm_head.weight", {5, 2}});
  EXPECT_THAT(matched(make(dir, both), true), ElementsAre("wte.weight", "h.0.ln_1.weight", "ln_f.bias"));
  EXPECT_THAT(matched(make(dir, both), false), ElementsAre("wte.weight", "h.0.ln_1.weight", "ln_f.bias", "lm_head.weight"));
  std::vector<TensorPlace> head_only = rest;
  head_only.push_back({"lm_head.weight", {5, 2}});
  EXPECT_THAT(matched(make(dir, head_only), true), ElementsAre("lm_head.weight", "h.0.ln_1.weight", "ln_f.bias"));
  expect_error<FormatError>([&] { matched(make(dir, head_only), false); }, {"\"transformer.wte.weight\" is missing", "[5, 2]"});
  both[3].shape = {4, 2};
  expect_error<FormatError>([&] { matched(make(dir, both), true); },
                            {"\"lm_head.weight\"", "found shape [4, 2]", "expected [5, 2]", "tied"});
}

TEST(MatchParameters, RefusesByName) {
  const TempDir dir;
  expect_error<FormatError>(
      [&] {
        matched(make(dir, {{"wte.weight", {5, 2}}, {"ln_f.bias", {2}}}), true);
      },
      {"m.safetensors", "\"transformer.h.0.ln_1.weight\" is missing", "[2]"});
  expect_error<FormatError>(
      [&] {
        matched(make(dir, {{"wte.weight", {2, 5}}, {"h.0.ln_1.weight", {2}}, {"ln_f.bias", {2}}}), true);
      },
      {"\"wte.weight\"", "found shape [2, 5]", "expected [5, 2]"});
  expect_error<FormatError>(
      [&] {
        matched(make(dir, {{"wte.weight", {5, 2}}, {"h.0.ln_1.weight", {2}}, {"ln_f.bias", {2}}, {"ln_f.bais", {2}}}), true);
      },
      {"\"ln_f.bais\" belongs to no parameter", "\"ln_f.bias\""});
  expect_error<FormatError>(
      [&] {
        matched(make(dir, {{"wte.weight", {5, 2}}, {"transformer.wte.weight", {5, 2}}, {"h.0.ln_1.weight", {2}}, {"ln_f.bias", {2}}}),
                true);
      },
      {"found both", "\"wte.weight\"", "\"transformer.wte.weight\""});
}

}  // namespace
}  // namespace sluice::formats

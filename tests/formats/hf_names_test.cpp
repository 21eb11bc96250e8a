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

TEST(HfNames, StripAndAddThePrefix) {
  EXPECT_EQ(parameter_name("transformer.h.0.attn.c_attn.weight"), "h.0.attn.c_attn.weight");
  EXPECT_EQ(parameter_name("h.0.attn.c_attn.weight"), "h.0.attn.c_attn.weight");
  EXPECT_EQ(parameter_name("lm_head.weight"), "lm_head.weight");
  EXPECT_EQ(tensor_name("wte.weight"), "transformer.wte.weight");
  EXPECT_EQ(tensor_name("lm_head.weight"), "lm_head.weight");
}

TEST(HfNames, KnowTheSavedConstants) {
  for (const char* name : {"h.0.attn.bias", "h.11.attn.bias", "h.95.attn.masked_bias"}) EXPECT_TRUE(is_saved_constant(name)) << name;
  for (const char* name :
       {"h.0.attn.c_attn.bias", "h.attn.bias", "h..attn.bias", "h.0.attn.bias.x", "x.0.attn.bias", "h.0", "h.", "attn.bias"}) {
    EXPECT_FALSE(is_saved_constant(name)) << name;
  }
}

std::vector<model::ParamSpec> params(bool is_tied) {
  std::vector<model::ParamSpec> all(3);
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
  return all;
}

Safetensors make(const TempDir& dir, const std::vector<TensorPlace>& tensors) {
  SafetensorsWriter::create(dir / "m.safetensors", tensors).finish();
  return Safetensors::open(dir / "m.safetensors");
}

std::vector<std::string> matched(const Safetensors& files, bool is_tied) {
  std::vector<std::string> names;
  for (const TensorInfo* tensor : match_parameters(files, params(is_tied))) names.push_back(tensor->name);
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

#include "spec/preset.hpp"

#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace sluice::spec {
namespace {

using testing::expect_error;
using ::testing::IsEmpty;
using testing::replaced;
using testing::TempDir;

const std::string kShipped = SLUICE_SOURCE_DIR "/configs/models";

/// Parameters of GPT-2 with a tied head: tables, per layer 4 C^2 + 2 C F weights, biases 4 C + F + C, two norms; the last norm.
std::int64_t parameters(const ModelSpec& m) {
  const std::int64_t c = m.hidden;
  const std::int64_t layer = 4 * c * c + 4 * c + 2 * c * m.ffn + m.ffn + c + 4 * c;
  return (m.vocab + m.context) * c + m.layers * layer + 2 * c;
}

TEST(Preset, EveryShippedOneIsValid) {
  EXPECT_THAT(preset_names({kShipped}),
              ::testing::IsSupersetOf({"gpt2-micro", "gpt2-124m", "gpt2-355m", "gpt2-774m", "gpt2-1.5b", "gpt3-6.7b", "gpt3-13b",
                                       "gpt3-175b", "gpt-70b", "llama3-8b", "qwen2.5-0.5b", "smollm2-135m"}));
  for (const std::string& name : preset_names({kShipped})) EXPECT_EQ(load_preset(name, {kShipped}).name, name);
}

TEST(Preset, ShippedOnesHaveTheSizeOfTheirNames) {
  const auto count = [](const char* name) { return parameters(load_preset(name, {kShipped})); };
  // What transformers counts for the published GPT-2 models.
  EXPECT_EQ(count("gpt2-124m"), 124'439'808);
  EXPECT_EQ(count("gpt2-355m"), 354'823'168);
  EXPECT_EQ(count("gpt2-774m"), 774'030'080);
  EXPECT_EQ(count("gpt2-1.5b"), 1'557'611'200);
  EXPECT_NEAR(static_cast<double>(count("gpt3-6.7b")), 6.7e9, 0.1e9);
  EXPECT_NEAR(static_cast<double>(count("gpt3-13b")), 13e9, 0.2e9);
  EXPECT_NEAR(static_cast<double>(count("gpt3-175b")), 175e9, 1e9);
  EXPECT_NEAR(static_cast<double>(count("gpt-70b")), 65e9, 1e9);
}

/// Parameters of LLaMA, with biases of queries, keys and values in Qwen2.
std::int64_t llama_parameters(const ModelSpec& m) {
  const std::int64_t c = m.hidden, queries = m.heads * m.head_width(), qkv = queries + 2 * m.key_value_heads() * m.head_width();
  const std::int64_t layer = c * (qkv + queries) + 3 * c * m.ffn + 2 * c + (m.family == "qwen2" ? qkv : 0);
  return m.vocab * c * (m.tied_head ? 1 : 2) + m.layers * layer + c;
}

// What transformers counts for the published models.
TEST(Preset, ShippedLlamasHaveTheirSizes) {
  const auto count = [](const char* name) { return llama_parameters(load_preset(name, {kShipped})); };
  EXPECT_EQ(count("llama3-8b"), 8'030'261'248);
  EXPECT_EQ(count("qwen2.5-0.5b"), 494'032'768);
  EXPECT_EQ(count("smollm2-135m"), 134'515'008);
}

TEST(Preset, UnknownNamesAreAnsweredWithTheNearest) {
  expect_error<RequestError>([] { load_preset("gpt2-124M", {kShipped}); },
                             {"\"gpt2-124M\" is unknown", "nearest is \"gpt2-124m\"", "gpt3-175b"});
  expect_error<RequestError>([] { load_preset("../models/gpt2-124m", {kShipped}); }, {"is unknown"});
  expect_error<RequestError>([] { load_preset("x", {"/nonexistent"}); }, {"\"x\" is unknown", "no presets found in /nonexistent"});
  EXPECT_THAT(preset_names({"/nonexistent"}), IsEmpty());
}

TEST(Preset, TheFirstDirectoryWins) {
  const TempDir dir;
  ModelSpec mine = load_preset("gpt2-micro", {kShipped});
  mine.layers = 2;
  dir.write("gpt2-micro.json", to_json(mine));
  EXPECT_EQ(load_preset("gpt2-micro", {dir.path(), kShipped}).layers, 2);
  EXPECT_EQ(load_preset("gpt2-micro", {kShipped, dir.path()}).layers, 4);
}

TEST(Preset, RefusesAFileThatDoesNotFit) {
  const TempDir dir;
  const std::string good = to_json(load_preset("gpt2-micro", {kShipped}));
  dir.write("other.json", good);
  expect_error<FormatError>([&] { load_preset("other", {dir.path()}); }, {"other.json", "\"name\"", "\"gpt2-micro\"", "\"other\""});
  dir.write("gpt2-micro.json", replaced(good, "\"heads\": 4", "\"heads\": 3"));
  expect_error<RequestError>([&] { load_preset("gpt2-micro", {dir.path()}); }, {"heads: found 3"});
  dir.write("gpt2-micro.json", "{}");
  expect_error<FormatError>([&] { load_preset("gpt2-micro", {dir.path()}); }, {"gpt2-micro.json", "\"name\" is missing"});
}

}  // namespace
}  // namespace sluice::spec

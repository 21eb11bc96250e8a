// What a run leaves for other programs: RUN/model at the end, `checkpoint export`, and `generate` from either.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "formats/config_json.hpp"
#include "formats/safetensors.hpp"
#include "support/llmc_bytes.hpp"
#include "support/training_runs.hpp"

namespace sluice::testing {
namespace {

namespace fs = std::filesystem;
using formats::Safetensors;
using formats::TensorInfo;
using nlohmann::json;
using ::testing::HasSubstr;

std::vector<float> values_of(const Safetensors& files, const TensorInfo& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  files.read_f32(tensor, 0, tensor.elements(), values.data());
  return values;
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A model directory of grouped heads with a tokenizer, trained for three steps on two ranks.
class Export : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    area_ = new RunArea;
    fs::create_directories(source());
    for (const char* name : {"config.json", "generation_config.json", "model.safetensors"})
      fs::copy_file(golden(name), source() + "/" + name);
    // A stranger's file that isn't the tokenizer's stays behind, whatever else stands beside the weights.
    area_->write("source/notes.txt", "not ours");
    area_->write("source/special_tokens_map.json", "{}");
    std::vector<std::uint16_t> tokens;
    for (std::uint32_t i = 0; i < 400; ++i) tokens.push_back(static_cast<std::uint16_t>(i * i * 7 % 48));
    const std::string data = area_->write("tokens.bin", llmc_bytes(tokens));
    const ProgramOutcome outcome =
        run_program(area_->launch(2, {"train", "--model", source(), "--data", data, "--sequence-length", "16", "--steps", "3",
                                      "--train-batch-size", "4", "--learning_rate", "1e-3", "--output", run()}));
    ASSERT_TRUE(ended_with(outcome, 0));
    EXPECT_THAT(outcome.all(), HasSubstr("exported to"));
  }
  static void TearDownTestSuite() { delete area_; }
  static std::string golden(const std::string& name) { return std::string(SLUICE_SOURCE_DIR) + "/tests/golden/llama_tiny/" + name; }
  static std::string source() { return *area_ / "source"; }
  static std::string run() { return *area_ / "run"; }
  static ProgramOutcome sluice(const std::vector<std::string>& words) { return run_program(area_->sluice(words)); }

  static RunArea* area_;
};
RunArea* Export::area_ = nullptr;

TEST_F(Export, TheEndOfARunIsADirectoryLikeTheOneItBeganWith) {
  const Safetensors before = Safetensors::open(source()), after = Safetensors::open(run() + "/model");
  ASSERT_EQ(after.tensors().size(), before.tensors().size());
  std::size_t changed = 0;
  for (const TensorInfo& tensor : after.tensors()) {
    const TensorInfo* original = before.find(tensor.name);
    ASSERT_NE(original, nullptr) << tensor.name;
    EXPECT_EQ(tensor.shape, original->shape) << tensor.name;
    EXPECT_EQ(tensor.dtype, "F32") << tensor.name;
    changed += values_of(after, tensor) != values_of(before, *original) ? 1 : 0;
  }
  EXPECT_EQ(changed, after.tensors().size()) << "every parameter was trained";
  spec::ModelSpec model = formats::load_config(run() + "/model"), original = formats::load_config(source());
  model.name = original.name;
  EXPECT_EQ(model, original);
  EXPECT_TRUE(fs::exists(run() + "/model/generation_config.json"));
  EXPECT_TRUE(fs::exists(run() + "/model/special_tokens_map.json"));
  EXPECT_FALSE(fs::exists(run() + "/model/notes.txt"));
  EXPECT_FALSE(fs::exists(run() + "/model.partial"));
}

TEST_F(Export, ACheckpointExportsToTheSameBytes) {
  const ProgramOutcome outcome = sluice({"checkpoint", "export", run(), "--to", "hf", "--output", *area_ / "again", "--json"});
  ASSERT_TRUE(ended_with(outcome, 0));
  const json said = json::parse(outcome.output);
  EXPECT_EQ(said.at("dtype"), "f32");
  EXPECT_THAT(said.at("files").dump(), HasSubstr("generation_config.json"));
  for (const char* name : {"model.safetensors", "config.json"}) {
    EXPECT_EQ(bytes_of(*area_ / ("again/" + std::string(name))), bytes_of(run() + "/model/" + name)) << name;
  }
}

TEST_F(Export, SixteenBitsAreTheRoundedWeights) {
  ASSERT_TRUE(ended_with(sluice({"checkpoint", "export", run(), "--to", "hf", "--output", *area_ / "half", "--dtype", "bf16"}), 0));
  const Safetensors whole = Safetensors::open(run() + "/model"), half = Safetensors::open(*area_ / "half");
  for (const TensorInfo& tensor : half.tensors()) {
    EXPECT_EQ(tensor.dtype, "BF16") << tensor.name;
    const std::vector<float> rounded = values_of(half, tensor), exact = values_of(whole, *whole.find(tensor.name));
    for (std::size_t i = 0; i < exact.size(); ++i) ASSERT_LE(std::abs(rounded[i] - exact[i]), std::abs(exact[i]) / 256) << tensor.name << i;
  }
  EXPECT_THAT(bytes_of(*area_ / "half/config.json"), HasSubstr("bfloat16"));
}

TEST_F(Export, AnEarlierExportIsReplacedAndAStrangersFolderIsNot) {
  const std::string occupied = *area_ / "occupied";
  area_->write("occupied/thesis.tex", "years of work");
  EXPECT_TRUE(
      refused_with(sluice({"checkpoint", "export", run(), "--to", "hf", "--output", occupied}), 2, {occupied, "no model directory"}));
  EXPECT_EQ(bytes_of(occupied + "/thesis.tex"), "years of work");
  const std::string place = *area_ / "place";
  area_->write("place/config.json", "{}");
  area_->write("place/old.safetensors", "old");
  ASSERT_TRUE(ended_with(sluice({"checkpoint", "export", run(), "--to", "hf", "--output", place}), 0));
  EXPECT_FALSE(fs::exists(place + "/old.safetensors"));
  EXPECT_TRUE(fs::exists(place + "/model.safetensors"));
}

TEST_F(Export, GeneratesTheSameFromTheRunAndFromItsExport) {
  const std::vector<std::string> words{"--prompt-tokens", "1,10,7", "--max-new-tokens", "8", "--temperature", "0"};
  const auto generated = [&](const std::string& model) {
    std::vector<std::string> all{"generate", "--model", model};
    all.insert(all.end(), words.begin(), words.end());
    return sluice(all);
  };
  const ProgramOutcome from_run = generated(run()), from_export = generated(run() + "/model");
  ASSERT_TRUE(ended_with(from_run, 0));
  ASSERT_TRUE(ended_with(from_export, 0));
  EXPECT_EQ(from_run.output, from_export.output);
  // The nucleus of almost no mass is the likeliest token, whatever the temperature.
  const ProgramOutcome nucleus = sluice(
      {"generate", "--model", run(), "--prompt-tokens", "1,10,7", "--max-new-tokens", "8", "--temperature", "1.5", "--top-p", "1e-6"});
  EXPECT_EQ(nucleus.output, from_run.output);
  EXPECT_TRUE(refused_with(sluice({"generate", "--model", run(), "--prompt", "text"}), 2, {"tokenizer", "--prompt-tokens"}));
  // Not token 1, which its low 32 bits are.
  EXPECT_TRUE(refused_with(sluice({"generate", "--model", run(), "--prompt-tokens", "4294967297"}), 2, {"prompt token 4294967297"}));
}

TEST_F(Export, ARunIsAModelToTrainFurther) {
  const auto first_loss = [](const std::string& model, const std::string& name) {
    const std::string output = *area_ / name;
    const ProgramOutcome outcome =
        run_program(area_->launch(2, {"train", "--model", model, "--data", *area_ / "tokens.bin", "--sequence-length", "16", "--steps", "1",
                                      "--train-batch-size", "4", "--learning_rate", "1e-3", "--output", output}));
    EXPECT_TRUE(ended_with(outcome, 0));
    std::ifstream metrics(output + "/metrics.jsonl");
    std::string line;
    std::getline(metrics, line);
    return json::parse(line).at("loss").get<double>();
  };
  const double from_export = first_loss(run() + "/model", "from_export");
  EXPECT_EQ(first_loss(run(), "from_run"), from_export);
  EXPECT_NE(first_loss(source(), "from_source"), from_export);
}

TEST_F(Export, WeightsThatAreNotAllThereAreToldByADryRun) {
  area_->write("cut/config.json", bytes_of(source() + "/config.json"));
  const std::string weights = bytes_of(source() + "/model.safetensors");
  area_->write("cut/model.safetensors", weights.substr(0, weights.size() / 2));
  const std::vector<std::string> words{
      "train", "--model",  *area_ / "cut", "--data", *area_ / "tokens.bin", "--sequence-length", "16", "--steps", "1", "--train-batch-size",
      "4",     "--dry-run"};
  EXPECT_TRUE(refused_with(sluice(words), 4, {"cut/model.safetensors", "cut short or damaged"}));
}

TEST_F(Export, ATokenizerIsTakenFromAFolderThatHasOne) {
  EXPECT_TRUE(refused_with(sluice({"checkpoint", "export", run(), "--to", "hf", "--output", *area_ / "none", "--tokenizer", source()}), 2,
                           {"--tokenizer", "source", "tokenizer.json"}));
  EXPECT_FALSE(fs::exists(*area_ / "none"));
}

}  // namespace
}  // namespace sluice::testing

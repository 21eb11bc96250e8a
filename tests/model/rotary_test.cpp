#include "model/rotary.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "support/safetensors_test_reader.hpp"

namespace sluice::model {
namespace {

TEST(Rotary, FrequenciesAreThoseOfTransformers) {
  const auto cases = nlohmann::json::parse(test::read_file(std::string(SLUICE_SOURCE_DIR) + "/tests/golden/rotary.json"));
  ASSERT_EQ(cases.size(), 5u);
  for (const auto& each : cases) {
    spec::RopeSpec rope{.theta = each.at("rope_theta")};
    if (each.at("rope_type") == "linear") rope.scaling = spec::RopeScaling::kLinear;
    if (each.at("rope_type") == "llama3") {
      rope.scaling = spec::RopeScaling::kLlama3;
      rope.low_frequency_factor = each.at("low_freq_factor");
      rope.high_frequency_factor = each.at("high_freq_factor");
      rope.original_context = each.at("original_max_position_embeddings");
    }
    rope.factor = each.value("factor", 1.0);
    const std::vector<float> found = inverse_frequencies(rope, each.at("head_dim"));
    const auto expected = each.at("frequencies").get<std::vector<float>>();
    ASSERT_EQ(found.size(), expected.size());
    int apart = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      // PyTorch's power is off in the last place now and then, and llama3's blend can double that.
      EXPECT_NEAR(found[i], expected[i], 2.4e-7 * expected[i]) << each.at("rope_type") << " " << i;
      apart += found[i] != expected[i] ? 1 : 0;
    }
    EXPECT_LE(apart, 3) << each.at("rope_type") << ": " << apart << " of " << found.size() << " differ in the last places";
  }
}

TEST(Rotary, ThereAreNoneWithoutABase) {
  EXPECT_TRUE(inverse_frequencies({}, 64).empty());
}

TEST(Rotary, Llama3KeepsShortWavelengthsAndStretchesLongOnes) {
  const spec::RopeSpec plain{.theta = 500000};
  const spec::RopeSpec rope{
      .theta = 500000, .scaling = spec::RopeScaling::kLlama3, .factor = 8, .high_frequency_factor = 4, .original_context = 8192};
  const std::vector<float> before = inverse_frequencies(plain, 128), after = inverse_frequencies(rope, 128);
  int kept = 0, divided = 0, blended = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const double wavelength = 2 * M_PI / before[i];
    if (wavelength < 2048) {
      EXPECT_EQ(after[i], before[i]);
      ++kept;
    } else if (wavelength > 8192) {
      EXPECT_EQ(after[i], before[i] / 8);
      ++divided;
    } else {
      EXPECT_GT(after[i], before[i] / 8);
      EXPECT_LT(after[i], before[i]);
      ++blended;
    }
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(divided, 20);
  EXPECT_GT(blended, 3);
}

}  // namespace
}  // namespace sluice::model

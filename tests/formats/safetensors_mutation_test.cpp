#include <gtest/gtest.h>

#include "base/error.hpp"
#include "formats/safetensors.hpp"
#include "formats/safetensors_bytes.hpp"
#include "support/mutations.hpp"
#include "support/temp_dir.hpp"

namespace sluice::formats {
namespace {

TEST(Safetensors, MutatedFilesAreReadOrRefused) {
  const testing::TempDir dir;
  const std::string good =
      safetensors_bytes(R"({"__metadata__":{"format":"pt"},"a.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                        R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},"c":{"dtype":"F16","shape":[],"data_offsets":[32,34]}})",
                        std::string(34, '\x3c'));
  const std::vector<std::string> pieces{"{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        ":",
                                        "\"",
                                        "0",
                                        "-1",
                                        "9223372036854775807",
                                        "18446744073709551616",
                                        "1e400",
                                        "null",
                                        "\"F32\"",
                                        "\"F64\"",
                                        "\"shape\":[0]",
                                        "\"data_offsets\":[0,0]",
                                        "\"dtype\":\"I8\"",
                                        "\xff",
                                        "\\u0000",
                                        "\\ud800"};
  int accepted = 0;
  int refused = 0;
  for (int round = 0; round < testing::mutation_rounds(); ++round) {
    const std::string bytes = testing::mutated(good, static_cast<std::uint64_t>(round), pieces);
    const std::string path = dir.write("m.safetensors", bytes);
    try {
      const Safetensors file = Safetensors::open(path);
      for (const TensorInfo& tensor : file.tensors()) {
        ASSERT_GE(tensor.begin, 8) << round;
        ASSERT_LE(tensor.begin, tensor.end) << round;
        ASSERT_LE(tensor.end, static_cast<std::int64_t>(bytes.size())) << round;
        if (tensor.dtype != "F32" && tensor.dtype != "F16" && tensor.dtype != "BF16") continue;
        std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
        file.read_f32(tensor, 0, tensor.elements(), values.data());
      }
      ++accepted;
    } catch (const FormatError& error) {
      ASSERT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, testing::mutation_rounds() / 2);
}

}  // namespace
}  // namespace sluice::formats

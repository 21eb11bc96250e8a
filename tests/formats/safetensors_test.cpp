#include "formats/safetensors.hpp"

#include <cmath>

#include "base/error.hpp"
#include "formats/safetensors_bytes.hpp"
#include "formats/safetensors_writer.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace sluice::formats {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using ::testing::Pair;
using testing::TempDir;

std::vector<float> read(const Safetensors& file, const std::string& name, std::int64_t first, std::int64_t count) {
  std::vector<float> out(static_cast<std::size_t>(count), std::nanf(""));
  file.read_f32(*file.find(name), first, count, out.data());
  return out;
}

/// f32 [2, 3] 1..6, f16 [2] 1 and -2, bf16 scalar 1.5, bool [3], an empty one; the buffer's order is not the header's.
std::string example() {
  const std::string header = R"({"__metadata__": {"format": "pt"},
    "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [4, 28]},
    "h": {"dtype": "F16", "shape": [2], "data_offsets": [0, 4]},
    "s": {"dtype": "BF16", "shape": [], "data_offsets": [28, 30]},
    "m": {"dtype": "BOOL", "shape": [3], "data_offsets": [30, 33]},
    "e": {"dtype": "F32", "shape": [0, 7], "data_offsets": [28, 28]}}   )";
  return safetensors_bytes(header, bytes_of<std::uint16_t>({0x3C00, 0xC000}) + bytes_of<float>({1, 2, 3, 4, 5, 6}) +
                                       bytes_of<std::uint16_t>({0x3FC0}) + std::string("\1\0\1", 3));
}

TEST(Safetensors, ListsTensorsAndMetadata) {
  const TempDir dir;
  const Safetensors file = Safetensors::open(dir.write("x.safetensors", example()));
  EXPECT_THAT(file.metadata(), ElementsAre(Pair("format", "pt")));
  std::vector<std::string> names;
  for (const TensorInfo& tensor : file.tensors()) names.push_back(tensor.name);
  EXPECT_THAT(names, ElementsAre("e", "h", "m", "s", "w"));
  const TensorInfo& w = *file.find("w");
  EXPECT_EQ(w.dtype, "F32");
  EXPECT_THAT(w.shape, ElementsAre(2, 3));
  EXPECT_EQ(w.elements(), 6);
  EXPECT_EQ(w.end - w.begin, 24);
  EXPECT_EQ(w.begin - file.find("h")->begin, 4);
  EXPECT_EQ(file.find("s")->elements(), 1);
  EXPECT_EQ(file.find("e")->elements(), 0);
  EXPECT_EQ(file.find("x"), nullptr);
  EXPECT_EQ(shape_text(w.shape), "[2, 3]");
}

TEST(Safetensors, ReadsRangesAsF32) {
  const TempDir dir;
  const Safetensors file = Safetensors::open(dir.write("x.safetensors", example()));
  EXPECT_THAT(read(file, "w", 0, 6), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(read(file, "w", 2, 3), ElementsAre(3, 4, 5));
  EXPECT_THAT(read(file, "w", 6, 0), ElementsAre());
  EXPECT_THAT(read(file, "h", 0, 2), ElementsAre(1, -2));
  EXPECT_THAT(read(file, "h", 1, 1), ElementsAre(-2));
  EXPECT_THAT(read(file, "s", 0, 1), ElementsAre(1.5f));
  EXPECT_THROW(read(file, "w", 4, 3), LogicError);
  expect_error<FormatError>([&] { read(file, "m", 0, 1); }, {"x.safetensors", "\"m\"", "found dtype BOOL", "F32, F16 or BF16"});
}

TEST(Safetensors, ReadsLongHalfTensorsInPieces) {
  const TempDir dir;
  std::vector<std::uint16_t> values(100'000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint16_t>(i % 0x7F00);
  const std::string header = R"({"b":{"dtype":"BF16","shape":[1000,100],"data_offsets":[0,200000]}})";
  const Safetensors file = Safetensors::open(dir.write("x.safetensors", safetensors_bytes(header, bytes_of(values))));
  const std::vector<float> out = read(file, "b", 123, 99'000);
  for (std::size_t i = 0; i < out.size(); ++i)
    ASSERT_EQ(out[i], std::bit_cast<float>(static_cast<std::uint32_t>(values[i + 123]) << 16)) << i;
}

TEST(Safetensors, RefusesDamage) {
  const TempDir dir;
  const auto refuse = [&](const std::string& bytes, const std::vector<std::string>& pieces) {
    const std::string path = dir.write("bad.safetensors", bytes);
    std::vector<std::string> all = pieces;
    all.emplace_back("bad.safetensors");
    expect_error<FormatError>([&] { Safetensors::open(path); }, all);
  };
  const auto header = [&](const std::string& text, const std::vector<std::string>& pieces, std::size_t buffer = 8) {
    refuse(safetensors_bytes(text, std::string(buffer, '\0')), pieces);
  };
  refuse("", {"found 0 bytes", "at least 8"});
  refuse(std::string(8, '\xff'), {"header length", "18446744073709551615"});
  refuse(example().substr(0, 50), {"header length", "at most 42", "cut short"});
  refuse(example().substr(0, example().size() - 1), {"\"m\"", "an end of 33", "at most 32"});
  refuse(example() + "x", {"found 1 bytes after the last tensor"});
  header("", {"begin with \"{\""}, 0);
  header("[]", {"begin with \"{\""});
  header("{", {"not valid JSON"});
  header(R"({"a":1,"a":2})", {"\"a\"", "twice"});
  header(R"({"a":7})", {"tensor \"a\"", "found 7", "an object"});
  header(R"({"a":{"dtype":"F32","shape":[2]}})", {"tensor \"a\"", "\"data_offsets\" is missing"});
  header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":0}})", {"tensor \"a\"", "\"x\" is unknown"});
  header(R"({"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", {"tensor \"a\"", "dtype: found \"F33\""});
  header(R"({"a":{"dtype":3,"shape":[2],"data_offsets":[0,8]}})", {"tensor \"a\"", "dtype: found 3"});
  header(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", {"tensor \"a\"", "shape: found [-2]"});
  header(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", {"tensor \"a\"", "shape: found [2.0]"});
  header(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", {"tensor \"a\"", "found 8 bytes", "expected 12 for F32 [3]"});
  header(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})", {"tensor \"a\"", "more than 2^63"});
  header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", {"tensor \"a\"", "data_offsets: found [8,0]"});
  header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}})", {"tensor \"a\"", "data_offsets: found [0,8,8]"});
  header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]}})", {"tensor \"a\"", "data_offsets"});
  header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
         {"\"a\" and \"b\" overlap"});
  header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[2],"data_offsets":[6,8]}})",
         {"tensor \"b\"", "begin at 6", "expected 4", "2 bytes before it"});
  header(R"({"a":{"dtype":"U8","shape":[7],"data_offsets":[1,8]}})", {"tensor \"a\"", "begin at 1", "expected 0"});
  header(R"({"a":{"dtype":"U8","shape":[7],"data_offsets":[0,7]}})", {"found 1 bytes after the last tensor"});
  header(R"({"__metadata__":{"x":1},"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})", {"__metadata__", "\"x\"", "found 1"});
}

const char* const kIndex = R"({"metadata": {"total_size": 12}, "weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})";

void write_shards(const TempDir& dir) {
  dir.write("one.safetensors", safetensors_bytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", bytes_of<float>({7})));
  dir.write("two.safetensors", safetensors_bytes(R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", bytes_of<float>({8, 9})));
}

TEST(Safetensors, ReadsAnIndexOfSeveralFiles) {
  const TempDir dir;
  write_shards(dir);
  const std::string index = dir.write("model.safetensors.index.json", kIndex);
  for (const std::string& path : {index, dir.path()}) {
    const Safetensors files = Safetensors::open(path);
    EXPECT_EQ(files.files().size(), 2U);
    EXPECT_THAT(read(files, "a", 0, 1), ElementsAre(7));
    EXPECT_THAT(read(files, "b", 1, 1), ElementsAre(9));
  }
}

TEST(Safetensors, RefusesAnIndexThatDoesNotFit) {
  const TempDir dir;
  write_shards(dir);
  const auto refuse = [&](const std::string& index, const std::vector<std::string>& pieces) {
    const std::string path = dir.write("model.safetensors.index.json", index);
    expect_error<FormatError>([&] { Safetensors::open(path); }, pieces);
  };
  refuse("{}", {"index.json", "weight_map"});
  refuse(R"({"weight_map": {"a": "one.safetensors", "c": "two.safetensors"}})", {"\"b\"", "two.safetensors", "weight_map doesn't name it"});
  refuse(R"({"weight_map": {"a": "one.safetensors", "b": "one.safetensors"}})", {"\"b\"", "one.safetensors", "doesn't have it"});
  refuse(R"({"weight_map": {"a": "../one.safetensors"}})", {"\"a\"", "beside the index"});
  refuse(R"({"weight_map": {"a": 3}})", {"\"a\"", "found 3"});
  refuse(R"({"weight_map": {"a": "one.safetensors", "a": "two.safetensors"}})", {"\"weight_map.a\"", "twice"});
  dir.write("three.safetensors", safetensors_bytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
    "c":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                                                   bytes_of<float>({7, 8})));
  refuse(R"({"weight_map": {"a": "one.safetensors", "c": "three.safetensors"}})",
         {"\"a\"", "found in three.safetensors", "expected in one.safetensors only"});
  const std::string path = dir.write("model.safetensors.index.json", R"({"weight_map": {"a": "zero.safetensors"}})");
  expect_error<IoError>([&] { Safetensors::open(path); }, {"zero.safetensors", "No such file"});
}

TEST(Safetensors, SaysWhatADirectoryLacks) {
  const TempDir dir;
  expect_error<EnvironmentError>([&] { Safetensors::open(dir.path()); }, {dir.path(), "model.safetensors", "found neither"});
  expect_error<IoError>([&] { Safetensors::open(dir / "absent.safetensors"); }, {"absent.safetensors"});
}

TEST(Safetensors, AdvisesHowToConvertPickles) {
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    const TempDir dir;
    dir.write(name, "x");
    expect_error<RequestError>([&] { Safetensors::open(dir.path()); },
                               {dir.path() + ": found the weights in " + name, "python3 -c", "from_pretrained", "save_pretrained"});
    SafetensorsWriter::create(dir / "model.safetensors", {{"a", {2}}}).finish();
    EXPECT_EQ(Safetensors::open(dir.path()).tensors().size(), 1u);  // beside safetensors it is of no matter
  }
}

}  // namespace
}  // namespace sluice::formats

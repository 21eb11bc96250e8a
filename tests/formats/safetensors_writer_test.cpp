#include "formats/safetensors_writer.hpp"

#include <filesystem>
#include <utility>

#include "base/error.hpp"
#include "formats/safetensors.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace sluice::formats {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using ::testing::Pair;
using testing::TempDir;

TEST(SafetensorsWriter, WritesRangesInAnyOrder) {
  const TempDir dir;
  const std::string path = dir / "out.safetensors";
  SafetensorsWriter writer = SafetensorsWriter::create(path, {{"z", {2, 3}}, {"a", {}}, {"e", {0}}});
  const std::vector<float> head{1, 2, 3, 4};
  const std::vector<float> tail{5, 6};
  const float scalar = 0.1f;
  writer.write("z", 4, 2, tail.data());
  writer.write("z", 0, 4, head.data());
  writer.write("a", 0, 1, &scalar);
  writer.finish();

  const Safetensors file = Safetensors::open(path);
  EXPECT_THAT(file.metadata(), ElementsAre(Pair("format", "pt")));
  EXPECT_EQ(file.find("z")->begin % 8, 0) << "the buffer is aligned";
  EXPECT_LT(file.find("z")->begin, file.find("a")->begin) << "tensors lie in the order given";
  std::vector<float> out(6);
  file.read_f32(*file.find("z"), 0, 6, out.data());
  EXPECT_THAT(out, ElementsAre(1, 2, 3, 4, 5, 6));
  file.read_f32(*file.find("a"), 0, 1, out.data());
  EXPECT_EQ(out[0], 0.1f);
  EXPECT_EQ(file.find("e")->elements(), 0);
}

TEST(SafetensorsWriter, ReplacesALongerFile) {
  const TempDir dir;
  const std::string path = dir.write("out.safetensors", std::string(10'000, 'x'));
  SafetensorsWriter writer = SafetensorsWriter::create(path, {{"a", {2}}}, {});
  writer.finish();
  const Safetensors file = Safetensors::open(path);
  EXPECT_TRUE(file.metadata().empty());
  std::vector<float> out(2, 1);
  file.read_f32(*file.find("a"), 0, 2, out.data());
  EXPECT_THAT(out, ElementsAre(0, 0));
}

TEST(SafetensorsWriter, RefusesWhatIsNotInTheFile) {
  const TempDir dir;
  const std::string path = dir / "out.safetensors";
  const float x = 0;
  EXPECT_THROW(SafetensorsWriter::create(path, {{"a", {1}}, {"a", {1}}}), LogicError);
  SafetensorsWriter writer = SafetensorsWriter::create(path, {{"a", {1}}});
  EXPECT_THROW(writer.write("b", 0, 1, &x), LogicError);
  EXPECT_THROW(writer.write("a", 1, 1, &x), LogicError);
  EXPECT_THROW(writer.write("a", -1, 1, &x), LogicError);
  SafetensorsWriter moved = std::move(writer);
  EXPECT_THROW(writer.finish(), LogicError);  // NOLINT(bugprone-use-after-move): that is what is tested
  moved.finish();
  EXPECT_THROW(moved.finish(), LogicError);
  EXPECT_THROW(moved.write("a", 0, 1, &x), LogicError);
}

TEST(SafetensorsWriter, SaysWhyAFileCannotBeMade) {
  const TempDir dir;
  expect_error<IoError>(
      [&] {
        SafetensorsWriter::create(dir / "absent/out.safetensors", {{"a", {1}}});
      },
      {"absent/out.safetensors", "creating"});
  expect_error<IoError>(
      [&] {
        SafetensorsWriter::create(dir / "huge.safetensors", {{"a", {std::int64_t{1} << 59}}});
      },
      {"huge.safetensors", "reserving"});
}

TEST(SafetensorsWriter, NarrowsToSixteenBits) {
  const TempDir dir;
  const std::string path = dir / "out.safetensors";
  SafetensorsWriter writer = SafetensorsWriter::create(path, {{"b", {3}, DType::kBF16}, {"h", {3}, DType::kF16}, {"f", {1}}});
  // The first two lie halfway between two bfloat16: ties go to even. f16 holds all of them exactly.
  const std::vector<float> values{1.0f + 0x1p-8f, 1.0f + 3 * 0x1p-8f, -2.5f};
  const float whole = 0.1f;
  writer.write("b", 0, 3, values.data());
  writer.write("h", 1, 2, values.data() + 1);
  writer.write("f", 0, 1, &whole);
  writer.finish();
  const Safetensors file = Safetensors::open(path);
  EXPECT_EQ(file.find("b")->dtype, "BF16");
  EXPECT_EQ(file.find("h")->dtype, "F16");
  std::vector<float> out(3);
  file.read_f32(*file.find("b"), 0, 3, out.data());
  EXPECT_THAT(out, ElementsAre(1.0f, 1.0f + 0x1p-6f, -2.5f));
  file.read_f32(*file.find("h"), 0, 3, out.data());
  EXPECT_THAT(out, ElementsAre(0.0f, 1.0f + 3 * 0x1p-8f, -2.5f));
  file.read_f32(*file.find("f"), 0, 1, out.data());
  EXPECT_EQ(out[0], 0.1f);
}

TEST(SafetensorsSetWriter, SplitsBetweenTensorsAndWritesTheIndex) {
  const TempDir dir;
  const std::vector<TensorPlace> tensors{{"a", {4}}, {"b", {4}}, {"large", {20}}, {"c", {2}, DType::kBF16}};
  SafetensorsSetWriter writer(dir.path(), tensors, 32);  // a and b fill one file; "large" is more than one
  EXPECT_EQ(writer.bytes(), 16 + 16 + 80 + 4);
  std::vector<float> values(20);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  for (const TensorPlace& tensor : tensors) writer.write(tensor.name, 0, tensor.shape[0], values.data());
  writer.finish();
  const Safetensors set = Safetensors::open(dir.path());
  ASSERT_EQ(set.files().size(), 3u);
  EXPECT_EQ(set.tensors().size(), 4u);
  EXPECT_TRUE(std::filesystem::exists(dir / "model-00003-of-00003.safetensors"));
  std::vector<float> out(20);
  set.read_f32(*set.find("large"), 0, 20, out.data());
  EXPECT_EQ(out, values);
  set.read_f32(*set.find("c"), 0, 2, out.data());
  EXPECT_EQ(out[1], 1.0f);
  // Files of a set name each other: the tensors of "a" stand in the first.
  const Safetensors first = Safetensors::open(dir / "model-00001-of-00003.safetensors");
  EXPECT_EQ(first.tensors().size(), 2u);
}

TEST(SafetensorsSetWriter, OneFileNeedsNoIndex) {
  const TempDir dir;
  SafetensorsSetWriter writer(dir.path(), {{"a", {4}}, {"b", {4}}});
  writer.finish();
  EXPECT_TRUE(std::filesystem::exists(dir / "model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(dir / "model.safetensors.index.json"));
}

}  // namespace
}  // namespace sluice::formats

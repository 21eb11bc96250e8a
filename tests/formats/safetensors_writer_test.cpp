#include "formats/safetensors_writer.hpp"

#include <utility>

#include "base/error.hpp"
#include "formats/safetensors.hpp"
#include "formats/safetensors_bytes.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace sluice::formats {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using ::testing::Pair;
using testing::TempDir;

TEST(SafetensorsWriter, WritesRangesFromSeveralWriters) {
  const TempDir dir;
  const std::string path = dir / "out.safetensors";
  SafetensorsWriter first = SafetensorsWriter::create(path, {{"z", {2, 3}}, {"a", {}}, {"e", {0}}});
  SafetensorsWriter second = SafetensorsWriter::attach(path);
  const std::vector<float> head{1, 2, 3, 4};
  const std::vector<float> tail{5, 6};
  const float scalar = 0.1f;
  first.write("z", 0, 4, head.data());
  second.write("z", 4, 2, tail.data());
  second.write("a", 0, 1, &scalar);
  second.finish();
  first.finish();

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
  const std::string half =
      dir.write("half.safetensors", safetensors_bytes(R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}})", "xx"));
  expect_error<FormatError>([&] { SafetensorsWriter::attach(half); }, {"\"a\"", "found dtype F16", "expected F32"});
}

}  // namespace
}  // namespace sluice::formats

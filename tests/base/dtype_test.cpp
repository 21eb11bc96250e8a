#include "base/dtype.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace sluice {
namespace {

struct Known {
  DType dtype;
  std::int64_t size;
  const char* name;
};
constexpr Known kKnown[] = {{DType::kF32, 4, "f32"}, {DType::kBF16, 2, "bf16"}, {DType::kF16, 2, "f16"}, {DType::kF64, 8, "f64"},
                            {DType::kI32, 4, "i32"}, {DType::kI64, 8, "i64"},   {DType::kU16, 2, "u16"}, {DType::kU8, 1, "u8"}};

TEST(DType, HasSizeAndName) {
  for (const Known& known : kKnown) {
    EXPECT_EQ(size_of(known.dtype), known.size) << known.name;
    EXPECT_EQ(name_of(known.dtype), known.name);
    EXPECT_EQ(dtype_from_name(known.name), known.dtype);
  }
}

TEST(DType, RefusesUnknownNamesAndListsTheKnown) {
  for (const char* name : {"", "F32", "float32", "f3"}) EXPECT_THROW(dtype_from_name(name), RequestError) << name;
  try {
    dtype_from_name("float32");
    FAIL() << "float32 was taken for a dtype";
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("\"float32\""), testing::HasSubstr("bf16"), testing::HasSubstr("u8")));
  }
}

}  // namespace
}  // namespace sluice

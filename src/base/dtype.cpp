#include "base/dtype.hpp"

#include <array>
#include <utility>

#include "base/check.hpp"

namespace sluice {
namespace {
struct Entry {
  DType dtype;
  std::int64_t size;
  std::string_view name;
};
constexpr std::array<Entry, 8> kTable{{{DType::kF32, 4, "f32"},
                                       {DType::kBF16, 2, "bf16"},
                                       {DType::kF16, 2, "f16"},
                                       {DType::kF64, 8, "f64"},
                                       {DType::kI32, 4, "i32"},
                                       {DType::kI64, 8, "i64"},
                                       {DType::kU16, 2, "u16"},
                                       {DType::kU8, 1, "u8"}}};
}  // namespace

std::int64_t size_of(DType dtype) {
  return kTable[static_cast<std::size_t>(dtype)].size;
}
std::string_view name_of(DType dtype) {
  return kTable[static_cast<std::size_t>(dtype)].name;
}

DType dtype_from_name(std::string_view name) {
  for (const Entry& entry : kTable) {
    if (entry.name == name) return entry.dtype;
  }
  throw RequestError(cat("dtype \"", name, "\" is unknown; known: f32, bf16, f16, f64, i32, i64, u16, u8"));
}

}  // namespace sluice

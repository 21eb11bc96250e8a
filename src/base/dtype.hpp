#pragma once
// Element types of tensors, their sizes and their names in JSON and HDF5.

#include <cstdint>
#include <string_view>

namespace sluice {

enum class DType : std::uint8_t { kF32, kBF16, kF16, kF64, kI32, kI64, kU16, kU8 };

/// Bytes of one element.
std::int64_t size_of(DType dtype);
/// "f32", "bf16", ...
std::string_view name_of(DType dtype);
/// Inverse of name_of; throws RequestError naming the known ones.
DType dtype_from_name(std::string_view name);

}  // namespace sluice

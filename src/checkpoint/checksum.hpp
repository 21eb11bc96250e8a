#pragma once
// XXH64: the checksum of bulk data in checkpoints.
// Source: Y. Collet, "xxHash fast digest algorithm", XXH64 algorithm description 0.1.1; seed 0 throughout.
// Tested: tests/checkpoint/checksum_test.cpp holds it against published vectors.

#include <cstddef>
#include <cstdint>
#include <string>

namespace sluice::checkpoint {

/// XXH64 of `bytes` bytes at `data`, seed 0.
std::uint64_t xxh64(const void* data, std::size_t bytes);
/// Sixteen lower-case hexadecimal digits.
std::string to_hex(std::uint64_t value);

}  // namespace sluice::checkpoint

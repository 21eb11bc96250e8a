#include "checkpoint/checksum.hpp"

#include <array>
#include <bit>
#include <cstdio>
#include <cstring>

namespace sluice::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "checkpoint files and their checksums are little-endian");

constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87ull;
constexpr std::uint64_t kPrime2 = 0xC2B2AE3D27D4EB4Full;
constexpr std::uint64_t kPrime3 = 0x165667B19E3779F9ull;
constexpr std::uint64_t kPrime4 = 0x85EBCA77C2B2AE63ull;
constexpr std::uint64_t kPrime5 = 0x27D4EB2F165667C5ull;

std::uint64_t read64(const unsigned char* p) {
  std::uint64_t value = 0;
  std::memcpy(&value, p, sizeof value);
  return value;
}

std::uint32_t read32(const unsigned char* p) {
  std::uint32_t value = 0;
  std::memcpy(&value, p, sizeof value);
  return value;
}

std::uint64_t round_of(std::uint64_t accumulator, std::uint64_t lane) {
  return std::rotl(accumulator + lane * kPrime2, 31) * kPrime1;
}

std::uint64_t merge(std::uint64_t hash, std::uint64_t accumulator) {
  return (hash ^ round_of(0, accumulator)) * kPrime1 + kPrime4;
}

}  // namespace

std::uint64_t xxh64(const void* data, std::size_t bytes) {
  const auto* p = static_cast<const unsigned char*>(data);
  std::size_t left = bytes;
  std::uint64_t hash = kPrime5;
  if (left >= 32) {
    std::uint64_t a = kPrime1 + kPrime2, b = kPrime2, c = 0, d = 0 - kPrime1;
    for (; left >= 32; left -= 32, p += 32) {
      a = round_of(a, read64(p));
      b = round_of(b, read64(p + 8));
      c = round_of(c, read64(p + 16));
      d = round_of(d, read64(p + 24));
    }
    hash = std::rotl(a, 1) + std::rotl(b, 7) + std::rotl(c, 12) + std::rotl(d, 18);
    hash = merge(merge(merge(merge(hash, a), b), c), d);
  }
  hash += bytes;
  for (; left >= 8; left -= 8, p += 8) hash = std::rotl(hash ^ round_of(0, read64(p)), 27) * kPrime1 + kPrime4;
  if (left >= 4) {
    hash = std::rotl(hash ^ read32(p) * kPrime1, 23) * kPrime2 + kPrime3;
    left -= 4;
    p += 4;
  }
  for (; left > 0; --left, ++p) hash = std::rotl(hash ^ *p * kPrime5, 11) * kPrime1;
  hash ^= hash >> 33;
  hash *= kPrime2;
  hash ^= hash >> 29;
  hash *= kPrime3;
  return hash ^ (hash >> 32);
}

std::string to_hex(std::uint64_t value) {
  std::array<char, 17> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%016llx", static_cast<unsigned long long>(value));
  return buffer.data();
}

}  // namespace sluice::checkpoint

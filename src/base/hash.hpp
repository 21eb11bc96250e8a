#pragma once
// A 64-bit hash for identities (graphs, sequences, fingerprints): stable over platforms, builds and versions, since it is
// written to disk. Not for checksums of bulk data.

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

class Hash {
 public:
  /// Mixes one value: the finaliser of MurmurHash3 over (state rotated, xor value).
  Hash& add(std::uint64_t value) {
    state_ = mix(std::rotl(state_, 23) ^ (value + 0x9E3779B97F4A7C15ull));
    return *this;
  }
  Hash& add(std::string_view text);
  Hash& add_double(double value) { return add(std::bit_cast<std::uint64_t>(value)); }
  std::uint64_t value() const { return mix(state_); }
  /// Sixteen lower-case hexadecimal digits.
  std::string hex() const { return hex_of(value()); }
  static std::string hex_of(std::uint64_t value);

 private:
  static std::uint64_t mix(std::uint64_t x) {
    x ^= x >> 33;
    x *= 0xFF51AFD7ED558CCDull;
    x ^= x >> 33;
    x *= 0xC4CEB9FE1A85EC53ull;
    x ^= x >> 33;
    return x;
  }
  std::uint64_t state_ = 0x2545F4914F6CDD1Dull;
};

}  // namespace sluice

#include "base/hash.hpp"

#include <array>
#include <cstdio>
#include <cstring>

namespace sluice {

Hash& Hash::add(std::string_view text) {
  add(static_cast<std::uint64_t>(text.size()));
  for (std::size_t i = 0; i < text.size(); i += 8) {
    std::uint64_t word = 0;
    const std::size_t count = text.size() - i < 8 ? text.size() - i : 8;
    for (std::size_t k = 0; k < count; ++k) word |= static_cast<std::uint64_t>(static_cast<unsigned char>(text[i + k])) << (8 * k);
    add(word);
  }
  return *this;
}

std::string Hash::hex_of(std::uint64_t value) {
  std::array<char, 17> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%016llx", static_cast<unsigned long long>(value));
  return buffer.data();
}

}  // namespace sluice

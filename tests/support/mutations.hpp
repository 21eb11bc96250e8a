#pragma once
// Damaged bytes by the seed: what a reader must refuse or survive.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace sluice::testing {

/// Rounds of a mutation test: 1000, or what SLUICE_MUTATIONS says (a longer run of the same test, as under a sanitizer).
inline int mutation_rounds() {
  const char* wanted = std::getenv("SLUICE_MUTATIONS");
  return wanted == nullptr ? 1000 : std::atoi(wanted);
}

/// Changes bytes, numbers, lengths and order of `bytes` in one to four places. `pieces` are texts that the format knows, put in
/// where random bytes would be refused at once.
inline std::string mutated(std::string bytes, std::uint64_t seed, const std::vector<std::string>& pieces = {}) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t n) { return n == 0 ? 0 : static_cast<std::size_t>(random() % n); };
  const auto any = [&] { return static_cast<char>(random()); };
  const std::size_t changes = 1 + below(4);
  for (std::size_t i = 0; i < changes; ++i) {
    const std::size_t at = below(bytes.size() + 1);
    const std::size_t length = below(std::min<std::size_t>(bytes.size() - at, 24) + 1);
    switch (below(pieces.empty() ? 8 : 10)) {
      case 0:
        bytes.erase(at, length);
        break;
      case 1:
        bytes.resize(at);
        break;
      case 2:
        bytes.insert(at, bytes.substr(at, length));
        break;
      case 3:
        bytes.insert(below(bytes.size() + 1), bytes.substr(at, length));
        break;
      case 4:
        if (at < bytes.size()) bytes[at] = any();
        break;
      case 5:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 6:
        // A whole number of eight bytes at one of its ends.
        for (std::size_t j = at; j < std::min(bytes.size(), at + 8); ++j) bytes[j] = (seed & 1) != 0 ? '\xff' : '\0';
        break;
      case 7:
        bytes.insert(at, std::string(1 + below(8), any()));
        break;
      default:
        bytes.insert(at, pieces[below(pieces.size())]);
    }
  }
  return bytes;
}

}  // namespace sluice::testing

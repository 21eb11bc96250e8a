#pragma once
// What a benchmark says at its end of each figure that is required.

#include <cstdio>
#include <string>

namespace sluice::bench {

/// Prints one line and returns whether the figure keeps its bound.
inline bool verdict(bool meets, const std::string& figure, const std::string& required) {
  std::printf("%s %s, required: %s\n", meets ? "meets: " : "misses:", figure.c_str(), required.c_str());
  return meets;
}

}  // namespace sluice::bench

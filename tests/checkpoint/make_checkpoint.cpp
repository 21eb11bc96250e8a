// Writes the sample checkpoint of the tests: make_checkpoint DIRECTORY RANKS LAYOUT (intervals, columns, whole, mixed).
// The golden checkpoint of format version 1 is what `make_checkpoint checkpoints/golden-v1 4 mixed` wrote when the version was settled; it
// is never made again.

#include <iostream>
#include <map>

#include "base/error.hpp"
#include "checkpoint/sample_state.hpp"

int main(int argc, char** argv) {
  using sluice::checkpoint::sample::Layout;
  const std::map<std::string, Layout> layouts = {
      {"intervals", Layout::kIntervals}, {"columns", Layout::kColumns}, {"whole", Layout::kWhole}, {"mixed", Layout::kMixed}};
  if (argc != 4 || layouts.count(argv[3]) == 0) {
    std::cerr << "usage: make_checkpoint DIRECTORY RANKS intervals|columns|whole|mixed\n";
    return 2;
  }
  auto options = sluice::checkpoint::sample::sample_options();
  options.writer = "sluice 0.1.0";
  options.created = 1'700'000'000;
  try {
    const auto result = sluice::checkpoint::sample::save_sample(argv[1], 3, 7, std::stoi(argv[2]), layouts.at(argv[3]), options);
    if (!result.ok) std::cerr << result.reason << "\n";
    return result.ok ? 0 : 3;
  } catch (const sluice::Error& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(error.code());
  }
}

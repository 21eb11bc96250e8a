#include "profile/timing.hpp"

#include <algorithm>
#include <map>
#include <sstream>
#include <string>

#include "base/text.hpp"

namespace sluice::profile {
namespace {

// Repeats of a timing: at least this many, and more until this much time is spent, so that a short one is seen often enough
// for its quartile to mean something and a long one doesn't eat the minute.
constexpr int kRepeats = 3;
constexpr double kSecondsPerTiming = 0.15;
constexpr int kMostRepeats = 200;

double at_quantile(std::vector<double>& values, std::size_t index) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(index), values.end());
  return values[index];
}

}  // namespace

bool Timing::is_better_than(const Timing& other) const {
  if (is_steady() != other.is_steady()) return is_steady();
  return spread * apart < other.spread * other.apart;
}

Timing time_together(comm::Communicator& world, const std::function<void()>& body, bool may_repeat,
                     const std::function<std::int64_t()>& clock) {
  const auto once = [&] {
    const std::int64_t begin = clock();
    body();
    return static_cast<double>(clock() - begin) * 1e-9;
  };
  body();  // warm: code, caches, thread pools
  int repeats = std::clamp(static_cast<int>(kSecondsPerTiming / std::max(once(), 1e-7)), kRepeats, kMostRepeats);
  // The ranks must agree on the count, else the last repeats of some run on a quiet machine.
  const std::vector<std::string> counts = world.all_gather(cat(repeats));
  for (const std::string& count : counts) repeats = std::max(repeats, std::stoi(count));
  const auto repeated = [&] {
    std::vector<double> values;
    world.barrier();
    for (int i = 0; i < repeats; ++i) values.push_back(once());
    Timing timing;
    timing.seconds = at_quantile(values, values.size() / 4);
    std::map<std::string, std::pair<double, double>> of_host;
    const double median = at_quantile(values, values.size() / 2);
    for (const std::string& rank : world.all_gather(cat(world.host_name(), " ", timing.seconds, " ", median))) {
      std::istringstream words(rank);
      std::string host;
      double quartile = 0, middle = 0;
      words >> host >> quartile >> middle;
      quartile = std::max(quartile, 1e-12);
      timing.spread = std::max(timing.spread, middle / quartile);
      auto& [low, high] = of_host.try_emplace(host, quartile, quartile).first->second;
      low = std::min(low, quartile);
      high = std::max(high, quartile);
      timing.apart = std::max(timing.apart, high / low);
    }
    return timing;
  };
  const Timing first = repeated();
  if (first.is_steady() || !may_repeat) return first;
  const Timing again = repeated();
  return again.is_better_than(first) ? again : first;
}

}  // namespace sluice::profile

#include "app/environment.hpp"

#include <cstdlib>

#include <unistd.h>

namespace sluice::app {

Environment read_environment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

std::string value_of(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string() : found->second;
}

bool is_later_rank(const Environment& environment) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const std::string rank = value_of(environment, name); !rank.empty()) return rank != "0";
  }
  return false;
}

std::optional<std::int64_t> launched_ranks(const Environment& environment) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (const std::string size = value_of(environment, name); !size.empty()) return std::strtoll(size.c_str(), nullptr, 10);
  }
  return std::nullopt;
}

}  // namespace sluice::app

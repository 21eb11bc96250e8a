#include "app/environment.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>

#include "base/text.hpp"

namespace sluice::app {
namespace {

constexpr auto kRankVariables = std::to_array<const char*>({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"});

constexpr int kUsualColumns = 80;  // of a terminal that doesn't know its width

/// `text`: "NAME=value".
void add_variable(Environment& environment, const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals != std::string::npos) environment.emplace(text.substr(0, equals), text.substr(equals + 1));
}

std::optional<int> columns_of(int descriptor) {
  if (isatty(descriptor) != 1) return std::nullopt;
  winsize size{};
  const bool is_known = ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? size.ws_col : kUsualColumns;
}

/// Of the standard output of another process.
std::optional<int> columns_of_process(pid_t process) {
  const std::string path = cat("/proc/", process, "/fd/1");
  struct stat status {};
  // Only a terminal is opened: a pipe would have one more reader for that moment.
  if (stat(path.c_str(), &status) != 0 || !S_ISCHR(status.st_mode)) return std::nullopt;
  const int descriptor = open(path.c_str(), O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  const std::optional<int> columns = columns_of(descriptor);
  close(descriptor);
  return columns;
}

/// What a process was started with; nothing where it may not be read.
Environment environment_of(pid_t process) {
  Environment environment;
  std::ifstream file(cat("/proc/", process, "/environ"), std::ios::binary);
  for (std::string text; std::getline(file, text, '\0');) add_variable(environment, text);
  return environment;
}

pid_t parent_of(pid_t process) {
  std::ifstream file(cat("/proc/", process, "/status"));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("PPid:")) return static_cast<pid_t>(std::strtol(line.c_str() + 5, nullptr, 10));
  }
  return 0;
}

}  // namespace

Environment read_environment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) add_variable(environment, *entry);
  return environment;
}

std::string value_of(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string() : found->second;
}

bool is_later_rank(const Environment& environment) {
  for (const char* name : kRankVariables) {
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

std::optional<int> watched_columns(const Environment& environment) {
  const std::optional<int> own = columns_of(STDOUT_FILENO);
  if (!own || value_of(environment, "TERM") == "dumb") return std::nullopt;
  const auto* const mark =
      std::find_if(kRankVariables.begin(), kRankVariables.end(), [&](const char* name) { return !value_of(environment, name).empty(); });
  if (mark == kRankVariables.end()) return own;
  pid_t process = getppid();  // the launcher, or a script that it started as a rank
  while (process > 1 && !value_of(environment_of(process), *mark).empty()) process = parent_of(process);
  return process > 1 ? columns_of_process(process) : std::nullopt;
}

}  // namespace sluice::app

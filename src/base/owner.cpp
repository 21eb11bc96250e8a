#include "base/owner.hpp"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/clock.hpp"
#include "base/text.hpp"

namespace sluice {
namespace {

// Field 22 of /proc/PID/stat, or 0 where it can't be read. The second field is the program's name in parentheses, which may
// hold anything, so counting starts after the last of them.
std::int64_t start_of(std::int64_t pid) {
  std::ifstream file(cat("/proc/", pid, "/stat"));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t end = text.rfind(')');
  if (end == std::string::npos) return 0;
  constexpr int kStartTime = 22, kFirstAfterName = 3;
  std::istringstream fields(text.substr(end + 1));
  std::string skipped;
  for (int field = kFirstAfterName; field < kStartTime; ++field) fields >> skipped;
  std::int64_t started = 0;
  fields >> started;
  return fields ? started : 0;
}

}  // namespace

Owner Owner::this_process(const std::string& host, const std::string& label) {
  const std::int64_t pid = ::getpid();
  return {host, pid, start_of(pid), static_cast<std::int64_t>(wall_seconds()), label};
}

std::string Owner::to_text() const {
  const nlohmann::json value = {{"host", host}, {"pid", pid}, {"started", started}, {"since", since}, {"label", label}};
  // A host or job name that isn't UTF-8 is no reason to fail.
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::optional<Owner> Owner::parse(std::string_view text) {
  const nlohmann::json value = nlohmann::json::parse(text, nullptr, false);
  try {
    return Owner{value.at("host").get<std::string>(), value.at("pid").get<std::int64_t>(), value.value("started", std::int64_t{0}),
                 value.at("since").get<std::int64_t>(), value.at("label").get<std::string>()};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::string Owner::describe() const {
  return cat("process ", pid, " on host ", host, label.empty() ? "" : cat(" (", label, ")"), " since ", local_time(since));
}

bool Owner::is_running() const {
  if (pid <= 0) return false;  // 0 and less would ask about groups of processes
  if (::kill(static_cast<pid_t>(pid), 0) != 0 && errno != EPERM) return false;
  const std::int64_t now = start_of(pid);
  return started == 0 || now == 0 || now == started;
}

}  // namespace sluice

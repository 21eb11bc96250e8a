#pragma once
// Which process owns something on disk, a run directory or a swap file, in a form that other processes can judge later.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

struct Owner {
  std::string host;
  std::int64_t pid = 0;
  std::int64_t started = 0;  // clock ticks from boot to the process' start, of proc(5): tells it from a later one with its number
  std::int64_t since = 0;    // seconds since 1970
  std::string label;         // what people know it by, as a job id; may be empty

  /// The calling process, from now on.
  static Owner this_process(const std::string& host, const std::string& label);
  /// One line of JSON, and back; none for anything else, as what a crash leaves.
  std::string to_text() const;
  static std::optional<Owner> parse(std::string_view text);
  /// "process 12 on host a (job 77) since 2026-01-31 12:00:00".
  std::string describe() const;
  /// Whether this very process still runs. Only for owners on the caller's host and in its process namespace.
  bool is_running() const;
  friend bool operator==(const Owner&, const Owner&) = default;
};

}  // namespace sluice

#include "app/swap.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/check.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "memory/io/swap_file.hpp"
#include "memory/io/swap_space.hpp"

namespace sluice::app {
namespace {

namespace fs = std::filesystem;
using State = memory::SwapFinding::State;

/// The path itself, or the nearest folder above it that exists.
std::string existing(const std::string& path) {
  std::error_code error;
  fs::path at = fs::absolute(path, error).lexically_normal();
  while (!fs::exists(at, error) && at.has_relative_path()) at = at.parent_path();
  return at.string();
}

std::uint64_t disk_of(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) throw IoError("asking for the disk", path, errno);
  return info.st_dev;
}

}  // namespace

void check_swap_paths(const Configuration& configuration) {
  SLUICE_CHECK(configuration.nvme_keys.size() == configuration.nvme_paths.size(), "paths to swap to without their keys");
  for (std::size_t i = 0; i < configuration.nvme_paths.size(); ++i) {
    const std::string &path = configuration.nvme_paths[i], &key = configuration.nvme_keys[i];
    try {
      memory::check_swap_path(path, configuration.nvme_network);
      if (::faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
        const int error = errno;
        throw EnvironmentError(cat(IoError("looking whether swap files can be made there", path, error).what(),
                                   "; choose a directory that this user may write to"));
      }
    } catch (const RequestError& error) {
      throw RequestError(cat(key, ": ", error.what()));
    } catch (const EnvironmentError& error) {
      throw EnvironmentError(cat(key, ": ", error.what()));
    }
  }
}

std::string swap_job(const Environment& environment) {
  std::string job;
  for (const char* name : {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID"}) {
    if (job.empty()) job = value_of(environment, name);
  }
  std::uint32_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number) throw EnvironmentError("the system gives no random numbers");
  char text[16];
  std::snprintf(text, sizeof text, "%08x", number);
  return cat(job, job.empty() ? "" : "-", ::getpid(), "-", text);
}

std::vector<std::string> remove_swap_leftovers(const Configuration& configuration, const std::string& host) {
  std::vector<std::string> lines;
  for (const std::string& path : configuration.nvme_paths) {
    for (const memory::SwapFinding& found : memory::remove_swap_leftovers(path, host)) {
      if (found.state == State::kRemoved) {
        lines.push_back(cat("swap: removed ", found.path, " (", format_bytes(found.bytes), "), ", found.reason));
      } else if (found.state == State::kUnclear) {
        lines.push_back(cat("swap: left ", found.path, " (", format_bytes(found.bytes), ") alone: ", found.reason));
      }
    }
  }
  return lines;
}

std::vector<SwapRoom> swap_rooms(const Configuration& configuration, const std::string& directory, std::int64_t claimed_bytes,
                                 std::int64_t hosts) {
  const std::uint64_t written = disk_of(existing(directory));
  std::vector<SwapRoom> rooms;
  for (const std::string& path : configuration.nvme_paths) {
    struct statvfs info {};
    if (::statvfs(path.c_str(), &info) != 0) throw IoError("asking for the free space", path, errno);
    const std::uint64_t disk = disk_of(path);
    rooms.push_back({disk, static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize),
                     disk == written ? claimed_bytes : 0, memory::file_system_of(path).is_network ? hosts : 1});
  }
  return rooms;
}

std::vector<memory::SpaceClaim> space_claims(const Configuration& configuration, const std::string& directory, std::int64_t claimed_bytes) {
  const std::string written = existing(directory);
  const std::vector<std::string>& paths = configuration.nvme_paths;
  const bool shared = std::any_of(paths.begin(), paths.end(), [&](const std::string& path) { return disk_of(path) == disk_of(written); });
  if (!shared || claimed_bytes == 0) return {};
  return {{written, "checkpoints and exported weights", claimed_bytes}};
}

std::int64_t bytes_below(const std::string& directory) {
  std::int64_t bytes = 0;
  std::error_code error;
  for (auto at = fs::recursive_directory_iterator(directory, error); !error && at != fs::recursive_directory_iterator();
       at.increment(error)) {
    std::error_code gone;
    if (!at->is_regular_file(gone)) continue;
    const auto size = static_cast<std::int64_t>(at->file_size(gone));
    if (!gone) bytes += size;
  }
  return bytes;
}

std::string describe_traffic(const schedule::DiskTraffic& traffic, double seconds) {
  std::string text =
      cat("reads ", format_bytes(traffic.read_bytes), " from and writes ", format_bytes(traffic.written_bytes), " to disk a step");
  if (seconds > 0 && traffic.written_bytes > 0) {
    text += cat(", at ", format_seconds(seconds), " a step ", format_bytes(schedule::bytes_a_day(traffic.written_bytes, seconds)),
                " written a day");
  }
  return text;
}

}  // namespace sluice::app

#include "app/doctor_disk.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>

#include "app/swap.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "memory/io/file_engine.hpp"
#include "memory/io/file_system.hpp"

namespace sluice::app {
namespace {

using State = memory::SwapFinding::State;

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kSmallDisk = 10 * kGiB;           // states of a model of half a billion parameters, doubled
constexpr std::int64_t kFewRequests = 1024;              // 8 ranks, two directions, 64 requests each
constexpr std::int64_t kSmallLock = std::int64_t{kGiB};  // host memory of a rank that moves states

std::int64_t number_in_file(const char* path) {
  std::ifstream file(path);
  std::int64_t value = -1;
  return file >> value ? value : -1;
}

Finding weigh_path(const SwapPathFacts& facts) {
  const std::string subject = cat("swap path ", facts.path);
  if (!facts.problem.empty())
    return {Severity::kProblem, subject, facts.problem, "give a directory on a local disk that this user may write to"};
  std::string found = cat(facts.file_system, ", ", format_bytes(facts.free_bytes), " free");
  if (facts.is_probed) {
    found += cat(", ", facts.is_aio ? "libaio" : "threads",
                 facts.is_direct ? cat(", direct in units of ", facts.alignment, " bytes") : ", buffered");
  }
  if (facts.is_network)
    return {Severity::kWarning, subject, found,
            "it is a network file system, which is refused unless --nvme-network is given; choose a local disk"};
  if (facts.is_memory)
    return {Severity::kWarning, subject, found, "its files are kept in memory, so swapping there frees none; choose a directory on a disk"};
  if (facts.is_probed && !facts.note.empty())
    return {Severity::kWarning, subject, facts.note, "choose a directory on a local disk with ext4 or XFS for full speed"};
  if (facts.free_bytes < kSmallDisk)
    return {Severity::kWarning, subject, found, "states on disk need 24 bytes a parameter; make room, or give a larger disk"};
  return {Severity::kFine, subject, found, ""};
}

Finding weigh_file(const memory::SwapFinding& file) {
  const std::string found = cat(file.bytes > 0 ? cat(format_bytes(file.bytes), ", ") : std::string(), file.reason);
  const std::string subject = cat("swap file ", file.path);
  switch (file.state) {
    case State::kLeftover:
      return {Severity::kWarning, subject, found, "the next run that swaps there removes it; or remove it yourself"};
    case State::kUnclear:
      return {Severity::kWarning, subject, found, "remove it once its owner has ended"};
    case State::kInUse:
    case State::kForeign:
    case State::kRemoved:
      break;
  }
  return {Severity::kFine, subject, found, ""};
}

Finding weigh_aio(const SwapLimits& limits) {
  if (limits.aio_most < 0 || limits.aio_taken < 0) return {Severity::kFine, "asynchronous I/O", "limits unknown", ""};
  const std::int64_t left = limits.aio_most - limits.aio_taken;
  const std::string found = cat(left, " of ", limits.aio_most, " requests (fs.aio-max-nr) are left");
  if (left >= kFewRequests) return {Severity::kFine, "asynchronous I/O", found, ""};
  return {Severity::kWarning, "asynchronous I/O", found,
          "without them threads do the transfers; end other programs that use them, or as root: sysctl fs.aio-max-nr=1048576"};
}

Finding weigh_lock(const SwapLimits& limits) {
  if (limits.lockable_bytes < 0) return {Severity::kFine, "locked memory", "limit unknown", ""};
  if (limits.lockable_bytes == kUnlimited) return {Severity::kFine, "locked memory", "no limit", ""};
  const std::string found = cat("a process may lock ", format_bytes(limits.lockable_bytes));
  if (limits.lockable_bytes >= kSmallLock) return {Severity::kFine, "locked memory", found, ""};
  return {Severity::kWarning, "locked memory", found,
          "host memory that moves states then stays pageable, which is slower where memory is short; raise it (ulimit -l unlimited)"};
}

}  // namespace

SwapPathFacts read_swap_path(const std::string& path, const std::string& host) {
  SwapPathFacts facts;
  facts.path = path;
  try {
    memory::check_swap_directory(path);
    const memory::FileSystem file_system = memory::file_system_of(path);
    facts.file_system = file_system.name;
    facts.is_network = file_system.is_network;
    facts.is_memory = file_system.is_memory;
    struct statvfs info {};
    if (::statvfs(path.c_str(), &info) == 0)
      facts.free_bytes = static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize);
    facts.files = memory::list_swap_files(path, host);
    const memory::SwapFile file = memory::SwapFile::create(path, {host, swap_job({}), 0});
    const auto engine = memory::FileEngine::open(file.path(), {.block_bytes = kMiB, .read_depth = 1, .write_depth = 1});
    facts.is_probed = true;
    facts.is_aio = engine->service() == memory::FileEngine::Service::kAio;
    facts.is_direct = engine->is_direct();
    facts.alignment = engine->alignment().transfer;
    facts.note = engine->note();
  } catch (const Error& error) {
    facts.problem = error.what();
  }
  return facts;
}

SwapLimits read_swap_limits() {
  SwapLimits limits;
  limits.aio_most = number_in_file("/proc/sys/fs/aio-max-nr");
  limits.aio_taken = number_in_file("/proc/sys/fs/aio-nr");
  rlimit lock{};
  if (::getrlimit(RLIMIT_MEMLOCK, &lock) == 0) {
    // Root may lock what it likes.
    const bool free = lock.rlim_cur == RLIM_INFINITY || ::geteuid() == 0;
    limits.lockable_bytes = free ? kUnlimited : static_cast<std::int64_t>(lock.rlim_cur);
  }
  return limits;
}

std::vector<Finding> diagnose_swap(const std::vector<SwapPathFacts>& paths, const SwapLimits& limits) {
  std::vector<Finding> findings;
  for (const SwapPathFacts& path : paths) {
    findings.push_back(weigh_path(path));
    for (const memory::SwapFinding& file : path.files) findings.push_back(weigh_file(file));
  }
  findings.push_back(weigh_aio(limits));
  findings.push_back(weigh_lock(limits));
  return findings;
}

}  // namespace sluice::app

#include "profile/measure_disks.hpp"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/check.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "device/cpu/cpu_device.hpp"
#include "memory/io/measure_disk.hpp"
#include "memory/io/swap_space.hpp"

namespace sluice::profile {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kLeastFile = 8 * kMiB;
constexpr std::int64_t kBuffers = 128 * kMiB;  // of a rank; less where memory is short

dev_t disk_of(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) throw IoError("asking for the disk", path, errno);
  return info.st_dev;
}

/// What each path may take of its disk, if all take as much: paths on one disk share it.
std::int64_t free_on_each(const std::vector<std::string>& paths) {
  std::map<dev_t, std::int64_t> sharing;
  for (const std::string& path : paths) ++sharing[disk_of(path)];
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const std::string& path : paths) {
    struct statvfs info {};
    if (::statvfs(path.c_str(), &info) != 0) throw IoError("asking for the free space", path, errno);
    const auto free = static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize);
    least = std::min(least, free / sharing[disk_of(path)]);
  }
  return least;
}

/// The rates of the node whose ranks have the least together.
double of_slowest_node(comm::Communicator& world, double rate) {
  char text[64];
  std::snprintf(text, sizeof text, "%.17g ", rate);
  std::map<std::string, double> nodes;
  for (const std::string& rank : world.all_gather(text + world.host_name())) {
    std::istringstream words(rank);
    double value = 0;
    std::string host;
    words >> value >> host;
    nodes[host] += value;
  }
  double slowest = std::numeric_limits<double>::infinity();
  for (const auto& [host, sum] : nodes) slowest = std::min(slowest, sum);
  return slowest;
}

std::string rate_text(double bytes_per_second) {
  return format_bytes(static_cast<std::int64_t>(bytes_per_second)) + "/s";
}

std::string cores_text(double seconds_per_byte) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", seconds_per_byte * 1e9);
  return text;
}

std::string describe(const DiskRequest& request, const memory::DiskFigures& figures) {
  std::string text = "disk ";
  for (std::size_t i = 0; i < request.paths.size(); ++i) {
    const std::string& path = request.paths[i];
    const memory::DiskFigures::Path& served = figures.paths[i];
    text += cat(i == 0 ? "" : " and ", path, " (", memory::file_system_of(path).name, ", ",
                served.service == memory::FileEngine::Service::kAio ? "libaio" : "threads", served.direct ? ", direct)" : ", buffered)");
  }
  return cat(text, ": reads ", rate_text(figures.read_rate), ", writes ", rate_text(figures.write_rate), "; both at once ",
             rate_text(figures.read_rate_both), " and ", rate_text(figures.write_rate_both), "; blocks of ",
             format_bytes(figures.block_bytes), ", ", figures.depth,
             " in flight; core seconds a GB: ", cores_text(figures.read_core_seconds), " read, ", cores_text(figures.write_core_seconds),
             " written");
}

}  // namespace

std::string disk_key(const DiskRequest& request) {
  std::string key;
  for (const std::string& path : request.paths) {
    struct stat info {};
    // A path that isn't there is refused when it is used.
    const bool known = ::stat(path.c_str(), &info) == 0;
    key += cat(" ", path, known ? cat(" on ", info.st_dev) : std::string());
  }
  return key;
}

DiskMeasurement measure_disks(comm::Communicator& world, const DiskRequest& request) {
  SLUICE_CHECK(!request.paths.empty(), "no path to measure");
  const std::int64_t ranks = std::max(1, world.node_size()), paths = static_cast<std::int64_t>(request.paths.size());
  DiskMeasurement result;
  memory::MeasureDiskOptions options;
  options.paths = request.paths;
  options.identity = {world.host_name(), request.job, world.rank()};
  options.allow_network = request.allow_network;
  std::int64_t free = 0;
  comm::all_or_none(world, [&] {
    for (const std::string& path : request.paths) memory::check_swap_path(path, request.allow_network);
    free = free_on_each(request.paths);
    const std::int64_t wanted = std::min(request.most_bytes, free / 4) / ranks;
    options.file_bytes = std::max(kLeastFile, wanted / kMiB * kMiB);
    const std::int64_t memory = device::read_cpu_facts().memory_available_bytes / (8 * ranks);
    options.memory_bytes = std::clamp(memory, 4 * paths * memory::kSwapAlignment, std::max(kBuffers, 4 * paths * memory::kSwapAlignment));
  });
  options.together = [&](const std::function<void()>& part) {
    world.barrier();
    comm::all_or_none(world, part);
  };
  options.total = [&](double rate) { return of_slowest_node(world, rate); };
  const memory::DiskFigures figures = memory::measure_disk(options);
  result.speed = {.read_bytes_per_second = figures.read_rate,
                  .write_bytes_per_second = figures.write_rate,
                  .read_beside_write = figures.read_rate_both,
                  .write_beside_read = figures.write_rate_both,
                  .block_bytes = figures.block_bytes,
                  .depth = figures.depth,
                  .free_bytes = paths * free};
  for (const std::string& rank : world.all_gather(Json(figures.notes).dump())) {
    for (const std::string& note : Json::parse(rank).get<std::vector<std::string>>()) {
      if (std::find(result.warnings.begin(), result.warnings.end(), note) == result.warnings.end()) result.warnings.push_back(note);
    }
  }
  result.lines = {world.broadcast(describe(request, figures), 0)};
  return result;
}

}  // namespace sluice::profile

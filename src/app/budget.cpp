#include "app/budget.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "app/configuration_keys.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "optim/policy.hpp"

namespace sluice::app {
namespace {

// Of a rank, where a tenth of the memory is less, as in small cgroups: half of it for pages of a checkpoint on their way to the disk.
constexpr std::int64_t kLeastMargin = 32 * kMiB;

}  // namespace

std::int64_t state_bytes(const model::Model& model, const spec::TrainingSpec& training) {
  const optim::Grouping grouping = optim::group_parameters(model, training);
  const std::int64_t working = size_of(spec::dtype_of(training.precision));
  const std::int64_t master = working == 4 ? 0 : 4;
  std::int64_t bytes = 0;
  for (std::size_t p = 0; p < model.params.size(); ++p) {
    const std::int64_t states = grouping.trains(static_cast<int>(p)) ? master + 4 + std::int64_t{4} * grouping.moments : 0;
    bytes += (working + states) * model.params[p].elements();
  }
  return bytes;
}

spec::Budget memory_budget(const Configuration& configuration, int ranks_on_node, const MemoryFacts& facts, std::int64_t state) {
  const std::int64_t ranks = std::max(1, ranks_on_node);
  const std::int64_t available = facts.cpu.memory_available_bytes;
  const std::int64_t margin = std::min(available / 2, std::max(available / 10, kLeastMargin * ranks));
  const std::int64_t usable = available - margin;
  spec::Budget budget;
  budget.host_bytes = configuration.host_memory_bytes.value_or(0);
  budget.device_bytes = configuration.device_memory_bytes.value_or(0);
  const std::int64_t given = budget.host_bytes + budget.device_bytes * ranks;
  if (given > facts.cpu.memory_total_bytes) {
    std::string asked;
    if (configuration.device_memory_bytes)
      asked = cat(ranks, ranks == 1 ? " rank of --device-memory " : " ranks of --device-memory ", format_bytes(budget.device_bytes));
    if (configuration.host_memory_bytes) asked += cat(asked.empty() ? "" : " and ", "--host-memory ", format_bytes(budget.host_bytes));
    throw EnvironmentError(cat("memory: ", asked, ranks == 1 ? " needs " : " need ", format_bytes(given), ", this node has ",
                               format_bytes(facts.cpu.memory_total_bytes), " (", facts.cpu.memory_limit_source, "); give less",
                               ranks == 1 ? "" : " or fewer ranks"));
  }
  if (!configuration.host_memory_bytes) {
    // Without disks host arenas hold tokens and control words, so a sixteenth is plenty.
    const std::int64_t least = usable / 16;
    const bool swaps = !configuration.nvme_paths.empty() && state > usable - least;
    const std::int64_t left = configuration.device_memory_bytes ? usable - budget.device_bytes * ranks : 0;
    budget.host_bytes = std::max(left, swaps && !configuration.device_memory_bytes ? usable / 4 : least);
  }
  if (!configuration.device_memory_bytes) {
    if (configuration.host_memory_bytes && budget.host_bytes >= usable) {
      throw EnvironmentError(cat("memory: --host-memory ", format_bytes(budget.host_bytes), " leaves nothing for device memory, of ",
                                 format_bytes(usable), " that are free here less a margin; give less, or --device-memory too"));
    }
    budget.device_bytes = std::max<std::int64_t>(0, usable - budget.host_bytes) / ranks + facts.resident_bytes;
  }
  return budget;
}

std::int64_t swap_room(std::span<const SwapRoom> paths, bool margin) {
  struct Disk {
    std::int64_t files = 0, free = 0, claimed = 0;
  };
  std::map<std::uint64_t, Disk> disks;
  for (const SwapRoom& path : paths) {
    Disk& disk = disks[path.disk];
    disk = {disk.files + path.hosts, path.free_bytes, path.claimed_bytes};
  }
  std::int64_t of_one = disks.empty() ? 0 : std::numeric_limits<std::int64_t>::max();
  for (const auto& [number, disk] : disks) {
    const std::int64_t kept = margin ? disk.free / 10 : 0;
    of_one = std::min(of_one, std::max<std::int64_t>(0, disk.free - kept - disk.claimed) / disk.files);
  }
  return of_one * static_cast<std::int64_t>(paths.size());
}

std::int64_t disk_budget(const Configuration& configuration, std::span<const SwapRoom> paths) {
  if (!configuration.nvme_space_bytes) return swap_room(paths, true);
  const std::int64_t asked = *configuration.nvme_space_bytes, room = swap_room(paths, false);
  if (asked > room) {
    std::int64_t claimed = 0;
    for (const SwapRoom& path : paths) claimed = std::max(claimed, path.claimed_bytes);
    throw EnvironmentError(
        cat("--nvme-space ", format_bytes(asked), ": at ", joined(configuration.nvme_paths), " there is room for ", format_bytes(room),
            claimed > 0 ? cat(" beside the ", format_bytes(claimed), " of checkpoints and exported weights that the run writes")
                        : std::string(),
            "; give less, make room or choose another directory"));
  }
  return asked;
}

}  // namespace sluice::app

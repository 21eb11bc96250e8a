#pragma once
// What tasks take of a machine's resources. A price says nothing about when or beside what a task runs: the simulator does.

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/model.hpp"
#include "schedule/build.hpp"
#include "schedule/graph.hpp"
#include "spec/machine_spec.hpp"

namespace sluice::schedule {

/// What tasks that run at the same time share. kLatency is nobody's: time that passes whatever else goes on.
enum class Resource : std::uint8_t { kCores, kCommThread, kMemory, kDevice, kLink, kUpload, kDownload, kDiskRead, kDiskWrite, kLatency };
inline constexpr int kSharedResourceCount = 9;  // without kLatency
inline constexpr int kResourceCount = 10;
std::string_view name_of(Resource resource);  // "cores", "communication thread", "memory bandwidth", ...

/// Amounts, not times; all of one rank.
struct Price {
  double core_seconds = 0;         // of processor cores
  double cores = 1;                // most of them that it can keep busy at once
  double comm_thread_seconds = 0;  // of the thread that owns communication; counted in core_seconds as well
  double device_seconds = 0;       // of an accelerator
  double memory_bytes = 0;         // host memory, read and written
  double link_bytes = 0;           // received from other nodes (cuda: from other ranks)
  double upload_bytes = 0;         // over an accelerator's link to host memory, which carries both directions at once
  double download_bytes = 0;
  double disk_read_bytes = 0;
  double disk_write_bytes = 0;
  double latency_seconds = 0;
};

/// Of that resource; of kLatency the seconds.
double amount_of(const Price& price, Resource resource);

/// What one rank can have of each shared resource per second when all ranks of its node want it: the node's over its ranks.
/// Infinite where the machine sets no limit.
using Capacities = std::array<double, kSharedResourceCount>;

/// Prices on one machine, for a group of `ranks` ranks of which up to machine.ranks_per_node share a node, each computing on
/// `threads` threads. A pure function of its arguments.
class PriceList {
 public:
  PriceList(const spec::MachineSpec& machine, int ranks, int threads);

  /// Measured where the machine has times of this kind, phase and hidden size: at the same rows and sequence; between two measured
  /// rows of the same sequence linearly; else from the nearest one in the ratio of their rooflines. Nothing measured: the
  /// roofline, max(flops / flops_per_second, memory_bytes / bytes_per_second).
  Price compute(const model::Segment& segment, std::int64_t hidden, model::Phase phase, const model::Shape& shape) const;
  /// The same of a model whose parameters are grouped so: with the conversions of 16-bit storage (`stores_saved` as in make_staging),
  /// without the products for gradients of frozen matrices.
  Price compute(const model::Model& model, const optim::Grouping& grouping, const model::Segment& segment, model::Phase phase,
                const model::Shape& shape, bool stores_saved) const;
  /// All-gather of a chunk's elements of `element_bytes`; `from_shard`: this rank's own part is copied, too. One rank: that copy
  /// alone.
  Price gather(std::int64_t elements, std::int64_t element_bytes, bool from_shard) const;
  Price scatter(std::int64_t elements, bool accumulate) const;
  /// Of elements grouped so: 12 bytes each, 8 more a moment, and the rounded copy where there is one, at the speed measured of AdamW.
  /// `on_host`: in host memory, at its speed where the device has a memory of its own.
  Price update(std::int64_t elements, const optim::Grouping& grouping, bool on_host) const;
  Price norm(std::int64_t elements, bool on_host) const;  // 4 bytes an element
  /// A copy of `bytes` between two tiers on one of the lanes for it, by one thread. `accumulate`: the target is read, too. Between host and
  /// disk the bytes go past the processor and take 10 ms of a core a GB (memory/README.md). LogicError for disk lanes of a machine without
  /// a disk.
  Price move(Lane lane, std::int64_t bytes, bool accumulate) const;
  Price agree() const;
  Price load(std::int64_t bytes) const;
  Price save(std::int64_t elements) const;

  const Capacities& capacities() const { return capacities_; }
  /// The same while disk reads and disk writes both go on.
  const Capacities& capacities_of_both_directions() const { return both_directions_; }
  /// Seconds with nothing else on the machine.
  double alone_seconds(const Price& price) const;
  /// Seconds of `work` on this rank's threads (cuda: device) alone.
  double roofline_seconds(const model::Work& work) const;

 private:
  Price task() const;                // the executor's overhead, which every task has
  Price passes(double bytes) const;  // memory traffic of this rank's threads (cuda: device)
  Price host_passes(double bytes) const;
  double exchanged_link_bytes(double bytes) const;
  Price exchange(const spec::LinearCost& cost, const char* rate, double bytes, double memory_bytes) const;

  const spec::MachineSpec& machine_;
  int ranks_;
  int ranks_per_node_;
  double threads_;  // cores that a rank's compute threads can have
  bool on_device_;
  Capacities capacities_{};
  Capacities both_directions_{};
};

/// Amounts at full speed per second of a price's alone time, and that time without latency.
struct Demand {
  std::array<double, kSharedResourceCount> rate{};
  double seconds = 0;
  Resource binding = Resource::kCores;  // what keeps it from being faster
};
Demand demand_of(const Price& price, const Capacities& capacities);

/// Seconds that a disk needs at least for so many bytes of one rank in each direction, in turn or at once, whichever is less.
double disk_seconds(const PriceList& list, double read_bytes, double write_bytes);

/// Bytes that a move of a placed graph transfers: of a chunk's part or of an activation; from and to disk padded to its blocks.
std::int64_t moved_bytes(const StepGraph& graph, const Task& task, const BuildInputs& inputs);

/// Bytes that one run of a placed graph reads from and writes to disk, of one rank.
struct DiskTraffic {
  std::int64_t read_bytes = 0;
  std::int64_t written_bytes = 0;
};
DiskTraffic disk_traffic(const StepGraph& graph, const BuildInputs& inputs);

/// What so many bytes a step of `seconds` come to in a day: what is written wears drives.
std::int64_t bytes_a_day(std::int64_t bytes, double seconds);

/// Prices of all tasks of a graph that `build` made from `inputs`.
std::vector<Price> price_tasks(const StepGraph& graph, const BuildInputs& inputs, const spec::MachineSpec& machine);

}  // namespace sluice::schedule

#include "schedule/price.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.hpp"
#include "base/units.hpp"
#include "schedule/place.hpp"
#include "schedule/staging.hpp"

namespace sluice::schedule {
namespace {

constexpr double kFloatBytes = sizeof(float);
// Of an update, an element in f32: the parameter read and written, its gradient read; each moment read and written.
constexpr double kUpdateBytes = 12, kMomentBytes = 8;
// Of the file engine, measured: memory/README.md.
constexpr double kDiskCoreSeconds = 0.01e-9;  // a byte
constexpr double kUnlimited = std::numeric_limits<double>::infinity();

/// Of a backward's products, those for the gradients of frozen matrices: 2 flops a token and element.
double frozen_part(const model::Model& model, const optim::Grouping& grouping, const model::Segment& segment, model::Phase phase,
                   const model::Shape& shape) {
  const bool has_products =
      segment.kind() != model::SegmentKind::kEmbedding && (phase == model::Phase::kBackward || phase == model::Phase::kForwardBackward);
  if (!has_products) return 0;
  double elements = 0;
  for (const int param : segment.params()) {
    const model::ParamSpec& spec = model.params[static_cast<std::size_t>(param)];
    if (spec.matrix && !grouping.trains(param)) elements += static_cast<double>(spec.elements());
  }
  if (elements == 0) return 0;
  return 2 * elements * static_cast<double>(shape.tokens()) / segment.work(phase, shape).flops;
}

double positive(double value, const char* name) {
  SLUICE_CHECK(value > 0 && std::isfinite(value), "the machine's ", name, " is ", value);
  return value;
}

}  // namespace

double amount_of(const Price& price, Resource resource) {
  switch (resource) {
    case Resource::kCores:
      return price.core_seconds;
    case Resource::kCommThread:
      return price.comm_thread_seconds;
    case Resource::kMemory:
      return price.memory_bytes;
    case Resource::kDevice:
      return price.device_seconds;
    case Resource::kLink:
      return price.link_bytes;
    case Resource::kUpload:
      return price.upload_bytes;
    case Resource::kDownload:
      return price.download_bytes;
    case Resource::kDiskRead:
      return price.disk_read_bytes;
    case Resource::kDiskWrite:
      return price.disk_write_bytes;
    case Resource::kLatency:
      break;
  }
  return price.latency_seconds;
}

std::string_view name_of(Resource resource) {
  static constexpr std::array<std::string_view, kResourceCount> kNames{
      "cores",     "communication thread", "memory bandwidth", "device", "links", "uploads",
      "downloads", "disk reads",           "disk writes",      "latency"};
  const auto i = static_cast<std::size_t>(resource);
  return i < kNames.size() ? kNames[i] : std::string_view("?");
}

PriceList::PriceList(const spec::MachineSpec& machine, int ranks, int threads)
    : machine_(machine),
      ranks_(ranks),
      ranks_per_node_(std::min(std::max(1, machine.ranks_per_node), ranks)),
      on_device_(machine.device_flops > 0) {
  SLUICE_CHECK(ranks > 0 && threads > 0, ranks, " ranks of ", threads, " threads");
  const double share = positive(machine.cores_per_node, "cores_per_node") / ranks_per_node_;
  threads_ = std::min(static_cast<double>(threads), share);
  capacities_.fill(kUnlimited);
  const auto limit = [&](Resource resource, double capacity) { capacities_[static_cast<std::size_t>(resource)] = capacity; };
  limit(Resource::kCores, share);
  limit(Resource::kCommThread, 1);
  limit(Resource::kMemory, positive(machine.memory_bytes_per_second, "memory_bytes_per_second") / ranks_per_node_);
  limit(Resource::kDevice, 1);
  if (on_device_) {  // peers on the node are reached by links too, which gather and scatter share
    limit(Resource::kLink, std::max(positive(machine.gather.bytes_per_second, "gather.bytes_per_second"),
                                    positive(machine.scatter.bytes_per_second, "scatter.bytes_per_second")));
  } else if (machine.link_bytes_per_second > 0) {
    limit(Resource::kLink, machine.link_bytes_per_second / ranks_per_node_);
  }
  if (on_device_) {
    if (machine.upload_bytes_per_second > 0) limit(Resource::kUpload, machine.upload_bytes_per_second);
    if (machine.download_bytes_per_second > 0) limit(Resource::kDownload, machine.download_bytes_per_second);
  }
  const spec::DiskSpeed& disk = machine.disk;
  if (disk.read_bytes_per_second > 0) limit(Resource::kDiskRead, disk.read_bytes_per_second / ranks_per_node_);
  if (disk.write_bytes_per_second > 0) limit(Resource::kDiskWrite, disk.write_bytes_per_second / ranks_per_node_);
  both_directions_ = capacities_;
  const auto beside = [&](Resource resource, double measured) {
    double& capacity = both_directions_[static_cast<std::size_t>(resource)];
    capacity = measured > 0 ? std::min(capacity, measured / ranks_per_node_) : capacity / 2;
  };
  beside(Resource::kDiskRead, disk.read_beside_write);
  beside(Resource::kDiskWrite, disk.write_beside_read);
}

Price PriceList::task() const {
  return {.latency_seconds = machine_.task_seconds};
}

Price PriceList::passes(double bytes) const {
  if (!on_device_) return host_passes(bytes);
  Price price = task();
  price.device_seconds = bytes / positive(machine_.device_memory_bytes_per_second, "device_memory_bytes_per_second");
  return price;
}

Price PriceList::host_passes(double bytes) const {
  Price price = task();
  price.memory_bytes = bytes;
  price.cores = threads_;
  price.core_seconds = bytes / capacities_[static_cast<std::size_t>(Resource::kMemory)] * threads_;
  return price;
}

double PriceList::roofline_seconds(const model::Work& work) const {
  if (on_device_) {
    return std::max(work.flops / machine_.device_flops,
                    work.memory_bytes / positive(machine_.device_memory_bytes_per_second, "device_memory_bytes_per_second"));
  }
  return std::max(work.flops / (positive(machine_.flops_per_core, "flops_per_core") * threads_),
                  work.memory_bytes / capacities_[static_cast<std::size_t>(Resource::kMemory)]);
}

Price PriceList::compute(const model::Segment& segment, std::int64_t hidden, model::Phase phase, const model::Shape& shape) const {
  const model::Work work = segment.work(phase, shape);
  const double roofline = roofline_seconds(work);
  const std::string_view kind = model::name_of(segment.kind()), phase_name = model::name_of(phase);
  // The measured times around the wanted shape.
  const spec::SegmentTime *below = nullptr, *above = nullptr, *nearest = nullptr;
  double nearest_distance = kUnlimited;
  for (const spec::SegmentTime& time : machine_.segments) {
    if (time.hidden != hidden || time.segment != kind || time.phase != phase_name || time.rows <= 0 || time.sequence <= 0) continue;
    if (time.sequence == shape.sequence) {
      if (time.rows <= shape.rows && (below == nullptr || time.rows > below->rows)) below = &time;
      if (time.rows >= shape.rows && (above == nullptr || time.rows < above->rows)) above = &time;
    }
    const double distance = std::abs(std::log(static_cast<double>(time.sequence) / static_cast<double>(shape.sequence))) * 16 +
                            std::abs(std::log(static_cast<double>(time.rows) / static_cast<double>(shape.rows)));
    if (distance < nearest_distance) {
      nearest_distance = distance;
      nearest = &time;
    }
  }
  double seconds = roofline;
  if (below != nullptr && above != nullptr) {
    const double span = static_cast<double>(above->rows - below->rows);
    const double part = span > 0 ? static_cast<double>(shape.rows - below->rows) / span : 0;
    seconds = below->seconds + part * (above->seconds - below->seconds);
  } else if (nearest != nullptr) {
    const double measured = roofline_seconds(segment.work(phase, {nearest->rows, nearest->sequence}));
    if (measured > 0) seconds = nearest->seconds * roofline / measured;
  }
  Price price = task();
  if (on_device_) {
    price.device_seconds = seconds;
    return price;
  }
  price.cores = threads_;
  price.core_seconds = seconds * threads_;
  // Work's bytes assume ideal caches; a segment that stays in cache asks for no more than it can have.
  price.memory_bytes = std::min(work.memory_bytes, seconds * capacities_[static_cast<std::size_t>(Resource::kMemory)]);
  return price;
}

/// Of `bytes` received from all other ranks of the group, what comes from other nodes.
double PriceList::exchanged_link_bytes(double bytes) const {
  if (machine_.link_bytes_per_second <= 0 || ranks_ <= ranks_per_node_) return 0;
  return bytes * static_cast<double>(ranks_ - ranks_per_node_) / static_cast<double>(ranks_ - 1);
}

/// Receiving `bytes` from the group's other ranks at a measured cost, while `memory_bytes` go through this rank's memory.
Price PriceList::exchange(const spec::LinearCost& cost, const char* rate, double bytes, double memory_bytes) const {
  Price price = task();
  price.latency_seconds += cost.latency_seconds;
  double seconds = bytes / positive(cost.bytes_per_second, rate);
  const double outside = exchanged_link_bytes(bytes);
  if (outside > 0) price.latency_seconds += machine_.link_latency_seconds;
  if (on_device_) {
    const double network = outside > 0 ? outside / (machine_.link_bytes_per_second / ranks_per_node_) : 0;
    price.link_bytes = std::max(seconds, network) * capacities_[static_cast<std::size_t>(Resource::kLink)];
    return price;
  }
  price.memory_bytes = std::min(memory_bytes, seconds * capacities_[static_cast<std::size_t>(Resource::kMemory)]);
  seconds += cost.core_seconds;
  price.comm_thread_seconds = seconds;
  price.core_seconds = seconds * std::min(1.0, capacities_[static_cast<std::size_t>(Resource::kCores)]);
  price.link_bytes = outside;
  return price;
}

Price PriceList::compute(const model::Model& model, const optim::Grouping& grouping, const model::Segment& segment, model::Phase phase,
                         const model::Shape& shape, bool stores_saved) const {
  Price price = compute(segment, model.spec.hidden, phase, shape);
  const double part = 1 - frozen_part(model, grouping, segment, phase, shape);
  price.core_seconds *= part;
  price.device_seconds *= part;
  price.memory_bytes *= part;
  const Price conversions = passes(make_staging(model, segment, phase, shape, grouping.storage, stores_saved).traffic_bytes);
  price.core_seconds += conversions.core_seconds;
  price.device_seconds += conversions.device_seconds;
  price.memory_bytes += conversions.memory_bytes;
  return price;
}

Price PriceList::gather(std::int64_t elements, std::int64_t element_bytes, bool from_shard) const {
  const double own = static_cast<double>(chunks::largest_shard(elements, ranks_) * element_bytes);
  if (ranks_ == 1) return from_shard ? passes(2 * own) : task();
  // The rank with the smallest shard receives most.
  const double received = static_cast<double>(elements * element_bytes) * (ranks_ - 1) / ranks_;
  return exchange(machine_.gather, "gather.bytes_per_second", received, 2 * (received + (from_shard ? own : 0)));
}

Price PriceList::scatter(std::int64_t elements, bool accumulate) const {
  if (ranks_ == 1) {
    const double bytes = static_cast<double>(elements) * kFloatBytes;
    return passes((accumulate ? 3 : 2) * bytes);
  }
  const double own = static_cast<double>(chunks::largest_shard(elements, ranks_)) * kFloatBytes;
  const double received = own * (ranks_ - 1);
  return exchange(machine_.scatter, "scatter.bytes_per_second", received, received + (accumulate ? 3 : 2) * own);
}

Price PriceList::update(std::int64_t elements, const optim::Grouping& grouping, bool on_host) const {
  const double copy_bytes = grouping.storage == DType::kF32 ? 0 : static_cast<double>(size_of(grouping.storage));
  const double bytes = static_cast<double>(elements) * (kUpdateBytes + kMomentBytes * grouping.moments + copy_bytes);
  if (on_device_ && on_host) return host_passes(bytes);  // what was measured is the device's
  Price price = task();
  const double seconds = bytes / positive(machine_.update_bytes_per_second, "update_bytes_per_second");
  if (on_device_) {
    price.device_seconds = seconds;
    return price;
  }
  // Measured on threads_per_rank threads; fewer or more of them move the cores' part, memory sets the limit.
  const double measured_threads =
      std::min<double>(std::max(1, machine_.threads_per_rank), capacities_[static_cast<std::size_t>(Resource::kCores)]);
  price.cores = threads_;
  price.core_seconds = seconds * measured_threads;
  price.memory_bytes = std::min(bytes, seconds * capacities_[static_cast<std::size_t>(Resource::kMemory)]);
  return price;
}

Price PriceList::norm(std::int64_t elements, bool on_host) const {
  const double bytes = static_cast<double>(elements) * kFloatBytes;
  return on_host ? host_passes(bytes) : passes(bytes);
}

Price PriceList::move(Lane lane, std::int64_t bytes, bool accumulate) const {
  const auto amount = static_cast<double>(bytes);
  const double one_core = std::min(1.0, capacities_[static_cast<std::size_t>(Resource::kCores)]);
  if (lane == Lane::kDiskRead || lane == Lane::kDiskWrite) {
    SLUICE_CHECK(machine_.disk.read_bytes_per_second > 0 && machine_.disk.write_bytes_per_second > 0, "a plan with a disk on machine ",
                 machine_.name, ", of which no disk is known");
    Price price = task();
    (lane == Lane::kDiskRead ? price.disk_read_bytes : price.disk_write_bytes) = amount;
    price.memory_bytes = amount;
    price.core_seconds = amount * kDiskCoreSeconds;
    price.cores = one_core;
    return price;
  }
  SLUICE_CHECK(lane == Lane::kUpload || lane == Lane::kDownload, "a move on lane ", name_of(lane));
  const double rate = lane == Lane::kUpload ? machine_.upload_bytes_per_second : machine_.download_bytes_per_second;
  if (on_device_) {
    Price price = accumulate ? host_passes(2 * amount) : task();
    price.memory_bytes += amount;
    (lane == Lane::kUpload ? price.upload_bytes : price.download_bytes) = amount;
    positive(rate, "upload_bytes_per_second or download_bytes_per_second");
    return price;
  }
  const double traffic = (accumulate ? 3 : 2) * amount, memory = capacities_[static_cast<std::size_t>(Resource::kMemory)];
  const double seconds = rate > 0 ? traffic / (2 * rate) : traffic / memory;
  Price price = task();
  price.cores = one_core;
  price.core_seconds = seconds * one_core;
  price.memory_bytes = std::min(traffic, seconds * memory);
  return price;
}

Price PriceList::agree() const {
  Price price = task();
  if (ranks_ > 1) price.latency_seconds += machine_.agree_seconds;
  return price;
}

Price PriceList::load(std::int64_t bytes) const {
  Price price = task();
  price.memory_bytes = 2.0 * static_cast<double>(bytes);  // out of the file's pages, into the buffer
  price.core_seconds = price.memory_bytes / capacities_[static_cast<std::size_t>(Resource::kMemory)];
  return price;
}

Price PriceList::save(std::int64_t elements) const {
  Price price = task();
  price.disk_write_bytes = static_cast<double>(elements) * kFloatBytes;
  return price;
}

Demand demand_of(const Price& price, const Capacities& capacities) {
  Demand demand;
  for (int r = 0; r < kSharedResourceCount; ++r) {
    const auto i = static_cast<std::size_t>(r);
    const double amount = amount_of(price, static_cast<Resource>(r));
    if (amount <= 0) continue;
    const double most = static_cast<Resource>(r) == Resource::kCores ? std::min(price.cores, capacities[i]) : capacities[i];
    const double seconds = amount / most;
    if (seconds > demand.seconds) {
      demand.seconds = seconds;
      demand.binding = static_cast<Resource>(r);
    }
  }
  if (demand.seconds <= 0) return demand;
  for (int r = 0; r < kSharedResourceCount; ++r)
    demand.rate[static_cast<std::size_t>(r)] = amount_of(price, static_cast<Resource>(r)) / demand.seconds;
  return demand;
}

double PriceList::alone_seconds(const Price& price) const {
  return price.latency_seconds + demand_of(price, capacities_).seconds;
}

double disk_seconds(const PriceList& list, double read_bytes, double write_bytes) {
  if (read_bytes + write_bytes == 0) return 0;  // there may be no disk
  constexpr auto kRead = static_cast<std::size_t>(Resource::kDiskRead), kWrite = static_cast<std::size_t>(Resource::kDiskWrite);
  const Capacities &alone = list.capacities(), &both = list.capacities_of_both_directions();
  const double in_turn = read_bytes / alone[kRead] + write_bytes / alone[kWrite];
  const double together = std::min(read_bytes / both[kRead], write_bytes / both[kWrite]);
  const double at_once =
      together + (read_bytes - together * both[kRead]) / alone[kRead] + (write_bytes - together * both[kWrite]) / alone[kWrite];
  return std::min(in_turn, at_once);
}

std::int64_t moved_bytes(const StepGraph& graph, const Task& task, const BuildInputs& inputs) {
  const Use *source = graph.use_of(task, Role::kSource), *target = graph.use_of(task, Role::kTarget);
  SLUICE_CHECK(task.kind == TaskKind::kMove && source != nullptr && target != nullptr, "a ", name_of(task.kind), " task moves nothing");
  std::int64_t bytes = 0;
  if (task.chunk >= 0) {
    const std::int64_t elements = inputs.layout->chunks()[static_cast<std::size_t>(task.chunk)].elements;
    bytes =
        (inputs.plan.zero_stage == 0 ? elements : chunks::largest_shard(elements, inputs.ranks)) * inputs.layout->element_bytes(task.plane);
  } else {
    bytes = std::min(graph.buffers[source->buffer].bytes, graph.buffers[target->buffer].bytes);
  }
  const bool is_disk = task.lane == Lane::kDiskRead || task.lane == Lane::kDiskWrite;
  return is_disk ? round_up(bytes, kDiskAlignment) : bytes;
}

DiskTraffic disk_traffic(const StepGraph& graph, const BuildInputs& inputs) {
  DiskTraffic traffic;
  for (const Task& task : graph.tasks) {
    if (task.kind != TaskKind::kMove) continue;
    if (task.lane == Lane::kDiskRead) traffic.read_bytes += moved_bytes(graph, task, inputs);
    if (task.lane == Lane::kDiskWrite) traffic.written_bytes += moved_bytes(graph, task, inputs);
  }
  return traffic;
}

std::int64_t bytes_a_day(std::int64_t bytes, double seconds) {
  constexpr double kDay = 24 * 3600;  // seconds
  SLUICE_CHECK(seconds > 0, bytes, " bytes in ", seconds, " seconds");
  return static_cast<std::int64_t>(static_cast<double>(bytes) * kDay / seconds);
}

std::vector<Price> price_tasks(const StepGraph& graph, const BuildInputs& inputs, const spec::MachineSpec& machine) {
  const PriceList list(machine, inputs.ranks, inputs.plan.threads);
  const model::Shape shape{graph.kind == GraphKind::kGenerate ? 1 : inputs.plan.micro_batch, inputs.sequence_length};
  struct Known {
    model::SegmentKind kind;
    model::Phase phase;
    bool stores_saved;
    double frozen_part;
    model::Work work;
    Price price;
  };
  std::vector<Known> known;  // segments of a kind are alike: a handful
  const chunks::ChunkLayout& layout = *inputs.layout;
  const auto compute_price = [&](const Task& task) {
    const model::Segment& segment = *inputs.model->segments[static_cast<std::size_t>(task.segment)];
    const model::Work work = segment.work(task.phase, shape);
    const bool stores_saved = graph.use_of(task, Role::kSaved) != nullptr;
    const double frozen = frozen_part(*inputs.model, layout.grouping(), segment, task.phase, shape);
    for (const Known& k : known) {
      if (k.kind == segment.kind() && k.phase == task.phase && k.stores_saved == stores_saved && k.frozen_part == frozen &&
          k.work.flops == work.flops && k.work.memory_bytes == work.memory_bytes)
        return k.price;
    }
    known.push_back({segment.kind(), task.phase, stores_saved, frozen, work,
                     list.compute(*inputs.model, layout.grouping(), segment, task.phase, shape, stores_saved)});
    return known.back().price;
  };
  const auto elements_of = [&](const Task& task) { return inputs.layout->chunks()[static_cast<std::size_t>(task.chunk)].elements; };
  const auto shard_of = [&](const Task& task) { return chunks::largest_shard(elements_of(task), inputs.ranks); };
  std::vector<Price> prices;
  prices.reserve(graph.tasks.size());
  for (const Task& task : graph.tasks) {
    switch (task.kind) {
      case TaskKind::kLoad: {
        const Use* tokens = graph.use_of(task, Role::kTokens);
        prices.push_back(list.load(tokens != nullptr ? graph.buffers[tokens->buffer].bytes : 0));
        break;
      }
      case TaskKind::kAgree:
        prices.push_back(list.agree());
        break;
      case TaskKind::kCompute:
        prices.push_back(compute_price(task));
        break;
      case TaskKind::kGather:
        prices.push_back(list.gather(elements_of(task), layout.element_bytes(task.plane), graph.use_of(task, Role::kSource) != nullptr));
        break;
      case TaskKind::kScatter:
        // In place (no source of its own) with one rank there is nothing to do.
        if (inputs.ranks == 1 && graph.use_of(task, Role::kSource) == nullptr) {
          prices.push_back({.latency_seconds = machine.task_seconds});
        } else {
          prices.push_back(list.scatter(elements_of(task), task.accumulate));
        }
        break;
      case TaskKind::kNorm:
        prices.push_back(task.chunk >= 0 ? list.norm(shard_of(task), task.lane == Lane::kHostCompute) : list.agree());
        break;
      case TaskKind::kUpdate:
        prices.push_back(list.update(inputs.plan.zero_stage == 0 ? elements_of(task) : shard_of(task), layout.grouping(),
                                     task.lane == Lane::kHostCompute));
        break;
      case TaskKind::kForeign:
        prices.push_back(list.save(shard_of(task)));
        break;
      case TaskKind::kMove:
        prices.push_back(list.move(task.lane, moved_bytes(graph, task, inputs), task.accumulate));
        break;
      case TaskKind::kSend:
      case TaskKind::kRecv:
      case TaskKind::kCollective:
        SLUICE_CHECK(false, "no price for ", name_of(task.kind));
    }
  }
  return prices;
}

}  // namespace sluice::schedule

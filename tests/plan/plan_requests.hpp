#pragma once
// Requests for tests: a machine whose numbers are round, and presets on it.

#include <string>

#include "base/units.hpp"
#include "plan/search.hpp"
#include "plan/workbench.hpp"
#include "spec/preset.hpp"

namespace sluice::test {

/// A node of 16 cores in round numbers.
inline spec::MachineSpec round_machine(int ranks_per_node) {
  spec::MachineSpec m;
  m.name = "round";
  m.ranks_per_node = ranks_per_node;
  m.cores_per_node = 16;
  m.threads_per_rank = 4;
  m.flops_per_core = 50e9;
  m.memory_bytes_per_second = 100e9;
  m.update_bytes_per_second = 20e9;
  m.gather = {.latency_seconds = 20e-6, .bytes_per_second = 5e9};
  m.scatter = {.latency_seconds = 20e-6, .bytes_per_second = 3e9};
  m.agree_seconds = 30e-6;
  m.task_seconds = 1e-6;
  m.wake_seconds = 10e-6;
  m.unplanned_bytes = 20 * kMiB;
  return m;
}

inline plan::PlanRequest plan_request(const std::string& preset, std::int64_t ranks, std::int64_t global_batch, std::int64_t sequence,
                                      std::int64_t device_bytes) {
  plan::PlanRequest request;
  request.model = spec::load_preset(preset, {SLUICE_SOURCE_DIR "/configs/models"});
  request.mesh.data = ranks;
  request.training.batch = {.global_batch = global_batch, .sequence_length = sequence};
  request.machine = round_machine(static_cast<int>(std::min<std::int64_t>(ranks, 4)));
  request.budget.device_bytes = device_bytes;
  request.threads = 4;
  return request;
}

/// The same on one node of four cores a rank, with host memory and a disk for what the device can't hold.
inline plan::PlanRequest tiered_request(const std::string& preset, std::int64_t ranks, std::int64_t global_batch, std::int64_t sequence,
                                        const spec::Budget& budget) {
  plan::PlanRequest request = plan_request(preset, ranks, global_batch, sequence, budget.device_bytes);
  request.budget = budget;
  request.machine.cores_per_node = 4 * request.machine.ranks_per_node;
  request.machine.upload_bytes_per_second = request.machine.download_bytes_per_second = 8e9;
  request.machine.disk = {
      .read_bytes_per_second = 3e9, .write_bytes_per_second = 2e9, .read_beside_write = 2e9, .write_beside_read = 1.4e9};
  return request;
}

/// `part` (0 to 1) of the way from the least rCache to the whole model.
inline std::int64_t rcache_at(plan::Workbench& bench, std::int64_t chunk_elements, int prefetch, double part) {
  const auto [least, whole] = bench.rcache_range(chunk_elements, prefetch);
  return part >= 1 ? whole : least + static_cast<std::int64_t>(part * static_cast<double>(whole - least)) / 256 * 256;
}

}  // namespace sluice::test

#pragma once
// From a request to the plan that a run follows: profile, search, explanation, plan.json.

#include <cstdint>
#include <optional>
#include <string>

#include "app/command_line.hpp"
#include "app/found_plan.hpp"
#include "base/log.hpp"
#include "comm/communicator.hpp"
#include "memory/io/file_engine.hpp"
#include "profile/trace_ring.hpp"
#include "spec/machine_spec.hpp"
#include "spec/plan.hpp"
#include "train/engine.hpp"

namespace sluice::app {

struct Planned {
  spec::Plan plan;
  int segments_between_agrees = 0;
  double predicted_seconds = 0;        // of a step
  std::string graph_hash;              // of the step graph that was simulated
  std::int64_t disk_bytes = 0;         // that a rank's swap files take
  memory::FileEngine::Options engine;  // of its swap files: as pinned, else as measured, else what suits most disks
  spec::MachineSpec machine;           // what it was predicted with; empty name: the plan came from a file
};

/// The plan of a run, the same on all ranks, in plan.json before this returns: the run's own from an earlier attempt, else
/// --plan FILE, else profile and search. An earlier plan for another number of ranks, for other threads than --threads says or more than
/// there are cores, or one that doesn't fit any more, is replaced, and the log says so; else its threads are kept, too. Collective; errors
/// are agreed.
Planned plan_run(comm::Communicator& world, const PlanningRequest& request, Log& log);

/// trace.json of rank 0: the last steps beside the simulation of the same graph, where the plan came with a profile.
void write_trace(const Planned& planned, const train::Engine& engine, const profile::TraceRing& ring, const std::string& path);

/// `plan` and `train --dry-run`: search and explain, without MPI and without writing anything but what measuring needs. Returns the exit
/// code.
int plan_command(const Command& command);
/// `profile`: measure this machine with all ranks and say what was found, or with --json print the machine file.
int profile_command(const Command& command);

}  // namespace sluice::app

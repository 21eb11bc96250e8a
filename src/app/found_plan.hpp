#pragma once
// Plans from files: whether one can serve this run, and which one does.

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "app/configuration.hpp"
#include "app/run_directory.hpp"
#include "base/log.hpp"
#include "plan/explain.hpp"
#include "plan/workbench.hpp"
#include "spec/machine_spec.hpp"
#include "spec/plan.hpp"

namespace sluice::app {

struct PlanningRequest {
  const Configuration* configuration = nullptr;
  const spec::ModelSpec* model = nullptr;
  spec::Budget budget;
  int threads = 1;  // per rank: as asked, else as cores are given
  int ranks_on_node = 1;
  int cores_on_node = 1;  // that are there, whoever may use them
  const RunDirectory* directory = nullptr;
  std::string swap_job;  // as swap_job(), the same on all ranks
};

/// What the planner is asked for a configuration, on this many ranks.
plan::PlanRequest plan_request(const Configuration& configuration, const spec::ModelSpec& model, const spec::MachineSpec& machine,
                               const spec::Budget& budget, int threads, std::int64_t ranks);

/// Whether a plan from a file can serve this run.
struct Fitness {
  std::string unfit;                                   // why not; empty: it can
  bool lacks_memory = false;                           // that is for want of device or host memory
  bool lacks_space = false;                            // that is for want of disk space
  std::array<std::int64_t, spec::kTierCount> bytes{};  // of each tier that a rank needs, the device's with what is outside the arenas

  std::int64_t disk_bytes() const { return bytes[static_cast<std::size_t>(spec::Tier::kDisk)]; }
};

/// A plan from a file that serves.
struct FoundPlan {
  std::string text;  // of the file
  plan::PlanRecord record;
  Fitness fitness;
  bool is_own = false;  // of an attempt before
};
/// That of --plan FILE, whether it serves or not. Throws EnvironmentError, FormatError.
FoundPlan read_given_plan(const Configuration& configuration);
/// The run's own plan, where `own_file` is there and the plan can be kept, else that of --plan FILE, which has to serve; says which it is,
/// and why the run's own isn't. None: there is none.
std::optional<FoundPlan> find_plan(const PlanningRequest& request, const std::string& own_file, int ranks, Log& log);

/// What a plan from a file needs of this machine, and how long its steps would take there.
std::string describe_need(const FoundPlan& found, const PlanningRequest& request, plan::Workbench& bench);

}  // namespace sluice::app

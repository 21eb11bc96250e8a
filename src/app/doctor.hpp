#pragma once
// What about this machine and this launch would stand in the way of a run, each with its remedy.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "app/environment.hpp"

namespace sluice::app {

/// How this process was started, as the environment tells it, against what MPI says.
struct LaunchProblem {
  std::string found;  // "SLURM_STEP_NUM_TASKS is 4, but MPI counts 1 process"
  std::string remedy;
};

/// N copies of the program that each believe to be alone would train N times into one directory. Looks for that: a Slurm or Flux step
/// of several tasks, WORLD_SIZE as torch-style launchers set it, or another MPI's launcher, while `mpi_size` is 1. The variables
/// of an allocation (SLURM_NTASKS of a batch script or an interactive shell, outside any step) are not taken for a launch.
/// Empty: nothing wrong.
std::vector<LaunchProblem> find_wrong_launch(const Environment& environment, int mpi_size);

/// Throws RequestError with the first of them.
void refuse_wrong_launch(const Environment& environment, int mpi_size);

enum class Severity : std::uint8_t { kFine, kWarning, kProblem };
std::string name_of(Severity severity);  // "ok", "warning", "problem"

struct Finding {
  Severity severity = Severity::kFine;
  std::string subject;  // "memory"
  std::string found;
  std::string remedy;  // empty when fine
};

/// What the findings are made from; -1 where it can't be read.
struct DoctorFacts {
  std::vector<std::pair<std::string, std::string>> libraries;  // "MPI" -> "Open MPI v4.1.4"; an empty version: not there
  std::string processor;
  std::string isa;          // widest one our kernels know here: "avx512", "avx2", "baseline"
  std::int64_t cores = -1;  // in the affinity mask
  std::int64_t cores_online = -1;
  std::int64_t memory_total_bytes = -1;      // the cgroup's limit where lower
  std::int64_t memory_available_bytes = -1;  // likewise
  std::string memory_limit_source;           // "node", or the file of the cgroup
  std::int64_t shm_total_bytes = -1;         // /dev/shm
  std::int64_t shm_free_bytes = -1;
  std::string folder;  // where runs would be written
  bool folder_is_writable = false;
  std::int64_t folder_free_bytes = -1;
  std::string temporary_folder;  // TMPDIR or /tmp, where Open MPI keeps its session
  std::int64_t temporary_free_bytes = -1;
  int mpi_size = 1;
};

/// Reads this machine. `libraries` come from the layers that hold them.
DoctorFacts read_doctor_facts(const Environment& environment, const std::vector<std::pair<std::string, std::string>>& libraries);

/// All findings, fine ones too, in a fixed order.
std::vector<Finding> diagnose(const DoctorFacts& facts, const Environment& environment);

/// One line a finding, remedies below.
std::string describe(const std::vector<Finding>& findings);
std::string to_json(const std::vector<Finding>& findings);
/// The worst of them.
Severity worst_of(const std::vector<Finding>& findings);

}  // namespace sluice::app

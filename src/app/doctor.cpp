#include "app/doctor.hpp"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "device/cpu/cpu_device.hpp"

namespace sluice::app {
namespace {

constexpr std::int64_t kSmallShm = kGiB;                  // gradients of two ranks pass through it; containers often give 64 MiB
constexpr std::int64_t kSmallFolder = 5 * kGiB;           // three checkpoints of a 124 M model (1.5 GB each)
constexpr std::int64_t kSmallTemporary = 64 * kMiB;       // Open MPI's session files
constexpr std::int64_t kSmallMemory = 2 * kGiB;           // parameters, gradients and moments of a 124 M model
constexpr std::int64_t kReservedSlurmSteps = 0xFFFFFFF0;  // step numbers from here on are Slurm's own: interactive, batch, extern

/// The variable as a whole number, if it is one.
std::optional<std::int64_t> number_in(const Environment& environment, const std::string& name) {
  const std::string text = value_of(environment, name);
  char* end = nullptr;
  const long long number = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0') return std::nullopt;
  return number;
}

/// Inside a step that srun made, where the task count is how many copies were started. A batch script and the shell of an interactive
/// allocation hold SLURM_NTASKS as well, but no step number, or one of Slurm's own.
bool in_slurm_step(const Environment& environment) {
  std::optional<std::int64_t> step = number_in(environment, "SLURM_STEP_ID");
  if (!step) step = number_in(environment, "SLURM_STEPID");
  if (step && *step >= 0 && *step < kReservedSlurmSteps) return true;
  return number_in(environment, "SLURM_PROCID").value_or(0) > 0;  // only a step has a second task
}

std::string copies(std::int64_t count) {
  return cat("; each of the ", count, " copies would train alone into the same directory");
}

struct FreeSpace {
  std::int64_t total = -1;
  std::int64_t free = -1;
};

FreeSpace space_of(const std::string& folder) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) return {};
  const auto unit = static_cast<std::int64_t>(info.f_frsize);
  return {static_cast<std::int64_t>(info.f_blocks) * unit, static_cast<std::int64_t>(info.f_bavail) * unit};
}

std::string bytes_or_unknown(std::int64_t bytes) {
  return bytes < 0 ? std::string("unknown") : format_bytes(bytes);
}

Finding weigh_space(const std::string& subject, const std::string& found, std::int64_t bytes, std::int64_t least,
                    const std::string& remedy) {
  const bool fine = bytes < 0 || bytes >= least;
  return {fine ? Severity::kFine : Severity::kWarning, subject, found, fine ? std::string() : remedy};
}

Finding weigh_processor(const DoctorFacts& facts) {
  const std::string found = cat(facts.processor.empty() ? "unknown" : facts.processor, ", kernels for ", facts.isa);
  if (facts.isa != "baseline") return {Severity::kFine, "processor", found, ""};
  return {Severity::kWarning, "processor", found, "it has no AVX2, so training is slow; use a newer processor"};
}

Finding weigh_cores(const DoctorFacts& facts, const Environment& environment) {
  const std::string found = cat(facts.cores, " of ", facts.cores_online, " cores may be used by this process");
  const std::int64_t threads = number_in(environment, "OMP_NUM_THREADS").value_or(0);
  if (facts.cores > 0 && threads > facts.cores) {
    return {Severity::kWarning, "cores", cat(found, ", and OMP_NUM_THREADS is ", threads),
            cat("threads would share cores; give --threads ", facts.cores, " or less, or start with `mpirun --bind-to none`")};
  }
  if (const std::int64_t limit = number_in(environment, "OMP_THREAD_LIMIT").value_or(facts.cores); limit > 0 && limit < facts.cores) {
    return {Severity::kWarning, "cores", cat(found, ", and OMP_THREAD_LIMIT is ", limit), "a rank has no more threads than that; unset it"};
  }
  if (facts.cores == 1 && facts.cores_online > 1) {
    return {Severity::kWarning, "cores", found,
            "the launcher binds each process to one core; for more threads start with `mpirun --bind-to none`"};
  }
  return {Severity::kFine, "cores", found, ""};
}

}  // namespace

std::vector<LaunchProblem> find_wrong_launch(const Environment& environment, int mpi_size) {
  std::vector<LaunchProblem> problems;
  if (mpi_size > 1) return problems;
  const auto add = [&](const std::string& name, std::int64_t count, const std::string& remedy) {
    problems.push_back({cat(name, " is ", count, ", but MPI counts 1 process", copies(count)), remedy});
  };
  const std::string stale = "; if the variable is left over from another program, unset it";

  if (in_slurm_step(environment)) {
    const std::optional<std::int64_t> of_step = number_in(environment, "SLURM_STEP_NUM_TASKS");
    const std::int64_t tasks = of_step.value_or(number_in(environment, "SLURM_NTASKS").value_or(1));
    if (tasks > 1) {
      add(of_step ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", tasks,
          cat("start with `srun --mpi=pmix` (see `srun --mpi=list`), or with `mpirun -n ", tasks, "` from the batch script"));
    }
  }
  if (const auto tasks = number_in(environment, "FLUX_JOB_SIZE").value_or(1); tasks > 1 && environment.contains("FLUX_TASK_RANK")) {
    add("FLUX_JOB_SIZE", tasks, cat("start with `flux run -o pmi=pmix`, or with `mpirun -n ", tasks, "` from the batch script"));
  }
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"}) {
    const std::int64_t size = number_in(environment, name).value_or(1);
    if (size > 1)
      add(name, size,
          "the launcher belongs to another MPI than the one Sluice was built with; use that one's mpirun (`sluice doctor` names it)");
  }
  if (const std::int64_t size = number_in(environment, "WORLD_SIZE").value_or(1); size > 1) {
    add("WORLD_SIZE", size,
        cat("the launcher starts processes without MPI; start with `mpirun -n ", size,
            "`, or give deepspeed `--force_multi --launcher openmpi` and a hostfile", stale));
  }
  return problems;
}

void refuse_wrong_launch(const Environment& environment, int mpi_size) {
  const std::vector<LaunchProblem> problems = find_wrong_launch(environment, mpi_size);
  if (!problems.empty()) throw RequestError(cat("wrong launch: ", problems.front().found, "; ", problems.front().remedy));
}

std::string name_of(Severity severity) {
  constexpr std::array<const char*, 3> kNames{"ok", "warning", "problem"};
  return kNames.at(static_cast<std::size_t>(severity));
}

DoctorFacts read_doctor_facts(const Environment& environment, const std::vector<std::pair<std::string, std::string>>& libraries) {
  DoctorFacts facts;
  facts.libraries = libraries;
  const device::CpuFacts cpu = device::read_cpu_facts();
  facts.processor = cpu.model_name;
  facts.isa = std::string(device::name_of(device::detect_isa()));
  facts.cores = cpu.cores;
  facts.cores_online = ::sysconf(_SC_NPROCESSORS_ONLN);
  facts.memory_total_bytes = cpu.memory_total_bytes;
  facts.memory_available_bytes = cpu.memory_available_bytes;
  facts.memory_limit_source = cpu.memory_limit_source;
  const FreeSpace shm = space_of("/dev/shm");
  facts.shm_total_bytes = shm.total;
  facts.shm_free_bytes = shm.free;
  std::error_code error;
  facts.folder = std::filesystem::current_path(error).string();
  facts.folder_is_writable = !error && ::access(facts.folder.c_str(), W_OK) == 0;
  facts.folder_free_bytes = space_of(facts.folder).free;
  facts.temporary_folder = value_of(environment, "TMPDIR").empty() ? "/tmp" : value_of(environment, "TMPDIR");
  facts.temporary_free_bytes = space_of(facts.temporary_folder).free;
  // MPI is not started here; a launcher that speaks its language tells the count.
  std::int64_t size = number_in(environment, "OMPI_COMM_WORLD_SIZE").value_or(1);
  if (environment.contains("PMIX_RANK")) size = std::max(size, number_in(environment, "SLURM_STEP_NUM_TASKS").value_or(1));
  facts.mpi_size = static_cast<int>(std::clamp<std::int64_t>(size, 1, 1 << 30));
  return facts;
}

std::vector<Finding> diagnose(const DoctorFacts& facts, const Environment& environment) {
  std::vector<Finding> findings;
  for (const auto& [name, version] : facts.libraries) {
    if (version.empty()) {
      findings.push_back({Severity::kProblem, name, "not found", cat("install ", name, " and build again")});
    } else {
      findings.push_back({Severity::kFine, name, version, ""});
    }
  }
  findings.push_back(weigh_processor(facts));
  findings.push_back(weigh_cores(facts, environment));
  findings.push_back(
      weigh_space("memory",
                  cat(bytes_or_unknown(facts.memory_available_bytes), " of ", bytes_or_unknown(facts.memory_total_bytes),
                      " free, limited by ", facts.memory_limit_source.empty() ? "node" : facts.memory_limit_source),
                  facts.memory_available_bytes, kSmallMemory,
                  "little memory is left; end other programs, ask the queue for more (--mem), or raise the container's limit"));
  findings.push_back(weigh_space(
      "/dev/shm", cat(bytes_or_unknown(facts.shm_free_bytes), " of ", bytes_or_unknown(facts.shm_total_bytes), " free"),
      facts.shm_free_bytes, kSmallShm, "the ranks of a node exchange gradients there; give the container more (docker --shm-size=8g)"));
  if (!facts.folder_is_writable) {
    findings.push_back(
        {Severity::kProblem, "disk", cat(facts.folder, " can't be written"), "change to a folder of yours, or give --output"});
  } else {
    findings.push_back(weigh_space("disk", cat(bytes_or_unknown(facts.folder_free_bytes), " free in ", facts.folder),
                                   facts.folder_free_bytes, kSmallFolder,
                                   "checkpoints need 12 bytes a parameter each; give --output on a larger disk, or checkpoint.keep"));
  }
  findings.push_back(weigh_space("temporary files", cat(bytes_or_unknown(facts.temporary_free_bytes), " free in ", facts.temporary_folder),
                                 facts.temporary_free_bytes, kSmallTemporary,
                                 "MPI keeps its session files there; point TMPDIR to a folder with space"));
  const std::vector<LaunchProblem> launch = find_wrong_launch(environment, facts.mpi_size);
  for (const LaunchProblem& problem : launch) findings.push_back({Severity::kProblem, "launch", problem.found, problem.remedy});
  if (launch.empty()) findings.push_back({Severity::kFine, "launch", "nothing in the environment contradicts MPI", ""});
  if (value_of(environment, "UCX_TLS") == "tcp") {
    findings.push_back({Severity::kWarning, "network", "UCX_TLS is tcp, as deepspeed's launcher sets it",
                        "it keeps UCX off fast networks; unset it, or start with mpirun"});
  }
  return findings;
}

std::string describe(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    std::string severity = name_of(finding.severity);
    severity.resize(7, ' ');
    text += cat(severity, "  ", finding.subject, ": ", finding.found, "\n");
    if (!finding.remedy.empty()) text += cat("         -> ", finding.remedy, "\n");
  }
  return text;
}

std::string to_json(const std::vector<Finding>& findings) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    json.push_back(
        {{"severity", name_of(finding.severity)}, {"subject", finding.subject}, {"found", finding.found}, {"remedy", finding.remedy}});
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Severity worst_of(const std::vector<Finding>& findings) {
  Severity worst = Severity::kFine;
  for (const Finding& finding : findings) worst = std::max(worst, finding.severity);
  return worst;
}

}  // namespace sluice::app

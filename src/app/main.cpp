// The program: command line in, exit code out. Catches what is thrown before MPI is up and what the verbs let pass; `train`
// and `profile` end their ranks themselves, since what one of them throws has to end the others.

#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "app/command_line.hpp"
#include "app/configuration.hpp"
#include "app/data_commands.hpp"
#include "app/doctor.hpp"
#include "app/doctor_disk.hpp"
#include "app/environment.hpp"
#include "app/export.hpp"
#include "app/generate_command.hpp"
#include "app/inspect_commands.hpp"
#include "app/planning.hpp"
#include "app/train_command.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "checkpoint/catalog.hpp"
#include "comm/local/local_communicator.hpp"
#include "comm/mpi/mpi_communicator.hpp"
#include "ops/context.hpp"

namespace {

using namespace sluice;

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  if (text.empty() || text.back() != '\n') std::fputc('\n', stdout);
}

int check_configuration(const app::Command& command) {
  const app::Examination examination = app::examine(command.request, command.ranks);
  print(command.json ? app::to_json(examination) : app::describe(examination));
  return static_cast<int>(examination.problems.empty() ? ExitCode::kFinished : ExitCode::kRequest);
}

int look_around(const app::Command& command, const app::Environment& environment) {
  const std::vector<std::pair<std::string, std::string>> libraries = {
      {"MPI", comm::mpi_library_version()}, {"HDF5", checkpoint::hdf5_library_version()}, {"kernels", ops::library_versions()}};
  std::vector<app::Finding> findings = app::diagnose(app::read_doctor_facts(environment, libraries), environment);
  if (!command.nvme_paths.empty()) {
    std::vector<app::SwapPathFacts> paths;
    for (const std::string& path : command.nvme_paths) paths.push_back(app::read_swap_path(path, comm::make_single_rank()->host_name()));
    const std::vector<app::Finding> more = app::diagnose_swap(paths, app::read_swap_limits());
    findings.insert(findings.end(), more.begin(), more.end());
  }
  print(command.json ? app::to_json(findings) : app::describe(findings));
  return static_cast<int>(app::worst_of(findings) == app::Severity::kProblem ? ExitCode::kEnvironment : ExitCode::kFinished);
}

int run(const app::Command& command, const app::Environment& environment) {
  switch (command.verb) {
    case app::Verb::kText:
      print(command.text);
      return 0;
    case app::Verb::kTrain:
      return app::train_command(command, environment);
    case app::Verb::kProfile:
      return app::profile_command(command);
    case app::Verb::kPlan:
      return app::plan_command(command);
    case app::Verb::kConfigCheck:
      return check_configuration(command);
    case app::Verb::kCheckpointList:
      return app::list_checkpoints_command(command);
    case app::Verb::kCheckpointShow:
      return app::show_checkpoint_command(command);
    case app::Verb::kCheckpointVerify:
      return app::verify_checkpoint_command(command);
    case app::Verb::kCheckpointExport:
      return app::export_command(command);
    case app::Verb::kDataInspect:
      return app::inspect_data_command(command, environment);
    case app::Verb::kDataTokenize:
      return app::tokenize_data_command(command);
    case app::Verb::kGenerate:
      return app::generate_command(command);
    case app::Verb::kDoctor:
      return look_around(command, environment);
  }
  throw LogicError("a verb without a body");
}

int end(ExitCode code, const char* what) {
  std::fprintf(stderr, "sluice: %s\n", what);
  return static_cast<int>(code);
}

}  // namespace

int main(int count, char** values) {
  const app::Environment environment = app::read_environment();
  app::Command command;
  try {
    command = app::parse_command_line({values + 1, values + count}, SLUICE_VERSION);
  } catch (const Error& error) {
    // All ranks were given the same words; one of them is enough to say what is wrong with these.
    return app::is_later_rank(environment) ? static_cast<int>(error.code()) : end(error.code(), error.what());
  }
  try {
    return run(command, environment);
  } catch (const Error& error) {
    return end(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return end(ExitCode::kEnvironment, "the machine's memory is used up; give smaller budgets (--host-memory, --device-memory)");
  } catch (const std::exception& error) {
    return end(ExitCode::kDefect, error.what());
  }
}

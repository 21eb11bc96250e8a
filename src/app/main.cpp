// The program: command line in, exit code out. The only catch of everything that is thrown.

#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "app/command_line.hpp"
#include "app/configuration.hpp"
#include "app/doctor.hpp"
#include "app/environment.hpp"
#include "base/error.hpp"
#include "base/text.hpp"

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
  const std::vector<app::Finding> findings = app::diagnose(app::read_doctor_facts(environment, {}), environment);
  print(command.json ? app::to_json(findings) : app::describe(findings));
  return static_cast<int>(app::worst_of(findings) == app::Severity::kProblem ? ExitCode::kEnvironment : ExitCode::kFinished);
}

int run(const std::vector<std::string>& arguments) {
  const app::Environment environment = app::read_environment();
  const app::Command command = app::parse_command_line(arguments, SLUICE_VERSION);
  switch (command.verb) {
    case app::Verb::kText:
      print(command.text);
      return 0;
    case app::Verb::kConfigCheck:
      return check_configuration(command);
    case app::Verb::kDoctor:
      return look_around(command, environment);
    default:
      throw RequestError("this build has no engine, so it can't do that; verbs that work: config check, doctor");
  }
}

int end(ExitCode code, const char* what) {
  std::fprintf(stderr, "sluice: %s\n", what);
  return static_cast<int>(code);
}

}  // namespace

int main(int count, char** values) {
  try {
    return run({values + 1, values + count});
  } catch (const Error& error) {
    return end(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return end(ExitCode::kEnvironment, "the machine's memory is used up; give smaller budgets (--host-memory, --device-memory)");
  } catch (const std::exception& error) {
    return end(ExitCode::kDefect, error.what());
  }
}

#include "app/inspect_commands.hpp"

#include <algorithm>
#include <cstdio>

#include "app/session.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "checkpoint/catalog.hpp"

namespace sluice::app {
namespace {

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  if (text.empty() || text.back() != '\n') std::fputc('\n', stdout);
}

}  // namespace

int list_checkpoints_command(const Command& command) {
  const std::vector<checkpoint::Entry> entries = checkpoint::list_checkpoints(checkpoint::locate_checkpoints(command.path).directory);
  print(command.json ? checkpoint::to_json(entries) : checkpoint::describe(entries));
  const bool damaged =
      std::any_of(entries.begin(), entries.end(), [](const checkpoint::Entry& e) { return e.state == checkpoint::State::kDamaged; });
  return static_cast<int>(damaged ? ExitCode::kFormat : ExitCode::kFinished);
}

int show_checkpoint_command(const Command& command) {
  const checkpoint::Manifest manifest = checkpoint::read_manifest(newest_whole(command.path));
  print(command.json ? checkpoint::summary_json(manifest) : checkpoint::describe(manifest));
  return 0;
}

int verify_checkpoint_command(const Command& command) {
  const checkpoint::Location location = checkpoint::locate_checkpoints(command.path);
  std::vector<std::string> paths;
  if (location.path) {
    paths.push_back(*location.path);
  } else {
    for (const checkpoint::Entry& entry : checkpoint::list_checkpoints(location.directory)) {
      if (entry.state != checkpoint::State::kIncomplete) paths.push_back(entry.path);
    }
  }
  if (paths.empty()) throw RequestError(cat(command.path, ": holds no checkpoint"));
  bool whole = true;
  std::string list;
  for (const std::string& path : paths) {
    const checkpoint::Verification verification = checkpoint::verify_checkpoint(path, !command.quick);
    whole = whole && verification.whole();
    if (command.json) {
      list += cat(list.empty() ? "" : ",\n", checkpoint::to_json(verification));
    } else {
      print(checkpoint::describe(verification));
    }
  }
  if (command.json) print(cat("[", list, "]"));
  return static_cast<int>(whole ? ExitCode::kFinished : ExitCode::kFormat);
}

}  // namespace sluice::app

#include "checkpoint/load.hpp"

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.hpp"
#include "checkpoint/catalog.hpp"
#include "checkpoint/geometry.hpp"
#include "checkpoint/shard.hpp"

namespace sluice::checkpoint {
namespace {

using nlohmann::json;

struct Failure {
  std::string text;
  int code = 0;
};

// Runs `body`; its exception as a value, for agree_or_throw.
Failure attempt(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return {error.what(), static_cast<int>(error.code())};
  } catch (const std::exception& error) {
    return {error.what(), static_cast<int>(ExitCode::kDefect)};
  }
  return {};
}

std::string show(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += cat(i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

void check_params(const std::string& path, const std::vector<ParamInfo>& wanted, const std::vector<ParamInfo>& held) {
  for (std::size_t i = 0; i < std::min(wanted.size(), held.size()); ++i) {
    if (wanted[i] == held[i]) continue;
    throw RequestError(cat(path, ": holds another model: its parameter ", i, " is ", held[i].name, " ", show(held[i].shape),
                           ", this run's is ", wanted[i].name, " ", show(wanted[i].shape)));
  }
  if (wanted.size() != held.size()) {
    throw RequestError(cat(path, ": holds another model: ", held.size(), " parameters, this run has ", wanted.size()));
  }
}

void load_pieces(const std::string& path, const Manifest& manifest, const std::vector<ParamInfo>& params, const std::vector<Piece>& pieces,
                 int rank) {
  check_params(path, params, manifest.params);
  std::map<std::pair<int, int>, std::vector<std::size_t>> wanted;  // (plane, parameter) to pieces
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    SLUICE_CHECK(plane_index(piece.plane) >= 0, "plane \"", piece.plane, "\" is unknown");
    const std::string fault = region_fault(params, piece.region);
    SLUICE_CHECK(fault.empty(), fault);
    if (piece.region.elements == 0) continue;
    SLUICE_CHECK(piece.data != nullptr, "a piece of ", params[static_cast<std::size_t>(piece.region.param)].name, " has no data");
    wanted[{plane_index(piece.plane), piece.region.param}].push_back(i);
  }
  std::vector<std::int64_t> filled(pieces.size(), 0);
  // Ranks begin at different shards, so that they don't all ask one file server for the same file.
  for (std::size_t n = 0; n < manifest.shards.size(); ++n) {
    const ShardInfo& shard = manifest.shards[(n + static_cast<std::size_t>(rank)) % manifest.shards.size()];
    std::unique_ptr<ShardReader> reader;
    for (const StoredPlane& plane : shard.planes) {
      for (std::size_t s = 0; s < plane.pieces.size(); ++s) {
        const auto targets = wanted.find({plane.plane, plane.pieces[s].param});
        if (targets == wanted.end()) continue;
        for (const std::size_t t : targets->second) {
          const std::vector<SharedRun> runs = shared_runs(plane.pieces[s], pieces[t].region);
          if (runs.empty()) continue;
          if (!reader) reader = std::make_unique<ShardReader>(path, manifest, shard);
          reader->read(plane, s, runs, pieces[t].data, pieces[t].dtype);
          for (const SharedRun& run : runs) filled[t] += run.count;
        }
      }
    }
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (filled[i] == pieces[i].region.elements) continue;
    const std::string& name = params[static_cast<std::size_t>(pieces[i].region.param)].name;
    throw RequestError(cat(path, ": holds ", filled[i], " of ", pieces[i].region.elements, " wanted elements of plane ", pieces[i].plane,
                           " of parameter ", name,
                           "; the run that saved it did not train this parameter, or with an optimizer that keeps none"));
  }
}

// Rank 0's search, as a message for all ranks.
json search(const std::string& directory, std::int64_t below) {
  json refused = json::array();
  std::vector<std::int64_t> steps = committed_steps(directory);
  for (; !steps.empty(); steps.pop_back()) {
    if (steps.back() >= below) continue;
    const Entry entry = inspect_checkpoint(directory + "/" + step_name(steps.back()));
    if (entry.state == State::kWhole) return {{"path", entry.path}, {"refused", refused}};
    if (entry.state == State::kUnreadable)
      throw EnvironmentError(cat("the checkpoint of step ", entry.step, " can't be read: ", entry.reason));
    refused.push_back({{"step", steps.back()}, {"path", entry.path}, {"reason", entry.reason}});
  }
  return {{"path", ""}, {"refused", refused}};
}

[[noreturn]] void refuse_all(const std::string& directory, const std::vector<Refused>& refused) {
  throw_on_all_ranks(FormatError(directory, cat("none of its ", refused.size(), " checkpoints is whole: ", describe_refused(refused),
                                                "; repair them, or give another --output for a new start")));
}

// As select_newest(), without the refusal of having none whole.
Selection select(comm::Communicator& world, const std::string& directory, std::int64_t below) {
  json found;
  Failure failure;
  if (world.rank() == 0) failure = attempt([&] { found = search(directory, below); });
  comm::agree_or_throw(world, failure.text, failure.code);
  found = json::parse(world.broadcast(found.dump(), 0));
  Selection selection;
  selection.path = found.at("path").get<std::string>();
  for (const json& item : found.at("refused")) {
    selection.refused.push_back(
        {item.at("step").get<std::int64_t>(), item.at("path").get<std::string>(), item.at("reason").get<std::string>()});
  }
  return selection;
}

}  // namespace

std::optional<Selection> select_newest(comm::Communicator& world, const std::string& directory, std::int64_t below) {
  Selection selection = select(world, directory, below);
  if (selection.path.empty()) {
    if (!selection.refused.empty()) refuse_all(directory, selection.refused);
    return std::nullopt;
  }
  selection.manifest = open_checkpoint(world, selection.path);
  return selection;
}

Manifest open_checkpoint(comm::Communicator& world, const std::string& path) {
  // One reader of the file; its text is small against the ranks' own traffic.
  std::string text;
  Failure failure;
  if (world.rank() == 0) failure = attempt([&] { text = to_json(read_manifest(path)); });
  comm::agree_or_throw(world, failure.text, failure.code);
  text = world.broadcast(text, 0);
  return manifest_from_json(text, path + "/" + kManifestName);
}

Manifest load_checkpoint(comm::Communicator& world, const std::string& path, const std::vector<ParamInfo>& params,
                         const std::vector<Piece>& pieces) {
  Manifest manifest = open_checkpoint(world, path);
  const Failure failure = attempt([&] { load_pieces(path, manifest, params, pieces, world.rank()); });
  comm::agree_or_throw(world, failure.text, failure.code);
  return manifest;
}

std::optional<Selection> load_newest(comm::Communicator& world, const std::string& directory, const std::vector<ParamInfo>& params,
                                     const std::vector<Piece>& pieces) {
  std::vector<Refused> refused;
  std::int64_t below = std::numeric_limits<std::int64_t>::max();
  while (true) {
    Selection selection = select(world, directory, below);
    refused.insert(refused.end(), selection.refused.begin(), selection.refused.end());
    if (selection.path.empty()) {
      if (!refused.empty()) refuse_all(directory, refused);
      return std::nullopt;
    }
    try {
      selection.manifest = load_checkpoint(world, selection.path, params, pieces);
      selection.refused = refused;
      return selection;
    } catch (const Error& error) {
      if (error.code() != ExitCode::kFormat) throw;  // thrown with the same code on all ranks
      const std::int64_t step = step_of_name(selection.path.substr(selection.path.rfind('/') + 1));
      refused.push_back({step, selection.path, error.what()});
      below = step;
    }
  }
}

std::string describe_refused(const std::vector<Refused>& refused) {
  std::string text;
  for (const Refused& item : refused) text += cat(text.empty() ? "" : "; ", "step ", item.step, " is refused: ", item.reason);
  return text;
}

}  // namespace sluice::checkpoint

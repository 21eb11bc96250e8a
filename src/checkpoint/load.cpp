#include "checkpoint/load.hpp"

#include <algorithm>
#include <exception>
#include <functional>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "base/check.hpp"
#include "checkpoint/catalog.hpp"
#include "checkpoint/geometry.hpp"

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

// Open files of a reader; a batch of pieces rarely needs more, and a process may have a thousand or so.
constexpr std::size_t kOpenShards = 64;

// Rank 0's search, as a message for all ranks.
json search(const std::string& directory, std::int64_t below) {
  json refused = json::array();
  std::vector<std::int64_t> steps = committed_steps(directory);
  for (; !steps.empty(); steps.pop_back()) {
    if (steps.back() >= below) continue;
    const Entry entry = inspect_checkpoint(directory + "/" + step_name(steps.back()));
    if (entry.state == State::kComplete) return {{"path", entry.path}, {"refused", refused}};
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

PieceReader::PieceReader(std::string path, const Manifest& manifest, const std::vector<ParamInfo>& params, int rank)
    : path_(std::move(path)),
      manifest_(manifest),
      params_(params),
      first_shard_(manifest.shards.empty() ? 0 : static_cast<std::size_t>(rank) % manifest.shards.size()) {
  check_params(path_, params_, manifest_.params);
  for (std::size_t turn = 0; turn < manifest_.shards.size(); ++turn) {
    const ShardInfo& shard = manifest_.shards[(first_shard_ + turn) % manifest_.shards.size()];
    for (std::size_t plane = 0; plane < shard.planes.size(); ++plane) {
      const StoredPlane& stored = shard.planes[plane];
      for (std::size_t piece = 0; piece < stored.pieces.size(); ++piece)
        sources_[{stored.plane, stored.pieces[piece].param}].push_back({turn, plane, piece});
    }
  }
}

ShardReader& PieceReader::shard(std::size_t turn) {
  const auto found = std::find_if(open_.begin(), open_.end(), [turn](const auto& open) { return open.first == turn; });
  if (found != open_.end()) {
    std::rotate(found, std::next(found), open_.end());
  } else {
    if (open_.size() == kOpenShards) open_.erase(open_.begin());
    const ShardInfo& info = manifest_.shards[(first_shard_ + turn) % manifest_.shards.size()];
    open_.emplace_back(turn, std::make_unique<ShardReader>(path_, manifest_, info));
  }
  return *open_.back().second;
}

void PieceReader::read(const std::vector<Piece>& pieces) {
  struct Part {
    Source source;
    std::size_t target;
    std::vector<SharedRun> runs;
  };
  std::vector<Part> parts;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    SLUICE_CHECK(plane_index(piece.plane) >= 0, "plane \"", piece.plane, "\" is unknown");
    const std::string fault = region_fault(params_, piece.region);
    SLUICE_CHECK(fault.empty(), fault);
    if (piece.region.elements == 0) continue;
    const std::string& name = params_[static_cast<std::size_t>(piece.region.param)].name;
    SLUICE_CHECK(piece.data != nullptr, "a piece of ", name, " has no data");
    std::int64_t found = 0;
    if (const auto sources = sources_.find({plane_index(piece.plane), piece.region.param}); sources != sources_.end()) {
      for (const Source& source : sources->second) {
        const ShardInfo& shard = manifest_.shards[(first_shard_ + source.turn) % manifest_.shards.size()];
        std::vector<SharedRun> runs = shared_runs(shard.planes[source.plane].pieces[source.piece], piece.region);
        if (runs.empty()) continue;
        for (const SharedRun& run : runs) found += run.count;
        parts.push_back({source, i, std::move(runs)});
      }
    }
    if (found != piece.region.elements) {
      throw RequestError(cat(path_, ": holds ", found, " of ", piece.region.elements, " wanted elements of plane ", piece.plane,
                             " of parameter ", name,
                             "; the run that saved it did not train this parameter, or with an optimizer that keeps none"));
    }
  }
  // In the order in which the shards have it.
  const auto place = [](const Part& part) {
    return std::tuple(part.source.turn, part.source.plane, part.source.piece, part.runs.front().source);
  };
  std::sort(parts.begin(), parts.end(), [&](const Part& a, const Part& b) { return place(a) < place(b); });
  for (const Part& part : parts) {
    const ShardInfo& info = manifest_.shards[(first_shard_ + part.source.turn) % manifest_.shards.size()];
    const Piece& target = pieces[part.target];
    shard(part.source.turn).read(info.planes[part.source.plane], part.source.piece, part.runs, target.data, target.dtype);
  }
}

Manifest load_checkpoint(comm::Communicator& world, const std::string& path, const std::vector<ParamInfo>& params,
                         const std::function<void(PieceReader&)>& fill) {
  Manifest manifest = open_checkpoint(world, path);
  const Failure failure = attempt([&] {
    PieceReader reader(path, manifest, params, world.rank());
    fill(reader);
  });
  comm::agree_or_throw(world, failure.text, failure.code);
  return manifest;
}

Manifest load_checkpoint(comm::Communicator& world, const std::string& path, const std::vector<ParamInfo>& params,
                         const std::vector<Piece>& pieces) {
  return load_checkpoint(world, path, params, [&](PieceReader& reader) { reader.read(pieces); });
}

std::optional<Selection> load_newest(comm::Communicator& world, const std::string& directory, const std::vector<ParamInfo>& params,
                                     const std::function<void(PieceReader&)>& fill) {
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
      selection.manifest = load_checkpoint(world, selection.path, params, fill);
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

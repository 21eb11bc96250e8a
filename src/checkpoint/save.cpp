#include "checkpoint/save.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/units.hpp"
#include "checkpoint/checksum.hpp"
#include "checkpoint/index.hpp"

namespace sluice::checkpoint {
namespace {

using nlohmann::json;

constexpr unsigned kExchange = 2;  // RENAME_EXCHANGE of <linux/fs.h>

std::string identity_of(const Progress& p, const Documents& d, const std::vector<ParamInfo>& params, const SaveOptions& options) {
  Hash hash;
  for (const std::int64_t value :
       {p.step, p.samples, p.adam_count, p.global_batch, p.epoch, p.samples_per_epoch, p.attempt, options.block_bytes}) {
    hash.add(static_cast<std::uint64_t>(value));
  }
  hash.add(p.seed);
  if (p.best) hash.add(static_cast<std::uint64_t>(p.best->step)).add_double(p.best->loss);
  for (const std::string* text : {&d.model, &d.training, &d.plan, &d.signature, &d.fingerprint}) hash.add(*text);
  for (const ParamInfo& param : params) {
    hash.add(param.name).add(static_cast<std::uint64_t>(param.shape.size()));
    for (const std::int64_t extent : param.shape) hash.add(static_cast<std::uint64_t>(extent));
    hash.add(static_cast<std::uint64_t>(param.dtype));
  }
  return hash.hex();
}

// What is wrong with the call on this rank, or empty.
std::string call_fault(const Progress& progress, const std::vector<ParamInfo>& params, const std::vector<Piece>& pieces,
                       const SaveOptions& options) {
  if (progress.step < 0 || progress.samples < 0) return "the step or the sample position is negative";
  if (options.block_bytes < kElementBytes || options.block_bytes % kElementBytes != 0 || options.block_bytes > kGiB) {
    return cat("block_bytes is ", options.block_bytes);
  }
  std::set<std::string> names;
  for (const ParamInfo& param : params) {
    if (param.name.empty() || param.name == "." || param.name == ".." ||
        param.name.find_first_of(std::string("/\0", 2)) != std::string::npos) {
      return cat("\"", param.name, "\" can't name a dataset");
    }
    if (!names.insert(param.name).second) return cat("parameter ", param.name, " is given twice");
    if (param.dtype != DType::kF32) return cat("parameter ", param.name, " is ", name_of(param.dtype), "; format version 1 stores f32");
  }
  for (const Piece& piece : pieces) {
    if (plane_index(piece.plane) < 0) return cat("plane \"", piece.plane, "\" is unknown");
    std::string fault = region_fault(params, piece.region);
    if (!fault.empty()) return fault;
  }
  return {};
}

// Elements that the pieces hold per plane and parameter.
std::vector<std::int64_t> counts_of(const std::vector<ParamInfo>& params, const std::vector<Piece>& pieces) {
  std::vector<std::int64_t> counts(params.size() * kPlaneCount, 0);
  for (const Piece& piece : pieces) {
    counts[static_cast<std::size_t>(plane_index(piece.plane)) * params.size() + static_cast<std::size_t>(piece.region.param)] +=
        piece.region.elements;
  }
  return counts;
}

// Free space and inodes for all shards together; each rank then takes its own, which also asks the quota.
void check_space(const std::string& directory, std::int64_t bytes, int ranks) {
  struct statvfs info {};
  if (::statvfs(directory.c_str(), &info) != 0) throw IoError("statvfs", directory, errno);
  const auto available = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  if (static_cast<double>(bytes) > available) {
    throw EnvironmentError(cat(directory, ": the checkpoint needs ", format_bytes(bytes), ", the file system has ",
                               format_bytes(static_cast<std::int64_t>(available)), " left; make space or keep fewer checkpoints"));
  }
  const auto files = static_cast<fsfilcnt_t>(ranks) + 4;
  if (info.f_files > 0 && info.f_favail < files) {  // some file systems have no fixed number and say 0
    throw EnvironmentError(cat(directory, ": the checkpoint needs ", files, " files, the file system has inodes for ", info.f_favail));
  }
}

json message_of(const CommitResult& result, int defect) {
  return {{"ok", result.ok},       {"reason", result.reason},   {"step", result.step},         {"path", result.path},
          {"bytes", result.bytes}, {"removed", result.removed}, {"warnings", result.warnings}, {"defect", defect}};
}

}  // namespace

CheckpointSave::CheckpointSave(comm::Communicator& world, const std::string& directory, const Progress& progress,
                               const Documents& documents, const std::vector<ParamInfo>& params, const std::vector<Piece>& pieces,
                               const SaveOptions& options)
    : world_(world),
      directory_(directory),
      progress_(progress),
      documents_(documents),
      params_(params),
      options_(options),
      piece_count_(pieces.size()) {
  // 1. The ranks mean the same checkpoint and hold every element once, by count; the manifest's writer checks it exactly.
  const std::string fault = call_fault(progress_, params_, pieces, options_);
  json mine = {{"fault", fault}, {"identity", identity_of(progress_, documents_, params_, options_)}};
  if (fault.empty()) {
    mine["counts"] = counts_of(params_, pieces);
    mine["bytes"] = shard_bytes_bound(params_, pieces, options_.block_bytes);
  }
  std::vector<std::int64_t> sums(params_.size() * kPlaneCount, 0);
  std::int64_t bytes = 0;
  std::string first_identity;
  const std::vector<std::string> all = world_.all_gather(mine.dump());
  for (std::size_t r = 0; r < all.size(); ++r) {
    const json other = json::parse(all[r]);
    if (const auto text = other.at("fault").get<std::string>(); !text.empty())
      throw LogicError(cat("saving step ", progress_.step, ", rank ", r, ": ", text));
    const auto identity = other.at("identity").get<std::string>();
    if (r == 0) first_identity = identity;
    SLUICE_CHECK(identity == first_identity, "rank ", r, " saves another state, or other parameters, than rank 0");
    const auto counts = other.at("counts").get<std::vector<std::int64_t>>();
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += counts[i];
    bytes += other.at("bytes").get<std::int64_t>();
  }
  const bool has_second = std::any_of(sums.begin() + static_cast<std::ptrdiff_t>(2 * params_.size()), sums.end(),
                                      [](std::int64_t elements) { return elements > 0; });
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const std::size_t plane = i / params_.size(), p = i % params_.size();
    const bool has_none = plane > 0 && sums[params_.size() + p] == 0 && sums[2 * params_.size() + p] == 0;
    SLUICE_CHECK(has_none || (plane == 2 && !has_second) || sums[i] == params_[p].elements(), "plane ", kPlaneNames[plane],
                 " of parameter ", params_[p].name, ": the ranks hold ", sums[i], " elements, it has ", params_[p].elements());
  }

  // 2. Rank 0 makes the temporary directory where there is space for all.
  json decision;
  if (world_.rank() == 0) {
    std::string made;
    try {
      make_directories(directory_);
      const std::string id = to_hex(Hash()
                                        .add(world_.host_name())
                                        .add(static_cast<std::uint64_t>(::getpid()))
                                        .add_double(wall_seconds())
                                        .add(static_cast<std::uint64_t>(now_ns()))
                                        .value());
      const std::string temporary = directory_ + "/" + step_name(progress_.step) + ".tmp." + id;
      check_space(directory_, bytes, world_.size());
      if (::mkdir(temporary.c_str(), 0777) != 0) throw IoError("making the directory", temporary, errno);
      made = temporary;
      sync_directory(directory_);
      decision = {{"reason", ""}, {"id", id}, {"temporary", temporary}};
    } catch (const EnvironmentError& error) {
      if (!made.empty()) ::rmdir(made.c_str());
      decision = {{"reason", cat("rank 0: ", error.what())}, {"id", ""}, {"temporary", ""}};
    }
  }
  decision = json::parse(world_.broadcast(decision.dump(), 0));
  save_id_ = decision.at("id").get<std::string>();
  temporary_ = decision.at("temporary").get<std::string>();
  if (const auto reason = decision.at("reason").get<std::string>(); !reason.empty()) {
    fail(reason);
    return;
  }

  // 3. Each rank lays out its shard and takes its disk space, so that a full disk is found before anything is written.
  std::string failure;
  try {
    writer_ = std::make_unique<ShardWriter>(temporary_, ShardIdentity{save_id_, progress_.step, world_.rank(), world_.size()}, params_,
                                            pieces, options_.block_bytes);
    call("after_create");
  } catch (const std::exception& error) {  // whatever it is, the other ranks wait for an answer
    failure = error.what();
  }
  const std::vector<std::string> failures = world_.all_gather(failure);
  for (std::size_t r = 0; r < failures.size(); ++r) {
    if (failures[r].empty()) continue;
    give_up(cat("rank ", r, ": ", failures[r]));
    return;
  }
}

CheckpointSave::~CheckpointSave() = default;

void CheckpointSave::fail(const std::string& reason) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (reason_.empty()) reason_ = reason;
  failed_.store(true, std::memory_order_release);
}

void CheckpointSave::call(const char* point) const {
  if (options_.hook) options_.hook(point);
}

void CheckpointSave::write(std::size_t piece, const void* data) {
  SLUICE_CHECK(!finished_, "a piece is written after the shard was finished");
  if (failed()) return;
  try {
    writer_->write(piece, data);
  } catch (const EnvironmentError& error) {
    fail(error.what());
  }
}

void CheckpointSave::finish() {
  if (finished_) return;
  finished_ = true;
  if (failed()) return;
  try {
    shard_ = writer_->finish([this] { call("after_shard_write"); });
    call("after_shard_fsync");
    if (options_.read_back) {
      File(temporary_ + "/" + shard_.file, O_RDONLY).drop_cache();
      Manifest manifest;
      manifest.save_id = save_id_;
      manifest.progress = progress_;
      manifest.block_bytes = options_.block_bytes;
      manifest.params = params_;
      ShardReader(temporary_, manifest, shard_).check_all();
    }
  } catch (const EnvironmentError& error) {
    fail(error.what());
  } catch (const FormatError& error) {
    fail(cat("read back from the disk: ", error.what()));
  } catch (const LogicError& error) {
    defect_ = true;  // commit() throws it on all ranks
    fail(error.what());
  }
}

CommitResult CheckpointSave::commit() {
  SLUICE_CHECK(!committed_, "a checkpoint is committed twice");
  committed_ = true;
  if (temporary_.empty() || (failed() && writer_ == nullptr)) {  // given up in the constructor, on all ranks
    CommitResult result;
    result.step = progress_.step;
    result.reason = reason_;
    return result;
  }
  finish();

  // 4. One bad rank: all give up.
  const json mine = {{"failure", reason_}, {"defect", defect_}, {"shard", failed() ? "" : to_json(shard_)}};
  std::vector<ShardInfo> shards;
  const std::vector<std::string> all = world_.all_gather(mine.dump());
  for (std::size_t r = 0; r < all.size(); ++r) {
    const json other = json::parse(all[r]);
    const auto failure = other.at("failure").get<std::string>();
    if (!failure.empty()) {
      CommitResult result = give_up(cat("rank ", r, ": ", failure));
      if (other.at("defect").get<bool>()) throw LogicError(cat("saving step ", progress_.step, ", ", result.reason));
      return result;
    }
    if (world_.rank() == 0) shards.push_back(shard_from_json(other.at("shard").get<std::string>(), cat("shard of rank ", r)));
  }

  // 5. to 8. Rank 0 commits; its outcome is everybody's.
  std::string outcome;
  if (world_.rank() == 0) {
    try {
      outcome = message_of(publish(std::move(shards)), 0).dump();
    } catch (const std::exception& error) {
      CommitResult defect;
      defect.reason = error.what();
      outcome = message_of(defect, 1).dump();
    }
  }
  const json message = json::parse(world_.broadcast(outcome, 0));
  CommitResult result;
  result.ok = message.at("ok").get<bool>();
  result.reason = message.at("reason").get<std::string>();
  if (message.at("defect").get<int>() != 0) throw LogicError(cat("committing step ", progress_.step, ", rank 0: ", result.reason));
  result.step = message.at("step").get<std::int64_t>();
  result.path = message.at("path").get<std::string>();
  result.bytes = message.at("bytes").get<std::int64_t>();
  result.removed = message.at("removed").get<std::vector<std::string>>();
  result.warnings = message.at("warnings").get<std::vector<std::string>>();
  if (result.ok && progress_.best) result.best_step = progress_.best->step;
  return result;
}

CommitResult CheckpointSave::give_up(const std::string& reason) {
  fail(reason);
  writer_.reset();
  world_.barrier();  // nobody has a file open any more
  CommitResult result;
  result.step = progress_.step;
  result.reason = reason;
  if (world_.rank() == 0) {
    try {
      remove_tree(temporary_, kManifestName);
    } catch (const IoError&) {
      // Left for sweep_leftovers(): its name says what it is, and the reason above is what the caller must hear.
    }
  }
  return result;
}

CommitResult CheckpointSave::publish(std::vector<ShardInfo> shards) {
  CommitResult result;
  result.step = progress_.step;
  const std::string final_path = directory_ + "/" + step_name(progress_.step);
  bool renamed = false;
  try {
    Manifest manifest;
    manifest.save_id = save_id_;
    manifest.writer = options_.writer;
    manifest.created = options_.created != 0 ? options_.created : static_cast<std::int64_t>(wall_seconds());
    manifest.progress = progress_;
    manifest.documents = documents_;
    manifest.block_bytes = options_.block_bytes;
    manifest.params = params_;
    manifest.shards = std::move(shards);
    const std::string fault = shards_fault(manifest.params, manifest.shards);
    SLUICE_CHECK(fault.empty(), fault);
    result.bytes = manifest.bytes();
    write_index(temporary_, manifest);
    call("before_manifest");
    write_durably(temporary_ + "/" + kManifestName, to_json(manifest));
    // What is about to be named is looked at as a reader will: a disk that loses writes without a word is found here.
    const Verification verification = verify_checkpoint(temporary_, false);
    if (!verification.whole()) throw EnvironmentError(cat("what was written does not verify: ", verification.faults[0]));
    call("after_manifest");
    result.warnings = install(final_path);
    renamed = true;
    sync_directory(directory_);
    call("after_rename");
  } catch (const EnvironmentError& error) {
    result.reason = cat("rank 0: ", error.what());
    if (!renamed) {
      try {
        remove_tree(temporary_, kManifestName);
      } catch (const IoError&) {
        // Left for sweep_leftovers(), as above.
      }
    }
    return result;
  }
  result.ok = true;
  result.path = final_path;
  // From here on the checkpoint is whole; what fails is a warning.
  try {
    write_durably(directory_ + "/latest", step_name(progress_.step) + "\n");
    call("after_latest");
  } catch (const EnvironmentError& error) {
    result.warnings.push_back(cat("the hint `latest` could not be written: ", error.what()));
  }
  try {
    std::vector<std::int64_t> kept{progress_.step};
    if (progress_.best) kept.push_back(progress_.best->step);
    std::vector<std::int64_t> damaged = options_.damaged_steps;
    std::erase(damaged, progress_.step);  // this one has just taken its place
    Removal removal = retain_newest(directory_, options_.keep, kept, damaged, options_.hook);
    result.removed = std::move(removal.removed);
    for (std::string& warning : removal.warnings) result.warnings.push_back(std::move(warning));
  } catch (const EnvironmentError& error) {
    result.warnings.push_back(cat("old checkpoints could not be removed: ", error.what()));
  }
  return result;
}

// Gives the temporary directory its final name. A checkpoint of this step that is already there (an earlier attempt's, perhaps refused)
// makes way in one atomic step where the file system can; otherwise it is set aside first.
std::vector<std::string> CheckpointSave::install(const std::string& final_path) {
  std::vector<std::string> warnings;
  if (!exists(final_path)) {
    rename_path(temporary_, final_path);
    return warnings;
  }
  std::string old = temporary_;
  if (::syscall(SYS_renameat2, AT_FDCWD, temporary_.c_str(), AT_FDCWD, final_path.c_str(), kExchange) != 0) {
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) throw IoError(cat("exchanging with ", final_path), temporary_, errno);
    old = directory_ + "/.trash." + step_name(progress_.step) + "." + save_id_;
    rename_path(final_path, old);
    rename_path(temporary_, final_path);
  }
  try {
    sync_directory(directory_);
    remove_tree(old, kManifestName);
  } catch (const IoError& error) {
    warnings.push_back(cat("the earlier checkpoint of step ", progress_.step, " could not be removed: ", error.what()));
  }
  return warnings;
}

CommitResult save_checkpoint(comm::Communicator& world, const std::string& directory, const Progress& progress, const Documents& documents,
                             const std::vector<ParamInfo>& params, const std::vector<Piece>& pieces, const SaveOptions& options) {
  CheckpointSave save(world, directory, progress, documents, params, pieces, options);
  for (std::size_t i = 0; i < save.pieces(); ++i) save.write(i, pieces[i].data);
  return save.commit();
}

}  // namespace sluice::checkpoint

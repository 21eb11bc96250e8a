#pragma once
// Saving, in the eight steps of checkpoints/FORMAT.md: a temporary directory, a shard per rank, agreement, manifest, rename; only
// then older ones are removed. A crash anywhere leaves the old checkpoints or the new one as well, never something between.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "checkpoint/catalog.hpp"
#include "checkpoint/shard.hpp"
#include "checkpoint/state.hpp"
#include "comm/communicator.hpp"

namespace sluice::checkpoint {

struct SaveOptions {
  int keep = 3;  // newest whole checkpoints left after a commit, and Progress::best besides; <= 0: all
  /// Steps whose checkpoints were found damaged when they were loaded: they don't count among those left.
  std::vector<std::int64_t> damaged_steps;
  bool read_back = false;    // read each shard back from the disk and check it before the commit
  std::string writer;        // "sluice 0.1.0", for the manifest
  std::int64_t created = 0;  // seconds since 1970; 0: now
  std::int64_t block_bytes = kBlockBytes;
  /// Called on the rank that reaches the point: after_create, after_shard_write, after_shard_fsync (every rank); before_manifest,
  /// after_manifest, after_rename, after_latest, before_delete, during_delete, after_delete (rank 0). What it throws counts as a
  /// failure at that point.
  Hook hook;
};

/// What all ranks know after a commit; the same on each.
struct CommitResult {
  bool ok = false;
  std::string reason;  // of the lowest failing rank, which it names
  std::int64_t step = 0;
  std::string path;             // of the committed checkpoint
  std::int64_t bytes = 0;       // of all shards
  std::int64_t best_step = -1;  // of the best checkpoint, now that this one stands; -1: none is known
  std::vector<std::string> removed;
  std::vector<std::string> warnings;  // about `latest` and old checkpoints: the new one is whole all the same
};

/// One save. The constructor and commit() are collective over `world`, from the thread that owns communication; write() and finish()
/// are local and may run on another thread between the two. Failures of the environment (disk full, file system gone, quota) don't
/// throw: the save is given up on all ranks and commit() says why. A wrong call throws LogicError on all ranks.
class CheckpointSave {
 public:
  /// `directory`: of the run's checkpoints, made where missing; the caller holds the run lock. `params`, `progress` and `documents` are
  /// the same on all ranks. `pieces`: what this rank owns; over all ranks each element of "working" once, and of the moments of each
  /// parameter that has any. Where their data stand is said when they are written. Takes all the disk space at once.
  CheckpointSave(comm::Communicator& world, const std::string& directory, const Progress& progress, const Documents& documents,
                 const std::vector<ParamInfo>& params, const std::vector<Piece>& pieces, const SaveOptions& options);
  CheckpointSave(const CheckpointSave&) = delete;
  CheckpointSave& operator=(const CheckpointSave&) = delete;
  /// Without commit(): leaves a temporary directory that sweep_leftovers() removes.
  ~CheckpointSave();

  std::size_t pieces() const noexcept { return piece_count_; }
  /// Writes one piece, which stands at `data` during the call, waiting for the write call. Pieces may be written in any order, each once;
  /// different ones at the same time. Does nothing once the save has failed here.
  void write(std::size_t piece, const void* data);
  /// Waits until this rank's shard is on disk. Called by commit() where the caller hasn't.
  void finish();
  /// Collective. All pieces of all ranks have been written.
  CommitResult commit();

 private:
  void fail(const std::string& reason);
  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  void call(const char* point) const;
  CommitResult publish(std::vector<ShardInfo> shards);
  std::vector<std::string> install(const std::string& final_path);
  CommitResult give_up(const std::string& reason);

  comm::Communicator& world_;
  std::string directory_;
  Progress progress_;
  Documents documents_;
  std::vector<ParamInfo> params_;
  SaveOptions options_;
  std::size_t piece_count_;
  std::string save_id_;
  std::string temporary_;  // path of the temporary directory
  std::unique_ptr<ShardWriter> writer_;
  ShardInfo shard_;
  bool finished_ = false;
  bool committed_ = false;
  bool defect_ = false;  // the failure is a wrong call of ours
  std::atomic<bool> failed_{false};
  std::mutex mutex_;  // guards reason_
  std::string reason_;
};

/// Saves in one go pieces that stand in memory, at Piece::data: writes each, then commits. Collective.
CommitResult save_checkpoint(comm::Communicator& world, const std::string& directory, const Progress& progress, const Documents& documents,
                             const std::vector<ParamInfo>& params, const std::vector<Piece>& pieces, const SaveOptions& options);

}  // namespace sluice::checkpoint

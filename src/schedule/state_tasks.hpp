#pragma once
// What happens to the planes of the chunks: where they stand, gathers, reductions, norms, updates with the moves around them, saves.
// Internal to the builder.

#include <array>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "chunks/residency.hpp"
#include "schedule/build_context.hpp"

namespace sluice::schedule {

class StateTasks {
 public:
  /// Adds the persistent buffers of all planes.
  explicit StateTasks(BuildContext& context);

  /// Where a chunk's plane stands between runs.
  BufferId plane(chunks::Plane which, int chunk) const { return planes_[static_cast<std::size_t>(which)][static_cast<std::size_t>(chunk)]; }
  /// Where compute tasks read a run's working parameters now.
  BufferId parameters(int run) const;

  /// Decides which runs are gathered when, and in which order and when chunks are updated.
  void plan_ahead();
  /// Gathers whose time has come before item `at`, and with next_forward the updates that must come before them.
  void emit_before_item(int at);
  /// Gradients of a run are complete for this micro-batch: reduce them to their owners.
  void emit_scatter_of_run(int run, int micro, BufferId gradient);
  void emit_norm_of_chunks();
  /// The states that the first updates need, ahead of them; their gradients too where they are reduced already.
  void emit_first_moves_in();
  /// Whether an update is yet to be emitted; one that is due once item `at` has run.
  bool has_updates_left() const { return next_update_ < updates_.size(); }
  bool has_updates_due(int at) const { return has_updates_left() && updates_[next_update_].due <= at; }
  void emit_updates_due(int at);
  void emit_updates_left();
  void emit_save();

 private:
  /// What an update works on.
  struct Operand {
    chunks::Plane plane;
    Role role;
    bool reads;
    bool writes;
  };
  /// `due`: with next_forward the item before which the new parameters must be there, with in_backward the item after which it comes.
  struct Update {
    int chunk;
    int due;
  };

  spec::Tier home(chunks::Plane plane, int chunk) const;
  /// Where a chunk is updated: on the device where all of it stands there, else in host memory.
  spec::Tier updates_in(int chunk) const;
  /// Bytes of this rank's part of a chunk's plane, the same on all ranks: with zero_stage 0 the whole of it, else the largest shard.
  std::int64_t part_bytes(chunks::Plane plane, int chunk) const;
  bool is_staged(const Operand& operand, int chunk) const { return home(operand.plane, chunk) != updates_in(chunk); }
  bool moves(int chunk) const;

  bool reads_from_disk(int run) const;
  int read_at(const chunks::Residency& stay) const;

  void plan_gathers();
  void plan_updates();
  void add_updates_of(int run, int due);
  bool keeps_gradients() const;
  void add_plane(chunks::Plane plane);
  BufferId add_buffer(chunks::Plane plane, spec::Tier tier, std::int32_t index, std::int64_t bytes);
  BufferId add_part(chunks::Plane plane, int chunk);
  void emit_norm(int chunk, BufferId gradient);
  BufferId emit_read_of_sum(int chunk, int micro);
  void emit_write_of_sum(int chunk, int micro, BufferId sum);
  void emit_write_behind();
  BufferId stage(chunks::Plane plane, int chunk, spec::Tier tier, bool through_disk);
  void emit_move(Task move, std::span<const Use> uses);
  void emit_reads_of_stay(const chunks::Residency& stay);
  void emit_gather_of_stay(const chunks::Residency& stay, int micro);
  void emit_moves_in(std::size_t count);
  BufferId stage_for_update(chunks::Plane plane, int chunk);
  void emit_move_in(chunks::Plane plane, int chunk);
  void emit_moves_out(int chunk);
  void emit_next_update();
  Use condition() const;

  BuildContext& context_;
  std::vector<Operand> operands_;  // of every update
  /// Per plane and chunk. On the device a plane that a rank holds whole has a buffer a run; else a chunk has its own, with the rank's part.
  std::array<std::vector<BufferId>, chunks::kPlaneCount> planes_;
  /// Per plane and chunk: where the update finds what doesn't stand in its tier.
  std::array<std::vector<BufferId>, chunks::kPlaneCount> staged_;
  std::vector<BufferId> gathered_;  // per run: its latest stay
  std::vector<chunks::Residency> stays_;
  std::size_t next_read_ = 0, next_stay_ = 0;
  std::deque<BufferId> read_ahead_;  // of stays to come: where in host memory parameters stand whose home is the disk, in order
  std::vector<BufferId> updated_;    // per chunk with its parameters on disk: where its update left them, until a stay takes them
  std::vector<Update> updates_;      // in order
  std::size_t next_update_ = 0;
  int first_reduced_at_ = -1;  // in_backward: the item that completes the first gradient
  std::vector<int> moved_;     // those of their chunks that moves surround, in order
  std::size_t next_moved_in_ = 0, next_moved_update_ = 0;
  /// A gradient in host memory that is yet to be written to its home on disk: it goes once the next one has come, so that the two don't
  /// share bytes and the next need not wait for the disk.
  struct Behind {
    int chunk = -1;  // -1: none
    int micro = -1;
    BufferId sum = kNone;
  } behind_;
  std::vector<BufferId> sums_;  // per chunk with its gradient on disk: the latest sum of it in host memory
  bool has_norm_begun_ = false;
  std::vector<bool> is_reduced_, wants_gradient_;  // per chunk: its gradient is complete; an update asked for it before
};

}  // namespace sluice::schedule

#pragma once
// The compute tasks of a graph, with what they leave for one another: activations, saved tensors and the gradients of a micro-batch;
// and the moves of saved tensors that don't stay on the device between forward and backward. Internal to the builder.

#include <vector>

#include "schedule/build_context.hpp"

namespace sluice::schedule {

class StateTasks;

/// Fills `items` and `item_runs`: which segments run in which order.
void list_items(BuildContext& context);

class ComputeTasks {
 public:
  ComputeTasks(BuildContext& context, const StateTasks& state);

  /// The item's task; before it the way back of the tensors that are saved elsewhere and soon needed, after it the way there.
  void emit(int item);
  /// The runs whose gradient of the item's micro-batch is complete once `item` has run, with the buffer it stands in.
  struct Completed {
    int run;
    BufferId gradient;
  };
  std::vector<Completed> completed_by(int item);

 private:
  /// Saved tensors on their way back: before item `at`, since item `backward` reads them.
  struct Return {
    int at;
    int backward;
  };

  bool recomputes(int s) const;
  bool leaves_device(int s) const;
  bool goes_to_disk(int s) const;
  void plan_returns();
  void emit_departure(const Item& item);
  void emit_write();
  void emit_returns(int before);
  BufferId move_saved(Lane lane, const Item& item, BufferId source, spec::Tier to);
  Use gradient_use(int run, int micro);

  std::size_t of_segment(int s, int micro) const {
    return static_cast<std::size_t>(micro) * static_cast<std::size_t>(context_.segments()) + static_cast<std::size_t>(s);
  }
  std::size_t of_run(int run, int micro) const {
    return static_cast<std::size_t>(micro) * context_.layout.runs().size() + static_cast<std::size_t>(run);
  }

  BuildContext& context_;
  const StateTasks& state_;
  // Per micro-batch and segment.
  std::vector<BufferId> activation_;
  std::vector<BufferId> saved_;  // where they stand now
  // Per micro-batch and run.
  std::vector<BufferId> gradient_of_;             // where its gradient goes; kNone: nothing wrote it yet
  std::vector<int> uses_left_;                    // backward items to come
  std::vector<BufferId> gradient_of_activation_;  // per micro-batch
  const Item* unwritten_ = nullptr;               // what has come to the host last, if it goes on to disk
  std::vector<Return> reads_, uploads_;           // from disk, and to the device; in order
  std::size_t next_read_ = 0, next_upload_ = 0;
};

}  // namespace sluice::schedule

#include "plan/search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/check.hpp"
#include "base/units.hpp"
#include "plan/bounds.hpp"
#include "plan/workbench.hpp"
#include "schedule/simulate.hpp"

namespace sluice::plan {
namespace {

using schedule::GraphKind;
using spec::Tier;
using spec::UpdateMode;

constexpr int kFinalists = 20;
constexpr std::int64_t kFinalTasks = 6'000'000;  // simulated whole in all: some seconds
constexpr double kWorthRanking = 1.05;           // candidates whose bound is further from the best aren't ranked
constexpr double kWorthSimulating = 1.10;        // nor those simulated whole whose rank is further
constexpr double kTie = 1.005;                   // closer than any prediction: the earlier in the walk is taken
constexpr std::int64_t kLeastChunk = 64 * 1024;  // elements: 256 KiB in f32
constexpr int kRefits = 4;                       // recompute more, as often, when placement needs more than the bound

struct Candidate {
  spec::Plan plan;
  MemoryBound memory;
  bool fits = true;  // as far as known
  std::int64_t missing_bytes = 0;
  double bound_seconds = 0;
  std::optional<double> reduced_seconds;
  std::optional<double> seconds;  // simulated whole
  Prediction prediction;          // of that
  int segments_between_agrees = 0;

  /// The best that is known.
  double known_seconds() const { return seconds ? *seconds : reduced_seconds ? *reduced_seconds : bound_seconds; }
};

std::vector<TagBytes> bytes_by_tag(const schedule::StepGraph& graph) {
  using Table = std::array<std::array<std::int64_t, schedule::kBufferTagCount>, spec::kTierCount>;
  Table persistent{}, live{}, peak{};
  std::array<std::int64_t, spec::kTierCount> live_sum{}, peak_sum{};
  std::vector<std::pair<std::uint64_t, std::size_t>> events;  // at task id: 2 * first for a birth, 2 * last + 1 for a death
  for (std::size_t b = 0; b < graph.buffers.size(); ++b) {
    const schedule::Buffer& buffer = graph.buffers[b];
    if (buffer.persistent) {
      persistent[static_cast<std::size_t>(buffer.tier)][static_cast<std::size_t>(buffer.tag)] += buffer.bytes;
    } else if (buffer.first != schedule::kNone) {
      events.emplace_back(2 * static_cast<std::uint64_t>(buffer.first), b);
      events.emplace_back(2 * static_cast<std::uint64_t>(buffer.last) + 1, b);
    }
  }
  std::sort(events.begin(), events.end());
  for (const auto& [when, b] : events) {
    const schedule::Buffer& buffer = graph.buffers[b];
    const auto tier = static_cast<std::size_t>(buffer.tier);
    const std::int64_t change = when % 2 == 0 ? buffer.bytes : -buffer.bytes;
    live[tier][static_cast<std::size_t>(buffer.tag)] += change;
    live_sum[tier] += change;
    if (live_sum[tier] > peak_sum[tier]) {
      peak_sum[tier] = live_sum[tier];
      peak[tier] = live[tier];
    }
  }
  std::vector<TagBytes> tags;
  for (int tier = 0; tier < spec::kTierCount; ++tier) {
    for (int tag = 0; tag < schedule::kBufferTagCount; ++tag) {
      const std::int64_t bytes = persistent[static_cast<std::size_t>(tier)][static_cast<std::size_t>(tag)] +
                                 peak[static_cast<std::size_t>(tier)][static_cast<std::size_t>(tag)];
      if (bytes > 0) tags.push_back({static_cast<Tier>(tier), static_cast<schedule::BufferTag>(tag), bytes});
    }
  }
  return tags;
}

std::string text_of(double seconds) {
  return format_seconds(seconds);
}

std::string percent(double ratio) {
  const double p = (ratio - 1) * 100;
  if (p < 0.1) return "no faster";
  return cat(p < 10 ? std::round(p * 10) / 10 : std::round(p), " % slower");
}

class Search {
 public:
  Search(const PlanRequest& request, int finalists) : request_(request), bench_(request), finalists_(finalists) {}

  /// False when nothing fits.
  bool run() {
    walk();
    bound();
    for (;;) {
      rank();
      Candidate* next = best_unsettled();
      if (next == nullptr) break;
      settle(*next);
    }
    return choose();
  }

  PlanResult result() const {
    PlanResult result;
    result.plan = chosen_->plan;
    result.segments_between_agrees = chosen_->segments_between_agrees;
    result.prediction = chosen_->prediction;
    result.considered = static_cast<std::int64_t>(candidates_.size());
    for (const Candidate& c : candidates_) {
      if (!c.fits) {
        ++result.too_large;
      } else if (c.seconds) {
        ++result.simulated;
      } else if (c.reduced_seconds) {
        ++result.reduced;
      } else {
        ++result.bounded;
      }
    }
    result.refused = refusals();
    return result;
  }

  /// The candidate that misses the budget by least, placed, after run() returned false.
  const Candidate& nearest() {
    // The bound is close: of the few that it puts first, placement says which needs least.
    std::vector<Candidate*> order;
    for (Candidate& c : candidates_) order.push_back(&c);
    std::stable_sort(order.begin(), order.end(),
                     [](const Candidate* a, const Candidate* b) { return a->missing_bytes < b->missing_bytes; });
    Candidate* best = nullptr;
    for (std::size_t i = 0; i < order.size() && i < 8; ++i) {
      Candidate& c = *order[i];
      if (!request_.pins.recompute || *request_.pins.recompute) c.plan.activations = least_recompute(c.memory, 0);
      c.missing_bytes = missing_bytes(place(c));
      if (best == nullptr || c.missing_bytes < best->missing_bytes) best = &c;
    }
    return *best;
  }

 private:
  // ---- the walk

  std::vector<std::int64_t> chunk_sizes() {
    const model::Model& whole = bench_.model();
    std::int64_t total = 0, half_block = 0;
    for (const model::ParamSpec& param : whole.params) total += round_up(param.elements(), chunks::kBlock);
    for (const auto& segment : whole.segments) {
      if (segment->layer() < 0) continue;
      std::int64_t elements = 0;
      for (const int param : segment->params())
        elements += round_up(whole.params[static_cast<std::size_t>(param)].elements(), chunks::kBlock);
      half_block = std::max(half_block, elements);
    }
    if (request_.pins.chunk_elements)
      return {std::clamp<std::int64_t>(round_up(*request_.pins.chunk_elements, chunks::kBlock), chunks::kBlock, total)};
    // A half-block spans at most about four chunks; a chunk holds at most about four half-blocks.
    std::set<std::int64_t> sizes;
    for (const double scale : {0.25, 0.5, 1.0, 2.0, 4.0}) {
      const auto wanted = static_cast<std::int64_t>(static_cast<double>(half_block) * scale);
      sizes.insert(std::min(total, round_up(std::max(wanted, kLeastChunk), chunks::kBlock)));
    }
    return {sizes.begin(), sizes.end()};
  }

  std::vector<UpdateMode> update_modes() const {
    const bool needs_norm = optim::needs_norm(request_.training);
    if (request_.pins.update_mode) {
      if (*request_.pins.update_mode == UpdateMode::kInBackward && request_.training.precision == spec::Precision::kFp16) {
        throw RequestError(
            "pinned update mode in_backward: precision is fp16, which must know before the first update that no gradient has overflowed; "
            "unpin it or train in bf16 or fp32");
      }
      if (*request_.pins.update_mode == UpdateMode::kInBackward && needs_norm) {
        throw RequestError(cat("pinned update mode in_backward: gradient_clipping is ", request_.training.optimizer.gradient_clipping,
                               ", expected 0, since clipping needs the norm of all gradients before the first update; unpin it or set "
                               "gradient_clipping to 0"));
      }
      return {*request_.pins.update_mode};
    }
    if (needs_norm) return {UpdateMode::kAtEnd, UpdateMode::kNextForward};
    return {UpdateMode::kAtEnd, UpdateMode::kInBackward, UpdateMode::kNextForward};
  }

  std::vector<int> zero_stages() const {
    if (request_.pins.zero_stage) {
      SLUICE_CHECK(*request_.pins.zero_stage >= 0 && *request_.pins.zero_stage <= 3, "zero_stage ", *request_.pins.zero_stage);
      return {*request_.pins.zero_stage};
    }
    if (request_.mesh.data == 1) return {0};  // nothing to shard over: the other stages only copy more
    return {0, 1, 2, 3};
  }

  std::vector<int> prefetches(int zero_stage, UpdateMode mode) const {
    if (request_.pins.prefetch_segments) return {std::max(0, *request_.pins.prefetch_segments)};
    if (zero_stage < 3 && mode == UpdateMode::kAtEnd) return {1};  // nothing is issued ahead
    return {0, 1, 2};
  }

  void walk() {
    const auto micros = micro_batches(request_.training.batch, request_.mesh.data);
    const std::vector<std::int64_t> chunks = chunk_sizes();
    for (const int stage : zero_stages()) {
      for (const auto& [micro, accumulation] : micros) {
        for (const std::int64_t chunk : chunks) {
          for (const UpdateMode mode : update_modes()) {
            for (const int prefetch : prefetches(stage, mode)) {
              spec::Plan plan;
              plan.zero_stage = stage;
              plan.chunk_elements = chunk;
              plan.prefetch_segments = prefetch;
              plan.micro_batch = micro;
              plan.accumulation = accumulation;
              plan.update_mode = mode;
              plan.activations.assign(bench_.model().segments.size(), spec::Activation::kKeep);
              plan.threads = request_.threads;
              plan.mesh = request_.mesh;
              add_with_rcaches(plan);
            }
          }
        }
      }
    }
    SLUICE_CHECK(!candidates_.empty(), "no candidates");
  }

  void add_with_rcaches(spec::Plan plan) {
    if (plan.zero_stage < 3) return add(plan);
    const auto [least, whole] = bench_.rcache_range(plan.chunk_elements, plan.prefetch_segments);
    if (request_.pins.rcache_elements) {
      plan.rcache_elements = std::clamp(round_up(*request_.pins.rcache_elements, chunks::kBlock), least, whole);
      return add(plan);
    }
    // What the budget leaves when nothing is recomputed is worth a try, too.
    plan.rcache_elements = least;
    const std::int64_t room = (device_budget() - bounded_memory(plan).bytes(plan.activations)) /
                              bench_.layout(plan.chunk_elements).element_bytes(chunks::Plane::kWorking);
    const std::int64_t span = whole - least, fill = room - room / 50;
    std::set<std::int64_t> sizes{least, least + span / 4, least + span / 2, whole};
    if (fill > span / 50 && fill < span) sizes.insert(least + fill);
    for (const std::int64_t elements : sizes) {
      plan.rcache_elements = elements == whole ? whole : elements / chunks::kBlock * chunks::kBlock;
      if (plan.rcache_elements >= least) add(plan);
    }
  }

  void add(const spec::Plan& plan) {
    candidates_.emplace_back();
    candidates_.back().plan = plan;
  }

  // ---- closed forms

  std::int64_t device_budget() const { return request_.budget.device_bytes - request_.machine.unplanned_bytes; }

  /// memory_bound, walked once for all that differ in rCache, prefetch and update mode alone.
  MemoryBound bounded_memory(const spec::Plan& plan) {
    const std::array<std::int64_t, 3> key{plan.zero_stage, plan.chunk_elements, plan.micro_batch};
    auto found = memories_.find(key);
    if (found == memories_.end()) {
      spec::Plan without = plan;
      without.rcache_elements = 0;
      found = memories_.emplace(key, memory_bound(bench_, without)).first;
    }
    MemoryBound memory = found->second;
    if (plan.zero_stage == 3)
      memory.rcache_bytes = plan.rcache_elements * bench_.layout(plan.chunk_elements).element_bytes(chunks::Plane::kWorking);
    return memory;
  }

  /// Sets the plan's recomputation so that the bound leaves `spare` bytes of the budget; false when none does.
  bool fit(Candidate& c, std::int64_t spare) {
    // The rCache is rarely full when the rest is at its most: placement decides.
    const std::int64_t budget = device_budget() - spare + c.memory.rcache_bytes / 20;
    if (request_.pins.recompute) {
      c.plan.activations =
          *request_.pins.recompute ? least_recompute(c.memory, 0) : Activations(c.plan.activations.size(), spec::Activation::kKeep);
    } else {
      c.plan.activations = least_recompute(c.memory, budget);
    }
    c.missing_bytes = std::max<std::int64_t>(0, c.memory.bytes(c.plan.activations) - budget);
    return c.missing_bytes == 0;
  }

  void bound() {
    for (Candidate& c : candidates_) {
      c.memory = bounded_memory(c.plan);
      c.fits = fit(c, 0);
      c.bound_seconds = seconds_bound(bench_, c.plan);
      by_bound_.push_back(&c);
    }
    std::stable_sort(by_bound_.begin(), by_bound_.end(),
                     [](const Candidate* a, const Candidate* b) { return a->bound_seconds < b->bound_seconds; });
  }

  // ---- reduced graphs

  double best_reduced() const {
    double best = std::numeric_limits<double>::infinity();
    for (const Candidate& c : candidates_) {
      if (c.fits && c.reduced_seconds) best = std::min(best, *c.reduced_seconds);
    }
    return best;
  }

  /// Prices every fitting candidate that may be near the best so far. Goes on where it stopped when the best turned out not
  /// to fit.
  void rank() {
    double best = best_reduced();
    for (Candidate* c : by_bound_) {
      if (!c->fits || c->reduced_seconds) continue;
      if (c->bound_seconds > best * kWorthRanking) break;
      c->reduced_seconds = reduced_seconds(bench_, c->plan);
      best = std::min(best, *c->reduced_seconds);
    }
  }

  // ---- finalists

  /// Steps of half a tie, so that among candidates that are as good as equal the earlier in the walk comes first.
  static double rank_of(const Candidate& c) { return std::floor(std::log(*c.reduced_seconds) / std::log((1 + kTie) / 2)); }

  Candidate* best_unsettled() {
    if (settled_ >= finalists_ || (settled_ > 0 && tasks_simulated_ >= kFinalTasks)) return nullptr;
    Candidate* best = nullptr;
    double best_whole = std::numeric_limits<double>::infinity();
    for (Candidate& c : candidates_) {
      if (c.seconds) best_whole = std::min(best_whole, *c.seconds);
      if (!c.fits || !c.reduced_seconds || c.seconds) continue;
      if (best == nullptr || rank_of(c) < rank_of(*best)) best = &c;
    }
    if (best != nullptr && *best->reduced_seconds > best_whole * kWorthSimulating) return nullptr;
    return best;
  }

  struct Placed {
    schedule::BuildInputs inputs;
    schedule::StepGraph step;
    std::array<std::int64_t, spec::kTierCount> arena_bytes{};
  };

  Placed place(const Candidate& c) {
    Placed placed;
    placed.inputs = bench_.inputs(c.plan);
    placed.step = schedule::build(GraphKind::kStep, placed.inputs);
    placed.arena_bytes = placed.step.arena_bytes;
    const schedule::StepGraph evaluate = schedule::build(GraphKind::kEvaluate, placed.inputs);
    for (std::size_t t = 0; t < spec::kTierCount; ++t) placed.arena_bytes[t] = std::max(placed.arena_bytes[t], evaluate.arena_bytes[t]);
    return placed;
  }

  /// Beyond the budget, of the tier that misses most.
  std::int64_t missing_bytes(const Placed& placed) const {
    std::int64_t missing = placed.arena_bytes[static_cast<std::size_t>(Tier::kDevice)] - device_budget();
    if (request_.budget.host_bytes > 0) {
      missing = std::max(missing,
                         placed.arena_bytes[static_cast<std::size_t>(Tier::kHost)] * bench_.ranks_per_node() - request_.budget.host_bytes);
    }
    return std::max<std::int64_t>(0, missing);
  }

  /// Places a candidate and simulates it whole, or finds that it doesn't fit.
  void settle(Candidate& c) {
    Placed placed = place(c);
    std::int64_t missing = missing_bytes(placed);
    std::int64_t spare = 0;
    const bool was_adjusted = missing > 0;
    for (int refit = 0; missing > 0 && refit < kRefits; ++refit) {
      spare += missing + missing / 8;
      if (request_.pins.recompute || !fit(c, spare)) break;
      placed = place(c);
      missing = missing_bytes(placed);
    }
    if (missing > 0) {
      c.fits = false;
      c.missing_bytes = missing;
      c.reduced_seconds.reset();
      return;
    }
    c.missing_bytes = 0;
    if (was_adjusted) {  // it recomputes more than what was ranked: rank it anew, and come back if it is still near the best
      const double before = *c.reduced_seconds;
      c.reduced_seconds = reduced_seconds(bench_, c.plan);
      if (*c.reduced_seconds > before * kTie) return;
    }
    const schedule::Simulation simulation = bench_.simulate(placed.step, placed.inputs);
    c.seconds = simulation.seconds;
    c.segments_between_agrees = placed.inputs.segments_between_agrees;
    Prediction& p = c.prediction;
    p.seconds = simulation.seconds;
    const spec::BatchSpec& batch = request_.training.batch;
    const double sequences = static_cast<double>(c.plan.micro_batch * c.plan.accumulation * request_.mesh.data);
    p.tokens_per_second = sequences * static_cast<double>(batch.sequence_length) / simulation.seconds;
    p.bound = simulation.bound;
    p.critical_seconds = simulation.critical_seconds;
    p.busy_seconds = simulation.busy_seconds;
    p.arena_bytes = placed.arena_bytes;
    p.tags = bytes_by_tag(placed.step);
    p.gap_bytes = p.arena_bytes[static_cast<std::size_t>(Tier::kDevice)];
    for (const TagBytes& tag : p.tags) {
      if (tag.tier == Tier::kDevice) p.gap_bytes -= tag.bytes;
    }
    p.unplanned_bytes = request_.machine.unplanned_bytes;
    for (std::size_t i = 0; i < bench_.model().params.size(); ++i) {
      const std::int64_t elements = bench_.model().params[i].elements();
      p.parameters += elements;
      if (!placed.inputs.layout->grouping().trains(static_cast<int>(i))) p.frozen_parameters += elements;
    }
    p.tasks = static_cast<std::int64_t>(placed.step.tasks.size());
    p.graph_hash = simulation.graph_hash;
    tasks_simulated_ += p.tasks;
    ++settled_;
  }

  bool choose() {
    double best = std::numeric_limits<double>::infinity();
    for (const Candidate& c : candidates_) {
      if (c.fits && c.seconds) best = std::min(best, *c.seconds);
    }
    for (const Candidate& c : candidates_) {
      if (c.fits && c.seconds && *c.seconds <= best * kTie) {
        chosen_ = &c;
        return true;
      }
    }
    return false;
  }

  // ---- reasons

  std::string reason(const Candidate& c) const {
    if (!c.fits) {
      return cat("needs ", format_bytes(request_.budget.device_bytes + c.missing_bytes), " a rank, ", format_bytes(c.missing_bytes),
                 " more than the ", format_bytes(request_.budget.device_bytes), " given");
    }
    const char* at_least = c.seconds || c.reduced_seconds ? "" : "at least ";
    const double ratio = c.known_seconds() / *chosen_->seconds;
    return cat(at_least, text_of(c.known_seconds()), " a step, ", percent(ratio));
  }

  /// For each respect, the best candidate of every value that wasn't chosen: all ZeRO stages and update modes, a few micro-batches.
  std::vector<Refusal> refusals() const {
    std::vector<const Candidate*> shown;
    const auto consider = [&](std::size_t most, auto value_of) {
      std::map<decltype(value_of(*chosen_)), const Candidate*> best;
      for (const Candidate& c : candidates_) {
        if (value_of(c) == value_of(*chosen_)) continue;
        const auto [it, is_new] = best.try_emplace(value_of(c), &c);
        if (!is_new && is_better(c, *it->second)) it->second = &c;
      }
      std::vector<const Candidate*> order;
      for (const auto& [value, candidate] : best) order.push_back(candidate);
      std::stable_sort(order.begin(), order.end(), [](const Candidate* x, const Candidate* y) { return is_better(*x, *y); });
      if (order.size() > most) order.resize(most);
      for (const Candidate* c : order) {
        if (std::find(shown.begin(), shown.end(), c) == shown.end()) shown.push_back(c);
      }
    };
    consider(3, [](const Candidate& c) { return c.plan.zero_stage; });
    consider(2, [](const Candidate& c) { return c.plan.update_mode; });
    consider(3, [](const Candidate& c) { return c.plan.micro_batch; });
    std::vector<Refusal> refusals;
    for (const Candidate* c : shown) refusals.push_back({c->plan, reason(*c), c->missing_bytes, c->fits ? c->known_seconds() : 0});
    return refusals;
  }

  static bool is_better(const Candidate& a, const Candidate& b) {
    if (a.fits != b.fits) return a.fits;
    if (!a.fits) return a.missing_bytes < b.missing_bytes;
    return a.known_seconds() < b.known_seconds();
  }

  const PlanRequest& request_;
  Workbench bench_;
  int finalists_;
  std::vector<Candidate> candidates_;
  std::vector<Candidate*> by_bound_;
  std::map<std::array<std::int64_t, 3>, MemoryBound> memories_;
  const Candidate* chosen_ = nullptr;
  int settled_ = 0;
  std::int64_t tasks_simulated_ = 0;
};

bool agrees(const spec::Plan& plan, const Choices& with) {
  const bool any = std::count(plan.activations.begin(), plan.activations.end(), spec::Activation::kRecompute) > 0;
  return (!with.zero_stage || *with.zero_stage == plan.zero_stage) &&
         (!with.chunk_elements || *with.chunk_elements == plan.chunk_elements) &&
         (!with.rcache_elements || plan.zero_stage < 3 || *with.rcache_elements == plan.rcache_elements) &&
         (!with.prefetch_segments || *with.prefetch_segments == plan.prefetch_segments) &&
         (!with.update_mode || *with.update_mode == plan.update_mode) && (!with.recompute || *with.recompute == any);
}

/// What the request pins, else what it hints.
Choices pinned_to_hints(const PlanRequest& request) {
  Choices merged = request.pins;
  const Choices& hints = request.hints;
  if (!merged.zero_stage) merged.zero_stage = hints.zero_stage;
  if (!merged.chunk_elements) merged.chunk_elements = hints.chunk_elements;
  if (!merged.rcache_elements) merged.rcache_elements = hints.rcache_elements;
  if (!merged.prefetch_segments) merged.prefetch_segments = hints.prefetch_segments;
  if (!merged.update_mode && (hints.update_mode != UpdateMode::kInBackward || !optim::needs_norm(request.training)))
    merged.update_mode = hints.update_mode;
  if (!merged.recompute) merged.recompute = hints.recompute;
  return merged;
}

void refuse_batch(const spec::BatchSpec& batch, std::int64_t data, const std::string& why, const std::string& remedy) {
  throw RequestError(cat("batch: ", why, " (train_batch_size ", batch.global_batch, ", train_micro_batch_size_per_gpu ", batch.micro_batch,
                         ", gradient_accumulation_steps ", batch.accumulation, ", ", data,
                         data == 1 ? " data-parallel rank" : " data-parallel ranks", "; 0 is not written); ", remedy));
}

}  // namespace

std::vector<std::pair<std::int64_t, std::int64_t>> micro_batches(const spec::BatchSpec& batch, std::int64_t data) {
  SLUICE_CHECK(data > 0 && batch.global_batch >= 0 && batch.micro_batch >= 0 && batch.accumulation >= 0, "a negative batch");
  std::int64_t global = batch.global_batch;
  if (global == 0) {
    if (batch.micro_batch == 0) refuse_batch(batch, data, "its size is not written", "write train_batch_size");
    global = batch.micro_batch * std::max<std::int64_t>(1, batch.accumulation) * data;
  }
  if (global % data != 0) {
    refuse_batch(batch, data, cat(global, " sequences can't be divided among ", data, " ranks"),
                 cat("use a multiple of ", data, ", or a number of ranks that divides ", global));
  }
  const std::int64_t per_rank = global / data;
  std::vector<std::pair<std::int64_t, std::int64_t>> found;
  for (std::int64_t micro = per_rank; micro >= 1; --micro) {
    if (per_rank % micro != 0) continue;
    const std::int64_t accumulation = per_rank / micro;
    if (batch.micro_batch != 0 && batch.micro_batch != micro) continue;
    if (batch.accumulation != 0 && batch.accumulation != accumulation) continue;
    found.emplace_back(micro, accumulation);
  }
  if (found.empty()) {
    refuse_batch(batch, data, cat("the numbers disagree: ", per_rank, " sequences a rank"),
                 "train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x ranks");
  }
  return found;
}

std::string describe(const spec::Plan& plan) {
  std::string text = cat("zero ", plan.zero_stage, ", chunks of ", format_count(plan.chunk_elements), " elements");
  if (plan.zero_stage == 3) text += cat(", rCache ", format_count(plan.rcache_elements), ", prefetch ", plan.prefetch_segments);
  text += plan.accumulation == 1 ? cat(", micro-batch ", plan.micro_batch)
                                 : cat(", ", plan.accumulation, " micro-batches of ", plan.micro_batch);
  const auto recomputed = std::count(plan.activations.begin(), plan.activations.end(), spec::Activation::kRecompute);
  if (recomputed > 0) text += cat(", ", recomputed, " of ", plan.activations.size() - 2, " half-layers recomputed");
  return cat(text, ", update ", spec::name_of(plan.update_mode));
}

PlanResult search(const PlanRequest& request) {
  SLUICE_CHECK(request.mesh.data == request.mesh.ranks(), "tensor, sequence and pipeline axes have one rank each so far");
  SLUICE_CHECK(request.training.batch.sequence_length > 0 && request.threads > 0, "a plan needs a sequence length and threads");
  Search search(request, kFinalists);
  if (!search.run()) {
    const Candidate& nearest = search.nearest();
    const std::int64_t needed = request.budget.device_bytes + nearest.missing_bytes;
    throw EnvironmentError(cat("model ", request.model.name, " does not fit: the nearest plan (", describe(nearest.plan), ") needs ",
                               format_bytes(needed), " a rank, ", format_bytes(nearest.missing_bytes), " more than the ",
                               format_bytes(request.budget.device_bytes), " given; give --device-memory ", divide_up(needed, kMiB),
                               "MiB or more", request.mesh.data == 1 || !request.pins.empty() ? "" : ", or more ranks",
                               request.pins.empty() ? "" : ", or unpin what is pinned"));
  }
  PlanResult result = search.result();
  if (!request.hints.empty()) {
    HintOutcome& outcome = result.hint.emplace();
    if (agrees(result.plan, request.hints)) {
      outcome = {.followed = true, .fits = true, .plan = result.plan, .seconds = result.prediction.seconds};
    } else {
      PlanRequest as_hinted = request;
      as_hinted.pins = pinned_to_hints(request);
      as_hinted.hints = {};
      constexpr int kHintFinalists = 4;
      Search hinted(as_hinted, kHintFinalists);
      if (hinted.run()) {
        const PlanResult theirs = hinted.result();
        outcome.fits = true;
        outcome.plan = theirs.plan;
        outcome.seconds = theirs.prediction.seconds;
        // Rounding and clamping may make it the same plan.
        outcome.followed = theirs.plan == result.plan;
        // Only finalists are simulated whole, so the walk may have passed over what the hints name.
        if (outcome.seconds < result.prediction.seconds) {
          HintOutcome followed = outcome;
          followed.followed = true;
          result = theirs;
          result.hint = followed;
        }
      } else {
        const Candidate& nearest = hinted.nearest();
        outcome.plan = nearest.plan;
        outcome.missing_bytes = nearest.missing_bytes;
      }
    }
  }
  return result;
}

}  // namespace sluice::plan

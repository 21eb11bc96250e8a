#include "plan/search.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "base/check.hpp"
#include "base/units.hpp"
#include "plan/bounds.hpp"
#include "plan/walk.hpp"
#include "plan/workbench.hpp"
#include "schedule/simulate.hpp"

namespace sluice::plan {
namespace {

using schedule::GraphKind;
using spec::Activation;
using spec::MicroBatchOrder;
using spec::Tier;
using spec::UpdateMode;
using TierBytes = Candidate::TierBytes;

std::size_t at(Tier tier) {
  return static_cast<std::size_t>(tier);
}

constexpr int kFinalists = 20;
constexpr std::int64_t kFinalTasks = 6'000'000;  // simulated whole in all: some seconds
constexpr double kWorthRanking = 1.05;           // candidates whose bound is further from the best aren't ranked
constexpr double kWorthSimulating = 1.10;        // nor those simulated whole whose rank is further
constexpr double kTie = 1.005;                   // closer than any prediction: the earlier in the walk is taken
constexpr int kRefits = 12;                      // of a candidate's homes and activations to what placement needs; two or three are usual
constexpr int kWorthRelaxing = 64;               // placement needs less than expected by this part of a tier
constexpr std::size_t kNearest = 16;             // placed to find the one that misses least
constexpr int kRefined = 4;                      // of the best ranked, and how many prices all of that may take
constexpr int kMostRefinements = 24;

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

class Search {
 public:
  Search(const PlanRequest& request, int finalists) : request_(request), bench_(request), walk_(request, bench_), finalists_(finalists) {}

  /// False when nothing fits.
  bool run() {
    walk_.add_to(candidates_);
    bound();
    for (;;) {
      rank();
      refine();
      Candidate* next = best_unsettled();
      if (next == nullptr) break;
      settle(*next);
    }
    if (choose()) return true;
    find_nearest();
    return choose();
  }

  PlanResult result() {
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
    result.cache = cache_decision();
    spec::Plan on_device = chosen_->plan;
    on_device.homes.clear();
    result.state_bytes = state_bytes(on_device);
    result.device_bytes_for_states = request_.budget.device_bytes - result.prediction.unplanned_bytes -
                                     result.prediction.arena_bytes[at(Tier::kDevice)] + state_bytes(chosen_->plan);
    return result;
  }

  Workbench& bench() { return bench_; }

  /// The candidate that misses the budgets by least, placed, after run() returned false.
  const Candidate& nearest() const { return *nearest_; }

  /// "needs 2.1 GiB a rank, 100 MiB more than the 2 GiB given", for each tier that misses bytes.
  std::string lacking(const TierBytes& missing) const {
    std::string text;
    const auto add = [&](Tier tier, const char* whose, std::int64_t given) {
      const std::int64_t bytes = missing[at(tier)];
      if (bytes == 0) return;
      text += cat(text.empty() ? "needs " : " and ", format_bytes(given + bytes), whose, ", ", format_bytes(bytes));
      text += given > 0 ? cat(" more than the ", format_bytes(given), " given") : std::string(" where none is given");
    };
    add(Tier::kDevice, " a rank", request_.budget.device_bytes);
    add(Tier::kHost, " of host memory a node", request_.budget.host_bytes);
    add(Tier::kDisk, " of disk a node", request_.budget.disk_bytes);
    return text;
  }

 private:
  void bound() {
    for (Candidate& c : candidates_) {
      c.bound_seconds = seconds_bound(bench_, c.plan);
      by_bound_.push_back(&c);
    }
    std::stable_sort(by_bound_.begin(), by_bound_.end(),
                     [](const Candidate* a, const Candidate* b) { return a->bound_seconds < b->bound_seconds; });
  }

  /// Of what doesn't fit the plan that misses least, placed: among the few of which that is expected.
  void find_nearest() {
    std::vector<Candidate*> order;
    for (Candidate& c : candidates_) order.push_back(&c);
    std::stable_sort(order.begin(), order.end(),
                     [](const Candidate* a, const Candidate* b) { return distance_of(a->missing) < distance_of(b->missing); });
    if (order.size() > kNearest) order.resize(kNearest);
    for (Candidate* c : order) {
      if (place_within(*c, Extent::kWhole)) {  // the reduced graph said otherwise
        c->fits = true;
        c->reduced_seconds = reduced_seconds(bench_, c->plan);
        settle(*c);
        continue;
      }
      if (nearest_ == nullptr || distance_of(c->missing) < distance_of(nearest_->missing)) nearest_ = c;
    }
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
      if (c->is_tight && !place_within(*c, Extent::kReduced)) {
        c->fits = false;
        continue;
      }
      c->reduced_seconds = reduced_seconds(bench_, c->plan);
      best = std::min(best, *c->reduced_seconds);
    }
  }

  /// Looks at the neighbours of the best few that move or recompute something: states fetched further ahead, and recomputed activations
  /// moved instead.
  void refine() {
    if (!walk_.may_leave()) return;
    std::vector<Candidate*> best;
    for (Candidate& c : candidates_) {
      if (c.fits && c.reduced_seconds) best.push_back(&c);
    }
    std::stable_sort(best.begin(), best.end(),
                     [](const Candidate* a, const Candidate* b) { return *a->reduced_seconds < *b->reduced_seconds; });
    if (best.size() > kRefined) best.resize(kRefined);
    for (Candidate* c : best) {
      if (c->refined || refinements_ >= kMostRefinements || *c->reduced_seconds > *best.front()->reduced_seconds * kWorthSimulating)
        continue;
      c->refined = true;
      const Candidate parent = *c;
      if (!parent.plan.homes.empty()) {
        spec::Plan further = parent.plan;
        further.state_prefetch = 2;
        add_refined(further);
      }
      move_recomputed(parent);
    }
  }

  /// Prices a neighbour of a candidate, its homes fitted anew: its seconds, or none if it doesn't fit.
  std::optional<double> add_refined(const spec::Plan& plan) {
    ++refinements_;
    Candidate child;
    child.plan = plan;
    child.relief = Relief::kLeaveAsGiven;
    child.refined = true;
    if (!walk_.fit(child, {})) {
      child.is_tight = true;
      if (!walk_.may_fit(child) || !place_within(child, Extent::kReduced)) return std::nullopt;
    }
    child.bound_seconds = seconds_bound(bench_, child.plan);
    child.reduced_seconds = reduced_seconds(bench_, child.plan);
    candidates_.push_back(child);
    return child.reduced_seconds;
  }

  /// Fuyou's walk: of what is recomputed, a quarter more at a time goes to the host and, where that is full, to disk, the most seconds of
  /// recomputing a byte first; up to where the step's time turns, since it is convex in the amount.
  void move_recomputed(const Candidate& parent) {
    if (!walk_.may_move_activations()) return;
    const Room room = walk_.room_of_rank({});
    spec::Plan yields = parent.plan;  // homes are fitted anew: for activations all that may gives way to disk
    const bool may_yield = room.disk > 0 && request_.pins.states.value_or(Tier::kDisk) == Tier::kDisk;
    for (spec::ChunkHomes& home : yields.homes) {
      if (!may_yield) break;
      if (home.states == Tier::kHost) home.states = Tier::kDisk;
      if (home.working == Tier::kHost && request_.pins.working != Tier::kHost) home.working = Tier::kDisk;
      if (home.gradient == Tier::kHost && parent.plan.update_mode != UpdateMode::kInBackward) home.gradient = Tier::kDisk;
    }
    const MemoryBound memory = walk_.bounded_memory(parent.plan), yielding = walk_.bounded_memory(yields);
    const auto host_bytes = [&](const Activations& with) { return std::min(memory.host_bytes(with), yielding.host_bytes(with)); };
    std::vector<std::size_t> order;
    for (std::size_t s = 0; s < parent.plan.activations.size(); ++s) {
      if (parent.plan.activations[s] == Activation::kRecompute) order.push_back(s);
    }
    const auto worth = [&](std::size_t s) { return memory.recompute_seconds[s] / static_cast<double>(memory.saved_bytes[s]); };
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return worth(a) > worth(b); });
    const std::int64_t host = room.host - room.host / 32;  // placement needs a little more
    spec::Plan plan = parent.plan;
    double before = *parent.reduced_seconds;
    std::size_t moved = 0;
    constexpr std::size_t kQuarters = 4;
    for (std::size_t quarter = 1; quarter <= kQuarters && refinements_ < kMostRefinements; ++quarter) {
      const std::size_t wanted = divide_up(static_cast<std::int64_t>(order.size() * quarter), kQuarters);
      const std::size_t moved_before = moved;
      for (; moved < wanted; ++moved) {
        Activation& activation = plan.activations[order[moved]];
        activation = Activation::kHost;
        if (host_bytes(plan.activations) <= host) continue;
        activation = Activation::kDisk;
        if (host_bytes(plan.activations) <= host && yielding.disk_bytes(plan.activations) <= room.disk) continue;
        activation = Activation::kRecompute;
        break;
      }
      if (moved == moved_before) return;
      const std::optional<double> seconds = add_refined(plan);
      if (!seconds || *seconds >= before) return;
      before = *seconds;
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
    schedule::SetBytes bytes;

    /// With what stands beside the arenas, in the memory that the device's share is of.
    TierBytes needed() const {
      TierBytes all = bytes.arenas;
      all[at(Tier::kDevice)] += bytes.bookkeeping;
      return all;
    }
  };

  enum class Extent : std::uint8_t { kWhole, kReduced };

  /// Reduced: of as few micro-batches as suffice for what stands at the same time.
  Placed place(const Candidate& c, Extent extent) {
    spec::Plan plan = c.plan;
    const bool is_reduced = extent == Extent::kReduced && plan.order == MicroBatchOrder::kDepthFirst;
    if (is_reduced) plan.accumulation = std::min(plan.accumulation, kReducedMicroBatches);
    Placed placed;
    placed.inputs = bench_.inputs(plan);
    placed.step = schedule::build(GraphKind::kStep, placed.inputs);
    placed.bytes = schedule::bytes_of_set(placed.step, placed.inputs);
    const std::int64_t left_out = c.plan.accumulation - plan.accumulation;
    if (left_out == 0) return placed;
    const spec::BatchSpec& batch = request_.training.batch;
    placed.bytes.arenas[at(Tier::kHost)] +=
        left_out * schedule::token_bytes(plan.micro_batch, batch.sequence_length, request_.training.document_attention);
    const std::vector<schedule::Task>& tasks = placed.step.tasks;
    const auto of_one = std::count_if(tasks.begin(), tasks.end(), [](const schedule::Task& task) { return task.micro == 1; });
    placed.bytes.bookkeeping += left_out * (of_one * placed.step.bookkeeping_bytes() / static_cast<std::int64_t>(tasks.size()));
    return placed;
  }

  TierBytes missing_bytes(const Placed& placed) const {
    return walk_.missing_bytes(placed.inputs.plan, placed.needed(), walk_.room_of_rank({}));
  }

  /// Places a candidate, and fits its activations and homes to what the last placement needed beyond what was expected, until it has room;
  /// none where it can have none: then its plan is that of the placements that misses least, and `missing` what that misses.
  std::optional<Placed> place_within(Candidate& c, Extent extent) {
    constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();
    Room spare{};
    std::int64_t too_little = -kUnknown, too_much = kUnknown;  // spared of the device, as far as known: its own bytes miss, the host's do
    std::optional<Candidate> nearest;
    for (int times = 0; times < kRefits; ++times) {
      Placed placed = place(c, extent);
      c.missing = missing_bytes(placed);
      if (sum_of(c.missing) == 0) return placed;
      if (!nearest || distance_of(c.missing) < distance_of(nearest->missing)) nearest = c;
      const auto beyond = [&](Tier tier) { return placed.needed()[at(tier)] - c.expected[at(tier)]; };
      const auto more = [&](Tier tier, std::int64_t spared) {
        const std::int64_t of_rank = c.missing[at(tier)] / (tier == Tier::kDevice ? 1 : bench_.ranks_per_node());
        return std::max(beyond(tier), spared + of_rank) + of_rank / 8;
      };
      const std::int64_t before = spare.device;
      if (c.missing[at(Tier::kDevice)] > 0) {
        too_little = std::max(too_little, before);
        spare.device = more(Tier::kDevice, before);
      } else if (c.missing[at(Tier::kHost)] > 0 && !walk_.has_disk()) {  // then less has to leave the device
        too_much = std::min(too_much, before);
        spare.device = std::min(beyond(Tier::kDevice), before - more(Tier::kHost, 0));
      }
      if (spare.device != before && (spare.device <= too_little || spare.device >= too_much) && too_little != -kUnknown &&
          too_much != kUnknown)
        spare.device = too_little + (too_much - too_little) / 2;
      if (c.missing[at(Tier::kHost)] > 0) spare.host = more(Tier::kHost, spare.host);
      if (c.missing[at(Tier::kDisk)] > 0) spare.host = std::min(spare.host, beyond(Tier::kHost));
      const spec::Plan placed_plan = c.plan;
      walk_.fit(c, spare);
      if (c.plan == placed_plan) break;
    }
    c = *nearest;
    return std::nullopt;
  }

  /// A neighbour of a candidate that needs less than was expected, and so might keep more.
  void relax(const Candidate& c, const Placed& placed) {
    const auto below = [&](Tier tier) { return c.expected[at(tier)] - placed.needed()[at(tier)]; };
    const Room room = walk_.room_of_rank({});
    const bool gives_way = !c.plan.homes.empty() || std::any_of(c.plan.activations.begin(), c.plan.activations.end(),
                                                                [](Activation each) { return each == Activation::kRecompute; });
    if (c.relaxed || !gives_way || (below(Tier::kDevice) < room.device / kWorthRelaxing && below(Tier::kHost) < room.host / kWorthRelaxing))
      return;
    Candidate child;
    child.plan = c.plan;
    child.relief = c.relief;
    child.refined = child.relaxed = true;
    const Room spare{.device = -std::max<std::int64_t>(0, below(Tier::kDevice)), .host = -std::max<std::int64_t>(0, below(Tier::kHost))};
    walk_.fit(child, spare);
    if (child.plan == c.plan) return;
    child.bound_seconds = seconds_bound(bench_, child.plan);
    child.reduced_seconds = reduced_seconds(bench_, child.plan);
    candidates_.push_back(std::move(child));
  }

  /// Places a candidate and simulates it whole, or finds that it doesn't fit.
  void settle(Candidate& c) {
    const spec::Plan ranked = c.plan;
    const std::optional<Placed> within = place_within(c, Extent::kWhole);
    if (!within) {
      c.fits = false;
      c.reduced_seconds.reset();
      return;
    }
    const Placed& placed = *within;
    if (c.plan != ranked) {
      // It gives up more than what was ranked: rank it anew, and come back if it is still near the best.
      const double before = *c.reduced_seconds;
      c.reduced_seconds = reduced_seconds(bench_, c.plan);
      if (*c.reduced_seconds > before * kTie) return;
    }
    relax(c, placed);
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
    p.arena_bytes = placed.bytes.arenas;
    p.tags = bytes_by_tag(placed.step);
    p.gap_bytes = p.arena_bytes[static_cast<std::size_t>(Tier::kDevice)];
    for (const TagBytes& tag : p.tags) {
      if (tag.tier == Tier::kDevice) p.gap_bytes -= tag.bytes;
    }
    p.unplanned_bytes = request_.machine.unplanned_bytes + placed.bytes.bookkeeping;
    const schedule::DiskTraffic traffic = schedule::disk_traffic(placed.step, placed.inputs);
    p.disk_read_bytes = traffic.read_bytes;
    p.disk_write_bytes = traffic.written_bytes;
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
    chosen_ = nullptr;
    double best = std::numeric_limits<double>::infinity();
    for (const Candidate& c : candidates_) {
      if (c.fits && c.seconds) best = std::min(best, *c.seconds);
    }
    for (const Candidate& c : candidates_) {
      if (!c.fits || !c.seconds || *c.seconds > best * kTie) continue;
      if (chosen_ == nullptr || tiers_used(c.plan) < tiers_used(chosen_->plan)) chosen_ = &c;
    }
    return chosen_ != nullptr;
  }

  // ---- reasons

  std::string reason(const Candidate& c) const {
    if (!c.fits) return lacking(c.missing);
    const char* at_least = c.seconds || c.reduced_seconds ? "" : "at least ";
    return cat(at_least, text_of(c.known_seconds()), " a step, ", compared(c));
  }

  std::string compared(const Candidate& c) const {
    const double p = (c.known_seconds() / *chosen_->seconds - 1) * 100;
    if (p >= 0.1) return cat(p < 10 ? std::round(p * 10) / 10 : std::round(p), " % slower");
    // What was not simulated whole may seem faster than the chosen one is.
    if (!c.seconds) return cat("by ", c.reduced_seconds ? "a reduced graph" : "a bound", " only: others came first");
    return cat("taken as equal: within ", std::round((kTie - 1) * 1000) / 10, " %, and the one chosen comes first");
  }

  /// For each respect, the best candidate of every value that wasn't chosen: all ZeRO stages, update modes, tiers and orders, a few
  /// micro-batches.
  std::vector<Refusal> refusals() {
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
    consider(2, [](const Candidate& c) { return tiers_used(c.plan); });
    consider(1, [](const Candidate& c) { return c.plan.order; });
    consider(3, [](const Candidate& c) { return c.plan.micro_batch; });
    std::vector<Refusal> refusals;
    for (const Candidate* c : shown) {
      Candidate told = *c;
      // By number what it misses, not what is expected.
      told.missing = c->fits ? TierBytes{} : missing_bytes(place(told, Extent::kWhole));
      refusals.push_back({told.plan, reason(told), told.missing, told.fits ? told.known_seconds() : 0});
    }
    return refusals;
  }

  static bool is_better(const Candidate& a, const Candidate& b) {
    if (a.fits != b.fits) return a.fits;
    if (!a.fits) return distance_of(a.missing) < distance_of(b.missing);
    return a.known_seconds() < b.known_seconds();
  }

  std::optional<CacheDecision> cache_decision() {
    if (chosen_->plan.zero_stage != 3 || chosen_->plan.homes.empty()) return std::nullopt;
    const Candidate *rcache = nullptr, *states = nullptr;
    for (const Candidate& c : candidates_) {
      if (!c.fits || c.plan.zero_stage != 3 || c.plan.homes.empty()) continue;
      const std::int64_t least = bench_.rcache_range(c.plan.chunk_elements, c.plan.prefetch_segments).first;
      const Candidate*& best = c.plan.rcache_elements == least ? states : rcache;
      if (best == nullptr || c.known_seconds() < best->known_seconds()) best = &c;
    }
    if (rcache == nullptr || states == nullptr) return std::nullopt;
    const spec::Plan& plan = chosen_->plan;
    const bool takes_states = plan.rcache_elements == bench_.rcache_range(plan.chunk_elements, plan.prefetch_segments).first;
    (takes_states ? states : rcache) = chosen_;  // as good as the best of its kind
    return CacheDecision{rcache->plan, states->plan, rcache->known_seconds(), states->known_seconds(), !takes_states};
  }

  /// Of a rank's device: the states that stand there.
  std::int64_t state_bytes(const spec::Plan& plan) {
    const chunks::ChunkLayout& layout = bench_.layout(plan.chunk_elements);
    std::int64_t bytes = 0;
    for (std::size_t c = 0; c < layout.chunks().size(); ++c) {
      const chunks::Chunk& chunk = layout.chunks()[c];
      if (!layout.trains(chunk) || plan.home(c).states != Tier::kDevice) continue;
      const std::int64_t elements = plan.zero_stage == 0 ? chunk.elements : chunks::largest_shard(chunk.elements, bench_.ranks());
      const int planes = layout.grouping().moments + (layout.has_master() ? 1 : 0);
      bytes += elements * planes * layout.element_bytes(chunks::Plane::kMoment1);
    }
    return bytes;
  }

  const PlanRequest& request_;
  Workbench bench_;
  Walk walk_;
  int finalists_;
  std::deque<Candidate> candidates_;
  std::vector<Candidate*> by_bound_;
  const Candidate* chosen_ = nullptr;
  Candidate* nearest_ = nullptr;
  int settled_ = 0;
  int refinements_ = 0;
  std::int64_t tasks_simulated_ = 0;
};

/// DeepSpeed's word for a tier, which is what the user wrote.
const char* device_of(Tier tier) {
  return tier == Tier::kDevice ? "none" : tier == Tier::kHost ? "cpu" : "nvme";
}

/// Why choices can't all be followed; empty if they can.
std::string contradiction(const Choices& choices, const PlanRequest& request) {
  const spec::Budget& budget = request.budget;
  const auto leaves = [](const std::optional<Tier>& tier) { return tier && *tier != Tier::kDevice; };
  if (leaves(choices.working) && choices.zero_stage && *choices.zero_stage != 3)
    return cat("offload_param is ", device_of(*choices.working), " and zero_optimization.stage ", *choices.zero_stage,
               ": working parameters leave the device with stage 3 only");
  if (choices.working && choices.states && *choices.states < *choices.working)
    return cat("offload_param is ", device_of(*choices.working), " and offload_optimizer ", device_of(*choices.states),
               ": states can't stand in a faster tier than the parameters they belong to");
  if ((choices.working == Tier::kDisk || choices.states == Tier::kDisk) && budget.disk_bytes == 0)
    return "it offloads to disk and no disk is given; give --nvme-path";
  if (leaves_device(choices) && !knows_copies(request.machine))
    return cat("machine ", request.machine.name,
               " says nothing of upload_bytes_per_second and download_bytes_per_second, which what leaves the device needs");
  if (choices.order == MicroBatchOrder::kLayerByLayer && choices.zero_stage.value_or(3) < 2)
    return cat("the order is layer_by_layer and zero_optimization.stage ", *choices.zero_stage, ": it needs stage 2 or 3");
  return {};
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
  if (!merged.states) merged.states = hints.states;
  if (!merged.working) merged.working = hints.working;
  if (!merged.host_activations) merged.host_activations = hints.host_activations;
  if (!merged.order) merged.order = hints.order;
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
  if (plan.order == MicroBatchOrder::kLayerByLayer) text += " layer by layer";
  const char* of_all = " of ";
  const auto count = [&](Activation activation, const char* what) {
    const auto segments = std::count(plan.activations.begin(), plan.activations.end(), activation);
    if (segments == 0) return;
    text += cat(", ", segments);
    if (*of_all != '\0') text += cat(of_all, plan.activations.size() - 2, " half-layers");
    of_all = "";
    text += what;
  };
  count(Activation::kRecompute, " recomputed");
  count(Activation::kHost, " saved on host");
  count(Activation::kDisk, " saved on disk");
  text += cat(", update ", spec::name_of(plan.update_mode));
  if (plan.homes.empty()) return text;
  text += cat(", of ", plan.homes.size(), " chunks");
  const char* separator = " ";
  const auto homes = [&](const char* kind, Tier spec::ChunkHomes::*plane) {
    bool is_named = false;
    for (const Tier tier : {Tier::kHost, Tier::kDisk}) {
      const auto chunks =
          std::count_if(plan.homes.begin(), plan.homes.end(), [&](const spec::ChunkHomes& home) { return home.*plane == tier; });
      if (chunks == 0) continue;
      if (!is_named) text += cat(separator, kind);
      is_named = true;
      separator = ", ";
      text += cat(" ", chunks, " on ", spec::name_of(tier));
    }
  };
  homes("states", &spec::ChunkHomes::states);
  homes("gradients", &spec::ChunkHomes::gradient);
  homes("parameters", &spec::ChunkHomes::working);
  if (plan.state_prefetch > 1) text += cat(", states fetched ", plan.state_prefetch, " chunks ahead");
  return text;
}

PlanResult search(const PlanRequest& request) {
  SLUICE_CHECK(request.mesh.data == request.mesh.ranks(), "tensor, sequence and pipeline axes have one rank each so far");
  SLUICE_CHECK(request.training.batch.sequence_length > 0 && request.threads > 0, "a plan needs a sequence length and threads");
  const spec::DiskSpeed& disk = request.machine.disk;
  if (request.budget.disk_bytes > 0 && (disk.read_bytes_per_second <= 0 || disk.write_bytes_per_second <= 0)) {
    throw RequestError(cat("machine ", request.machine.name, ": ", format_bytes(request.budget.disk_bytes),
                           " of disk are given, but \"disk\" says nothing of its speed; fill it in, or leave the disk out"));
  }
  if (const std::string problem = contradiction(request.pins, request); !problem.empty())
    throw RequestError(cat("what is pinned can't be followed: ", problem));
  Search search(request, kFinalists);
  if (!search.run()) {
    const Candidate& nearest = search.nearest();
    std::string give;
    const auto ask = [&](Tier tier, const char* option, std::int64_t given) {
      if (const std::int64_t bytes = nearest.missing[at(tier)]; bytes > 0)
        give += cat(give.empty() ? "" : " and ", option, " ", divide_up(given + bytes, kMiB), "MiB or more");
    };
    ask(Tier::kDevice, "--device-memory", request.budget.device_bytes);
    ask(Tier::kHost, "--host-memory", request.budget.host_bytes);
    ask(Tier::kDisk, "--nvme-space", request.budget.disk_bytes);
    if (nearest.missing[at(Tier::kHost)] > 0 && request.budget.disk_bytes == 0) give += ", or a disk with --nvme-path";
    throw EnvironmentError(cat("model ", request.model.name, " does not fit: the nearest plan (", describe(nearest.plan), ") ",
                               search.lacking(nearest.missing), "; give ", give,
                               request.mesh.data == 1 || !request.pins.empty() ? "" : ", or more ranks",
                               request.pins.empty() ? "" : ", or unpin what is pinned"));
  }
  PlanResult result = search.result();
  if (!request.hints.empty()) {
    HintOutcome& outcome = result.hint.emplace();
    const Choices merged = pinned_to_hints(request);
    if (search.bench().agrees(result.plan, request.hints)) {
      outcome = {.followed = true, .fits = true, .plan = result.plan, .seconds = result.prediction.seconds, .reason = {}};
    } else if (outcome.reason = contradiction(merged, request); outcome.reason.empty()) {
      PlanRequest as_hinted = request;
      as_hinted.pins = merged;
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
        outcome.missing_bytes = nearest.missing;
        outcome.reason = hinted.lacking(nearest.missing);
      }
    }
  }
  return result;
}

}  // namespace sluice::plan

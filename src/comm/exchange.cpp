#include "comm/exchange.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "comm/rank_sum.hpp"

namespace sluice::comm {
namespace {

constexpr std::uint64_t kAhead = 8;               // operations behind the first unfinished one whose messages are on their way
constexpr int kTags = 16384;                      // MPI promises tags up to 32767
constexpr std::int64_t kPieceBytes = 4096;        // smallest piece worth a pass over the ranks
constexpr std::int64_t kStagingBytes = 16 << 20;  // per channel and buffer, while blocks stay above kLeastBlockBytes
constexpr std::int64_t kLeastBlockBytes = 64 << 10;

std::int64_t scatter_block(int size) {
  const std::int64_t share = kStagingBytes / std::max(1, size - 1) / kPieceBytes * kPieceBytes;
  return std::clamp(share, kLeastBlockBytes, kMessageBytes);
}

/// The few transfers between this rank and a peer that are under way, oldest first.
class InFlight {
 public:
  bool full() const { return count_ == kCapacity; }
  bool empty() const { return count_ == 0; }
  PeerMessages::Handle oldest() const { return handles_[first_]; }
  void push(PeerMessages::Handle handle) { handles_[(first_ + count_++) % kCapacity] = handle; }
  void pop() {
    first_ = (first_ + 1) % kCapacity;
    --count_;
  }

 private:
  static constexpr std::uint32_t kCapacity = 4;
  std::array<PeerMessages::Handle, kCapacity> handles_{};
  std::uint32_t first_ = 0;
  std::uint32_t count_ = 0;
};

/// One peer's part in an operation.
struct PeerState {
  enum class Route { kUnknown, kNothing, kAddress, kMessages };
  Route route = Route::kUnknown;
  const std::byte* address = nullptr;  // kAddress: of its slice for this rank
  std::int64_t staging = -1;           // scatter, kMessages: its place among the senders
  std::int64_t received = 0;           // gather: bytes in place; scatter: bytes arrived in staging
  std::int64_t receiving = 0;          // as received, asked for
  InFlight receives;
  const std::byte* send_from = nullptr;
  std::int64_t send_bytes = 0;  // 0: the peer addresses it, or there is nothing
  std::int64_t sending = 0;
  InFlight sends;
};

}  // namespace

struct ExchangeChannel::Operation {
  Kind kind = Kind::kGather;
  Ticket ticket = 0;
  const std::byte* source = nullptr;  // gather: own slice; scatter: own region
  std::byte* target = nullptr;        // gather: region; scatter: out
  bool accumulate = false;
  std::vector<std::int64_t> bounds;  // bytes
  std::uint64_t bounds_hash = 0;
  std::int64_t block_bytes = 0;  // of messages
  std::vector<PeerState> peers;
  std::int64_t own_moved = 0;  // gather: bytes of the own slice in place
  std::int64_t summed = 0;     // scatter: bytes of out that are final
  bool routes_known = false;   // scatter
  bool taken = false;          // everything this rank needs is there
  bool sent = false;           // everything its peers need by message has left

  std::int64_t slice_bytes(int rank) const { return bounds[rank + 1] - bounds[rank]; }
  int tag() const { return static_cast<int>(ticket % kTags); }
};

ExchangeChannel::ExchangeChannel(std::string name, int rank, int size, std::unique_ptr<PeerMemory> memory,
                                 std::unique_ptr<PeerMessages> messages, double silence_limit_seconds)
    : name_(std::move(name)),
      rank_(rank),
      size_(size),
      scatter_block_bytes_(scatter_block(size)),
      memory_(std::move(memory)),
      messages_(std::move(messages)),
      sources_(static_cast<std::size_t>(size)),
      silence_limit_ns_(static_cast<std::int64_t>(silence_limit_seconds * 1e9)) {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const bool has_board = memory_->board(peer) != nullptr;
    if (has_board) board_peers_.push_back(peer);
    SLUICE_CHECK(has_board || messages_, "channel ", name_, ": rank ", peer, " can't be reached");
  }
  SLUICE_CHECK(board_peers_.empty() || memory_->own_board() != nullptr, "channel ", name_, ": no board of its own");
}

ExchangeChannel::~ExchangeChannel() = default;

std::unique_ptr<ExchangeChannel::Operation> ExchangeChannel::take_operation(Kind kind, std::span<const std::int64_t> bounds,
                                                                            std::int64_t unit_bytes) {
  SLUICE_CHECK(bounds.size() == static_cast<std::size_t>(size_) + 1, "channel ", name_, ": ", bounds.size(), " bounds for ", size_,
               " ranks");
  SLUICE_CHECK(bounds[0] >= 0 && std::is_sorted(bounds.begin(), bounds.end()), "channel ", name_, ": bounds decrease");
  std::unique_ptr<Operation> operation;
  if (spare_.empty()) {
    operation = std::make_unique<Operation>();
  } else {
    operation = std::move(spare_.back());
    spare_.pop_back();
  }
  operation->kind = kind;
  operation->accumulate = false;
  operation->bounds.assign(bounds.begin(), bounds.end());
  Hash hash;
  for (std::int64_t& bound : operation->bounds) {
    bound *= unit_bytes;
    hash.add(static_cast<std::uint64_t>(bound));
  }
  operation->bounds_hash = hash.value();
  operation->block_bytes = kind == Kind::kScatter ? scatter_block_bytes_ : kMessageBytes;
  operation->peers.assign(static_cast<std::size_t>(size_), PeerState());
  operation->own_moved = 0;
  operation->summed = 0;
  operation->routes_known = false;
  operation->taken = false;
  operation->sent = false;
  return operation;
}

Channel::Ticket ExchangeChannel::enqueue(std::unique_ptr<Operation> operation) {
  operation->ticket = ++posted_;
  operations_.push_back(std::move(operation));
  return posted_;
}

Channel::Ticket ExchangeChannel::post_gather(const void* slice, void* region, std::span<const std::int64_t> bounds) {
  auto operation = take_operation(Kind::kGather, bounds, 1);
  operation->source = static_cast<const std::byte*>(slice);
  operation->target = static_cast<std::byte*>(region);
  return enqueue(std::move(operation));
}

Channel::Ticket ExchangeChannel::post_scatter(const float* region, float* out, std::span<const std::int64_t> bounds, bool accumulate) {
  auto operation = take_operation(Kind::kScatter, bounds, sizeof(float));
  SLUICE_CHECK(!accumulate || operation->slice_bytes(rank_) == 0 || out != region + bounds[rank_], "channel ", name_,
               ": accumulates into its own source");
  operation->source = reinterpret_cast<const std::byte*>(region);
  operation->target = reinterpret_cast<std::byte*>(out);
  operation->accumulate = accumulate;
  return enqueue(std::move(operation));
}

Channel::Ticket ExchangeChannel::post_exchange(const void* mine, void* all, std::int64_t bytes) {
  SLUICE_CHECK(bytes >= 0 && bytes <= kExchangeBytes, "channel ", name_, ": an exchange of ", bytes, " bytes");
  std::vector<std::int64_t> bounds(static_cast<std::size_t>(size_) + 1);
  for (std::size_t r = 0; r < bounds.size(); ++r) bounds[r] = static_cast<std::int64_t>(r) * bytes;
  auto operation = take_operation(Kind::kExchange, bounds, 1);
  operation->source = static_cast<const std::byte*>(mine);
  operation->target = static_cast<std::byte*>(all);
  return enqueue(std::move(operation));
}

bool ExchangeChannel::test(Ticket ticket) const {
  SLUICE_CHECK(ticket <= posted_, "channel ", name_, ": ticket ", ticket, " of ", posted_);
  return ticket <= complete_;
}

ExchangeChannel::Operation& ExchangeChannel::at(Ticket ticket) const {
  return *operations_[ticket - complete_ - 1];
}

std::string ExchangeChannel::where(const Operation& operation) const {
  return cat("channel ", name_, ", operation ", operation.ticket, " on rank ", rank_, " of ", size_);
}

/// Step 1 of the head of exchange.hpp, and what has to go by message.
void ExchangeChannel::publish(Operation& operation) {
  Publication publication{};
  publication.place = Publication::Place::kMessage;
  publication.kind = static_cast<std::uint64_t>(operation.kind);
  publication.bytes = operation.bounds.back();
  publication.bounds = operation.bounds_hash;
  RankBoard* board = memory_->own_board();
  if (board != nullptr) {
    RankBoard::Slot& slot = board->slots[operation.ticket % kSlots];
    const bool whole_region = operation.kind == Kind::kScatter;
    const std::int64_t bytes = whole_region ? operation.bounds.back() : operation.slice_bytes(rank_);
    if (operation.kind == Kind::kExchange) {
      publication.place = Publication::Place::kBoard;
      if (bytes > 0) std::memcpy(slot.payload, operation.source, static_cast<std::size_t>(bytes));
    } else if (bytes > 0) {
      memory_->locate(operation.source, bytes, publication);
    }
    slot.publication = publication;
    board->published.store(operation.ticket, std::memory_order_release);
  }
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const bool addressed =
        memory_->board(peer) != nullptr && (publication.place == Publication::Place::kBoard || memory_->reaches(peer, publication));
    if (addressed) continue;
    PeerState& state = operation.peers[peer];
    const bool scatter = operation.kind == Kind::kScatter;
    state.send_bytes = operation.slice_bytes(scatter ? peer : rank_);
    state.send_from = operation.source + (scatter ? operation.bounds[peer] : 0);
  }
}

/// Starts and ends messages to peers; true when one did.
bool ExchangeChannel::send_some(Operation& operation) {
  bool moved = false;
  bool all_sent = true;
  for (int peer = 0; peer < size_; ++peer) {
    PeerState& state = operation.peers[peer];
    while (!state.sends.empty() && messages_->test(state.sends.oldest())) {
      state.sends.pop();
      moved = true;
    }
    while (state.sending < state.send_bytes && !state.sends.full()) {
      const std::int64_t bytes = std::min(operation.block_bytes, state.send_bytes - state.sending);
      state.sends.push(messages_->send(state.send_from + state.sending, bytes, peer, operation.tag()));
      state.sending += bytes;
      moved = true;
    }
    all_sent = all_sent && state.sends.empty() && state.sending == state.send_bytes;
  }
  operation.sent = all_sent;
  return moved;
}

/// Learns how `peer`'s slice comes; false while it hasn't published.
bool ExchangeChannel::find_route(Operation& operation, int peer) {
  PeerState& state = operation.peers[peer];
  if (state.route != PeerState::Route::kUnknown) return true;
  const bool scatter = operation.kind == Kind::kScatter;
  if (operation.slice_bytes(scatter ? rank_ : peer) == 0) {
    state.route = PeerState::Route::kNothing;
    return true;
  }
  const RankBoard* board = memory_->board(peer);
  if (board == nullptr) {
    state.route = PeerState::Route::kMessages;
    return true;
  }
  if (board->published.load(std::memory_order_acquire) < operation.ticket) return false;
  const RankBoard::Slot& slot = board->slots[operation.ticket % kSlots];
  const Publication& theirs = slot.publication;
  if (theirs.kind != static_cast<std::uint64_t>(operation.kind) || theirs.bytes != operation.bounds.back() ||
      theirs.bounds != operation.bounds_hash) {
    constexpr const char* kNames[] = {"nothing", "a gather", "a scatter", "an exchange"};
    throw CommError(where(operation), cat("rank ", peer, " posted ", kNames[theirs.kind & 3], " of ", theirs.bytes, " bytes, this rank ",
                                          kNames[static_cast<std::uint64_t>(operation.kind)], " of ", operation.bounds.back(),
                                          theirs.bytes == operation.bounds.back() ? " bytes with other bounds" : " bytes",
                                          "; the ranks must post the same sequence"));
  }
  if (theirs.place == Publication::Place::kBoard) {
    state.address = slot.payload;
  } else if (const std::byte* base = memory_->resolve(peer, theirs)) {
    state.address = base + (scatter ? operation.bounds[rank_] : 0);
  }
  state.route = state.address != nullptr ? PeerState::Route::kAddress : PeerState::Route::kMessages;
  return true;
}

/// Moves slices into the region: messages for any operation, copies for the first unfinished one only.
bool ExchangeChannel::gather_some(Operation& operation, bool is_head, std::int64_t& budget) {
  bool moved = false;
  std::int64_t& counted = operation.kind == Kind::kExchange ? traffic_.exchanged_bytes : traffic_.gathered_bytes;
  const auto copy_piece = [&](std::byte* to, const std::byte* from, std::int64_t left) {
    const std::int64_t bytes = std::min(left, budget);
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    budget -= bytes;
    moved = true;
    return bytes;
  };
  bool all_there = true;
  for (int peer = 0; peer < size_; ++peer) {
    const std::int64_t bytes = operation.slice_bytes(peer);
    std::byte* target = operation.target + operation.bounds[peer];
    if (peer == rank_) {
      if (operation.source == target) operation.own_moved = bytes;
      if (is_head && budget > 0 && operation.own_moved < bytes) {
        operation.own_moved +=
            copy_piece(target + operation.own_moved, operation.source + operation.own_moved, bytes - operation.own_moved);
      }
      all_there = all_there && operation.own_moved == bytes;
      continue;
    }
    if (!find_route(operation, peer)) {
      all_there = false;
      continue;
    }
    PeerState& state = operation.peers[peer];
    if (state.route == PeerState::Route::kAddress && is_head && budget > 0 && state.received < bytes) {
      const std::int64_t copied = copy_piece(target + state.received, state.address + state.received, bytes - state.received);
      state.received += copied;
      counted += copied;
    }
    if (state.route == PeerState::Route::kMessages) {
      while (!state.receives.empty() && messages_->test(state.receives.oldest())) {
        const std::int64_t arrived = std::min(operation.block_bytes, bytes - state.received);
        state.receives.pop();
        state.received += arrived;
        counted += arrived;
        moved = true;
      }
      while (state.receiving < bytes && !state.receives.full()) {
        const std::int64_t next = std::min(operation.block_bytes, bytes - state.receiving);
        state.receives.push(messages_->receive(target + state.receiving, next, peer, operation.tag()));
        state.receiving += next;
        moved = true;
      }
    }
    all_there = all_there && state.received == (state.route == PeerState::Route::kNothing ? 0 : bytes);
  }
  operation.taken = all_there;
  return moved;
}

/// Adds the ranks' slices into out, piece by piece; only for the first unfinished operation, which owns the staging blocks.
bool ExchangeChannel::scatter_some(Operation& operation, std::int64_t& budget) {
  const std::int64_t bytes = operation.slice_bytes(rank_);
  const std::int64_t block = operation.block_bytes;
  if (bytes == 0) {
    operation.taken = true;
    return true;
  }
  if (!operation.routes_known) {
    std::int64_t senders = 0;
    bool all_known = true;
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      if (!find_route(operation, peer)) {
        all_known = false;
        continue;
      }
      PeerState& state = operation.peers[peer];
      if (state.route == PeerState::Route::kMessages) state.staging = senders++;
    }
    if (!all_known) return false;
    operation.routes_known = true;
    if (const auto wanted = static_cast<std::size_t>(2 * senders * block); staging_.size() < wanted) staging_.resize(wanted);
  }
  bool moved = false;
  while (operation.summed < bytes && budget > 0) {
    const std::int64_t block_begin = operation.summed / block * block;
    const std::int64_t block_end = std::min(bytes, block_begin + block);
    bool all_arrived = true;
    for (PeerState& state : operation.peers) {
      if (state.route != PeerState::Route::kMessages) continue;
      const auto peer = static_cast<int>(&state - operation.peers.data());
      while (state.receiving < std::min(bytes, block_begin + 2 * block)) {
        const std::int64_t next = std::min(block, bytes - state.receiving);
        std::byte* place = staging_.data() + (2 * state.staging + state.receiving / block % 2) * block;
        state.receives.push(messages_->receive(place, next, peer, operation.tag()));
        state.receiving += next;
        moved = true;
      }
      while (!state.receives.empty() && messages_->test(state.receives.oldest())) {
        state.receives.pop();
        state.received = std::min(bytes, state.received + block);
        moved = true;
      }
      all_arrived = all_arrived && state.received >= block_end;
    }
    if (!all_arrived) break;
    const std::int64_t share = std::max(kPieceBytes, budget / size_ / kPieceBytes * kPieceBytes);
    const std::int64_t piece = std::min(block_end - operation.summed, share);
    for (int r = 0; r < size_; ++r) {
      const PeerState& state = operation.peers[r];
      const std::byte* from = nullptr;
      if (r == rank_) {
        from = operation.source + operation.bounds[rank_] + operation.summed;
      } else if (state.route == PeerState::Route::kAddress) {
        from = state.address + operation.summed;
      } else {
        from = staging_.data() + (2 * state.staging + operation.summed / block % 2) * block + (operation.summed - block_begin);
      }
      sources_[r] = reinterpret_cast<const float*>(from);
    }
    sum_in_rank_order(sources_.data(), size_, reinterpret_cast<float*>(operation.target + operation.summed),
                      piece / static_cast<std::int64_t>(sizeof(float)), operation.accumulate);
    operation.summed += piece;
    traffic_.reduced_bytes += (size_ - 1) * piece;
    budget -= size_ * piece;
    moved = true;
  }
  operation.taken = operation.summed == bytes;
  return moved;
}

bool ExchangeChannel::complete_some() {
  bool moved = false;
  while (complete_ < finished_) {
    const Ticket next = complete_ + 1;
    if (!operations_.front()->sent) break;
    const bool all_finished = std::all_of(board_peers_.begin(), board_peers_.end(),
                                          [&](int peer) { return memory_->board(peer)->finished.load(std::memory_order_acquire) >= next; });
    if (!all_finished) break;
    spare_.push_back(std::move(operations_.front()));
    operations_.pop_front();
    complete_ = next;
    ++traffic_.operations;
    moved = true;
  }
  return moved;
}

bool ExchangeChannel::progress() {
  memory_->check();
  if (complete_ == posted_) return false;
  const bool moved = move_some();
  listen(moved);
  return moved;
}

/// Counts how long polls have moved nothing, and gives up on the silent peers.
void ExchangeChannel::listen(bool moved) {
  if (moved) {
    silent_ns_ = last_idle_poll_ = 0;
    return;
  }
  const std::int64_t now = now_ns();
  if (last_idle_poll_ != 0) silent_ns_ += std::min<std::int64_t>(now - last_idle_poll_, 1'000'000'000);
  last_idle_poll_ = now;
  if (silent_ns_ <= silence_limit_ns_) return;
  throw PeerLost(where(at(complete_ + 1)), cat("nothing came from ", silent_peers(), " for ", silence_limit_ns_ / 1'000'000'000,
                                               " s; it has stopped, hangs, or its node is gone"));
}

/// "rank 3" or "ranks 1, 3": who keeps the oldest operation waiting. A peer that hasn't come to it comes first, since those that have may
/// be waiting for the same one.
std::string ExchangeChannel::silent_peers() const {
  const Ticket ticket = complete_ + 1;
  const Operation& oldest = at(ticket);
  std::vector<int> absent, late;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const RankBoard* board = memory_->board(peer);
    if (board != nullptr && board->published.load(std::memory_order_acquire) < ticket) absent.push_back(peer);
    if (board == nullptr ? !oldest.peers[peer].receives.empty() : board->finished.load(std::memory_order_acquire) < ticket)
      late.push_back(peer);
  }
  const std::vector<int>& silent = absent.empty() ? late : absent;
  if (silent.empty()) return "a rank that this one sends to";
  std::string list;
  for (const int peer : silent) list += cat(list.empty() ? "" : ", ", peer);
  return cat(silent.size() == 1 ? "rank " : "ranks ", list);
}

bool ExchangeChannel::move_some() {
  bool moved = false;
  while (published_ < posted_ && published_ - complete_ < kSlots) {
    publish(at(published_ + 1));
    ++published_;
    moved = true;
  }
  const Ticket last = std::min(published_, finished_ + kAhead);
  if (messages_) {
    for (Ticket ticket = complete_ + 1; ticket <= last; ++ticket) {
      if (!at(ticket).sent) moved = send_some(at(ticket)) || moved;
    }
  } else {
    for (Ticket ticket = finished_ + 1; ticket <= last; ++ticket) at(ticket).sent = true;
  }
  std::int64_t budget = kProgressBytes;
  for (Ticket ticket = finished_ + 1; ticket <= last; ++ticket) {
    Operation& operation = at(ticket);
    const bool is_head = ticket == finished_ + 1;
    if (operation.kind == Kind::kScatter) {
      if (is_head) moved = scatter_some(operation, budget) || moved;
    } else if (is_head || messages_) {
      moved = gather_some(operation, is_head, budget) || moved;
    }
    if (is_head && operation.taken) {
      ++finished_;
      moved = true;
      if (RankBoard* board = memory_->own_board()) board->finished.store(finished_, std::memory_order_release);
    } else if (!messages_) {
      break;
    }
  }
  return complete_some() || moved;
}

}  // namespace sluice::comm

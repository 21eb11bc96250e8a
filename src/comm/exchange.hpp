#pragma once
// The peer-addressable exchange: the one Channel that `local/` and `mpi/` share. Not for other layers.
//
// Every rank has a board that the others of its node can read. For operation t (its ticket) rank p
//   1. writes into slot t mod 64 of its board where its source lies, then raises `published` to t;
//   2. takes what it needs from every peer q whose `published` has reached t: out of q's memory where p can address it, else
//      from messages that q sends, since q knows by the same rule that p can't;
//   3. raises `finished` to t when it has taken everything for t and all before it;
//   4. calls t complete when its own sends are over and every board's `finished` has reached t: nobody needs its buffers.
// A slot is written again only after step 4 of the operation 64 before. Peers without a board (other nodes) get messages.
// All steps are polls; none blocks.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace sluice::comm {

inline constexpr std::int64_t kExchangeBytes = 4096;       // most that post_exchange takes from a rank
inline constexpr std::uint64_t kSlots = 64;                // operations in flight on a board
inline constexpr std::int64_t kMessageBytes = 4 << 20;     // longest message
inline constexpr std::int64_t kProgressBytes = 256 << 10;  // bytes that one progress() call reads at most, so that channels share

/// Where a rank's source lies for one operation, and what the operation is, so that ranks that disagree get an error.
struct Publication {
  enum class Place : std::uint32_t { kMessage, kPointer, kWindow, kBoard };
  Place place;
  std::uint32_t owner;   // kWindow: world rank that the window belongs to
  std::uint64_t serial;  // kWindow: which of the owner's windows
  std::uint64_t offset;  // kWindow: byte offset in it; kPointer: the address
  std::uint64_t kind;    // of the operation
  std::int64_t bytes;    // bounds.back(), in bytes
  std::uint64_t bounds;  // hash of them
};

/// Lies in memory that the node's ranks share; zeros are its valid first state. Only its own rank writes it.
struct RankBoard {
  struct alignas(64) Slot {
    Publication publication;
    std::byte payload[kExchangeBytes];  // of an exchange
  };
  alignas(64) std::atomic<std::uint64_t> published{0};
  alignas(64) std::atomic<std::uint64_t> finished{0};
  std::array<Slot, kSlots> slots{};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "boards are shared between processes");

/// Which memory the ranks of a channel can address of each other.
class PeerMemory {
 public:
  PeerMemory() = default;
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;
  virtual ~PeerMemory() = default;
  /// This rank's own; nullptr when no other rank shares memory with it.
  virtual RankBoard* own_board() const = 0;
  /// nullptr: all from and to `peer` goes by message.
  virtual const RankBoard* board(int peer) const = 0;
  /// Fills place, owner, serial and offset for [data, data + bytes) of this rank.
  virtual void locate(const std::byte* data, std::int64_t bytes, Publication& publication) const = 0;
  /// Whether `peer`, which has a board, can address what this rank published.
  virtual bool reaches(int peer, const Publication& mine) const = 0;
  /// The address here of what `peer` published; nullptr exactly when reaches() is false over there.
  virtual const std::byte* resolve(int peer, const Publication& theirs) const = 0;
  /// Throws CommError when the group can't go on.
  virtual void check() const = 0;
};

/// Non-blocking messages; those between two ranks with one tag arrive in order.
class PeerMessages {
 public:
  using Handle = std::int32_t;
  PeerMessages() = default;
  PeerMessages(const PeerMessages&) = delete;
  PeerMessages& operator=(const PeerMessages&) = delete;
  virtual ~PeerMessages() = default;
  virtual Handle send(const std::byte* data, std::int64_t bytes, int peer, int tag) = 0;
  virtual Handle receive(std::byte* data, std::int64_t bytes, int peer, int tag) = 0;
  /// True once, when the transfer is over; the handle is then free. Throws CommError.
  virtual bool test(Handle handle) = 0;
};

class ExchangeChannel final : public Channel {
 public:
  /// `messages` may be null when all peers can address all of each other's memory.
  ExchangeChannel(std::string name, int rank, int size, std::unique_ptr<PeerMemory> memory, std::unique_ptr<PeerMessages> messages,
                  double silence_limit_seconds = kSilenceLimitSeconds);
  ExchangeChannel(const ExchangeChannel&) = delete;
  ExchangeChannel& operator=(const ExchangeChannel&) = delete;
  ~ExchangeChannel() override;

  Ticket post_gather(const void* slice, void* region, std::span<const std::int64_t> bounds) override;
  Ticket post_scatter(const float* region, float* out, std::span<const std::int64_t> bounds, bool accumulate) override;
  Ticket post_exchange(const void* mine, void* all, std::int64_t bytes) override;
  bool progress() override;
  bool test(Ticket ticket) const override;
  Traffic traffic() const override { return traffic_; }

 private:
  enum class Kind : std::uint64_t { kGather = 1, kScatter = 2, kExchange = 3 };
  struct Operation;

  std::unique_ptr<Operation> take_operation(Kind kind, std::span<const std::int64_t> bounds, std::int64_t unit_bytes);
  Ticket enqueue(std::unique_ptr<Operation> operation);
  Operation& at(Ticket ticket) const;
  void publish(Operation& operation);
  bool send_some(Operation& operation);
  bool find_route(Operation& operation, int peer);
  bool gather_some(Operation& operation, bool is_head, std::int64_t& budget);
  bool scatter_some(Operation& operation, std::int64_t& budget);
  bool complete_some();
  bool move_some();
  void listen(bool moved);
  std::string silent_peers() const;
  std::string where(const Operation& operation) const;

  const std::string name_;
  const int rank_;
  const int size_;
  const std::int64_t scatter_block_bytes_;  // of messages; depends on the size alone, so that both ends agree
  std::unique_ptr<PeerMemory> memory_;
  std::unique_ptr<PeerMessages> messages_;
  std::vector<int> board_peers_;
  std::vector<std::byte> staging_;  // two blocks per peer that sends, grown on first use
  std::vector<const float*> sources_;

  std::deque<std::unique_ptr<Operation>> operations_;  // from complete_ + 1 to posted_
  std::vector<std::unique_ptr<Operation>> spare_;
  Ticket posted_ = 0;
  Ticket published_ = 0;
  Ticket finished_ = 0;
  Ticket complete_ = 0;
  const std::int64_t silence_limit_ns_;
  std::int64_t silent_ns_ = 0;       // polled in a row without a move
  std::int64_t last_idle_poll_ = 0;  // 0: the last poll moved something
  Traffic traffic_;
};

}  // namespace sluice::comm

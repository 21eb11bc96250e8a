#pragma once
// Talking to the ranks of a group. Set-up calls block; what a step does goes through channels, posted in order and polled
// by the one thread that owns communication.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "memory/arena.hpp"

namespace sluice::comm {

/// Bytes and messages a channel has moved since it was opened, counted where they are moved: what this rank received from
/// other ranks. Gathered and reduced apart, so that tests can hold them against the formulas.
struct Traffic {
  std::int64_t gathered_bytes = 0;
  std::int64_t reduced_bytes = 0;
  std::int64_t exchanged_bytes = 0;
  std::int64_t operations = 0;
};

/// A peer gives nothing any more: it has stopped, hangs, or its node is gone. What was saved before is whole.
struct PeerLost : CommError {
  using CommError::CommError;
};

/// How long a channel waits in a row without a byte moving before it takes a peer for lost.
inline constexpr double kSilenceLimitSeconds = 600;
/// Collectives of the communicator itself wait so many times as long: a rank may come to them from writing or reading files. By default
/// half an hour, as PyTorch's process groups do.
inline constexpr double kPatience = 3;

/// An ordered sequence of collectives within one group; one per communication lane. Posting doesn't wait. Ranks must post
/// the same sequence. At any time several may be in flight; they complete in order. Not thread-safe: one thread at a time.
/// Every buffer must stay valid, and unwritten where it is read, until test() says complete *on this rank*; a rank's work
/// is complete only once no other rank will read or write its buffers for it any more.
class Channel {
 public:
  using Ticket = std::uint64_t;  // 1, 2, 3, ... in posting order
  Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  virtual ~Channel() = default;

  /// All-gather of unequal slices: afterwards `region` [bounds[size]] bytes holds every rank's slice, rank r's at
  /// [bounds[r], bounds[r+1]). `slice` is this rank's own, perhaps in place (== region + bounds[rank]), perhaps elsewhere.
  /// `bounds`: size + 1 byte offsets, not decreasing, the same on all ranks; copied.
  virtual Ticket post_gather(const void* slice, void* region, std::span<const std::int64_t> bounds) = 0;

  /// Reduce-scatter of f32 by owners, in rank order whatever the sizes: with slice(r) this rank's part of rank r's region,
  ///   out[i] = (accumulate ? out[i] : 0) + (((slice(0)[i] + slice(1)[i]) + slice(2)[i]) + ...)
  /// where without accumulate nothing is added first. `bounds`: size + 1 *element* offsets into region. `out` may be in
  /// place (== region + bounds[rank]) when accumulate is false.
  virtual Ticket post_scatter(const float* region, float* out, std::span<const std::int64_t> bounds, bool accumulate) = 0;

  /// Small all-gather: every rank gives `bytes` (at most 4 KiB) at `mine`, `all` [size * bytes] receives them in rank order.
  virtual Ticket post_exchange(const void* mine, void* all, std::int64_t bytes) = 0;

  /// Moves whatever can move, without blocking; true when anything moved. Throws CommError, and PeerLost where operations are in flight and
  /// calls of this kind have moved nothing for the silence limit. Time in which nobody called counts at most one second, so that a job that
  /// was suspended as a whole doesn't fail when it goes on.
  virtual bool progress() = 0;
  /// True once everything up to `ticket` is complete (see above). Doesn't make progress itself.
  virtual bool test(Ticket ticket) const = 0;
  virtual Traffic traffic() const = 0;
};

/// The ranks of one group. Set-up calls below are collective and block; all ranks call them in the same order from the
/// thread that owns communication. Destroyed before the transport ends; destructors never throw.
class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  /// Ranks of this group that share the node's memory with this one, and this one's place among them.
  virtual int node_rank() const noexcept = 0;
  virtual int node_size() const noexcept = 0;
  virtual std::string host_name() const = 0;

  virtual std::unique_ptr<Channel> open_channel(const std::string& name) = 0;
  /// Memory of this rank that the node's other ranks can address, so that channels move bytes with one copy. Each rank may
  /// ask for a different size. Channels work on any memory; that of a window is the fast path.
  virtual std::unique_ptr<memory::Backing> allocate_window(std::int64_t bytes, const std::string& tag) = 0;
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  virtual void barrier() = 0;
  /// Rank `root`'s bytes on every rank.
  virtual std::string broadcast(const std::string& bytes, int root) = 0;
  /// Every rank's bytes (any sizes) on every rank, in rank order.
  virtual std::vector<std::string> all_gather(const std::string& bytes) = 0;
  /// True on every rank iff true on all: before a step that some rank can't take.
  bool all_agree(bool ok);
  /// Ends all ranks of the job with this code, from any thread, in any state. Doesn't return.
  [[noreturn]] virtual void abort(int code) noexcept = 0;
};

/// If `failure` is empty on every rank returns; else throws on *every* rank an error with the code of the lowest failing rank
/// and one message that names the ranks sharing it: the way a rank-local failure becomes a decision of all.
/// `code` is the failing rank's own (base ExitCode as int), ignored where `failure` is empty.
void agree_or_throw(Communicator& world, const std::string& failure, int code);

/// Runs `part` on every rank; where it throws on any, every rank throws as agree_or_throw does. `part` itself must not be
/// collective: a rank that fails in it doesn't reach the others' meeting. Collective.
void all_or_none(Communicator& world, const std::function<void()>& part);

}  // namespace sluice::comm

#pragma once
// The disk tier at run time: the arena's bytes in a rank's swap space, and which half of each buffer of states holds them.

#include <cstdint>
#include <vector>

#include "memory/io/swap_space.hpp"
#include "schedule/graph.hpp"

namespace sluice::schedule {

/// Owns the swap space. Of a buffer with halves reads take the one that holds the state, writes go to the other, which holds the state
/// from commit() on. One object serves all graphs of a set, whose persistent buffers have the same numbers. Transfers of different buffers
/// may be posted by different threads at the same time; those of one buffer are ordered by the graph.
class DiskState {
 public:
  /// `space`: its only extent is the disk arena. `persistent_buffers`: the set's persistent buffers, of whatever tier, have the numbers
  /// below. Throws EnvironmentError where the disk wants a larger alignment than graphs are placed with.
  DiskState(memory::SwapSpace space, std::size_t persistent_buffers);
  DiskState(const DiskState&) = delete;
  DiskState& operator=(const DiskState&) = delete;
  ~DiskState() = default;

  /// Starts moving the first `bytes` of a disk buffer, rounded up to kDiskAlignment, from or to memory that has room for as many and is
  /// so aligned. Doesn't wait: the memory belongs to the transfer until `ticket` is complete.
  void post_read(memory::IoTicket& ticket, BufferId id, const Buffer& buffer, std::byte* target, std::int64_t bytes);
  void post_write(memory::IoTicket& ticket, BufferId id, const Buffer& buffer, const std::byte* source, std::int64_t bytes);
  /// A write of the buffer has completed well: what it wrote is the state from now on.
  void commit(BufferId id, const Buffer& buffer);

  const memory::SwapSpace& space() const noexcept { return space_; }

 private:
  void check(const Buffer& buffer, std::int64_t bytes) const;

  memory::SwapSpace space_;
  std::vector<std::uint8_t> half_;  // per persistent buffer: where it has halves, the one that holds the state, 0 or 1
};

}  // namespace sluice::schedule

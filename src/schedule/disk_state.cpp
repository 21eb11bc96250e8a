#include "schedule/disk_state.hpp"

#include <utility>

#include "base/check.hpp"
#include "base/error.hpp"
#include "base/units.hpp"

namespace sluice::schedule {

static_assert(kDiskAlignment == memory::kSwapAlignment, "what graphs are placed with is what the swap space takes");

DiskState::DiskState(memory::SwapSpace space, std::size_t persistent_buffers) : space_(std::move(space)), half_(persistent_buffers, 0) {
  SLUICE_CHECK(space_.extent_count() == 1, "a swap space of ", space_.extent_count(), " extents for one arena");
  if (space_.alignment() > kDiskAlignment) {
    throw EnvironmentError(cat(space_.engine(0).path(), ": this disk wants transfers at multiples of ", space_.alignment(),
                               " bytes; at most ", kDiskAlignment, " are possible; choose another --nvme-path"));
  }
}

void DiskState::check(const Buffer& buffer, std::int64_t bytes) const {
  const std::int64_t room = buffer.halves ? buffer.copy_bytes() : round_up(buffer.bytes, kDiskAlignment);
  SLUICE_CHECK(buffer.tier == spec::Tier::kDisk && buffer.offset >= 0 && buffer.offset % kDiskAlignment == 0 &&
                   room % kDiskAlignment == 0 && bytes > 0 && bytes <= room,
               "a transfer of ", bytes, " bytes with a ", buffer.persistent ? "persistent" : "transient", " disk buffer of ", buffer.bytes,
               " at ", buffer.offset);
}

void DiskState::post_read(memory::IoTicket& ticket, BufferId id, const Buffer& buffer, std::byte* target, std::int64_t bytes) {
  check(buffer, bytes);
  const std::int64_t half = buffer.halves ? half_.at(id) : 0;
  space_.post(ticket, memory::IoDirection::kRead, 0, buffer.offset + half * buffer.copy_bytes(), target, round_up(bytes, kDiskAlignment));
}

void DiskState::post_write(memory::IoTicket& ticket, BufferId id, const Buffer& buffer, const std::byte* source, std::int64_t bytes) {
  check(buffer, bytes);
  const std::int64_t half = buffer.halves ? 1 - half_.at(id) : 0;
  // The engine takes one pointer for both directions and only reads through it here.
  space_.post(ticket, memory::IoDirection::kWrite, 0, buffer.offset + half * buffer.copy_bytes(), const_cast<std::byte*>(source),
              round_up(bytes, kDiskAlignment));
}

void DiskState::commit(BufferId id, const Buffer& buffer) {
  if (buffer.halves) half_.at(id) ^= 1;
}

}  // namespace sluice::schedule

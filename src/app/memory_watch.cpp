#include "app/memory_watch.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "device/cpu/cpu_device.hpp"

namespace sluice::app {
namespace {

constexpr std::int64_t kLookEveryNs = 30'000'000'000;

}  // namespace

std::int64_t MemoryWatch::unplanned(std::int64_t resident_bytes) const {
  return resident_bytes - margin_.before_bytes - margin_.planned_bytes;
}

std::optional<std::string> MemoryWatch::judge(std::int64_t resident_bytes) {
  const std::int64_t found = unplanned(resident_bytes);
  const std::int64_t limit = warned_bytes_ == 0 ? std::max<std::int64_t>(0, margin_.margin_bytes) / 2 : 2 * warned_bytes_;
  if (found <= limit) return std::nullopt;
  warned_bytes_ = std::max<std::int64_t>(found, 1);
  return cat("unplanned memory of this rank is ", format_bytes(found), " (", format_bytes(resident_bytes), " resident, ",
             format_bytes(margin_.planned_bytes), " planned, ", format_bytes(margin_.before_bytes), " before), of a margin of ",
             format_bytes(std::max<std::int64_t>(0, margin_.margin_bytes)),
             "; the node may run out of memory: give smaller budgets (--device-memory, --host-memory) or fewer ranks a node");
}

std::optional<std::string> MemoryWatch::look() {
  const std::int64_t now = now_ns();
  if (looked_ns_ != 0 && now - looked_ns_ < kLookEveryNs) return std::nullopt;
  looked_ns_ = now;
  return judge(device::read_resident_bytes().proportional);
}

}  // namespace sluice::app

#pragma once
// A contiguous range of one tier with planned contents: buffers have fixed offsets in it, nothing is allocated from it at
// run time.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "spec/plan.hpp"

namespace sluice::memory {

/// Owns bytes that back an arena; released in the destructor. Plain and pinned memory here; comm/ gives shared windows.
class Backing {
 public:
  Backing() = default;
  Backing(const Backing&) = delete;
  Backing& operator=(const Backing&) = delete;
  virtual ~Backing() = default;
  virtual std::byte* data() const noexcept = 0;
  virtual std::int64_t bytes() const noexcept = 0;
};

/// Anonymous memory, page-aligned, not yet touched. Throws OutOfMemory.
std::unique_ptr<Backing> make_plain_backing(std::int64_t bytes, const std::string& tag);

/// Memory that stays in memory, or what was given instead.
struct PinnedBacking {
  std::unique_ptr<Backing> backing;
  std::string note;  // where locking is refused: one line for people, and the memory is pageable
};
/// As make_plain_backing(), but every page is there, zero, and locked (mlock), so that no transfer waits for the system to bring it back.
PinnedBacking make_pinned_backing(std::int64_t bytes, const std::string& tag);

class Arena {
 public:
  Arena(spec::Tier tier, std::unique_ptr<Backing> backing) : tier_(tier), backing_(std::move(backing)) {}
  spec::Tier tier() const noexcept { return tier_; }
  std::int64_t bytes() const noexcept { return backing_ ? backing_->bytes() : 0; }
  /// Pointer to byte `offset`. Checked: offset + bytes lie within the arena.
  std::byte* at(std::int64_t offset, std::int64_t bytes) const;
  /// Writes zero to every page, so that the memory exists before step 1; throws OutOfMemory instead of dying where the
  /// operating system tells in time.
  void touch();

 private:
  spec::Tier tier_;
  std::unique_ptr<Backing> backing_;
};

}  // namespace sluice::memory

#include "memory/arena.hpp"

#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "base/check.hpp"
#include "base/units.hpp"

namespace sluice::memory {
namespace {

constexpr std::int64_t kPage = 4096;  // bytes; the smallest page of x86-64

class PlainBacking final : public Backing {
 public:
  PlainBacking(std::int64_t bytes, const std::string& tag) : bytes_(bytes) {
    if (bytes == 0) return;
    void* address = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) throw OutOfMemory("host", tag, bytes, 0);
    data_ = static_cast<std::byte*>(address);
    // Large ranges are walked front to back; big pages spare the table walks where the kernel gives them.
    madvise(address, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
  }
  PlainBacking(const PlainBacking&) = delete;
  PlainBacking& operator=(const PlainBacking&) = delete;
  ~PlainBacking() override {
    if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(bytes_));
  }
  std::byte* data() const noexcept override { return data_; }
  std::int64_t bytes() const noexcept override { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

void touch_pages(Backing& backing) {
  for (std::int64_t offset = 0; offset < backing.bytes(); offset += kPage) backing.data()[offset] = std::byte{0};
}

}  // namespace

std::unique_ptr<Backing> make_plain_backing(std::int64_t bytes, const std::string& tag) {
  SLUICE_CHECK(bytes >= 0, tag, ": ", bytes, " bytes");
  return std::make_unique<PlainBacking>(bytes, tag);
}

PinnedBacking make_pinned_backing(std::int64_t bytes, const std::string& tag) {
  PinnedBacking pinned{make_plain_backing(bytes, tag), {}};
  if (bytes == 0) return pinned;
  touch_pages(*pinned.backing);
  if (mlock(pinned.backing->data(), static_cast<std::size_t>(bytes)) == 0) return pinned;
  const int refused = errno;
  rlimit limit{};
  const bool is_limited = getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  pinned.note = cat(tag, ": ", format_bytes(bytes), " stay pageable, because locking them is refused (", std::strerror(refused),
                    is_limited ? cat("; the limit is ", format_bytes(static_cast<std::int64_t>(limit.rlim_cur))) : std::string(),
                    "); where memory is short, transfers may wait for the system's own swapping; raise the limit (ulimit -l)");
  return pinned;
}

std::byte* Arena::at(std::int64_t offset, std::int64_t count) const {
  SLUICE_CHECK(offset >= 0 && count >= 0 && offset <= bytes() - count, count, " bytes at ", offset, " of an arena of ", bytes());
  return backing_ == nullptr ? nullptr : backing_->data() + offset;
}

void Arena::touch() {
  if (backing_ != nullptr) touch_pages(*backing_);
}

}  // namespace sluice::memory

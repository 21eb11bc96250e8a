#include "memory/arena.hpp"

#include <sys/mman.h>

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
  ~PlainBacking() override {
    if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(bytes_));
  }
  std::byte* data() const noexcept override { return data_; }
  std::int64_t bytes() const noexcept override { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<Backing> make_plain_backing(std::int64_t bytes, const std::string& tag) {
  SLUICE_CHECK(bytes >= 0, tag, ": ", bytes, " bytes");
  return std::make_unique<PlainBacking>(bytes, tag);
}

std::byte* Arena::at(std::int64_t offset, std::int64_t count) const {
  SLUICE_CHECK(offset >= 0 && count >= 0 && offset <= bytes() - count, "bytes ", offset, " to ", offset + count, " of an arena of ",
               bytes());
  return backing_ == nullptr ? nullptr : backing_->data() + offset;
}

void Arena::touch() {
  for (std::int64_t offset = 0; offset < bytes(); offset += kPage) backing_->data()[offset] = std::byte{0};
}

}  // namespace sluice::memory

#include "memory/io/swap_space.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/check.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"
#include "base/units.hpp"

namespace sluice::memory {
namespace {

constexpr std::int64_t kFillBytes = 8 * kMiB;  // of the pattern; two transfers of it keep a disk busy

std::vector<SwapExtent> sorted(std::vector<SwapExtent> extents) {
  std::sort(extents.begin(), extents.end(), [](const SwapExtent& a, const SwapExtent& b) { return a.offset < b.offset; });
  return extents;
}

// The space's bytes, when each extent is padded to `alignment`.
std::int64_t checked_bytes(const SwapSpace::Options& options, std::int64_t alignment) {
  std::int64_t end = 0;
  for (const SwapExtent& extent : sorted(options.extents)) {
    SLUICE_CHECK(extent.offset % kSwapAlignment == 0 && extent.bytes > 0, "extent of ", extent.bytes, " bytes at ", extent.offset);
    if (alignment > kSwapAlignment && (extent.offset % alignment != 0 || extent.offset < end)) {
      throw EnvironmentError(cat(options.paths.front(), ": this disk wants transfers at multiples of ", alignment,
                                 " bytes, which the plan didn't know; measure it again (--reprofile)"));
    }
    SLUICE_CHECK(extent.offset >= end, "extent of ", extent.bytes, " bytes at ", extent.offset, ", where the one before ends at ", end);
    end = extent.offset + round_up(extent.bytes, alignment);
  }
  return end;
}

}  // namespace

FileSystem check_swap_path(const std::string& path, bool allow_network, const IoSystem& system) {
  check_swap_directory(path);
  FileSystem file_system = file_system_of(path, system);
  if (file_system.is_network && !allow_network) {
    throw RequestError(cat(path, ": is on a network file system (", file_system.name,
                           "), where swapping is slow for everybody; choose a local disk, or allow it (--nvme-network)"));
  }
  return file_system;
}

std::vector<SwapExtent> place_extents(std::span<const std::int64_t> bytes, std::int64_t alignment) {
  std::vector<SwapExtent> extents;
  std::int64_t end = 0;
  for (const std::int64_t size : bytes) {
    extents.push_back({end, size});
    end += round_up(size, alignment);
  }
  return extents;
}

SwapSpace SwapSpace::create(const Options& options, const IoSystem& system) {
  SLUICE_CHECK(!options.paths.empty(), "no path to swap to");
  SwapSpace space;
  space.extents_ = options.extents;
  for (const std::string& path : options.paths) {
    const FileSystem file_system = check_swap_path(path, options.allow_network, system);
    if (file_system.is_memory) space.notes_.push_back(cat(path, ": ", file_system.name, " keeps files in memory, so swapping frees none"));
    if (file_system.is_copy_on_write) {
      space.notes_.push_back(cat(path, ": ", file_system.name, " writes to new places, so the disk can be found full during the run"));
    }
  }
  for (const std::string& path : options.paths) {
    Store& store = space.stores_.emplace_back(Store{SwapFile::create(path, options.identity, system), nullptr});
    store.engine = FileEngine::open(store.file.path(), options.engine, system);
    // The path stands for the files of all ranks. What files in memory mean was said.
    if (const std::string& note = store.engine->note(); !note.empty() && !file_system_of(path, system).is_memory)
      space.notes_.push_back(path + note.substr(store.engine->path().size()));
    const IoAlignment& wanted = store.engine->alignment();
    space.alignment_ = std::lcm(space.alignment_, std::lcm(wanted.transfer, wanted.memory));
  }
  space.stripe_bytes_ = round_up(options.engine.block_bytes, space.alignment_);

  space.bytes_ = checked_bytes(options, space.alignment_);
  std::vector<SpaceClaim> claims = options.claims;
  for (std::size_t i = 0; i < options.paths.size(); ++i) {
    claims.push_back({options.paths[i], cat("swap of rank ", options.identity.rank), space.bytes_on(i)});
  }
  check_free_space(claims);
  for (std::size_t i = 0; i < options.paths.size(); ++i) {
    if (!space.stores_[i].file.reserve(space.bytes_on(i))) {
      space.notes_.push_back(cat(options.paths[i], ": the file system can't reserve space in advance"));
    }
  }
  space.filling_ = Filling{};
  return space;
}

SwapSpace SwapSpace::open(const Options& options, const IoSystem& system) {
  SwapSpace space = create(options, system);
  for (std::int64_t left = space.bytes_; left > 0;) left = space.fill(left);
  return space;
}

std::int64_t SwapSpace::bytes_on(std::size_t path) const {
  const auto count = static_cast<std::int64_t>(stores_.size());
  if (count == 1) return bytes_;
  const std::int64_t stripes = divide_up(bytes_, stripe_bytes_);
  return (stripes - static_cast<std::int64_t>(path) + count - 1) / count * stripe_bytes_;
}

// All paths at the same time.
std::int64_t SwapSpace::fill(std::int64_t bytes) {
  SLUICE_CHECK(filling_ && bytes > 0, bytes, " bytes to fill of a space of ", bytes_);
  Filling& filling = *filling_;
  if (!filling.pattern) {
    filling.pattern = make_plain_backing(kFillBytes, "swap pattern");
    Hash hash;
    for (std::int64_t i = 0; i < kFillBytes; i += static_cast<std::int64_t>(sizeof(std::uint64_t))) {
      *reinterpret_cast<std::uint64_t*>(filling.pattern->data() + i) = hash.add(static_cast<std::uint64_t>(i)).value();
    }
    filling.tickets.resize(stores_.size());
  }
  const std::int64_t longest = bytes_on(0);
  const std::int64_t end = std::min(longest, filling.at + divide_up(bytes, static_cast<std::int64_t>(stores_.size())));
  for (; filling.at < end; filling.at += kFillBytes) {
    for (std::size_t i = 0; i < stores_.size(); ++i) {
      const std::int64_t mine = bytes_on(i);
      if (filling.at >= mine) continue;
      IoTicket& ticket = filling.tickets[i][static_cast<std::size_t>(filling.at / kFillBytes % 2)];
      ticket.wait();
      stores_[i].engine->post(
          ticket, {IoDirection::kWrite, kSwapHeaderBytes + filling.at, filling.pattern->data(), std::min(kFillBytes, mine - filling.at)});
    }
  }
  std::int64_t left = 0;
  for (std::size_t i = 0; i < stores_.size(); ++i) left += std::max<std::int64_t>(0, bytes_on(i) - filling.at);
  if (left > 0) return left;
  for (std::array<IoTicket, 2>& pair : filling.tickets) {
    for (IoTicket& ticket : pair) ticket.wait();
  }
  for (const Store& store : stores_) store.file.sync();
  filling_.reset();
  return 0;
}

std::int64_t SwapSpace::extent_bytes(int extent) const {
  return round_up(extents_.at(static_cast<std::size_t>(extent)).bytes, alignment_);
}

void SwapSpace::post(IoTicket& ticket, IoDirection direction, int extent, std::int64_t from, std::byte* data, std::int64_t bytes) {
  const std::int64_t size = extent_bytes(extent);
  SLUICE_CHECK(!filling_, "a transfer in a space that isn't filled yet");
  SLUICE_CHECK(from >= 0 && bytes > 0 && from <= size - bytes && from % alignment_ == 0 && bytes % alignment_ == 0, bytes, " bytes at ",
               from, " of extent ", extent, ", which has ", size, "; alignment ", alignment_);
  std::int64_t at = extents_[static_cast<std::size_t>(extent)].offset + from;
  const auto count = static_cast<std::int64_t>(stores_.size());
  if (count == 1) {
    stores_.front().engine->post(ticket, {direction, kSwapHeaderBytes + at, data, bytes});
    return;
  }
  while (bytes > 0) {
    const std::int64_t stripe = at / stripe_bytes_, within = at % stripe_bytes_;
    const std::int64_t piece = std::min(bytes, stripe_bytes_ - within);
    stores_[static_cast<std::size_t>(stripe % count)].engine->post(
        ticket, {direction, kSwapHeaderBytes + stripe / count * stripe_bytes_ + within, data, piece});
    at += piece;
    data += piece;
    bytes -= piece;
  }
}

std::int64_t SwapSpace::bytes_written() const noexcept {
  return std::accumulate(stores_.begin(), stores_.end(), std::int64_t{0},
                         [](std::int64_t sum, const Store& store) { return sum + kSwapHeaderBytes + store.engine->bytes_written(); });
}

std::int64_t SwapSpace::bytes_read() const noexcept {
  return std::accumulate(stores_.begin(), stores_.end(), std::int64_t{0},
                         [](std::int64_t sum, const Store& store) { return sum + store.engine->bytes_read(); });
}

}  // namespace sluice::memory

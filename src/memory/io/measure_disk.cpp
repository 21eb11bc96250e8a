#include "memory/io/measure_disk.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <thread>

#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "memory/arena.hpp"
#include "memory/io/swap_space.hpp"

namespace sluice::memory {
namespace {

constexpr std::int64_t kPostedBytes = 32 * kMiB;  // of one transfer on a path: no less than any candidate keeps in flight
constexpr double kTolerance = 0.03;               // of the time per byte; what repeated measurements differ by
constexpr int kShares = 20;                       // of the time: one per candidate and direction, 6 for both at once

struct Choice {
  std::int64_t block_bytes;
  int depth;
};
// By bytes in flight. Smaller blocks cost processor time, larger ones memory and pipelines' granularity.
constexpr std::array<Choice, 7> kChoices{
    {{256 * kKiB, 4}, {1 * kMiB, 4}, {256 * kKiB, 16}, {256 * kKiB, 32}, {1 * kMiB, 16}, {4 * kMiB, 4}, {1 * kMiB, 32}}};

double process_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// The files of all paths, read and written evenly, as stripes are.
class Stripes {
 public:
  Stripes(const SwapSpace& space, std::size_t paths, std::int64_t file_bytes, const Choice& choice, const IoSystem& system)
      : file_bytes_(file_bytes) {
    for (std::size_t i = 0; i < paths; ++i) {
      engines_.push_back(
          FileEngine::open(space.engine(static_cast<int>(i)).path(), {choice.block_bytes, choice.depth, choice.depth}, system));
    }
  }
  /// Moves bytes [begin, end) of each file, as parts of the whole file, round and round for `seconds`, two transfers on each posted at
  /// any time, with the `memory` at `data`; bytes per second.
  double rate(IoDirection direction, std::span<std::byte> memory, double begin, double end, double seconds) {
    const auto aligned = [&](double part) {
      return static_cast<std::int64_t>(part * static_cast<double>(file_bytes_)) / kSwapAlignment * kSwapAlignment;
    };
    const std::int64_t from = aligned(begin), bytes = aligned(end) - from;
    const auto paths = static_cast<std::int64_t>(engines_.size());
    const std::int64_t share = static_cast<std::int64_t>(memory.size()) / (2 * paths) / kSwapAlignment * kSwapAlignment;
    const std::int64_t step = std::min({kPostedBytes, bytes, share});
    const std::int64_t start = now_ns();
    const auto stop = start + static_cast<std::int64_t>(seconds * 1e9);
    std::array<IoTicket, 2> tickets;
    std::int64_t moved = 0, at = 0;
    for (std::size_t turn = 0; turn < 2 || now_ns() < stop; ++turn) {
      IoTicket& ticket = tickets[turn % 2];
      ticket.wait();
      if (at + step > bytes) at = 0;
      std::byte* data = memory.data() + static_cast<std::int64_t>(turn % 2) * paths * step;
      for (const auto& engine : engines_) {
        engine->post(ticket, {direction, kSwapHeaderBytes + from + at, data, step});
        data += step;
        moved += step;
      }
      at += step;
    }
    for (IoTicket& ticket : tickets) ticket.wait();
    return static_cast<double>(moved) / (static_cast<double>(now_ns() - start) * 1e-9);
  }
  std::int64_t bytes_moved() const {
    std::int64_t bytes = 0;
    for (const auto& engine : engines_) bytes += engine->bytes_read() + engine->bytes_written();
    return bytes;
  }

 private:
  std::int64_t file_bytes_;
  std::vector<std::unique_ptr<FileEngine>> engines_;
};

/// Reads of the files' first half and writes of their second, at the same time: bytes per second of each.
std::array<double, 2> rates_at_once(Stripes& stripes, std::span<std::byte> source, std::span<std::byte> target, double seconds) {
  std::array<double, 2> rates{};
  std::exception_ptr failure;
  std::thread writer([&] {
    try {
      rates[1] = stripes.rate(IoDirection::kWrite, source, 0.5, 1, seconds);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  try {
    rates[0] = stripes.rate(IoDirection::kRead, target, 0, 0.5, seconds);
  } catch (...) {
    writer.join();
    throw;
  }
  writer.join();
  if (failure) std::rethrow_exception(failure);
  return rates;
}

}  // namespace

DiskFigures measure_disk(const MeasureDiskOptions& options, const IoSystem& system) {
  const auto paths = static_cast<std::int64_t>(options.paths.size());
  const std::int64_t unit = paths == 1 ? kSwapAlignment : FileEngine::Options{}.block_bytes;  // whole stripes
  SLUICE_CHECK(paths > 0 && options.file_bytes >= 2 * unit && options.file_bytes % unit == 0 && options.seconds > 0 &&
                   options.memory_bytes >= 4 * paths * kSwapAlignment,
               paths, " paths, ", options.file_bytes, " bytes, ", options.memory_bytes, " bytes of memory, ", options.seconds, " s");
  std::optional<SwapSpace> space;
  std::unique_ptr<Backing> source, target;
  DiskFigures figures;
  options.together([&] {
    space.emplace(SwapSpace::open({.paths = options.paths,
                                   .identity = options.identity,
                                   .extents = {{0, options.file_bytes * paths}},
                                   .engine = {},
                                   .claims = {},
                                   .allow_network = options.allow_network},
                                  system));
    source = make_plain_backing(std::min(options.memory_bytes / 2, 2 * paths * kPostedBytes), "disk measurement");
    target = make_plain_backing(source->bytes(), "disk measurement");
    for (std::int64_t i = 0; i + 8 <= source->bytes(); i += static_cast<std::int64_t>(sizeof(std::uint64_t))) {
      *reinterpret_cast<std::uint64_t*>(source->data() + i) = static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15u;
    }
    std::fill_n(target->data(), target->bytes(), std::byte{1});
  });
  figures.file_bytes = options.file_bytes;
  figures.notes = space->notes();
  for (std::int64_t i = 0; i < paths; ++i) {
    const FileEngine& engine = space->engine(static_cast<int>(i));
    figures.paths.push_back({engine.service(), engine.is_direct()});
    const std::string& path = options.paths[static_cast<std::size_t>(i)];
    if (!engine.is_direct() && !file_system_of(path, system).is_memory)
      figures.notes.push_back(cat(path, ": the figures are the page cache's as much as the disk's"));
  }

  const std::span<std::byte> from{source->data(), static_cast<std::size_t>(source->bytes())};
  const std::span<std::byte> into{target->data(), static_cast<std::size_t>(target->bytes())};
  const double share = options.seconds / kShares;
  std::optional<Stripes> stripes;
  const auto use = [&](const Choice& choice) {
    stripes.reset();
    stripes.emplace(*space, options.paths.size(), options.file_bytes, choice, system);
  };
  // All together's rate, and what a byte of it costs this process.
  const auto rate = [&](IoDirection direction, double* core_seconds = nullptr) {
    double mine = 0;
    options.together([&] {
      const double cpu = process_seconds();
      const std::int64_t before = stripes->bytes_moved();
      mine = stripes->rate(direction, direction == IoDirection::kRead ? into : from, 0, 1, share);
      if (core_seconds != nullptr) *core_seconds = (process_seconds() - cpu) / static_cast<double>(stripes->bytes_moved() - before);
    });
    return options.total(mine);
  };
  for (const Choice& choice : kChoices) {
    options.together([&] { use(choice); });
    const double read = rate(IoDirection::kRead);
    figures.candidates.push_back({choice.block_bytes, choice.depth, read, rate(IoDirection::kWrite)});
  }
  const auto seconds_per_byte = [](const DiskFigures::Candidate& c) { return 1 / c.read_rate + 1 / c.write_rate; };
  double shortest = seconds_per_byte(figures.candidates.front());
  for (const auto& candidate : figures.candidates) shortest = std::min(shortest, seconds_per_byte(candidate));
  const auto chosen = std::find_if(figures.candidates.begin(), figures.candidates.end(), [&](const DiskFigures::Candidate& candidate) {
    return seconds_per_byte(candidate) <= shortest * (1 + kTolerance);
  });
  figures.block_bytes = chosen->block_bytes;
  figures.depth = chosen->depth;

  options.together([&] { use({chosen->block_bytes, chosen->depth}); });
  figures.read_rate = rate(IoDirection::kRead, &figures.read_core_seconds);
  figures.write_rate = rate(IoDirection::kWrite, &figures.write_core_seconds);
  std::array<double, 2> both{};
  options.together([&] { both = rates_at_once(*stripes, from, into, 4 * share); });
  figures.read_rate_both = options.total(both[0]);
  figures.write_rate_both = options.total(both[1]);
  return figures;
}

}  // namespace sluice::memory

#include "memory/io/measure_disk.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <exception>
#include <memory>
#include <thread>

#include "base/check.hpp"
#include "base/clock.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "memory/arena.hpp"
#include "memory/io/swap_space.hpp"

namespace sluice::memory {
namespace {

constexpr std::int64_t kPostedBytes = 32 * kMiB;  // of one transfer: no less than any candidate keeps in flight
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

struct Range {
  std::int64_t offset;
  std::int64_t bytes;
};

/// Moves the range's bytes round and round for `seconds`, two transfers posted at any time, each with its half of the
/// 2 * kPostedBytes at `data`; bytes per second.
double rate(FileEngine& engine, IoDirection direction, std::byte* data, const Range& range, double seconds) {
  const std::int64_t step = std::min(kPostedBytes, range.bytes);
  const std::int64_t begin = now_ns();
  const auto end = begin + static_cast<std::int64_t>(seconds * 1e9);
  std::array<IoTicket, 2> tickets;
  std::int64_t moved = 0, at = 0;
  for (std::size_t turn = 0; turn < 2 || now_ns() < end; ++turn) {
    tickets[turn % 2].wait();
    if (at + step > range.bytes) at = 0;
    engine.post(tickets[turn % 2], {direction, range.offset + at, data + static_cast<std::int64_t>(turn % 2) * step, step});
    at += step;
    moved += step;
  }
  for (IoTicket& ticket : tickets) ticket.wait();
  return static_cast<double>(moved) / (static_cast<double>(now_ns() - begin) * 1e-9);
}

/// Both at once, in different halves of the file.
std::array<double, 2> rates_at_once(FileEngine& engine, std::byte* source, std::byte* target, const Range& file, double seconds) {
  const std::int64_t half = file.bytes / 2 / kSwapAlignment * kSwapAlignment;
  std::array<double, 2> rates{};
  std::exception_ptr failure;
  std::thread writer([&] {
    try {
      rates[1] = rate(engine, IoDirection::kWrite, source, {file.offset + half, half}, seconds);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  try {
    rates[0] = rate(engine, IoDirection::kRead, target, {file.offset, half}, seconds);
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
  SLUICE_CHECK(options.file_bytes >= 2 * kSwapAlignment && options.file_bytes % kSwapAlignment == 0 && options.seconds > 0,
               options.file_bytes, " bytes, ", options.seconds, " s");
  SwapSpace::Options space_options{.paths = {options.path},
                                   .identity = options.identity,
                                   .extents = {{0, options.file_bytes}},
                                   .engine = {},
                                   .claims = {},
                                   .allow_network = options.allow_network};
  const SwapSpace space = SwapSpace::open(space_options, system);
  const FileEngine& first = space.engine(0);
  DiskFigures figures;
  figures.service = first.service();
  figures.direct = first.is_direct();
  figures.alignment = first.alignment();
  figures.file_bytes = options.file_bytes;
  figures.notes = space.notes();
  if (!figures.direct) figures.notes.push_back(cat(options.path, ": the figures are the page cache's as much as the disk's"));

  const auto source = make_plain_backing(2 * kPostedBytes, "disk measurement");
  const auto target = make_plain_backing(2 * kPostedBytes, "disk measurement");
  for (std::int64_t i = 0; i < source->bytes(); i += static_cast<std::int64_t>(sizeof(std::uint64_t))) {
    *reinterpret_cast<std::uint64_t*>(source->data() + i) = static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15u;
  }
  std::fill_n(target->data(), target->bytes(), std::byte{1});
  const auto open = [&](const Choice& choice) {
    return FileEngine::open(first.path(), {choice.block_bytes, choice.depth, choice.depth}, system);
  };
  const Range file{kSwapHeaderBytes, options.file_bytes};
  const double share = options.seconds / kShares;
  for (const Choice& choice : kChoices) {
    const auto engine = open(choice);
    figures.candidates.push_back({choice.block_bytes, choice.depth, rate(*engine, IoDirection::kRead, target->data(), file, share),
                                  rate(*engine, IoDirection::kWrite, source->data(), file, share)});
  }
  const auto seconds_per_byte = [](const DiskFigures::Candidate& c) { return 1 / c.read_rate + 1 / c.write_rate; };
  double shortest = seconds_per_byte(figures.candidates.front());
  for (const auto& candidate : figures.candidates) shortest = std::min(shortest, seconds_per_byte(candidate));
  const auto chosen = std::find_if(figures.candidates.begin(), figures.candidates.end(), [&](const DiskFigures::Candidate& candidate) {
    return seconds_per_byte(candidate) <= shortest * (1 + kTolerance);
  });
  figures.block_bytes = chosen->block_bytes;
  figures.depth = chosen->depth;

  const auto engine = open({chosen->block_bytes, chosen->depth});
  const auto alone = [&](IoDirection direction, std::byte* data, double& bytes_per_second, double& core_seconds) {
    const double cpu = process_seconds();
    const std::int64_t before = engine->bytes_read() + engine->bytes_written();
    bytes_per_second = rate(*engine, direction, data, file, share);
    core_seconds = (process_seconds() - cpu) / static_cast<double>(engine->bytes_read() + engine->bytes_written() - before);
  };
  alone(IoDirection::kRead, target->data(), figures.read_rate, figures.read_core_seconds);
  alone(IoDirection::kWrite, source->data(), figures.write_rate, figures.write_core_seconds);
  const auto both = rates_at_once(*engine, source->data(), target->data(), file, 4 * share);
  figures.read_rate_both = both[0];
  figures.write_rate_both = both[1];
  return figures;
}

}  // namespace sluice::memory

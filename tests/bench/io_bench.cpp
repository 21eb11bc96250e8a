// The file engine against fio on the same ranges of one fully written file, with direct I/O, libaio, the same block size and
// depth: reads, writes, both at once (halves of the file, a depth each). Interleaved rounds; medians of rates and of the rounds'
// ratios, and processor seconds per GB. What a request costs depends on the pages of its memory (pages to pin, segments of the
// request), so each is run on pages of 4096 bytes and on huge ones: the engine on an arena, which asks for them; fio with the C
// library's allocator told to ask for them (glibc 2.35). Aim: >= 0.95 on equal pages. Then what measure_disk says about the same disk.
//
//   BUILD/bench/io_bench DIRECTORY [MIB [BLOCK_KIB [DEPTH [ROUNDS]]]]       (2048, 1024, 32, 5)
//
// DIRECTORY must be on a disk, and fio on the PATH (Debian: fio).

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "memory/arena.hpp"
#include "memory/io/measure_disk.hpp"
#include "memory/io/swap_space.hpp"

namespace sluice::memory {
namespace {

// A pipeline posts as many transfers of that size ahead as the executor has on their way.
constexpr std::int64_t kStepBytes = 8 * kMiB;
constexpr std::int64_t kTransfers = 8;

struct Setup {
  std::string path;
  std::int64_t bytes;
  std::int64_t block_bytes;
  int depth;
};
struct Part {
  IoDirection direction;
  std::int64_t offset;
  std::int64_t bytes;
};
struct Run {
  double rate;                 // bytes per second
  double core_seconds_per_gb;  // of 10^9 bytes
};

double process_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

std::int64_t total(const std::vector<Part>& parts) {
  std::int64_t sum = 0;
  for (const Part& part : parts) sum += part.bytes;
  return sum;
}

void feed(FileEngine& engine, const Part& part, std::byte* memory) {
  std::array<IoTicket, kTransfers> tickets;
  for (std::int64_t at = 0, turn = 0; at < part.bytes; at += kStepBytes, turn = (turn + 1) % kTransfers) {
    IoTicket& ticket = tickets[static_cast<std::size_t>(turn)];
    ticket.wait();
    engine.post(ticket, {part.direction, part.offset + at, memory + turn * kStepBytes, std::min(kStepBytes, part.bytes - at)});
  }
  for (IoTicket& ticket : tickets) ticket.wait();
}

enum class Pages { kSmall, kHuge };

Run run_engine(const Setup& setup, const std::vector<Part>& parts, Pages pages) {
  // New for every run, as fio's, and touched before.
  const auto backing = make_plain_backing(static_cast<std::int64_t>(parts.size()) * kTransfers * kStepBytes, "benchmark");
  std::byte* memory = backing->data();
  if (pages == Pages::kSmall) ::madvise(memory, static_cast<std::size_t>(backing->bytes()), MADV_NOHUGEPAGE);
  for (std::int64_t i = 0; i < backing->bytes(); ++i) memory[i] = static_cast<std::byte>(i * 2654435761LL >> 11);
  const auto engine = FileEngine::open(setup.path, {setup.block_bytes, setup.depth, setup.depth});
  const double cpu = process_seconds();
  const std::int64_t begin = now_ns();
  std::vector<std::thread> others;  // a thread per direction, as lanes have; an error of one ends the benchmark
  for (std::size_t i = 1; i < parts.size(); ++i) {
    others.emplace_back([&, i] { feed(*engine, parts[i], memory + static_cast<std::int64_t>(i) * kTransfers * kStepBytes); });
  }
  feed(*engine, parts[0], memory);
  for (std::thread& other : others) other.join();
  const auto bytes = static_cast<double>(total(parts));
  return {bytes / (static_cast<double>(now_ns() - begin) * 1e-9), (process_seconds() - cpu) / bytes * 1e9};
}

Run run_fio(const Setup& setup, const std::vector<Part>& parts, Pages pages) {
  std::string command =
      cat("GLIBC_TUNABLES=glibc.malloc.hugetlb=", pages == Pages::kHuge ? 1 : 0,
          " fio --output-format=json --ioengine=libaio --direct=1 --scramble_buffers=0 --allow_file_create=0 --fallocate=none --filename='",
          setup.path, "' --bs=", setup.block_bytes, " --iodepth=", setup.depth);
  for (const Part& part : parts) {
    const bool reads = part.direction == IoDirection::kRead;
    command +=
        cat(" --name=", reads ? "reads" : "writes", " --rw=", reads ? "read" : "write", " --offset=", part.offset, " --size=", part.bytes);
  }
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) throw EnvironmentError("fio can't be started");
  std::string text;
  std::array<char, 4096> buffer{};
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe)) text.append(buffer.data(), got);
  if (::pclose(pipe) != 0) throw EnvironmentError(cat("fio failed: ", command));
  const nlohmann::json result = nlohmann::json::parse(text);
  double slowest = 0, cpu = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const nlohmann::json& job = result.at("jobs").at(i);
    const nlohmann::json& side = job.at(parts[i].direction == IoDirection::kRead ? "read" : "write");
    if (side.at("io_bytes").get<std::int64_t>() != parts[i].bytes) throw EnvironmentError("fio moved another number of bytes");
    const double seconds = side.at("runtime").get<double>() * 1e-3;
    slowest = std::max(slowest, seconds);
    cpu += (job.at("usr_cpu").get<double>() + job.at("sys_cpu").get<double>()) / 100 * seconds;
  }
  const auto bytes = static_cast<double>(total(parts));
  return {bytes / slowest, cpu / bytes * 1e9};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Series {
  std::vector<double> rates;
  std::vector<double> core_seconds;
  void add(const Run& run) {
    rates.push_back(run.rate);
    core_seconds.push_back(run.core_seconds_per_gb);
  }
};

void compare(const char* name, const Setup& setup, const std::vector<Part>& parts, int rounds) {
  Series fio_small, fio_huge, small, arena;
  for (int round = 0; round < rounds; ++round) {
    // Who goes first changes.
    for (int turn = 0; turn < 4; ++turn) {
      switch ((round + turn) % 4) {
        case 0:
          fio_small.add(run_fio(setup, parts, Pages::kSmall));
          break;
        case 1:
          small.add(run_engine(setup, parts, Pages::kSmall));
          break;
        case 2:
          fio_huge.add(run_fio(setup, parts, Pages::kHuge));
          break;
        default:
          arena.add(run_engine(setup, parts, Pages::kHuge));
      }
    }
  }
  const auto print = [&](const char* what, const Series& series, const Series& other) {
    std::printf("%-12s %-19s %7.0f MB/s  %.3f core seconds per GB", name, what, median(series.rates) * 1e-6, median(series.core_seconds));
    if (!other.rates.empty()) {
      std::vector<double> ratios;
      ratios.reserve(series.rates.size());
      for (std::size_t i = 0; i < series.rates.size(); ++i) ratios.push_back(series.rates[i] / other.rates[i]);
      const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
      std::printf("  %.3f of fio (%.3f to %.3f)", median(ratios), *low, *high);
    }
    std::printf("\n");
  };
  print("fio, small pages", fio_small, {});
  print("engine, small pages", small, fio_small);
  print("fio, huge pages", fio_huge, {});
  print("engine, arena", arena, fio_huge);
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  if (argc < 2) throw RequestError("io_bench DIRECTORY [MIB [BLOCK_KIB [DEPTH [ROUNDS]]]]");
  const auto number = [&](int index, int otherwise) { return index < argc ? std::atoi(argv[index]) : otherwise; };
  const std::string directory = argv[1];
  const std::int64_t bytes = number(2, 2048) * kMiB;
  const SwapIdentity identity{"bench", std::to_string(::getpid()), 0};
  {
    const SwapSpace space =
        SwapSpace::open({.paths = {directory}, .identity = identity, .extents = {{0, bytes}}, .engine = {}, .claims = {}});
    const Setup setup{space.engine(0).path(), bytes, number(3, 1024) * kKiB, number(4, 32)};
    const int rounds = number(5, 5);
    for (const std::string& note : space.notes()) std::printf("%s\n", note.c_str());
    std::printf("%s: %s, blocks of %s, depth %d, alignment %d, %d rounds\n", setup.path.c_str(), format_bytes(bytes).c_str(),
                format_bytes(setup.block_bytes).c_str(), setup.depth, static_cast<int>(space.engine(0).alignment().transfer), rounds);
    const Part read{IoDirection::kRead, kSwapHeaderBytes, bytes}, write{IoDirection::kWrite, kSwapHeaderBytes, bytes};
    const Part read_half{IoDirection::kRead, kSwapHeaderBytes, bytes / 2};
    const Part write_half{IoDirection::kWrite, kSwapHeaderBytes + bytes / 2, bytes / 2};
    compare("reads", setup, {read}, rounds);
    compare("writes", setup, {write}, rounds);
    compare("both at once", setup, {read_half, write_half}, rounds);
  }
  const std::int64_t begin = now_ns();
  const DiskFigures figures = measure_disk({.paths = {directory}, .identity = identity});
  std::printf("measure_disk, %.1f s: blocks of %s, depth %d; reads %.0f MB/s, writes %.0f MB/s, at once %.0f and %.0f MB/s\n",
              static_cast<double>(now_ns() - begin) * 1e-9, format_bytes(figures.block_bytes).c_str(), figures.depth,
              figures.read_rate * 1e-6, figures.write_rate * 1e-6, figures.read_rate_both * 1e-6, figures.write_rate_both * 1e-6);
  for (const auto& candidate : figures.candidates) {
    std::printf("  blocks of %-8s depth %2d: reads %5.0f MB/s, writes %5.0f MB/s\n", format_bytes(candidate.block_bytes).c_str(),
                candidate.depth, candidate.read_rate * 1e-6, candidate.write_rate * 1e-6);
  }
  return 0;
}

}  // namespace
}  // namespace sluice::memory

int main(int argc, char** argv) {
  try {
    return sluice::memory::run(argc, argv);
  } catch (const sluice::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}

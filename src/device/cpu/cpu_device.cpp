#include "device/cpu/cpu_device.hpp"

#include <cpuid.h>
#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>

#include "base/units.hpp"

namespace sluice::device {
namespace {

// Spinning pays while the other side is a few microseconds away; beyond that the core is worth more to others, since lanes,
// the communication thread and other ranks often outnumber the cores.
constexpr int kSpins = 200;

class CpuEvent final : public Event {
 public:
  bool is_recorded(std::uint64_t epoch) const noexcept override { return is_complete(epoch); }
  bool is_complete(std::uint64_t epoch) const noexcept override { return done_.load(std::memory_order_acquire) >= narrow(epoch); }
  void wait_recorded(std::uint64_t epoch) noexcept override { wait_complete(epoch); }
  void wait_complete(std::uint64_t wide_epoch) noexcept override {
    const std::uint32_t epoch = narrow(wide_epoch);
    std::uint32_t seen = done_.load(std::memory_order_acquire);
    for (int i = 0; i < kSpins && seen < epoch; ++i) {
      _mm_pause();
      seen = done_.load(std::memory_order_acquire);
    }
    if (seen >= epoch) return;
    waiters_.fetch_add(1, std::memory_order_seq_cst);
    while ((seen = done_.load(std::memory_order_seq_cst)) < epoch) done_.wait(seen, std::memory_order_acquire);
    waiters_.fetch_sub(1, std::memory_order_relaxed);
  }
  void complete_from_host(std::uint64_t epoch) noexcept override {
    done_.store(narrow(epoch), std::memory_order_seq_cst);
    if (waiters_.load(std::memory_order_seq_cst) > 0) done_.notify_all();
  }

 private:
  // 32 bits, since a futex has 32: at a thousand graphs a second they last 49 days without a pause between steps, and a
  // comparison of wrapped differences would hide a real error.
  static std::uint32_t narrow(std::uint64_t epoch) noexcept { return static_cast<std::uint32_t>(epoch); }
  std::atomic<std::uint32_t> done_{0};
  std::atomic<std::uint32_t> waiters_{0};
};

class CpuStream final : public Stream {
 public:
  void wait(Event& event, std::uint64_t epoch) override { event.wait_complete(epoch); }
  void launch(Body body, void* context) override { body(context, *this); }
  void record(Event& event, std::uint64_t epoch) override { event.complete_from_host(epoch); }
  void synchronize() override {}
};

class CpuDevice final : public Device {
 public:
  CpuDevice() : name_(read_cpu_facts().model_name) {}
  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string name() const override { return name_; }
  bool completes_inline() const override { return true; }
  std::unique_ptr<Stream> make_stream(const std::string& /*name*/) override { return std::make_unique<CpuStream>(); }
  std::unique_ptr<Event> make_event() override { return std::make_unique<CpuEvent>(); }

 private:
  std::string name_;
};

/// The number in a one-line file; -1 when absent or "max".
std::int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t value = -1;
  return file >> value ? value : -1;
}

struct CgroupLimit {
  std::int64_t limit = -1;
  std::int64_t used = 0;
  std::string file;
};

/// Bytes of a cgroup's page cache that the kernel drops when others need them: they count as used, but are as good as free.
std::int64_t reclaimable_cache(const std::string& folder, bool unified) {
  std::ifstream file(folder + "/memory.stat");
  const std::string wanted = unified ? "inactive_file" : "total_inactive_file";
  std::string key;
  for (std::int64_t value = 0; file >> key >> value;) {
    if (key == wanted) return value;
  }
  return 0;
}

/// The tightest memory limit on the way from this process's cgroup to the root, version 1 or 2.
CgroupLimit read_cgroup_limit() {
  CgroupLimit tightest;
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && controllers.find("memory") == std::string::npos) continue;
    const std::string base = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    const std::string limit_name = unified ? "/memory.max" : "/memory.limit_in_bytes";
    const std::string used_name = unified ? "/memory.current" : "/memory.usage_in_bytes";
    for (std::string path = line.substr(second + 1);;) {
      if (path == "/") path.clear();
      const std::int64_t limit = number_in(base + path + limit_name);
      const bool real = limit >= 0 && limit < std::numeric_limits<std::int64_t>::max() / 2;
      if (real && (tightest.limit < 0 || limit < tightest.limit)) {
        const std::int64_t used = number_in(base + path + used_name) - reclaimable_cache(base + path, unified);
        tightest = {limit, std::max<std::int64_t>(0, used), base + path + limit_name};
      }
      if (path.empty()) break;
      path.resize(path.find_last_of('/'));
    }
  }
  return tightest;
}

/// Bytes of "Key:   123 kB" in a /proc file.
std::int64_t kib_field(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key, 0) == 0) return std::atoll(line.c_str() + key.size()) * kKiB;
  }
  return 0;
}

// Clang 14's __builtin_cpu_supports doesn't know it. AVX2 shares its register state.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

}  // namespace

std::unique_ptr<Device> make_cpu_device() {
  return std::make_unique<CpuDevice>();
}

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kBaseline:
      break;
  }
  return "baseline";
}

Isa detect_isa() {
  __builtin_cpu_init();
  // __builtin_cpu_supports asks the operating system's register state (XGETBV) as well as the processor.
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return Isa::kAvx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()) return Isa::kAvx2;
  return Isa::kBaseline;
}

CpuFacts read_cpu_facts() {
  CpuFacts facts;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) {
      facts.model_name = line.substr(std::min(line.size(), line.find(':') + 2));
      break;
    }
  }
  cpu_set_t mask;
  CPU_ZERO(&mask);
  facts.cores = sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : static_cast<int>(std::thread::hardware_concurrency());
  facts.memory_total_bytes = kib_field("/proc/meminfo", "MemTotal:");
  facts.memory_available_bytes = kib_field("/proc/meminfo", "MemAvailable:");
  facts.memory_limit_source = "node";
  const CgroupLimit cgroup = read_cgroup_limit();
  if (cgroup.limit >= 0 && cgroup.limit < facts.memory_total_bytes) {
    facts.memory_total_bytes = cgroup.limit;
    facts.memory_available_bytes = std::min(facts.memory_available_bytes, std::max<std::int64_t>(0, cgroup.limit - cgroup.used));
    facts.memory_limit_source = cgroup.file;
  }
  return facts;
}

ResidentBytes read_resident_bytes() {
  return {kib_field("/proc/self/status", "VmRSS:"), kib_field("/proc/self/status", "VmHWM:"), kib_field("/proc/self/smaps_rollup", "Pss:")};
}

void flush_denormals_on_this_thread() {
  constexpr unsigned int kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
  _mm_setcsr(_mm_getcsr() | kFlushToZero | kDenormalsAreZero);
}

}  // namespace sluice::device

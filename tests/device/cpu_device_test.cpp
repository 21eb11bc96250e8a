#include "device/cpu/cpu_device.hpp"

#include <sched.h>

#include <limits>

#include "contract/device_contract.hpp"

namespace sluice::device {
namespace {

struct Cpu {
  static std::unique_ptr<Device> make() { return make_cpu_device(); }
};

}  // namespace

namespace contract {
INSTANTIATE_TYPED_TEST_SUITE_P(Cpu, DeviceContract, Cpu);
}  // namespace contract

namespace {

TEST(CpuDevice, RunsOnTheCallersThread) {
  const auto device = make_cpu_device();
  EXPECT_EQ(device->kind(), DeviceKind::kCpu);
  EXPECT_TRUE(device->completes_inline());
  const auto stream = device->make_stream("s");
  std::thread::id ran;
  contract::Work work = [&] { ran = std::this_thread::get_id(); };
  stream->launch(&contract::run_work, &work);
  EXPECT_EQ(ran, std::this_thread::get_id());
}

TEST(CpuFacts, AgreeWithTheSystem) {
  const CpuFacts facts = read_cpu_facts();
  EXPECT_FALSE(facts.model_name.empty());
  cpu_set_t mask;
  CPU_ZERO(&mask);
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  EXPECT_EQ(facts.cores, CPU_COUNT(&mask));
  EXPECT_GT(facts.memory_total_bytes, std::int64_t{1} << 26);
  EXPECT_GT(facts.memory_available_bytes, 0);
  EXPECT_LE(facts.memory_available_bytes, facts.memory_total_bytes);
  EXPECT_FALSE(facts.memory_limit_source.empty());
}

TEST(CpuFacts, CoresFollowTheAffinityMask) {
  std::thread([] {
    cpu_set_t mask, one;
    CPU_ZERO(&mask);
    CPU_ZERO(&one);
    ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
    for (int c = 0; c < CPU_SETSIZE; ++c) {
      if (CPU_ISSET(c, &mask) == 0) continue;
      CPU_SET(c, &one);
      break;
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(read_cpu_facts().cores, 1);
  }).join();
}

TEST(ResidentBytes, GrowWithTouchedMemory) {
  constexpr std::size_t kBytes = 32 << 20;
  const ResidentBytes before = read_resident_bytes();
  std::vector<char> memory(kBytes, 1);
  const ResidentBytes after = read_resident_bytes();
  EXPECT_EQ(memory[kBytes / 2], 1);
  EXPECT_GE(after.now, before.now + static_cast<std::int64_t>(kBytes) / 2);
  EXPECT_GE(after.peak, after.now);
}

TEST(Denormals, AreZeroOnThisThreadOnly) {
  volatile float tiny = std::numeric_limits<float>::min();
  std::thread([&] {
    flush_denormals_on_this_thread();
    const volatile float half = tiny * 0.5F;
    EXPECT_EQ(half, 0.0F);
  }).join();
  const volatile float half = tiny * 0.5F;
  EXPECT_GT(half, 0.0F);
}

TEST(IsaNames, AreThoseOfSignatures) {
  EXPECT_EQ(name_of(Isa::kAvx512), "avx512");
  EXPECT_EQ(name_of(Isa::kAvx2), "avx2");
  EXPECT_EQ(name_of(Isa::kBaseline), "baseline");
  EXPECT_EQ(detect_isa(), detect_isa());
}

}  // namespace
}  // namespace sluice::device

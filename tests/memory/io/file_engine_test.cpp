#include "memory/io/file_engine.hpp"

#include <fcntl.h>
#include <linux/magic.h>

#include "contract/file_engine_contract.hpp"

namespace sluice::memory {
namespace {

using contract::FileEngineContract;
using sluice::testing::expect_error;
using sluice::testing::TempDir;
using ::testing::HasSubstr;

struct PoliteSystem {
  static FaultyIo::Verdict manners() { return nullptr; }
};
/// Makes every request a little difficult: what tests ask for has to work all the same.
struct StutteringSystem {
  static FaultyIo::Verdict manners() {
    return [](IoDirection, int index, std::int64_t bytes) -> std::int64_t {
      switch (index % 6) {
        case 1:
          return bytes > 4096 ? 4096 + 17 : bytes;
        case 3:
          return -EINTR;
        case 4:
          return index % 4 == 0 ? -EAGAIN : bytes;
        default:
          return bytes;
      }
    };
  }
};
struct AioService {
  static constexpr auto kService = FileEngine::Service::kAio;
  static constexpr bool kDirect = true;
  static void prepare(FaultyIo& /*io*/) {}
};
struct DirectCallsService {
  static constexpr auto kService = FileEngine::Service::kCalls;
  static constexpr bool kDirect = true;
  static void prepare(FaultyIo& io) { io.refuse_aio = EAGAIN; }
};
struct BufferedCallsService {
  static constexpr auto kService = FileEngine::Service::kCalls;
  static constexpr bool kDirect = false;
  static void prepare(FaultyIo& io) { io.refuse_direct = EINVAL; }
};
template <typename Service, typename System>
struct Backend : Service, System {};

using Aio = Backend<AioService, PoliteSystem>;
using DirectCalls = Backend<DirectCallsService, PoliteSystem>;
using BufferedCalls = Backend<BufferedCallsService, PoliteSystem>;
using StutteringAio = Backend<AioService, StutteringSystem>;
using StutteringCalls = Backend<DirectCallsService, StutteringSystem>;
}  // namespace

namespace contract {
INSTANTIATE_TYPED_TEST_SUITE_P(Aio, FileEngineContract, Aio);
INSTANTIATE_TYPED_TEST_SUITE_P(DirectCalls, FileEngineContract, DirectCalls);
INSTANTIATE_TYPED_TEST_SUITE_P(BufferedCalls, FileEngineContract, BufferedCalls);
INSTANTIATE_TYPED_TEST_SUITE_P(StutteringAio, FileEngineContract, StutteringAio);
INSTANTIATE_TYPED_TEST_SUITE_P(StutteringCalls, FileEngineContract, StutteringCalls);
}  // namespace contract

namespace {

std::string some_file(const TempDir& dir) {
  return dir.write("file", std::string(static_cast<std::size_t>(kMiB), 'a'));
}

TEST(FileEngine, SaysWhyItIsNotAio) {
  const TempDir dir;
  const std::string path = some_file(dir);
  {
    FaultyIo io;
    const auto engine = FileEngine::open(path, {}, io);
    EXPECT_EQ(engine->note().empty(), engine->service() == FileEngine::Service::kAio);
  }
  {
    FaultyIo io;
    io.refuse_aio = EAGAIN;
    const auto engine = FileEngine::open(path, {}, io);
    EXPECT_THAT(engine->note(), HasSubstr(path));
    if (engine->is_direct()) {
      EXPECT_THAT(engine->note(), HasSubstr("fs.aio-max-nr"));
      EXPECT_THAT(engine->note(), HasSubstr("direct calls"));
    }
  }
  {
    FaultyIo io;
    io.refuse_aio = ENOSYS;  // a container's filter
    EXPECT_EQ(FileEngine::open(path, {}, io)->service(), FileEngine::Service::kCalls);
  }
  {
    FaultyIo io;
    io.refuse_direct = EINVAL;
    const auto engine = FileEngine::open(path, {}, io);
    EXPECT_FALSE(engine->is_direct());
    EXPECT_EQ(engine->alignment(), (IoAlignment{1, 1}));
    EXPECT_THAT(engine->note(), HasSubstr("page cache"));
  }
  {
    FaultyIo io;
    io.pretended_type = TMPFS_MAGIC;
    const auto engine = FileEngine::open(path, {}, io);
    EXPECT_FALSE(engine->is_direct());
    EXPECT_THAT(engine->note(), HasSubstr("tmpfs keeps files in memory"));
  }
  {
    FaultyIo io;
    io.pretended_type = 0x65735546;
    const auto engine = FileEngine::open(path, {}, io);
    EXPECT_EQ(engine->service(), FileEngine::Service::kCalls);
    EXPECT_THAT(engine->note(), HasSubstr("FUSE"));
  }
}

// The trial read at open is the first sign of a kernel or file that can't.
TEST(FileEngine, AFailingTrialReadMeansCalls) {
  const TempDir dir;
  const std::string path = some_file(dir);
  FaultyIo io;
  io.arm([](IoDirection, int, std::int64_t) -> std::int64_t { return -EOPNOTSUPP; });
  const auto engine = FileEngine::open(path, {}, io);
  EXPECT_EQ(engine->service(), FileEngine::Service::kCalls);
  EXPECT_FALSE(engine->note().empty());
}

TEST(FileEngine, NeedsAFileItMayWrite) {
  const TempDir dir;
  expect_error<IoError>([&] { FileEngine::open(dir / "none", {}); }, {dir / "none", "No such file"});
  expect_error<IoError>([&] { FileEngine::open(dir.path(), {}); }, {dir.path(), "directory"});
}

// Two seconds of it; all services at once, to spend them once.
TEST(FileEngine, AgainForEverIsAnError) {
  const TempDir dir;
  const std::string path = some_file(dir);
  std::array<FaultyIo, 3> io;
  io[1].refuse_aio = EAGAIN;
  io[2].refuse_direct = EINVAL;
  const auto memory = make_plain_backing(4096, "test");
  std::vector<std::unique_ptr<FileEngine>> engines;
  std::array<IoTicket, 3> tickets;
  for (std::size_t i = 0; i < 3; ++i) {
    engines.push_back(FileEngine::open(path, {}, io[i]));
    io[i].arm([](IoDirection, int, std::int64_t) -> std::int64_t { return -EAGAIN; });
    engines.back()->post(tickets[i], {IoDirection::kWrite, 8192, memory->data(), 4096});
  }
  for (IoTicket& ticket : tickets) {
    expect_error<IoError>([&] { ticket.wait(); }, {path, "writing 4096 bytes at byte 8192", std::strerror(EAGAIN)});
  }
}

// Requests in flight can't be told any more when reaping fails: all of them end as failures, none is waited for in vain.
TEST(FileEngine, ALostContextFailsEverything) {
  const TempDir dir;
  const std::string path = some_file(dir);
  FaultyIo io;
  const auto engine = FileEngine::open(path, {64 * kKiB, 4, 4}, io);
  if (engine->service() != FileEngine::Service::kAio) GTEST_SKIP() << engine->note();
  io.fail_reap = EFAULT;
  io.arm();
  const auto memory = make_plain_backing(kMiB, "test");
  IoTicket reads, later, writes;
  engine->post(reads, {IoDirection::kRead, 0, memory->data(), kMiB});
  expect_error<IoError>([&] { reads.wait(); }, {path, "reading 65536 bytes", "Bad address"});
  engine->post(later, {IoDirection::kRead, 0, memory->data(), 4096});
  expect_error<IoError>([&] { later.wait(); }, {path, "reading 4096 bytes", "Bad address"});
}

TEST(Alignment, TheTrialAgreesWithTheKernel) {
  const TempDir dir;
  const std::string path = some_file(dir);
  const File file(path, O_RDWR);
  if (IoSystem::real().set_direct(file.fd()) != 0) GTEST_SKIP() << "no O_DIRECT in the directory for temporary files";
  const std::optional<IoAlignment> tried = alignment_by_trial(file.fd(), IoSystem::real());
  ASSERT_TRUE(tried);
  const std::optional<IoAlignment> told = alignment_from_kernel(file.fd());
  if (told && told->transfer > 0) {
    EXPECT_EQ(tried->transfer % told->transfer, 0);
    EXPECT_EQ(tried->memory % told->memory, 0);
  }
  const File empty(dir.write("empty", ""), O_RDWR);
  EXPECT_EQ(alignment_by_trial(empty.fd(), IoSystem::real()), (IoAlignment{4096, 4096}));
}

TEST(Alignment, FindsTheSmallestThatWorks) {
  class Sectors final : public IoSystem {
   public:
    explicit Sectors(std::int64_t bytes) : bytes_(bytes) {}
    std::int64_t read(int /*fd*/, void* data, std::int64_t bytes, std::int64_t offset) const override {
      const bool fits =
          bytes % bytes_ == 0 && offset % bytes_ == 0 && reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(bytes_) == 0;
      return fits ? bytes : -EINVAL;
    }
    std::int64_t bytes_;
  };
  const TempDir dir;
  const File file(some_file(dir), O_RDWR);
  for (const std::int64_t sector : {512, 1024, 4096, 65536}) {
    EXPECT_EQ(alignment_by_trial(file.fd(), Sectors(sector)), (IoAlignment{sector, sector}));
  }
  EXPECT_EQ(alignment_by_trial(file.fd(), Sectors(131072)), std::nullopt);
}

}  // namespace
}  // namespace sluice::memory

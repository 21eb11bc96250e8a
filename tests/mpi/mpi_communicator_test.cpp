#include "comm/mpi/mpi_communicator.hpp"

#include <sys/resource.h>

#include "base/units.hpp"
#include "contract/communicator_contract.hpp"
#include "mpi/mpi_world.hpp"

namespace sluice::comm {
namespace {

std::unique_ptr<Communicator> world_with(bool use_windows, int ranks_per_node) {
  MpiOptions options;
  options.use_windows = use_windows;
  options.ranks_per_node = ranks_per_node;
  return testing::mpi_environment().world(options);
}

/// All on one node: windows where memory lies in one, messages where not.
struct MpiWindows {
  static constexpr bool kSeesOtherSequences = true;
  static void run(const std::function<void(Communicator&)>& body) {
    const auto world = world_with(true, 0);
    EXPECT_EQ(world->node_size(), world->size());
    body(*world);
  }
};

/// The path between nodes alone.
struct MpiMessages {
  static constexpr bool kSeesOtherSequences = false;
  static void run(const std::function<void(Communicator&)>& body) { body(*world_with(false, 0)); }
};

/// Nodes of two ranks, the last perhaps of one.
struct MpiNodesOfTwo {
  static constexpr bool kSeesOtherSequences = false;
  static void run(const std::function<void(Communicator&)>& body) {
    const auto world = world_with(true, 2);
    EXPECT_EQ(world->node_size(), std::min(2, world->size() - world->rank() / 2 * 2));
    EXPECT_EQ(world->node_rank(), world->rank() % 2);
    body(*world);
  }
};

}  // namespace

namespace contract {
INSTANTIATE_TYPED_TEST_SUITE_P(MpiWindows, CommunicatorContract, MpiWindows);
INSTANTIATE_TYPED_TEST_SUITE_P(MpiMessages, CommunicatorContract, MpiMessages);
INSTANTIATE_TYPED_TEST_SUITE_P(MpiNodesOfTwo, CommunicatorContract, MpiNodesOfTwo);
}  // namespace contract

namespace {

TEST(MpiEnvironment, SaysWhichLibraryItIs) {
  const std::string version = mpi_library_version();
  EXPECT_TRUE(version.starts_with("Open MPI v") || version.starts_with("MPICH")) << version;
  EXPECT_EQ(version.find('\n'), std::string::npos);
}

TEST(MpiEnvironment, IsNotStartedTwice) {
  EXPECT_THROW(MpiEnvironment(), LogicError);
}

TEST(MpiWindow, MoreThanTheMachineHasIsRefusedOnAllRanks) {
  const auto world = world_with(true, 0);
  const std::int64_t huge = world->rank() == world->size() - 1 ? 1000 * 1024 * kGiB : 4096;
  try {
    world->allocate_window(huge, "arena of the device tier");
    FAIL() << "granted";
  } catch (const EnvironmentError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("arena of the device tier"), std::string::npos) << message;
    EXPECT_NE(message.find("host memory"), std::string::npos) << message;
    EXPECT_EQ(message.substr(0, 4) == "rank", false) << "all ranks of the node share it: " << message;
  }
  EXPECT_EQ(world->allocate_window(4096, "small")->bytes(), 4096);
}

TEST(MpiWindow, AFailureOfOneRankIsEveryonesError) {
  const auto world = world_with(true, 0);
  if (world->size() == 1) return;  // plain memory: no file
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const bool limited = world->rank() == 1;
  if (limited) {
    rlimit limit = before;
    limit.rlim_cur = 1 << 20;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  std::string message;
  try {
    world->allocate_window(2 << 20, "arena");
  } catch (const EnvironmentError& error) {
    message = error.what();
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(message,
            "rank 1: arena: a shared window of 2.00 MiB exceeds the limit on file sizes, 1.00 MiB; raise it (ulimit -f unlimited)");
}

TEST(MpiWindow, OwnersReleaseAlone) {
  const auto world = world_with(true, 0);
  const auto channel = world->open_channel("c");
  for (int round = 0; round < 5; ++round) {
    // A rank's destructor must not wait for the others': rank 0 goes first and uses another window before they follow.
    auto first = world->allocate_window(1 << 16, "first");
    auto second = world->allocate_window(1 << 16, "second");
    if (world->rank() == 0) first.reset();
    const contract::Bounds bounds = contract::cut(contract::Cut::kEqual, world->size(), 1 << 12, 0);
    auto* region = reinterpret_cast<float*>(second->data());
    for (std::int64_t i = 0; i < bounds.back(); ++i) region[i] = static_cast<float>(world->rank() + round);
    contract::finish(*channel, channel->post_scatter(region, region + bounds[world->rank()], bounds, false));
    const int n = world->size();
    EXPECT_EQ(region[bounds[world->rank()]], static_cast<float>(n * (n - 1) / 2 + n * round));
  }
  world->barrier();
}

TEST(MpiCommunicator, SetUpCallsTakeMoreThanOneRoundsBytes) {
  const auto world = world_with(true, 0);
  if (world->size() > 2) return;  // the same code, and slow on few cores
  const auto length_of = [](int rank) { return static_cast<std::size_t>((65 << 20) + 3 - rank * 1000); };
  std::string mine(length_of(world->rank()), static_cast<char>('a' + world->rank()));
  mine.back() = '!';
  const std::vector<std::string> all = world->all_gather(mine);
  for (int r = 0; r < world->size(); ++r) {
    std::string expected(length_of(r), static_cast<char>('a' + r));
    expected.back() = '!';
    EXPECT_TRUE(all[r] == expected) << r;
  }
}

TEST(MpiCommunicator, CommunicatorsMayOutliveEachOther) {
  auto world = world_with(true, 0);
  auto half = world->split(world->rank() % 2, 0);
  auto channel = half->open_channel("c");
  world.reset();
  int one = 1;
  std::vector<int> all(static_cast<std::size_t>(half->size()));
  const auto ticket = channel->post_exchange(&one, all.data(), sizeof(int));
  half.reset();
  contract::finish(*channel, ticket);
  EXPECT_EQ(std::count(all.begin(), all.end(), 1), static_cast<std::ptrdiff_t>(all.size()));
}

}  // namespace
}  // namespace sluice::comm

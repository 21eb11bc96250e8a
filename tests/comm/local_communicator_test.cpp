#include "comm/local/local_communicator.hpp"

#include <atomic>

#include "contract/communicator_contract.hpp"

namespace sluice::comm {
namespace {

template <int kRanks>
struct LocalRanks {
  static constexpr bool kSeesOtherSequences = true;
  static void run(const std::function<void(Communicator&)>& body) {
    std::atomic<int> ran{0};
    run_local_ranks(kRanks, [&](Communicator& world) {
      EXPECT_EQ(world.size(), kRanks);
      EXPECT_EQ(world.node_size(), kRanks);
      body(world);
      ++ran;
    });
    EXPECT_EQ(ran, kRanks);
  }
};

struct SingleRank {
  static constexpr bool kSeesOtherSequences = true;
  static void run(const std::function<void(Communicator&)>& body) {
    const auto world = make_single_rank();
    body(*world);
  }
};

}  // namespace

namespace contract {
INSTANTIATE_TYPED_TEST_SUITE_P(SingleRank, CommunicatorContract, SingleRank);
INSTANTIATE_TYPED_TEST_SUITE_P(LocalOne, CommunicatorContract, LocalRanks<1>);
INSTANTIATE_TYPED_TEST_SUITE_P(LocalTwo, CommunicatorContract, LocalRanks<2>);
INSTANTIATE_TYPED_TEST_SUITE_P(LocalThree, CommunicatorContract, LocalRanks<3>);
INSTANTIATE_TYPED_TEST_SUITE_P(LocalFour, CommunicatorContract, LocalRanks<4>);
}  // namespace contract

namespace {

TEST(LocalRanks, AFailingRankEndsTheOthersBlockingCalls) {
  std::atomic<int> told{0};
  try {
    run_local_ranks(3, [&](Communicator& world) {
      world.barrier();
      if (world.rank() == 1) throw RequestError("no such flag");
      const auto expect_told = [&](const std::function<void()>& call) {
        try {
          call();
          ADD_FAILURE() << "the call returned";
        } catch (const CommError& error) {
          EXPECT_NE(std::string(error.what()).find("rank 1 failed: no such flag"), std::string::npos) << error.what();
          ++told;
        }
      };
      expect_told([&] { world.barrier(); });
      expect_told([&] { world.all_gather("later calls too"); });
      expect_told([&] { world.open_channel("nor this"); });
      expect_told([&] { world.split(0, 0); });
    });
    FAIL() << "the failure was swallowed";
  } catch (const RequestError& error) {
    EXPECT_STREQ(error.what(), "no such flag");
  }
  EXPECT_EQ(told, 8);
}

TEST(LocalRanks, AFailingRankEndsTheOthersPolling) {
  std::atomic<int> told{0};
  EXPECT_THROW(run_local_ranks(
                   3,
                   [&](Communicator& world) {
                     const auto channel = world.open_channel("c");
                     if (world.rank() == 2) throw DivergedError("nan");
                     std::vector<float> region(100);
                     std::vector<float> out(100);
                     const auto ticket = channel->post_scatter(region.data(), out.data(), std::vector<std::int64_t>{0, 50, 90, 100}, false);
                     try {
                       contract::finish(*channel, ticket);
                     } catch (const CommError&) {
                       ++told;
                       throw;
                     }
                   }),
               DivergedError);
  EXPECT_EQ(told, 2);
}

TEST(LocalRanks, TheFirstFailureInTimeIsRethrown) {
  std::atomic<bool> first_failed{false};
  try {
    run_local_ranks(2, [&](Communicator& world) {
      if (world.rank() == 1) {
        first_failed = true;
        throw FormatError("a.h5", "truncated");
      }
      while (!first_failed) std::this_thread::yield();
      EXPECT_THROW(world.barrier(), CommError);
      throw RequestError("later");
    });
    FAIL();
  } catch (const FormatError& error) {
    EXPECT_STREQ(error.what(), "a.h5: truncated");
  }
}

TEST(LocalRanks, AbortEndsTheRun) {
  std::atomic<int> told{0};
  try {
    run_local_ranks(3, [&](Communicator& world) {
      if (world.rank() == 0) world.abort(5);
      try {
        world.barrier();
      } catch (const CommError&) {
        ++told;
        throw;
      }
    });
    FAIL();
  } catch (const CommError& error) {
    EXPECT_NE(std::string(error.what()).find("rank 0 ended the run with code 5"), std::string::npos) << error.what();
  }
  EXPECT_EQ(told, 2);
}

TEST(LocalRanks, ARunAfterAFailedOneIsUntouched) {
  EXPECT_THROW(run_local_ranks(2, [](Communicator&) { throw RequestError("x"); }), RequestError);
  std::atomic<int> ran{0};
  run_local_ranks(2, [&](Communicator& world) {
    world.barrier();
    ++ran;
  });
  EXPECT_EQ(ran, 2);
}

TEST(LocalRanksDeathTest, AbortOfASingleRankIsTheProcesssCode) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(make_single_rank()->abort(75), ::testing::ExitedWithCode(75), "^$");
}

}  // namespace
}  // namespace sluice::comm

#include "app/at_work.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "comm/communicator.hpp"
#include "comm/local/local_communicator.hpp"

namespace sluice::app {
namespace {

// Once shorter than until the first sign of life, once longer.
TEST(AtWork, TheOthersWaitUntilItIsDoneAndAreInStepAfterwards) {
  for (const int milliseconds : {20, 2500}) {
    std::atomic<bool> is_done = false;
    comm::run_local_ranks(3, [&](comm::Communicator& world) {
      if (world.rank() == 1) {
        const AtWork at_work(world);
        std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
        is_done = true;
      } else {
        wait_while_at_work(world, 1);
        EXPECT_TRUE(is_done);
      }
      EXPECT_EQ(world.broadcast(world.rank() == 0 ? "next" : "", 0), "next");
    });
  }
}

}  // namespace
}  // namespace sluice::app

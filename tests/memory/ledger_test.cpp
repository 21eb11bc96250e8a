#include "memory/ledger.hpp"

#include <gtest/gtest.h>

#include <type_traits>
#include <utility>

#include "base/error.hpp"
#include "support/expect_error.hpp"

namespace sluice::memory {
namespace {

using spec::Tier;
using testing::expect_error;

static_assert(!std::is_copy_constructible_v<Reservation> && !std::is_copy_assignable_v<Reservation>);
static_assert(std::is_nothrow_move_constructible_v<Reservation> && std::is_nothrow_move_assignable_v<Reservation>);

TEST(Ledger, ChargesAndGivesBack) {
  Ledger ledger({1000, 500, 0});
  EXPECT_EQ(ledger.capacity(Tier::kDevice), 1000);
  EXPECT_EQ(ledger.available(Tier::kHost), 500);
  {
    const Reservation params = ledger.reserve(Tier::kDevice, "params", 600);
    const Reservation more = ledger.reserve(Tier::kDevice, "moments", 300);
    EXPECT_EQ(params.bytes(), 600);
    EXPECT_EQ(ledger.available(Tier::kDevice), 100);
    EXPECT_EQ(ledger.available(Tier::kHost), 500) << "tiers have accounts of their own";
  }
  EXPECT_EQ(ledger.available(Tier::kDevice), 1000);
}

TEST(Ledger, FillsToTheLastByteAndNoFurther) {
  Ledger ledger({100, 0, 0});
  const Reservation all = ledger.reserve(Tier::kDevice, "a", 100);
  const Reservation none = ledger.reserve(Tier::kDevice, "b", 0);
  EXPECT_EQ(none.bytes(), 0);
  EXPECT_FALSE(ledger.try_reserve(Tier::kDevice, "c", 1).has_value());
  EXPECT_FALSE(ledger.try_reserve(Tier::kHost, "c", 1).has_value()) << "a tier that isn't there";
}

TEST(Ledger, ARefusalNamesTierTagAndNumbers) {
  Ledger ledger({100, 0, 0});
  const Reservation held = ledger.reserve(Tier::kDevice, "params", 30);
  try {
    ledger.reserve(Tier::kDevice, "gradients", 71);
    FAIL() << "no error";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.wanted, 71);
    EXPECT_EQ(error.available, 70);
  }
  expect_error<OutOfMemory>([&] { ledger.reserve(Tier::kDevice, "gradients", 71); }, {"device", "gradients"});
  EXPECT_EQ(ledger.available(Tier::kDevice), 70) << "a refusal charges nothing";
  EXPECT_THROW(ledger.reserve(Tier::kDevice, "x", -1), LogicError);
}

TEST(Ledger, LinesKeepTheirPeak) {
  Ledger ledger({1000, 1000, 0});
  {
    const Reservation a = ledger.reserve(Tier::kDevice, "io", 10);
    const Reservation b = ledger.reserve(Tier::kDevice, "io", 20);
    const Reservation c = ledger.reserve(Tier::kHost, "io", 5);
  }
  const Reservation d = ledger.reserve(Tier::kDevice, "io", 7);
  ASSERT_EQ(ledger.lines().size(), 2U);
  EXPECT_EQ(ledger.lines()[0].tag, "io");
  EXPECT_EQ(ledger.lines()[0].tier, Tier::kDevice);
  EXPECT_EQ(ledger.lines()[0].bytes_in_use, 7);
  EXPECT_EQ(ledger.lines()[0].bytes_peak, 30);
  EXPECT_EQ(ledger.lines()[1].bytes_in_use, 0);
  EXPECT_EQ(ledger.lines()[1].bytes_peak, 5);
}

TEST(Reservation, MovesItsRight) {
  Ledger ledger({100, 0, 0});
  Reservation first = ledger.reserve(Tier::kDevice, "a", 40);
  Reservation second(std::move(first));
  EXPECT_EQ(first.bytes(), 0);  // NOLINT(bugprone-use-after-move): moved-from is inert
  EXPECT_EQ(second.bytes(), 40);
  EXPECT_EQ(ledger.available(Tier::kDevice), 60) << "moving neither charges nor returns";
  Reservation third = ledger.reserve(Tier::kDevice, "b", 25);
  third = std::move(second);
  EXPECT_EQ(third.bytes(), 40);
  EXPECT_EQ(ledger.available(Tier::kDevice), 60) << "what was held before is returned, once";
  Reservation& alias = third;
  third = std::move(alias);
  EXPECT_EQ(third.bytes(), 40);
  EXPECT_EQ(ledger.available(Tier::kDevice), 60);
  third = Reservation();
  EXPECT_EQ(ledger.available(Tier::kDevice), 100);
}

TEST(Reservation, OfNothingIsInert) {
  Reservation none;
  EXPECT_EQ(none.bytes(), 0);
  Reservation other(std::move(none));
  EXPECT_EQ(other.bytes(), 0);
}

}  // namespace
}  // namespace sluice::memory

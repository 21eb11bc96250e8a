#include "base/units.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace sluice {
namespace {

TEST(ParseBytes, TakesPowersOf1024And1000) {
  EXPECT_EQ(parse_bytes("4096"), 4096);
  EXPECT_EQ(parse_bytes("0"), 0);
  EXPECT_EQ(parse_bytes("17B"), 17);
  EXPECT_EQ(parse_bytes("200MiB"), 200 * kMiB);
  EXPECT_EQ(parse_bytes("4 GiB"), 4 * kGiB);
  EXPECT_EQ(parse_bytes("1.5G"), 3 * kGiB / 2);
  EXPECT_EQ(parse_bytes("2k"), 2048);
  EXPECT_EQ(parse_bytes("3KB"), 3000);
  EXPECT_EQ(parse_bytes("7mb"), 7'000'000);
  EXPECT_EQ(parse_bytes("1TiB"), 1024 * kGiB);
  EXPECT_EQ(parse_bytes("1TB"), 1'000'000'000'000);
  EXPECT_EQ(parse_bytes(".5KiB"), 512);
}

TEST(ParseBytes, RoundsToWholeBytes) {
  EXPECT_EQ(parse_bytes("0.0009765625KiB"), 1);
}

TEST(ParseBytes, RefusesWhatIsNotASize) {
  for (const char* text :
       {"", "MiB", "-1", "12 parsecs", "1XiB", "1iB", "1.2.3", "nan", "inf", "0x10", "1e400", "9000000TiB", ".", "1 2"}) {
    EXPECT_THROW(parse_bytes(text), RequestError) << '"' << text << '"';
  }
}

TEST(ParseBytes, SaysWhatWasFoundAndWhatIsUnderstood) {
  try {
    parse_bytes("12 parsecs");
    FAIL() << "12 parsecs was taken for a size";
  } catch (const RequestError& error) {
    EXPECT_EQ(error.code(), ExitCode::kRequest);
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("\"12 parsecs\""), testing::HasSubstr("200MiB")));
  }
}

TEST(FormatBytes, HasThreeDigits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(3 * kGiB / 2), "1.50 GiB");
  EXPECT_EQ(format_bytes(200 * kMiB), "200 MiB");
  EXPECT_EQ(format_bytes(12 * kMiB + kMiB / 2), "12.5 MiB");
  EXPECT_EQ(format_bytes(kMiB - 1), "1.00 MiB");
  EXPECT_EQ(format_bytes(10 * kKiB - 1), "10.0 KiB");
  EXPECT_EQ(format_bytes(100 * kKiB - 1), "100 KiB");
  EXPECT_EQ(format_bytes(-2048), "-2.00 KiB");
}

TEST(FormatBytes, IsReadBackWithinItsDigits) {
  for (std::int64_t bytes = 1; bytes < (std::int64_t{1} << 55); bytes = bytes * 7 / 3 + 1) {
    EXPECT_NEAR(static_cast<double>(parse_bytes(format_bytes(bytes))), static_cast<double>(bytes), 0.006 * static_cast<double>(bytes))
        << format_bytes(bytes);
    if (bytes > (std::int64_t{1} << 49)) break;  // above, format_bytes says PiB, which nobody writes
  }
}

TEST(FormatSeconds, ChoosesItsUnit) {
  EXPECT_EQ(format_seconds(0.0000015), "1.50 us");
  EXPECT_EQ(format_seconds(0.0123), "12.3 ms");
  EXPECT_EQ(format_seconds(4.56), "4.56 s");
  EXPECT_EQ(format_seconds(59.99), "1 min 00 s");
  EXPECT_EQ(format_seconds(0.9999), "1.00 s");
  EXPECT_EQ(format_seconds(0.0009999), "1.00 ms");
  EXPECT_EQ(format_seconds(61), "1 min 01 s");
  EXPECT_EQ(format_seconds(3720), "1 h 02 min");
  EXPECT_EQ(format_seconds(3599.8), "1 h 00 min");
  EXPECT_EQ(format_seconds(-4.56), "-4.56 s");
}

TEST(FormatCount, ChoosesItsUnit) {
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1.00 k");
  EXPECT_EQ(format_count(124'000'000), "124 M");
  EXPECT_EQ(format_count(1'557'611'200), "1.56 B");
  EXPECT_EQ(format_count(999'999), "1.00 M");
}

TEST(DivideUp, RoundsTowardsMore) {
  EXPECT_EQ(divide_up(0, 256), 0);
  EXPECT_EQ(divide_up(1, 256), 1);
  EXPECT_EQ(divide_up(256, 256), 1);
  EXPECT_EQ(divide_up(257, 256), 2);
  EXPECT_EQ(round_up(257, 256), 512);
  EXPECT_EQ(round_up(512, 256), 512);
}

}  // namespace
}  // namespace sluice

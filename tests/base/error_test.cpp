#include "base/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/check.hpp"
#include "base/units.hpp"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(Errors, CarryTheirExitCodes) {
  EXPECT_EQ(LogicError("x").code(), ExitCode::kDefect);
  EXPECT_EQ(RequestError("x").code(), ExitCode::kRequest);
  EXPECT_EQ(EnvironmentError("x").code(), ExitCode::kEnvironment);
  EXPECT_EQ(OutOfMemory("host", "gradients", 2, 1).code(), ExitCode::kEnvironment);
  EXPECT_EQ(IoError("writing", "f", ENOSPC).code(), ExitCode::kEnvironment);
  EXPECT_EQ(DeviceError("x").code(), ExitCode::kEnvironment);
  EXPECT_EQ(CommError("all_reduce", "x").code(), ExitCode::kEnvironment);
  EXPECT_EQ(FormatError("f", "x").code(), ExitCode::kFormat);
  EXPECT_EQ(DivergedError("x").code(), ExitCode::kDiverged);
  EXPECT_EQ(ResumableStop("x").code(), ExitCode::kResumable);
}

TEST(Errors, ExitCodesAreTheOnesPeopleRelyOn) {
  EXPECT_EQ(static_cast<int>(ExitCode::kFinished), 0);
  EXPECT_EQ(static_cast<int>(ExitCode::kDefect), 1);
  EXPECT_EQ(static_cast<int>(ExitCode::kRequest), 2);
  EXPECT_EQ(static_cast<int>(ExitCode::kEnvironment), 3);
  EXPECT_EQ(static_cast<int>(ExitCode::kFormat), 4);
  EXPECT_EQ(static_cast<int>(ExitCode::kDiverged), 5);
  EXPECT_EQ(static_cast<int>(ExitCode::kResumable), 75);
}

TEST(Errors, AreCaughtAsWhatTheyAre) {
  EXPECT_THROW(throw OutOfMemory("host", "gradients", 2, 1), EnvironmentError);
  EXPECT_THROW(throw FormatError("f", "x"), Error);
  EXPECT_THROW(throw RequestError("x"), std::runtime_error);
}

TEST(OutOfMemory, SaysWhatIsWantedAndWhatIsLeft) {
  const OutOfMemory error("device", "activations", 3 * kGiB, 512 * kMiB);
  EXPECT_EQ(error.wanted, 3 * kGiB);
  EXPECT_EQ(error.available, 512 * kMiB);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("activations"), HasSubstr("3.00 GiB of device memory"), HasSubstr("512 MiB are left")));
}

TEST(IoError, SaysWhichFileWhereAndWhy) {
  const IoError full("writing", "rank-00000.h5", ENOSPC, 4096);
  EXPECT_EQ(full.error_number, ENOSPC);
  EXPECT_EQ(std::string(full.what()), std::string("rank-00000.h5: writing at byte 4096 failed: ") + std::strerror(ENOSPC));
  const IoError absent("opening", "a.json", ENOENT);
  EXPECT_EQ(std::string(absent.what()), std::string("a.json: opening failed: ") + std::strerror(ENOENT));
}

TEST(IoError, CallsAMissingErrnoAShortTransfer) {
  EXPECT_THAT(IoError("reading", "f", 0, 0).what(), AllOf(HasSubstr("at byte 0"), HasSubstr("short transfer")));
}

TEST(FormatError, StartsWithTheFile) {
  EXPECT_STREQ(FormatError("m.json", "no key \"step\"").what(), "m.json: no key \"step\"");
}

TEST(CommError, StartsWithTheOperation) {
  EXPECT_STREQ(CommError("all_gather over zero", "2 ranks disagree").what(), "all_gather over zero: 2 ranks disagree");
}

TEST(Check, LetsTruthPass) {
  EXPECT_NO_THROW(SLUICE_CHECK(1 + 1 == 2, "arithmetic"));
}

TEST(Check, NamesPlaceConditionAndDetail) {
  const int found = 3;
  try {
    SLUICE_CHECK(found == 4, "found ", found, ", expected ", 4);
    FAIL() << "a broken contract passed";
  } catch (const LogicError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("error_test.cpp:"), HasSubstr("check failed: found == 4: found 3, expected 4")));
  }
}

TEST(Check, LeavesOutWhatNobodySaid) {
  try {
    SLUICE_CHECK(1 > 2);
    FAIL() << "a broken contract passed";
  } catch (const LogicError& error) {
    EXPECT_THAT(std::string(error.what()), testing::EndsWith("check failed: 1 > 2"));
  }
}

TEST(Check, ShortensPathsToTheSourceTree) {
  try {
    fail_check("a", "/some/where/src/base/rng.cpp", 7, "");
  } catch (const LogicError& error) {
    EXPECT_THAT(error.what(), AllOf(StartsWith("src/base/rng.cpp:7: "), Not(HasSubstr("some"))));
  }
}

TEST(Check, EvaluatesItsConditionOnce) {
  int count = 0;
  SLUICE_CHECK(++count == 1);
  EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace sluice

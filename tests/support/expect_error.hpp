#pragma once
// Expecting a typed error with all of the given pieces in its one line.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice::testing {

template <typename E, typename Call>
void expect_error(Call&& call, const std::vector<std::string>& pieces) {
  try {
    call();
  } catch (const E& error) {
    const std::string what = error.what();
    for (const std::string& piece : pieces) EXPECT_THAT(what, ::testing::HasSubstr(piece));
    EXPECT_EQ(what.find('\n'), std::string::npos) << "an error is one line: " << what;
    return;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
    return;
  }
  ADD_FAILURE() << "no error";
}

/// `text` with its only `from` replaced.
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " is not in " << text;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

}  // namespace sluice::testing

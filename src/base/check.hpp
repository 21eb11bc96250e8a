#pragma once
// SLUICE_CHECK holds a contract in every build; what follows the condition is concatenated into the message.

#include "base/error.hpp"
#include "base/text.hpp"

namespace sluice {
[[noreturn]] void fail_check(const char* condition, const char* file, int line, const std::string& detail);
}

#define SLUICE_CHECK(condition, ...)                                                                    \
  do {                                                                                                  \
    if (!(condition)) ::sluice::fail_check(#condition, __FILE__, __LINE__, ::sluice::cat(__VA_ARGS__)); \
  } while (false)

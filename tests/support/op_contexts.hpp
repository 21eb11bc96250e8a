#pragma once
// The contexts that a test of something built on ops runs under.

#include <gtest/gtest.h>

#include <string>

#include "ops/context.hpp"

namespace sluice::test {

struct NamedContext {
  std::string name;
  ops::Context context;
};

/// One thread: quick also where the cores are busy.
inline auto single_thread_contexts() {
  return ::testing::Values(NamedContext{"reference", {.backend = ops::Backend::kReference, .isa = device::Isa::kBaseline, .threads = 1}},
                           NamedContext{"cpu", ops::make_cpu_context(1)});
}

inline auto all_contexts() {
  return ::testing::Values(NamedContext{"reference", {.backend = ops::Backend::kReference, .isa = device::Isa::kBaseline, .threads = 1}},
                           NamedContext{"cpu", ops::make_cpu_context(1)}, NamedContext{"cpu_two_threads", ops::make_cpu_context(2)});
}

inline void PrintTo(const NamedContext& context, std::ostream* out) {
  *out << context.name;
}

}  // namespace sluice::test

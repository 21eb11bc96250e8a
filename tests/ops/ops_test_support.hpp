#pragma once
// What the tests of ops share: the contexts this machine can run, random inputs, and comparisons.

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ops/context.hpp"

namespace sluice::ops::test {

using Values = std::vector<float>;

/// The plain body.
inline Context reference_context() {
  return {Backend::kReference, device::Isa::kBaseline, 1};
}
/// The instruction sets of this processor that have fast bodies.
std::vector<device::Isa> fast_isas();
/// Fast bodies: each instruction set with 1 and 3 threads, the widest also with 2.
std::vector<Context> fast_contexts();
std::string text_of(const Context& ctx);

/// n normal numbers times `std`, a function of (seed, n).
Values normal_values(std::int64_t n, std::uint64_t seed, float std = 1.0f);

/// Every element within absolute + relative * |expected|.
testing::AssertionResult all_near(const Values& actual, const Values& expected, double absolute, double relative);
testing::AssertionResult same_bits(const Values& actual, const Values& expected);
bool bits_equal(float a, float b);

/// sum_i weights[i] * y[i] in f64: the scalar whose gradient the central differences take.
double weighted_sum(const Values& weights, const Values& y);

}  // namespace sluice::ops::test

#include "ops/ops_test_support.hpp"

#include <bit>
#include <cmath>
#include <cstring>

#include "ops/fill.hpp"

namespace sluice::ops::test {

std::vector<device::Isa> fast_isas() {
  std::vector<device::Isa> isas;
  const device::Isa best = device::detect_isa();
  if (best == device::Isa::kAvx2 || best == device::Isa::kAvx512) isas.push_back(device::Isa::kAvx2);
  if (best == device::Isa::kAvx512) isas.push_back(device::Isa::kAvx512);
  return isas;
}

std::vector<Context> fast_contexts() {
  std::vector<Context> contexts;
  for (const device::Isa isa : fast_isas()) {
    contexts.push_back({Backend::kCpu, isa, 1});
    if (isa == device::detect_isa() && most_threads() >= 2) contexts.push_back({Backend::kCpu, isa, 2});
    if (most_threads() >= 3) contexts.push_back({Backend::kCpu, isa, 3});
  }
  return contexts;
}

std::string text_of(const Context& ctx) {
  return std::string(ctx.backend == Backend::kReference ? "reference" : "cpu") + " " + std::string(device::name_of(ctx.isa)) + " on " +
         std::to_string(ctx.threads) + " threads";
}

Values normal_values(std::int64_t n, std::uint64_t seed, float std) {
  Values values(static_cast<std::size_t>(n));
  fill_normal(reference_context(), values.data(), n, std, {static_cast<std::uint32_t>(seed), 17u}, 0);
  return values;
}

testing::AssertionResult all_near(const Values& actual, const Values& expected, double absolute, double relative) {
  if (actual.size() != expected.size()) return testing::AssertionFailure() << actual.size() << " elements instead of " << expected.size();
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double difference = std::abs(static_cast<double>(actual[i]) - expected[i]);
    if (!(difference <= absolute + relative * std::abs(expected[i]))) {
      return testing::AssertionFailure() << "element " << i << " of " << actual.size() << " is " << actual[i] << ", expected "
                                         << expected[i];
    }
  }
  return testing::AssertionSuccess();
}

bool bits_equal(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

testing::AssertionResult same_bits(const Values& actual, const Values& expected) {
  if (actual.size() != expected.size()) return testing::AssertionFailure() << actual.size() << " elements instead of " << expected.size();
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (!bits_equal(actual[i], expected[i])) {
      return testing::AssertionFailure() << "element " << i << " of " << actual.size() << " is " << actual[i] << ", expected the bits of "
                                         << expected[i];
    }
  }
  return testing::AssertionSuccess();
}

double weighted_sum(const Values& weights, const Values& y) {
  double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += static_cast<double>(weights[i]) * y[i];
  return sum;
}

}  // namespace sluice::ops::test

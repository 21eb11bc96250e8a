#include "ops/matmul.hpp"

#include <cstdint>

#include "base/check.hpp"
#include "ops/bodies.hpp"

namespace sluice::ops {
namespace {

/// Whether two row-major blocks share bytes, by the ranges from their first to their last element.
bool overlap(const float* a, std::int64_t a_rows, std::int64_t a_columns, std::int64_t ld_a, const float* b, std::int64_t b_rows,
             std::int64_t b_columns, std::int64_t ld_b) {
  const auto begin_a = reinterpret_cast<std::uintptr_t>(a), begin_b = reinterpret_cast<std::uintptr_t>(b);
  const auto end_a = reinterpret_cast<std::uintptr_t>(a + (a_rows - 1) * ld_a + a_columns);
  const auto end_b = reinterpret_cast<std::uintptr_t>(b + (b_rows - 1) * ld_b + b_columns);
  return begin_a < end_b && begin_b < end_a;
}

}  // namespace

void matmul(const Context& ctx, const MatmulArgs& args) {
  SLUICE_CHECK(args.m >= 1 && args.n >= 1 && args.k >= 1, "matmul of m ", args.m, ", n ", args.n, ", k ", args.k);
  SLUICE_CHECK(args.a != nullptr && args.b != nullptr && args.c != nullptr, "matmul without one of its matrices");
  const std::int64_t a_rows = args.transpose_a ? args.k : args.m, a_columns = args.transpose_a ? args.m : args.k;
  const std::int64_t b_rows = args.transpose_b ? args.n : args.k, b_columns = args.transpose_b ? args.k : args.n;
  SLUICE_CHECK(args.ld_a >= a_columns, "matmul's ld_a ", args.ld_a, " is below A's ", a_columns, " columns");
  SLUICE_CHECK(args.ld_b >= b_columns, "matmul's ld_b ", args.ld_b, " is below B's ", b_columns, " columns");
  SLUICE_CHECK(args.ld_c >= args.n, "matmul's ld_c ", args.ld_c, " is below C's ", args.n, " columns");
  SLUICE_CHECK(!overlap(args.c, args.m, args.n, args.ld_c, args.a, a_rows, a_columns, args.ld_a), "matmul's C overlaps A");
  SLUICE_CHECK(!overlap(args.c, args.m, args.n, args.ld_c, args.b, b_rows, b_columns, args.ld_b), "matmul's C overlaps B");
  SLUICE_CHECK(args.gelu_out == nullptr || !overlap(args.c, args.m, args.n, args.ld_c, args.gelu_out, args.m, args.n, args.ld_c),
               "matmul's gelu_out overlaps C");
  return ctx.backend == Backend::kReference ? reference::matmul(args) : cpu::matmul(ctx, args);
}

void column_sum(const Context& ctx, const float* dy, std::int64_t m, std::int64_t n, std::int64_t ld, float* db, bool accumulate) {
  SLUICE_CHECK(m >= 1 && n >= 1 && ld >= n, "column_sum of [", m, ", ", n, "] with stride ", ld);
  SLUICE_CHECK(dy != nullptr && db != nullptr, "column_sum without one of its arrays");
  return wants_reference(ctx) ? reference::column_sum(dy, m, n, ld, db, accumulate) : cpu::column_sum(ctx, dy, m, n, ld, db, accumulate);
}

}  // namespace sluice::ops

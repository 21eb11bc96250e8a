#include <algorithm>

#include "ops/bodies.hpp"

namespace sluice::ops::reference {

// Sums in f64, in blocks of columns that fit the stack.
void matmul(const MatmulArgs& args) {
  constexpr std::int64_t kColumns = 256;
  for (std::int64_t first = 0; first < args.n; first += kColumns) {
    const std::int64_t columns = std::min(kColumns, args.n - first);
    for (std::int64_t i = 0; i < args.m; ++i) {
      double sums[kColumns] = {};
      for (std::int64_t p = 0; p < args.k; ++p) {
        const double a = args.transpose_a ? args.a[p * args.ld_a + i] : args.a[i * args.ld_a + p];
        const float* b = args.transpose_b ? args.b + first * args.ld_b + p : args.b + p * args.ld_b + first;
        const std::int64_t step = args.transpose_b ? args.ld_b : 1;
        for (std::int64_t j = 0; j < columns; ++j) sums[j] += a * b[j * step];
      }
      float* c = args.c + i * args.ld_c + first;
      for (std::int64_t j = 0; j < columns; ++j) {
        double value = sums[j];
        if (args.accumulate) value += c[j];
        if (args.bias != nullptr) value += args.bias[first + j];
        c[j] = static_cast<float>(value);
      }
      if (args.gelu_out != nullptr) gelu_forward(c, columns, args.gelu_out + i * args.ld_c + first);
    }
  }
}

void column_sum(const float* dy, std::int64_t m, std::int64_t n, std::int64_t ld, float* db, bool accumulate) {
  for (std::int64_t j = 0; j < n; ++j) {
    double sum = accumulate ? db[j] : 0.0;
    for (std::int64_t i = 0; i < m; ++i) sum += dy[i * ld + j];
    db[j] = static_cast<float>(sum);
  }
}

}  // namespace sluice::ops::reference

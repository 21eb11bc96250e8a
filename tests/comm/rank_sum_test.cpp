#include "comm/rank_sum.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "contract/communicator_contract.hpp"

namespace sluice::comm {
namespace {

TEST(RankSum, EqualsTheSerialSumBitForBit) {
  for (int count = 1; count <= 9; ++count) {
    for (const std::int64_t n : {0, 1, 3, 15, 17, 255, 4095, 4096, 4097, 20'000}) {
      for (int variant = 0; variant < 3; ++variant) {
        const bool accumulate = variant == 1;
        std::vector<std::vector<float>> vectors;
        std::vector<const float*> pointers;
        for (int r = 0; r < count; ++r) {
          vectors.emplace_back(static_cast<std::size_t>(n) + 1);
          for (std::int64_t i = 0; i < n; ++i) vectors.back()[i + 1] = contract::float_of(7, r, i);
        }
        for (const auto& vector : vectors) pointers.push_back(vector.data() + 1);
        std::vector<float> separate(static_cast<std::size_t>(n) + 2, 0.5f);
        std::vector<float> expected(static_cast<std::size_t>(n));
        for (std::int64_t i = 0; i < n; ++i) {
          float sum = vectors[0][i + 1];
          for (int r = 1; r < count; ++r) sum = sum + vectors[r][i + 1];
          expected[i] = accumulate ? 0.5f + sum : sum;
        }
        const bool in_place = variant == 2;
        float* out = in_place ? vectors[count / 2].data() + 1 : separate.data() + 1;
        sum_in_rank_order(pointers.data(), count, out, n, accumulate);
        EXPECT_TRUE(n == 0 || std::memcmp(out, expected.data(), static_cast<std::size_t>(n) * sizeof(float)) == 0)
            << count << " vectors of " << n << " variant " << variant;
        EXPECT_EQ(separate.front(), 0.5f);
        EXPECT_EQ(separate.back(), 0.5f);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::comm

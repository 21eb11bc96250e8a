#pragma once
#include <array>
#include <cstdint>

#include "ops/context.hpp"

namespace sluice::ops {

/// x[i] = value.
void fill(const Context& ctx, float* x, std::int64_t n, float value);
/// x[i] = std * normal_at(key, first_index + i): a shard of a parameter is initialised by its global index.
void fill_normal(const Context& ctx, float* x, std::int64_t n, float std, std::array<std::uint32_t, 2> key, std::uint64_t first_index);

}  // namespace sluice::ops

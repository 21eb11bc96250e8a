#include "ops/context.hpp"

#include <filesystem>
#include <iterator>
#include <thread>

#include "base/error.hpp"
#include "ops/adamw.hpp"
#include "ops/attention.hpp"
#include "ops/cross_entropy.hpp"
#include "ops/embedding.hpp"
#include "ops/gelu.hpp"
#include "ops/grad_norm.hpp"
#include "ops/layer_norm.hpp"
#include "ops/matmul.hpp"
#include "ops/ops_test_support.hpp"

namespace sluice::ops::test {
namespace {

TEST(Context, NamesTheLibraries) {
  EXPECT_EQ(std::string(library_versions()).rfind("onednn ", 0), 0u);
}

TEST(Context, HasAtLeastOneThread) {
  EXPECT_EQ(make_cpu_context(3).threads, 3);
  EXPECT_EQ(make_cpu_context(1).isa, device::detect_isa());
  EXPECT_THROW(make_cpu_context(0), LogicError);
}

std::int64_t threads_of_this_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

/// Work large enough that no op leaves its threads unused.
void run_everything(const Context& ctx) {
  const std::int64_t rows = 256, c = 192, heads = 3;
  const Values x = normal_values(rows * c, 1), w = normal_values(c * 3 * c, 2, 0.1f), ones(static_cast<std::size_t>(c), 1.0f);
  Values y(x.size()), mean(static_cast<std::size_t>(rows)), rstd(mean.size()), qkv(3 * x.size()),
      lse(static_cast<std::size_t>(rows * heads)), dqkv(qkv.size());
  layer_norm_forward(ctx, x.data(), ones.data(), ones.data(), 1e-5, rows, c, y.data(), mean.data(), rstd.data());
  matmul(ctx, {rows, 3 * c, c, y.data(), c, false, w.data(), 3 * c, false, qkv.data(), 3 * c});
  matmul(ctx, {rows, c, 3 * c, qkv.data(), 3 * c, false, w.data(), 3 * c, true, y.data(), c});
  const AttentionShape shape{1, rows, heads, c / heads};
  std::vector<char> workspace(
      static_cast<std::size_t>(attention_workspace_bytes(shape, ctx.threads) + layer_norm_workspace_bytes(ctx.threads, c)));
  const std::int64_t sample = 1;
  const RowPositions positions{&sample, 1, rows, 0};
  const DropoutSite site{0.1f, {1, 2}};
  attention_forward(ctx, shape, qkv.data(), qkv.data() + 2 * shape.heads * shape.head_dim, site, positions, y.data(), lse.data(),
                    workspace.data());
  attention_backward(ctx, shape, qkv.data(), qkv.data() + 2 * shape.heads * shape.head_dim, y.data(), lse.data(), x.data(), site, positions,
                     dqkv.data(), workspace.data());
  dropout_add(ctx, site, positions, c, x.data(), y.data(), y.data());
  gelu_forward(ctx, y.data(), rows * c, y.data());
  column_sum(ctx, dqkv.data(), rows, 3 * c, 3 * c, lse.data(), false);
  const std::vector<std::int32_t> ids(static_cast<std::size_t>(rows), 5);
  cross_entropy(ctx, y.data(), rows, c, c, ids.data(), 1.0f, true);
  Values m(x.size()), v(x.size());
  adamw(ctx, {rows * c, y.data(), x.data(), m.data(), v.data(), 1e-3, 0.9, 0.999, 1e-8, 0, 1});
  NormAccumulator sum;
  add_squared_norm(ctx, x.data(), rows * c, sum);
}

TEST(Context, OneThreadMeansNoOther) {
  if (most_threads() < 3) GTEST_SKIP() << "OMP_THREAD_LIMIT";
  // OpenMP keeps threads per calling thread, so a new caller starts without any.
  std::int64_t before = 0, with_one = 0, with_three = 0;
  std::thread([&] {
    before = threads_of_this_process();
    run_everything({Backend::kCpu, device::detect_isa(), 1});
    with_one = threads_of_this_process();
    run_everything({Backend::kCpu, device::detect_isa(), 3});
    with_three = threads_of_this_process();
  }).join();
  EXPECT_EQ(with_one, before);
  EXPECT_EQ(with_three, before + 2);
}

}  // namespace
}  // namespace sluice::ops::test

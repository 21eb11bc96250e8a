// Speed of the fast bodies at GPT-2 124M's shapes. Rates are per second of the calling thread's processor time with one thread, of wall
// time with more. "peak" and "memcpy" are what this core can do, to compare with.
//   ops_bench --benchmark_filter=matmul

#include <benchmark/benchmark.h>
#include <immintrin.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "ops/adamw.hpp"
#include "ops/add.hpp"
#include "ops/attention.hpp"
#include "ops/cross_entropy.hpp"
#include "ops/dropout.hpp"
#include "ops/embedding.hpp"
#include "ops/fill.hpp"
#include "ops/gelu.hpp"
#include "ops/grad_norm.hpp"
#include "ops/layer_norm.hpp"
#include "ops/matmul.hpp"

namespace {

using namespace sluice;
using ops::Context;
using Values = std::vector<float>;

constexpr std::int64_t kWidth = 768, kVocab = 50257, kHeads = 12;

Values numbers(std::int64_t n, float std = 1.0f) {
  Values x(static_cast<std::size_t>(n));
  std::uint32_t state = 12345;
  for (float& v : x) {
    state = state * 1664525u + 1013904223u;
    v = std * (static_cast<float>(state >> 8) * 0x1.0p-23f - 1.0f);
  }
  return x;
}

void count_flops(benchmark::State& state, double flops) {
  state.counters["flop/s"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}
void count_bytes(benchmark::State& state, std::int64_t bytes) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * bytes);
}

__attribute__((target("avx2,fma"))) void multiply_add(float* out, std::int64_t repeats) {
  __m256 sums[12];
  for (__m256& s : sums) s = _mm256_set1_ps(1.0f);
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(1e-3f);
  for (std::int64_t i = 0; i < repeats; ++i) {
    for (__m256& s : sums) s = _mm256_fmadd_ps(s, a, b);
  }
  for (int i = 0; i < 12; ++i) _mm256_storeu_ps(out + 8 * i, sums[i]);
}

void peak(benchmark::State& state) {
  float out[96];
  for (auto _ : state) {
    multiply_add(out, 1000000);
    benchmark::DoNotOptimize(out);
  }
  count_flops(state, 1e6 * 96 * 2);
}

void copy(benchmark::State& state) {
  const std::size_t bytes = static_cast<std::size_t>(state.range(0)) << 20;
  std::vector<char> from(bytes, 1), to(bytes, 2);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::DoNotOptimize(to.data());
  }
  count_bytes(state, static_cast<std::int64_t>(2 * bytes));
}

struct Product {
  const char* name;
  std::int64_t m, n, k;
  bool transpose_a, transpose_b, accumulate, bias, gelu;
};

void product(benchmark::State& state, int threads, const Product& p) {
  const Context ctx = ops::make_cpu_context(threads);
  const Values a = numbers(p.m * p.k), b = numbers(p.k * p.n, 0.02f), bias = numbers(p.n);
  Values c(static_cast<std::size_t>(p.m * p.n)), gelu(p.gelu ? c.size() : 0);
  ops::MatmulArgs args{
      p.m, p.n, p.k, a.data(), p.transpose_a ? p.m : p.k, p.transpose_a, b.data(), p.transpose_b ? p.k : p.n, p.transpose_b, c.data(), p.n};
  args.accumulate = p.accumulate;
  args.bias = p.bias ? bias.data() : nullptr;
  args.gelu_out = p.gelu ? gelu.data() : nullptr;
  for (auto _ : state) ops::matmul(ctx, args);
  count_flops(state, 2.0 * static_cast<double>(p.m * p.n * p.k));
}

/// `length`: tokens of each document in the row; as many as `tokens`: one document.
void attention(benchmark::State& state, int threads, device::Isa isa, std::int64_t tokens, std::int64_t length, float rate, bool backward) {
  const Context ctx{ops::Backend::kCpu, isa, threads};
  const ops::AttentionShape shape{1, tokens, kHeads, kWidth / kHeads};
  const Values qkv = numbers(3 * tokens * kWidth), dout = numbers(tokens * kWidth);
  Values out(dout.size()), lse(static_cast<std::size_t>(kHeads * tokens)), dqkv(qkv.size());
  const float* const v = qkv.data() + 2 * shape.heads * shape.head_dim;
  std::vector<char> workspace(static_cast<std::size_t>(ops::attention_workspace_bytes(shape, threads)));
  const std::int64_t sample = 7;
  std::vector<std::int32_t> starts;
  double pairs = 0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    starts.push_back(static_cast<std::int32_t>(t / length * length));
    pairs += static_cast<double>(t + 1 - starts.back());
  }
  const ops::RowPositions positions{&sample, 1, tokens, 0, length < tokens ? starts.data() : nullptr};
  const ops::DropoutSite site{rate, {1, 2}};
  ops::attention_forward(ctx, shape, qkv.data(), v, site, positions, out.data(), lse.data(), workspace.data());
  for (auto _ : state) {
    if (backward) {
      ops::attention_backward(ctx, shape, qkv.data(), v, out.data(), lse.data(), dout.data(), site, positions, dqkv.data(),
                              workspace.data());
    } else {
      ops::attention_forward(ctx, shape, qkv.data(), v, site, positions, out.data(), lse.data(), workspace.data());
    }
  }
  // Two products forward, five backward, over the pairs that the mask leaves.
  count_flops(state, (backward ? 5 : 2) * 2.0 * pairs * kWidth);
}

void layer_norm(benchmark::State& state, int threads, device::Isa isa, bool backward) {
  const Context ctx{ops::Backend::kCpu, isa, threads};
  const std::int64_t n = 1024;
  const Values x = numbers(n * kWidth), dy = numbers(n * kWidth), gain = numbers(kWidth), bias = numbers(kWidth);
  Values y(x.size()), mean(static_cast<std::size_t>(n)), rstd(mean.size()), dgain(static_cast<std::size_t>(kWidth)), dbias(dgain.size());
  std::vector<char> workspace(static_cast<std::size_t>(ops::layer_norm_workspace_bytes(threads, kWidth)));
  ops::layer_norm_forward(ctx, x.data(), gain.data(), bias.data(), 1e-5, n, kWidth, y.data(), mean.data(), rstd.data());
  for (auto _ : state) {
    if (backward) {
      ops::layer_norm_backward(ctx, x.data(), gain.data(), mean.data(), rstd.data(), dy.data(), n, kWidth, y.data(), true, dgain.data(),
                               dbias.data(), true, workspace.data());
    } else {
      ops::layer_norm_forward(ctx, x.data(), gain.data(), bias.data(), 1e-5, n, kWidth, y.data(), mean.data(), rstd.data());
    }
  }
  count_bytes(state, (backward ? 16 : 8) * n * kWidth);
}

void gelu(benchmark::State& state, int threads, device::Isa isa, bool backward) {
  const Context ctx{ops::Backend::kCpu, isa, threads};
  const std::int64_t n = 1024 * 4 * kWidth;
  const Values x = numbers(n, 3.0f), dy = numbers(n);
  Values y(x.size());
  for (auto _ : state) {
    if (backward) {
      ops::gelu_backward(ctx, x.data(), dy.data(), n, y.data());
    } else {
      ops::gelu_forward(ctx, x.data(), n, y.data());
    }
  }
  count_bytes(state, (backward ? 12 : 8) * n);
}

void dropout(benchmark::State& state, int threads, device::Isa isa) {
  const Context ctx{ops::Backend::kCpu, isa, threads};
  const Values x = numbers(1024 * kWidth);
  Values y(x.size());
  const std::int64_t sample = 7;
  for (auto _ : state) ops::dropout_add(ctx, {0.1f, {1, 2}}, {&sample, 1, 1024, 0}, kWidth, x.data(), y.data(), y.data());
  count_bytes(state, 12 * 1024 * kWidth);
}

void cross_entropy(benchmark::State& state, int threads, device::Isa isa) {
  const Context ctx{ops::Backend::kCpu, isa, threads};
  const std::int64_t n = 128;
  Values logits = numbers(n * kVocab, 4.0f);
  const std::vector<std::int32_t> targets(static_cast<std::size_t>(n), 17);
  double loss = 0;
  for (auto _ : state) loss += ops::cross_entropy(ctx, logits.data(), n, kVocab, kVocab, targets.data(), 1.0f, true);
  benchmark::DoNotOptimize(loss);
  count_bytes(state, 8 * n * kVocab);
}

void adamw(benchmark::State& state, int threads, device::Isa isa) {
  const Context ctx{ops::Backend::kCpu, isa, threads};
  const std::int64_t n = 1 << 24;
  Values param = numbers(n), moment1 = numbers(n), moment2(static_cast<std::size_t>(n), 0.5f);
  const Values grad = numbers(n);
  ops::AdamwArgs args{n, param.data(), grad.data(), moment1.data(), moment2.data(), 1e-3, 0.9, 0.999, 1e-8, 0.1, 10, 0.5f};
  for (auto _ : state) ops::adamw(ctx, args);
  count_bytes(state, 28 * n);
}

void add_to(benchmark::State& state, int threads, device::Isa isa) {
  const Context ctx{ops::Backend::kCpu, isa, threads};
  const std::int64_t n = 1 << 24;
  const Values x = numbers(n);
  Values sum = numbers(n);
  for (auto _ : state) ops::add(ctx, x.data(), n, sum.data());
  count_bytes(state, 12 * n);
}

void squared_norm(benchmark::State& state, int threads, device::Isa isa) {
  const Context ctx{ops::Backend::kCpu, isa, threads};
  const std::int64_t n = 1 << 24;
  const Values x = numbers(n);
  ops::NormAccumulator sum;
  for (auto _ : state) ops::add_squared_norm(ctx, x.data(), n, sum);
  benchmark::DoNotOptimize(sum);
  count_bytes(state, 4 * n);
}

void column_sum(benchmark::State& state, int threads, device::Isa isa) {
  const Context ctx{ops::Backend::kCpu, isa, threads};
  const Values dy = numbers(1024 * 4 * kWidth);
  Values db(static_cast<std::size_t>(4 * kWidth));
  for (auto _ : state) ops::column_sum(ctx, dy.data(), 1024, 4 * kWidth, 4 * kWidth, db.data(), false);
  count_bytes(state, 4 * 1024 * 4 * kWidth);
}

void fill_normal(benchmark::State& state, int threads) {
  const Context ctx = ops::make_cpu_context(threads);
  Values x(1 << 20);
  for (auto _ : state) ops::fill_normal(ctx, x.data(), 1 << 20, 0.02f, {1, 2}, 0);
  count_bytes(state, 4 << 20);
}

template <typename Body>
void add(const std::string& name, int threads, const Body& body) {
  auto* entry = benchmark::RegisterBenchmark((name + "/threads:" + std::to_string(threads)).c_str(), body);
  if (threads > 1) entry->UseRealTime();
  entry->Unit(benchmark::kMillisecond);
}

void add_all() {
  add("peak/fma", 1, peak);
  benchmark::RegisterBenchmark("memcpy/MiB", copy)->Arg(4)->Arg(256)->Unit(benchmark::kMillisecond);
  std::vector<device::Isa> isas{device::Isa::kAvx2};
  if (device::detect_isa() == device::Isa::kAvx512) isas.push_back(device::Isa::kAvx512);
  for (const int threads : {1, 2}) {
    for (const std::int64_t tokens : {256, 1024}) {
      for (const Product& p : std::vector<Product>{{"qkv", tokens, 3 * kWidth, kWidth, false, false, false, true, false},
                                                   {"proj", tokens, kWidth, kWidth, false, false, false, true, false},
                                                   {"fc1_gelu", tokens, 4 * kWidth, kWidth, false, false, false, true, true},
                                                   {"fc2", tokens, kWidth, 4 * kWidth, false, false, false, true, false},
                                                   {"qkv_dx", tokens, kWidth, 3 * kWidth, false, true, false, false, false},
                                                   {"fc1_dx", tokens, kWidth, 4 * kWidth, false, true, false, false, false},
                                                   {"fc2_dx", tokens, 4 * kWidth, kWidth, false, true, false, false, false},
                                                   {"qkv_dw", kWidth, 3 * kWidth, tokens, true, false, true, false, false},
                                                   {"fc1_dw", kWidth, 4 * kWidth, tokens, true, false, true, false, false},
                                                   {"fc2_dw", 4 * kWidth, kWidth, tokens, true, false, true, false, false}}) {
        add(std::string("matmul/") + p.name + "/tokens:" + std::to_string(tokens), threads,
            [=](benchmark::State& s) { product(s, threads, p); });
      }
    }
    for (const std::int64_t rows : {128, 256}) {
      for (const Product& p : std::vector<Product>{{"head", rows, kVocab, kWidth, false, true, false, false, false},
                                                   {"head_dx", rows, kWidth, kVocab, false, false, false, false, false},
                                                   {"head_dw", kVocab, kWidth, rows, true, false, true, false, false}}) {
        add(std::string("matmul/") + p.name + "/rows:" + std::to_string(rows), threads,
            [=](benchmark::State& s) { product(s, threads, p); });
      }
    }
    for (const device::Isa isa : isas) {
      const std::string on = "/" + std::string(device::name_of(isa));
      for (const std::int64_t tokens : {256, 1024}) {
        for (const float rate : {0.0f, 0.1f}) {
          const std::string what = "/tokens:" + std::to_string(tokens) + (rate > 0 ? "/dropout" : "") + on;
          add("attention/forward" + what, threads, [=](benchmark::State& s) { attention(s, threads, isa, tokens, tokens, rate, false); });
          add("attention/backward" + what, threads, [=](benchmark::State& s) { attention(s, threads, isa, tokens, tokens, rate, true); });
        }
      }
      for (const bool backward : {false, true}) {
        add(std::string("attention/") + (backward ? "backward" : "forward") + "/tokens:1024/documents:100" + on, threads,
            [=](benchmark::State& s) { attention(s, threads, isa, 1024, 100, 0.0f, backward); });
      }
      add("layer_norm/forward" + on, threads, [=](benchmark::State& s) { layer_norm(s, threads, isa, false); });
      add("layer_norm/backward" + on, threads, [=](benchmark::State& s) { layer_norm(s, threads, isa, true); });
      add("gelu/forward" + on, threads, [=](benchmark::State& s) { gelu(s, threads, isa, false); });
      add("gelu/backward" + on, threads, [=](benchmark::State& s) { gelu(s, threads, isa, true); });
      add("dropout_add" + on, threads, [=](benchmark::State& s) { dropout(s, threads, isa); });
      add("cross_entropy" + on, threads, [=](benchmark::State& s) { cross_entropy(s, threads, isa); });
      add("adamw" + on, threads, [=](benchmark::State& s) { adamw(s, threads, isa); });
      add("add" + on, threads, [=](benchmark::State& s) { add_to(s, threads, isa); });
      add("squared_norm" + on, threads, [=](benchmark::State& s) { squared_norm(s, threads, isa); });
      add("column_sum" + on, threads, [=](benchmark::State& s) { column_sum(s, threads, isa); });
    }
    add("fill_normal", threads, [=](benchmark::State& s) { fill_normal(s, threads); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

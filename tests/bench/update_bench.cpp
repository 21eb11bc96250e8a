// The optimizer update on host memory, timed on request, so that a script can take turns with other programs' in one run:
//
//   update_bench ELEMENTS THREADS [avx2|avx512]
//
// reads lines "bare" (AdamW in f32), "full" (the same with unscaling, clipping factor and the bf16 copy in the pass) or "copy"
// (memcpy of as many bytes as "bare" moves) and answers each with the seconds of one pass, the mean of a few.

#include <cstdint>
#include <cstring>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/units.hpp"
#include "memory/arena.hpp"
#include "ops/adamw.hpp"

namespace {

using namespace sluice;

constexpr int kRepeats = 4;

struct Arrays {
  explicit Arrays(std::int64_t elements)
      : n(elements),
        backing(memory::make_plain_backing(4 * plane_bytes() + 2 * elements, "update")),
        copy_target(memory::make_plain_backing(elements * 14, "copy")) {
    std::memset(backing->data(), 0, static_cast<std::size_t>(backing->bytes()));
    std::memset(copy_target->data(), 0, static_cast<std::size_t>(copy_target->bytes()));
    for (std::int64_t i = 0; i < n; ++i) {
      plane(0)[i] = 0.01F * static_cast<float>(i % 97 - 48);
      plane(1)[i] = 0.001F * static_cast<float>(i % 89 - 44);
    }
  }
  // Parameter, gradient, two moments, behind them the bf16 copy. Planes an exact power of two apart, from 128 MiB on, would all be in the
  // same bank of memory: five times slower, and no chunk's planes lie so.
  std::int64_t plane_bytes() const { return round_up(4 * n, 4 * kKiB) + 132 * kKiB; }
  float* plane(int index) const { return reinterpret_cast<float*>(backing->data() + index * plane_bytes()); }
  std::uint16_t* rounded() const { return reinterpret_cast<std::uint16_t*>(plane(4)); }
  std::int64_t n;
  std::unique_ptr<memory::Backing> backing;
  std::unique_ptr<memory::Backing> copy_target;
};

void copy_in_threads(const Arrays& arrays, int threads) {
  const std::int64_t bytes = arrays.copy_target->bytes();
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      const std::int64_t begin = bytes * t / threads, end = bytes * (t + 1) / threads;
      std::memcpy(arrays.copy_target->data() + begin, arrays.backing->data() + begin, static_cast<std::size_t>(end - begin));
    });
  }
  for (std::thread& worker : workers) worker.join();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: update_bench ELEMENTS THREADS [avx2|avx512]\n";
    return 2;
  }
  const Arrays arrays(std::atoll(argv[1]));
  const int threads = std::atoi(argv[2]);
  ops::Context ctx = ops::make_cpu_context(threads);
  if (argc > 3) ctx.isa = std::string(argv[3]) == "avx2" ? device::Isa::kAvx2 : device::Isa::kAvx512;
  std::int64_t count = 0;
  for (std::string line; std::getline(std::cin, line);) {
    const auto once = [&] {
      if (line == "copy") return copy_in_threads(arrays, threads);
      ops::AdamwArgs args{arrays.n, arrays.plane(0), arrays.plane(1), arrays.plane(2), arrays.plane(3), 1e-3, 0.9, 0.999, 1e-8,
                          0.1,      ++count};
      if (line == "full") {
        args.grad_scale = 0.37F;
        args.copy = arrays.rounded();
      }
      ops::adamw(ctx, args);
    };
    once();
    const std::int64_t begin = now_ns();
    for (int i = 0; i < kRepeats; ++i) once();
    std::cout << static_cast<double>(now_ns() - begin) * 1e-9 / kRepeats << std::endl;
  }
  return 0;
}

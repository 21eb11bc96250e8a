#include <omp.h>

#include <oneapi/dnnl/dnnl.hpp>

#include "base/check.hpp"
#include "ops/bodies.hpp"
#include "ops/isa_includes.hpp"
#include "ops/parallel.hpp"

#define SLUICE_KERNELS "ops/matmul_kernels.inc"
#include "ops/for_each_isa.inc"

namespace sluice::ops {
namespace {

/// Sets how many threads oneDNN takes on the calling thread (OpenMP keeps that number per thread), and puts it back. oneDNN divides a
/// product by that number and takes it for granted: with fewer, the sums are wrong.
class OmpThreads {
 public:
  explicit OmpThreads(int threads) : before_(omp_get_max_threads()) {
    if (threads > most_threads()) {
      throw EnvironmentError(cat("OMP_THREAD_LIMIT lets this process have ", most_threads(), " threads, a product was to have ", threads,
                                 "; unset it, or ask for fewer threads"));
    }
    if (threads > 1) {
      if (omp_get_dynamic() != 0) omp_set_dynamic(0);                      // OMP_DYNAMIC: fewer where the machine is busy
      if (omp_get_max_active_levels() == 0) omp_set_max_active_levels(1);  // OMP_MAX_ACTIVE_LEVELS=0: none beside the caller
    }
    if (threads != before_) omp_set_num_threads(threads);
    changed_ = threads != before_;
  }
  ~OmpThreads() {
    if (changed_) omp_set_num_threads(before_);
  }
  OmpThreads(const OmpThreads&) = delete;
  OmpThreads& operator=(const OmpThreads&) = delete;

 private:
  int before_;
  bool changed_ = false;
};

void sgemm(const MatmulArgs& args) {
  const dnnl_status_t status = dnnl_sgemm(args.transpose_a ? 'T' : 'N', args.transpose_b ? 'T' : 'N', args.m, args.n, args.k, 1.0f, args.a,
                                          args.ld_a, args.b, args.ld_b, args.accumulate ? 1.0f : 0.0f, args.c, args.ld_c);
  if (status != dnnl_success) {
    throw DeviceError(
        cat("oneDNN's sgemm of m ", args.m, ", n ", args.n, ", k ", args.k, " failed with status ", static_cast<int>(status)));
  }
}

/// The same product by the matmul primitive, whose scratch memory oneDNN keeps per thread.
void primitive_matmul(const MatmulArgs& args) {
  using dnnl::memory;
  static const dnnl::engine kEngine(dnnl::engine::kind::cpu, 0);
  const auto desc = [](std::int64_t rows, std::int64_t columns, std::int64_t ld, bool transposed) {
    return memory::desc({rows, columns}, memory::data_type::f32, transposed ? memory::dims{1, ld} : memory::dims{ld, 1});
  };
  try {
    const memory::desc a = desc(args.m, args.k, args.ld_a, args.transpose_a);
    const memory::desc b = desc(args.k, args.n, args.ld_b, args.transpose_b);
    const memory::desc c = desc(args.m, args.n, args.ld_c, false);
    dnnl::primitive_attr attributes;
    if (args.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    // oneDNN keeps the primitives it made by shape, so this costs some 25 us, not a new kernel.
    const dnnl::matmul primitive(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), attributes, kEngine));
    dnnl::stream stream(kEngine);
    // The library reads A and B only; its interface knows no pointers to const.
    primitive.execute(stream, {{DNNL_ARG_SRC, memory(a, kEngine, const_cast<float*>(args.a))},
                               {DNNL_ARG_WEIGHTS, memory(b, kEngine, const_cast<float*>(args.b))},
                               {DNNL_ARG_DST, memory(c, kEngine, args.c)}});
    stream.wait();
  } catch (const dnnl::error& error) {
    throw DeviceError(cat("oneDNN's matmul of m ", args.m, ", n ", args.n, ", k ", args.k, " failed: ", error.what()));
  }
}

void add_bias_and_gelu(const Context& ctx, const MatmulArgs& args) {
  const auto kernel = ctx.isa == device::Isa::kAvx512 ? avx512::bias_gelu_range : avx2::bias_gelu_range;
  parallel_shares(threads_for_bytes(ctx.threads, 8 * args.m * args.n), args.m, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      float* c = args.c + i * args.ld_c;
      float* gelu_out = args.gelu_out != nullptr ? args.gelu_out + i * args.ld_c : nullptr;
      if (ctx.isa != device::Isa::kBaseline) {
        kernel(c, args.bias, gelu_out, args.n);
        continue;
      }
      for (std::int64_t j = 0; args.bias != nullptr && j < args.n; ++j) c[j] += args.bias[j];
      if (gelu_out != nullptr) reference::gelu_forward(c, args.n, gelu_out);
    }
  });
}

}  // namespace

namespace cpu {

// Measured on an EPYC Genoa core (AVX-512) at GPT-2 124M's shapes: sgemm reaches 96-110 GF/s of 114 and the primitive 72-107; on two
// threads sgemm loses up to a third where B is transposed and the primitive does not.
void matmul(const Context& ctx, const MatmulArgs& args) {
  {
    const OmpThreads threads(ctx.threads);
    if (ctx.threads > 1 && args.transpose_b) {
      primitive_matmul(args);
    } else {
      sgemm(args);
    }
  }
  if (args.bias != nullptr || args.gelu_out != nullptr) add_bias_and_gelu(ctx, args);
}

// Threads split the columns, so the order of a column's sum doesn't depend on their number.
void column_sum(const Context& ctx, const float* dy, std::int64_t m, std::int64_t n, std::int64_t ld, float* db, bool accumulate) {
  const auto kernel = ctx.isa == device::Isa::kAvx512 ? avx512::column_sum_range : avx2::column_sum_range;
  parallel_shares(threads_for_bytes(ctx.threads, 4 * m * n), n, 16, [=](std::int64_t begin, std::int64_t end, int) {
    if (!accumulate) std::memset(db + begin, 0, static_cast<std::size_t>(end - begin) * sizeof(float));
    kernel(dy + begin, m, end - begin, ld, db + begin);
  });
}

}  // namespace cpu
}  // namespace sluice::ops

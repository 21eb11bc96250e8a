#include "ops/context.hpp"

#include <omp.h>

#include <oneapi/dnnl/dnnl.h>

#include <string>

#include "base/check.hpp"

namespace sluice::ops {

Context make_cpu_context(int threads) {
  SLUICE_CHECK(threads >= 1, "an op runs on at least one thread, not on ", threads);
  return {Backend::kCpu, device::detect_isa(), threads};
}

int most_threads() {
  return omp_get_thread_limit();
}

const char* library_versions() {
  static const std::string kText = [] {
    const dnnl_version_t* version = dnnl_version();
    return cat("onednn ", version->major, '.', version->minor, '.', version->patch);
  }();
  return kText.c_str();
}

}  // namespace sluice::ops

#include "spec/plan.hpp"

#include "base/check.hpp"

namespace sluice::spec {

std::string_view name_of(Tier tier) {
  switch (tier) {
    case Tier::kDevice:
      return "device";
    case Tier::kHost:
      return "host";
    case Tier::kDisk:
      return "disk";
  }
  SLUICE_CHECK(false, "a tier without a name");
}

std::string describe(const ArithmeticSignature& signature) {
  const auto axis = [](const char* name, std::int64_t size) { return size == 1 ? std::string() : cat(" x ", name, " ", size); };
  const MeshSpec& mesh = signature.mesh;
  return cat("dp ", mesh.data, axis("pp", mesh.pipeline), axis("tp", mesh.tensor), axis("sp", mesh.sequence), " x micro ",
             signature.micro_batch, " x accum ", signature.accumulation, ", reduce per ", signature.reduce_point, ", ", signature.dtypes,
             ", ", signature.isa, ", ", signature.threads, signature.threads == 1 ? " thread, " : " threads, ", signature.libraries);
}

std::vector<std::string> differences(const ArithmeticSignature& here, const ArithmeticSignature& there) {
  std::vector<std::string> found;
  const auto compare = [&](const char* name, const auto& a, const auto& b) {
    if (a != b) found.push_back(cat(name, ": ", a, " here, ", b, " there"));
  };
  compare("mesh.data", here.mesh.data, there.mesh.data);
  compare("mesh.pipeline", here.mesh.pipeline, there.mesh.pipeline);
  compare("mesh.tensor", here.mesh.tensor, there.mesh.tensor);
  compare("mesh.sequence", here.mesh.sequence, there.mesh.sequence);
  compare("micro_batch", here.micro_batch, there.micro_batch);
  compare("accumulation", here.accumulation, there.accumulation);
  compare("reduce_point", here.reduce_point, there.reduce_point);
  compare("dtypes", here.dtypes, there.dtypes);
  compare("isa", here.isa, there.isa);
  compare("threads", here.threads, there.threads);
  compare("libraries", here.libraries, there.libraries);
  return found;
}

}  // namespace sluice::spec

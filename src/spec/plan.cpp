#include "spec/plan.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace sluice::spec {

bool Plan::uses_tier(Tier tier) const {
  if (tier == Tier::kDevice) return true;
  const Activation swapped = tier == Tier::kHost ? Activation::kHost : Activation::kDisk;
  return std::find(activations.begin(), activations.end(), swapped) != activations.end() ||
         std::any_of(homes.begin(), homes.end(),
                     [tier](const ChunkHomes& home) { return home.working == tier || home.gradient == tier || home.states == tier; });
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

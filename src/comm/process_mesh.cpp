#include "comm/process_mesh.hpp"

#include "base/check.hpp"
#include "base/error.hpp"
#include "base/text.hpp"

namespace sluice::comm {
namespace {

void check_mesh(const spec::MeshSpec& mesh, int world_size) {
  const std::string shape =
      cat("data ", mesh.data, " x pipeline ", mesh.pipeline, " x tensor ", mesh.tensor, " x sequence ", mesh.sequence);
  if (mesh.data < 1 || mesh.pipeline < 1 || mesh.tensor < 1 || mesh.sequence < 1) {
    throw RequestError(cat("mesh: ", shape, ": every axis must be at least 1"));
  }
  if (mesh.ranks() != world_size) {
    throw RequestError(cat("mesh: ", shape, " needs ", mesh.ranks(), mesh.ranks() == 1 ? " rank, " : " ranks, ", world_size,
                           world_size == 1 ? " was" : " were", " started; start ", mesh.ranks(), " or change the mesh"));
  }
}

std::int64_t rank_of(const spec::MeshSpec& mesh, const Coordinates& at) {
  return ((at.data * mesh.pipeline + at.pipeline) * mesh.tensor + at.tensor) * mesh.sequence + at.sequence;
}

std::int64_t& coordinate(Coordinates& at, Axis axis) {
  switch (axis) {
    case Axis::kData:
      return at.data;
    case Axis::kPipeline:
      return at.pipeline;
    case Axis::kTensor:
      return at.tensor;
    case Axis::kSequence:
      break;
  }
  return at.sequence;
}

}  // namespace

Coordinates coordinates_of(const spec::MeshSpec& mesh, std::int64_t rank) {
  SLUICE_CHECK(rank >= 0 && rank < mesh.ranks(), "rank ", rank, " of a mesh of ", mesh.ranks());
  Coordinates at{};
  at.sequence = rank % mesh.sequence;
  rank /= mesh.sequence;
  at.tensor = rank % mesh.tensor;
  rank /= mesh.tensor;
  at.pipeline = rank % mesh.pipeline;
  at.data = rank / mesh.pipeline;
  return at;
}

ProcessMesh::ProcessMesh(Communicator& world, const spec::MeshSpec& mesh) : world_(world), spec_(mesh), here_{} {
  check_mesh(mesh, world.size());
  here_ = coordinates_of(mesh, world.rank());
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    // The group's colour is the world rank of its first member.
    Coordinates first = here_;
    std::int64_t& along = coordinate(first, static_cast<Axis>(i));
    const auto key = static_cast<int>(along);
    along = 0;
    groups_[i] = world.split(static_cast<int>(rank_of(mesh, first)), key);
  }
}

Communicator& ProcessMesh::group(Axis axis) const {
  return *groups_[static_cast<std::size_t>(axis)];
}

}  // namespace sluice::comm

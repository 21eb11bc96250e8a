#pragma once
// Where a rank sits on the axes of the mesh, and the groups that run along each axis.

#include <array>
#include <cstdint>
#include <memory>

#include "comm/communicator.hpp"
#include "spec/training_spec.hpp"

namespace sluice::comm {

enum class Axis : std::uint8_t { kData, kPipeline, kTensor, kSequence };

/// Coordinates of world rank `rank`: data outermost, then pipeline, tensor, sequence.
struct Coordinates {
  std::int64_t data, pipeline, tensor, sequence;
  friend bool operator==(const Coordinates&, const Coordinates&) = default;
};
Coordinates coordinates_of(const spec::MeshSpec& mesh, std::int64_t rank);

/// Owns one communicator per axis, of one rank where the axis is 1; borrows the world, which must outlive it.
class ProcessMesh {
 public:
  /// Collective. Throws RequestError when mesh.ranks() differs from the world's size, with both numbers.
  ProcessMesh(Communicator& world, const spec::MeshSpec& mesh);
  Communicator& world() const noexcept { return world_; }
  const spec::MeshSpec& spec() const noexcept { return spec_; }
  const Coordinates& here() const noexcept { return here_; }
  /// This rank's group along `axis`; a group of one where the axis is 1.
  Communicator& group(Axis axis) const;

 private:
  Communicator& world_;
  spec::MeshSpec spec_;
  Coordinates here_;
  std::array<std::unique_ptr<Communicator>, 4> groups_;
};

}  // namespace sluice::comm

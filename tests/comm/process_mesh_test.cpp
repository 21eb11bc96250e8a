#include "comm/process_mesh.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.hpp"
#include "comm/local/local_communicator.hpp"

namespace sluice::comm {
namespace {

spec::MeshSpec mesh_of(std::int64_t data, std::int64_t pipeline, std::int64_t tensor, std::int64_t sequence) {
  spec::MeshSpec mesh;
  mesh.data = data;
  mesh.pipeline = pipeline;
  mesh.tensor = tensor;
  mesh.sequence = sequence;
  return mesh;
}

TEST(ProcessMesh, CoordinatesRunSequenceFirstAndDataLast) {
  const spec::MeshSpec mesh = mesh_of(2, 3, 2, 2);
  EXPECT_EQ(coordinates_of(mesh, 0), (Coordinates{0, 0, 0, 0}));
  EXPECT_EQ(coordinates_of(mesh, 1), (Coordinates{0, 0, 0, 1}));
  EXPECT_EQ(coordinates_of(mesh, 2), (Coordinates{0, 0, 1, 0}));
  EXPECT_EQ(coordinates_of(mesh, 4), (Coordinates{0, 1, 0, 0}));
  EXPECT_EQ(coordinates_of(mesh, 12), (Coordinates{1, 0, 0, 0}));
  EXPECT_EQ(coordinates_of(mesh, 23), (Coordinates{1, 2, 1, 1}));
  std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>> seen;
  for (std::int64_t r = 0; r < mesh.ranks(); ++r) {
    const Coordinates at = coordinates_of(mesh, r);
    seen.insert({at.data, at.pipeline, at.tensor, at.sequence});
  }
  EXPECT_EQ(seen.size(), 24u);
  EXPECT_THROW(coordinates_of(mesh, 24), LogicError);
}

TEST(ProcessMesh, GroupsRunAlongTheirAxis) {
  const spec::MeshSpec mesh = mesh_of(2, 2, 1, 2);
  run_local_ranks(8, [&](Communicator& world) {
    const ProcessMesh process_mesh(world, mesh);
    EXPECT_EQ(&process_mesh.world(), &world);
    EXPECT_EQ(process_mesh.spec(), mesh);
    const int rank = world.rank();
    EXPECT_EQ(process_mesh.here(), coordinates_of(mesh, rank));
    const auto members = [&](Axis axis) { return process_mesh.group(axis).all_gather(std::to_string(rank)); };
    using Members = std::vector<std::string>;
    const int data_first = rank % 4;
    EXPECT_EQ(members(Axis::kData), (Members{std::to_string(data_first), std::to_string(data_first + 4)}));
    const int pipeline_first = rank / 4 * 4 + rank % 2;
    EXPECT_EQ(members(Axis::kPipeline), (Members{std::to_string(pipeline_first), std::to_string(pipeline_first + 2)}));
    EXPECT_EQ(members(Axis::kTensor), Members{std::to_string(rank)});
    EXPECT_EQ(members(Axis::kSequence), (Members{std::to_string(rank / 2 * 2), std::to_string(rank / 2 * 2 + 1)}));
    EXPECT_EQ(process_mesh.group(Axis::kData).rank(), process_mesh.here().data);
    EXPECT_EQ(process_mesh.group(Axis::kPipeline).rank(), process_mesh.here().pipeline);
    EXPECT_EQ(process_mesh.group(Axis::kSequence).rank(), process_mesh.here().sequence);
  });
}

TEST(ProcessMesh, RefusesAnotherNumberOfRanks) {
  run_local_ranks(2, [](Communicator& world) {
    try {
      const ProcessMesh process_mesh(world, mesh_of(2, 2, 1, 1));
      ADD_FAILURE() << "accepted";
    } catch (const RequestError& error) {
      EXPECT_STREQ(error.what(),
                   "mesh: data 2 x pipeline 2 x tensor 1 x sequence 1 needs 4 ranks, 2 were started; start 4 or change the mesh");
    }
    EXPECT_THROW(ProcessMesh(world, mesh_of(-1, -2, 1, 1)), RequestError);
  });
}

}  // namespace
}  // namespace sluice::comm

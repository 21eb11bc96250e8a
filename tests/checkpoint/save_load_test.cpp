#include <fcntl.h>
#include <gmock/gmock.h>
#include <hdf5.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/half.hpp"
#include "base/input_file.hpp"
#include "checkpoint/hdf5.hpp"
#include "checkpoint/sample_state.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace sluice::checkpoint {
namespace {

using sample::Layout;
using sample::SampleState;
using sluice::testing::expect_error;
using sluice::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Layout kLayouts[] = {Layout::kIntervals, Layout::kColumns, Layout::kWhole, Layout::kMixed};

class SaveLoad : public ::testing::TestWithParam<int> {};

TEST_P(SaveLoad, AnyLayoutOnAnyRanksGivesTheSameNumbers) {
  const TempDir dir;
  std::int64_t step = 10;
  for (const Layout from : kLayouts) {
    const CommitResult saved = sample::save_sample(dir.path(), ++step, 5, GetParam(), from);
    ASSERT_TRUE(saved.ok) << saved.reason;
    EXPECT_TRUE(saved.warnings.empty());
    const Verification verification = verify_checkpoint(saved.path, true);
    EXPECT_TRUE(verification.whole()) << describe(verification);
    EXPECT_GT(verification.bytes_read, 0);
    for (int loading = 1; loading <= 4; ++loading) {
      for (const Layout to : kLayouts) EXPECT_EQ(sample::load_differences(saved.path, 5, loading, to), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, SaveLoad, ::testing::Values(1, 2, 3, 4));

TEST(Save, DirectoryAndManifestAreAsSpecified) {
  const TempDir dir;
  const std::string checkpoints = dir / "run/checkpoints";  // made where missing
  const CommitResult saved = sample::save_sample(checkpoints, 50, 1, 2);
  ASSERT_TRUE(saved.ok) << saved.reason;
  EXPECT_EQ(saved.path, checkpoints + "/step-00000050");
  EXPECT_EQ(saved.step, 50);
  EXPECT_THAT(names_in(checkpoints), ElementsAre("latest", "step-00000050"));
  EXPECT_THAT(names_in(saved.path), ElementsAre("manifest.json", "model.h5", "rank-00000.h5", "rank-00001.h5"));
  EXPECT_EQ(read_text(checkpoints + "/latest"), "step-00000050\n");
  const Manifest manifest = read_manifest(saved.path);
  EXPECT_EQ(manifest.progress, sample::sample_progress(50));
  EXPECT_EQ(manifest.params, sample::sample_params());
  EXPECT_EQ(manifest.documents.model, R"({"layers":2,"eps":1e-05})");
  EXPECT_EQ(manifest.documents.training, R"({"lr":0.00030000000000000003})");
  EXPECT_EQ(manifest.documents.fingerprint, R"(["a","b"])");
  EXPECT_EQ(manifest.writer, "sluice test");
  EXPECT_EQ(saved.bytes, manifest.bytes());
}

TEST(Save, TheSameStateGivesTheSameShards) {
  const TempDir dir;
  const CommitResult a = sample::save_sample(dir / "a", 7, 1), b = sample::save_sample(dir / "b", 7, 1);
  const Manifest first = read_manifest(a.path), second = read_manifest(b.path);
  EXPECT_NE(first.save_id, second.save_id);
  std::string x = read_text(a.path + "/rank-00000.h5"), y = read_text(b.path + "/rank-00000.h5");
  for (std::size_t at; (at = x.find(first.save_id)) != std::string::npos;) x.replace(at, first.save_id.size(), second.save_id);
  // Only the identity, and the checksums that HDF5 keeps of the object headers that hold it, may differ.
  ASSERT_EQ(x.size(), y.size());
  std::size_t differing = 0;
  for (std::size_t i = 0; i < x.size(); ++i) differing += x[i] != y[i];
  EXPECT_LE(differing, 8U);
}

TEST(Save, PiecesMayBeWrittenInAnyOrderByOtherThreads) {
  const TempDir dir;
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    SampleState state(Layout::kIntervals, 2, world.rank());
    state.fill(9);
    CheckpointSave save(world, dir.path(), sample::sample_progress(3), sample::sample_documents(), state.params, state.pieces,
                        sample::sample_options());
    ASSERT_EQ(save.pieces(), state.pieces.size());
    std::thread odd([&] {
      for (std::size_t i = 1; i < save.pieces(); i += 2) save.write(i, state.pieces[i].data);
    });
    for (std::size_t i = (save.pieces() + 1) / 2; i-- > 0;) save.write(2 * i, state.pieces[2 * i].data);
    odd.join();
    save.finish();
    EXPECT_TRUE(save.commit().ok);
  });
  EXPECT_EQ(sample::load_differences(dir / "step-00000003", 9, 1, Layout::kWhole), 0);
}

TEST(Save, WrongCallsAreDefectsOnAllRanks) {
  const TempDir dir;
  const auto save_with = [&](const std::function<void(int, SampleState&, Progress&)>& change) {
    comm::run_local_ranks(2, [&](comm::Communicator& world) {
      SampleState state(Layout::kIntervals, 2, world.rank());
      Progress progress = sample::sample_progress(3);
      change(world.rank(), state, progress);
      save_checkpoint(world, dir.path(), progress, sample::sample_documents(), state.params, state.pieces, sample::sample_options());
    });
  };
  expect_error<LogicError>([&] { save_with([](int rank, SampleState&, Progress& progress) { progress.samples += rank; }); },
                           {"rank 1 saves another state"});
  expect_error<LogicError>(
      [&] {
        save_with([](int rank, SampleState& state, Progress&) {
          if (rank == 1) state.pieces.erase(state.pieces.begin());
        });
      },
      {"plane working of parameter wte.weight: the ranks hold", "it has 703"});
  expect_error<LogicError>(
      [&] {
        save_with([](int rank, SampleState& state, Progress&) {
          if (rank == 1) state.pieces[0].plane = "velocity";
        });
      },
      {"rank 1: plane \"velocity\" is unknown"});
  // The right counts, but an element twice: found by the exact cover before the manifest is written.
  expect_error<LogicError>(
      [&] {
        save_with([](int rank, SampleState& state, Progress&) {
          if (rank == 1) state.pieces[1].region.flat_begin -= 1;
        });
      },
      {"parameter wte.weight", "is held twice"});
  EXPECT_THAT(list_checkpoints(dir.path()), ::testing::Each(::testing::Field(&Entry::state, State::kIncomplete)));
}

TEST(Save, APieceNotWrittenIsADefectOnAllRanks) {
  const TempDir dir;
  int told = 0;
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    SampleState state(Layout::kIntervals, 2, world.rank());
    CheckpointSave save(world, dir.path(), sample::sample_progress(3), sample::sample_documents(), state.params, state.pieces,
                        sample::sample_options());
    for (std::size_t i = static_cast<std::size_t>(world.rank()); i < save.pieces(); ++i)  // rank 1 leaves one out
      save.write(i, state.pieces[i].data);
    expect_error<LogicError>([&] { save.commit(); }, {"rank 1", "piece 0 has not been written"});
    world.barrier();
    if (world.rank() == 0) ++told;
  });
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(names_in(dir.path()).empty());
}

TEST(Save, AnEarlierCheckpointOfTheSameStepIsReplaced) {
  const TempDir dir;
  ASSERT_TRUE(sample::save_sample(dir.path(), 4, 1).ok);
  const CommitResult again = sample::save_sample(dir.path(), 4, 2, 3);
  ASSERT_TRUE(again.ok) << again.reason;
  EXPECT_THAT(names_in(dir.path()), ElementsAre("latest", "step-00000004"));
  EXPECT_EQ(read_manifest(again.path).shards.size(), 3U);
  EXPECT_EQ(sample::load_differences(again.path, 2, 1, Layout::kWhole), 0);
}

TEST(Save, ReadsBackFromTheDiskWhenAsked) {
  const TempDir dir;
  SaveOptions options = sample::sample_options();
  options.read_back = true;
  EXPECT_TRUE(sample::save_sample(dir.path(), 4, 1, 2, Layout::kMixed, options).ok);
  // A shard that changes between its fsync and the reading is refused, and the save with it.
  options.hook = [&](const char* point) {
    if (std::string(point) != "after_shard_fsync") return;
    for (const std::string& name : names_in(dir.path())) {
      if (name.find(".tmp.") == std::string::npos) continue;
      const std::string path = dir / name + "/rank-00001.h5";
      if (!exists(path)) continue;
      const std::string bytes = read_text(path);
      File(path, O_RDWR).write_at("\x7f", 1, static_cast<std::int64_t>(bytes.size()) - 5);
    }
  };
  const CommitResult refused = sample::save_sample(dir.path(), 5, 1, 2, Layout::kMixed, options);
  EXPECT_FALSE(refused.ok);
  EXPECT_THAT(refused.reason, HasSubstr("read back from the disk"));
  EXPECT_FALSE(exists(dir / "step-00000005"));
}

TEST(Save, KeepsTheNewestAndNeverRemovesTheOneJustSaved) {
  const TempDir dir;
  SaveOptions options = sample::sample_options();
  options.keep = 2;
  for (const int step : {10, 20, 30}) ASSERT_TRUE(sample::save_sample(dir.path(), step, 1, 1, Layout::kWhole, options).ok);
  EXPECT_THAT(names_in(dir.path()), ElementsAre("latest", "step-00000020", "step-00000030"));
  // After a resume from an older one, by step numbers the new one isn't among the newest two.
  const CommitResult saved = sample::save_sample(dir.path(), 15, 1, 1, Layout::kWhole, options);
  EXPECT_TRUE(saved.removed.empty());
  EXPECT_THAT(names_in(dir.path()), ElementsAre("latest", "step-00000015", "step-00000020", "step-00000030"));
  const CommitResult next = sample::save_sample(dir.path(), 40, 1, 1, Layout::kWhole, options);
  EXPECT_THAT(next.removed, ElementsAre(dir / "step-00000015", dir / "step-00000020"));
  EXPECT_THAT(names_in(dir.path()), ElementsAre("latest", "step-00000030", "step-00000040"));
}

TEST(Load, ReadsOnlyTheBlocksItNeeds) {
  const TempDir dir;
  const CommitResult saved = sample::save_sample(dir.path(), 5, 3, 2);
  const auto world = comm::make_single_rank();
  const auto params = sample::sample_params();
  const Manifest manifest = read_manifest(saved.path);
  // Elements 500 to 519 of the embedding lie in rank 1's shard: another shard's absence isn't noticed, its own is.
  std::vector<float> part(20);
  Piece piece;
  piece.plane = "working";
  piece.region = flat_region(params, 0, 500, 20);
  piece.data = part.data();
  std::filesystem::remove(saved.path + "/rank-00000.h5");
  load_checkpoint(*world, saved.path, params, {piece});
  for (std::int64_t i = 0; i < 20; ++i) EXPECT_EQ(part[static_cast<std::size_t>(i)], sample::sample_value(0, 0, 500 + i, 3));
  // A damaged block that nobody asks for isn't noticed either; one that is asked for is named.
  const StoredPlane& plane = manifest.shards[1].planes[0];
  File(saved.path + "/rank-00001.h5", O_RDWR).write_at("\xff", 1, plane.offset + plane.elements * 4 - 2);
  load_checkpoint(*world, saved.path, params, {piece});
  piece.region = flat_region(params, 5, 3 * 211 - 4, 4);
  expect_error<Error>([&] { load_checkpoint(*world, saved.path, params, {piece}); },
                      {"rank-00001.h5: plane working of parameter wide.weight, elements", "checksum", "expected"});
  piece.region = flat_region(params, 0, 0, 1);
  expect_error<Error>([&] { load_checkpoint(*world, saved.path, params, {piece}); }, {"rank-00000.h5: is missing, expected a shard of"});
}

TEST(Load, RoundsIntoPiecesOf16BitsAndSavingWidensThem) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const TempDir dir;
    const auto world = comm::make_single_rank();
    const auto params = sample::sample_params();
    // Numbers of which 16 bits keep a part, in blocks of 64 bytes and pieces that begin within them.
    const auto value = [](std::int64_t i) { return static_cast<float>(i) * 1.001F - 200.0F; };
    const auto rounded = [&](std::int64_t i) { return dtype == DType::kBF16 ? bf16_from_f32(value(i)) : f16_from_f32(value(i)); };
    const auto widened = [&](std::uint16_t bits) { return dtype == DType::kBF16 ? f32_from_bf16(bits) : f32_from_f16(bits); };
    std::vector<Piece> pieces;
    std::vector<std::vector<float>> wide;
    std::vector<std::vector<std::uint16_t>> narrow;
    for (int p = 0; p < static_cast<int>(params.size()); ++p) {
      const std::int64_t elements = params[static_cast<std::size_t>(p)].elements();
      wide.emplace_back();
      narrow.emplace_back();
      for (std::int64_t i = 0; i < elements; ++i) {
        wide.back().push_back(value(i));
        narrow.back().push_back(rounded(i));
      }
      // The frozen one stands in 16 bits; the others are saved from f32.
      const bool is_narrow = p == sample::kFrozen;
      pieces.push_back({"working", whole_region(params, p), is_narrow ? static_cast<void*>(narrow.back().data()) : wide.back().data(),
                        is_narrow ? dtype : DType::kF32});
    }
    for (const char* plane : {"exp_avg", "exp_avg_sq"}) {
      for (int p = 0; p < static_cast<int>(params.size()); ++p) {
        if (p != sample::kFrozen) pieces.push_back({plane, whole_region(params, p), wide[static_cast<std::size_t>(p)].data()});
      }
    }
    SaveOptions options;
    options.block_bytes = 64;
    const CommitResult saved = save_checkpoint(*world, dir.path(), sample::sample_progress(7), {}, params, pieces, options);
    ASSERT_TRUE(saved.ok) << saved.reason;
    EXPECT_TRUE(verify_checkpoint(saved.path, true).whole());
    for (int p = 0; p < static_cast<int>(params.size()); ++p) {
      const std::int64_t elements = params[static_cast<std::size_t>(p)].elements(), begin = elements / 5, count = elements - begin;
      std::vector<std::uint16_t> bits(static_cast<std::size_t>(count), 0xFFFF);
      std::vector<float> exact(static_cast<std::size_t>(count));
      load_checkpoint(*world, saved.path, params,
                      {{"working", flat_region(params, p, begin, count), bits.data(), dtype},
                       {"working", flat_region(params, p, begin, count), exact.data()}});
      for (std::int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(bits[static_cast<std::size_t>(i)], rounded(begin + i)) << p << " " << i;
        ASSERT_EQ(exact[static_cast<std::size_t>(i)], p == sample::kFrozen ? widened(rounded(begin + i)) : value(begin + i))
            << p << " " << i;
      }
    }
  }
}

TEST(Load, AnotherModelIsRefusedByName) {
  const TempDir dir;
  const CommitResult saved = sample::save_sample(dir.path(), 5, 3, 1);
  const auto world = comm::make_single_rank();
  auto params = sample::sample_params();
  params[2].shape = {24};
  expect_error<RequestError>([&] { load_checkpoint(*world, saved.path, params, std::vector<Piece>{}); },
                             {"holds another model", "h.0.attn.bias [23]", "h.0.attn.bias [24]"});
  params = sample::sample_params();
  params.pop_back();
  expect_error<RequestError>([&] { load_checkpoint(*world, saved.path, params, std::vector<Piece>{}); },
                             {"holds another model: 6 parameters, this run has 5"});
}

/// Chunk by chunk as an engine reads whose states stand on disk: any pieces in any calls.
TEST(Load, InManyCalls) {
  const TempDir dir;
  const CommitResult saved = sample::save_sample(dir.path(), 5, 3, 3, Layout::kMixed);
  for (const std::size_t at_once : {1U, 2U, 5U}) {
    comm::run_local_ranks(2, [&](comm::Communicator& world) {
      SampleState state(Layout::kColumns, 2, world.rank());
      load_checkpoint(world, saved.path, state.params, [&](PieceReader& reader) {
        std::vector<Piece> batch;
        for (std::size_t i = state.pieces.size(); i-- > 0;) {
          batch.push_back(state.pieces[i]);
          if (batch.size() < at_once && i > 0) continue;
          reader.read(batch);
          batch.clear();
        }
      });
      EXPECT_EQ(state.differences(3), 0) << at_once << " at once";
    });
  }
}

TEST(Load, WhatAReadersOwnerThrowsIsEveryRanksError) {
  const TempDir dir;
  const CommitResult saved = sample::save_sample(dir.path(), 5, 3, 2);
  std::atomic<int> told{0};
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    SampleState state(Layout::kIntervals, 2, world.rank());
    const auto fill = [&](PieceReader& reader) {
      reader.read(state.pieces);
      if (world.rank() == 1) throw IoError("write", "rank-00001.swap", 5);
    };
    expect_error<Error>([&] { load_checkpoint(world, saved.path, state.params, fill); }, {"rank-00001.swap"});
    ++told;
    world.barrier();
  });
  EXPECT_EQ(told, 2);
}

TEST(Load, MomentsOfAFrozenParameterAreNotInvented) {
  const TempDir dir;
  const CommitResult saved = sample::save_sample(dir.path(), 5, 3, 1);
  const auto world = comm::make_single_rank();
  const auto params = sample::sample_params();
  std::vector<float> moments(40);
  const Piece piece{"exp_avg", whole_region(params, sample::kFrozen), moments.data()};
  expect_error<RequestError>([&] { load_checkpoint(*world, saved.path, params, {piece}); },
                             {"holds 0 of 40 wanted elements of plane exp_avg of parameter frozen.weight"});
}

TEST(Load, OneRanksDamageIsEveryRanksError) {
  const TempDir dir;
  const CommitResult saved = sample::save_sample(dir.path(), 5, 3, 2);
  File(saved.path + "/rank-00001.h5", O_RDWR).write_at("\xff\xff\xff", 3, read_manifest(saved.path).shards[1].planes[0].offset + 40);
  std::atomic<int> told{0};
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    SampleState state(Layout::kIntervals, 2, world.rank());
    try {
      load_checkpoint(world, saved.path, state.params, state.pieces);
      ADD_FAILURE() << "no error on rank " << world.rank();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kFormat);
      EXPECT_THAT(error.what(), HasSubstr("rank-00001.h5: plane working of parameter wte.weight"));
      ++told;
    }
    world.barrier();
  });
  EXPECT_EQ(told, 2);
}

// What other programs see, through the HDF5 library.
std::vector<float> read_dataset(const std::string& path, const std::string& name, std::vector<std::int64_t>& shape) {
  const Hdf5Section section;
  const Hdf5Handle file = open_hdf5(path);
  const Hdf5Handle dataset(H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose, name);
  const Hdf5Handle space(H5Dget_space(dataset), H5Sclose, name);
  std::vector<hsize_t> extent(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space)));
  H5Sget_simple_extent_dims(space, extent.data(), nullptr);
  shape.assign(extent.begin(), extent.end());
  std::vector<float> values(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
  check_hdf5(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), name);
  return values;
}

TEST(Index, ShowsWholeTensorsOfEveryLayout) {
  const TempDir dir;
  const auto params = sample::sample_params();
  for (const int ranks : {1, 3, 4}) {
    for (const Layout layout : kLayouts) {
      const CommitResult saved = sample::save_sample(dir.path(), 5, 3, ranks, layout);
      ASSERT_TRUE(saved.ok);
      const std::string groups[] = {"params/", "exp_avg/", "exp_avg_sq/"};
      for (int plane = 0; plane < kPlaneCount; ++plane) {
        for (int p = 0; p < static_cast<int>(params.size()); ++p) {
          if (plane > 0 && p == sample::kFrozen) continue;
          std::vector<std::int64_t> shape;
          const std::vector<float> values = read_dataset(saved.path + "/model.h5", groups[plane] + params[p].name, shape);
          EXPECT_EQ(shape, params[p].shape.empty() ? std::vector<std::int64_t>{1} : params[p].shape);
          ASSERT_EQ(static_cast<std::int64_t>(values.size()), params[p].elements());
          for (std::size_t i = 0; i < values.size(); ++i)
            ASSERT_EQ(values[i], sample::sample_value(plane, p, static_cast<std::int64_t>(i), 3));
        }
      }
    }
  }
}

TEST(Index, PartsOfTensorsAreRightToo) {
  const TempDir dir;
  const CommitResult saved = sample::save_sample(dir.path(), 5, 3, 3);
  const Hdf5Section section;
  const Hdf5Handle file = open_hdf5(saved.path + "/model.h5");
  const Hdf5Handle dataset(H5Dopen2(file, "exp_avg/wte.weight", H5P_DEFAULT), H5Dclose, "wte");
  const Hdf5Handle space(H5Dget_space(dataset), H5Sclose, "wte");
  const hsize_t offset[2] = {9, 4}, extent[2] = {20, 7};
  check_hdf5(H5Sselect_hyperslab(space, H5S_SELECT_SET, offset, nullptr, extent, nullptr), "wte");
  const Hdf5Handle memory(H5Screate_simple(2, extent, nullptr), H5Sclose, "wte");
  std::vector<float> values(140);
  check_hdf5(H5Dread(dataset, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, values.data()), "wte");
  for (std::int64_t i = 0; i < 140; ++i) {
    EXPECT_EQ(values[static_cast<std::size_t>(i)], sample::sample_value(1, 0, (9 + i / 7) * 19 + 4 + i % 7, 3));
  }
}

TEST(Index, LoadingNeverLooksAtIt) {
  const TempDir dir;
  const CommitResult saved = sample::save_sample(dir.path(), 5, 3);
  std::ofstream(saved.path + "/model.h5") << "not HDF5 at all";
  EXPECT_EQ(sample::load_differences(saved.path, 3, 2, Layout::kColumns), 0);
  const Verification verification = verify_checkpoint(saved.path, true);
  EXPECT_TRUE(verification.whole());
  ASSERT_EQ(verification.notes.size(), 1U);
  EXPECT_THAT(verification.notes[0], HasSubstr("model.h5 has 15 bytes"));
}

TEST(Shard, IsAnHdf5FileWithItsPlanesAndItsMap) {
  const TempDir dir;
  const CommitResult saved = sample::save_sample(dir.path(), 5, 3, 2);
  const Manifest manifest = read_manifest(saved.path);
  for (const ShardInfo& shard : manifest.shards) {
    const std::string path = saved.path + "/" + shard.file;
    for (const StoredPlane& plane : shard.planes) {
      std::vector<std::int64_t> shape;
      const std::vector<float> values = read_dataset(path, "planes/" + std::string(kPlaneNames[plane.plane]), shape);
      std::size_t at = 0;
      for (const Region& region : plane.pieces) {
        for (std::int64_t e = 0; e < region.elements; ++e) {
          ASSERT_EQ(values[at++], sample::sample_value(plane.plane, region.param, region.flat_begin + e, 3));
        }
      }
      EXPECT_EQ(at, values.size());
    }
    const Hdf5Section section;
    const Hdf5Handle file = open_hdf5(path);
    EXPECT_EQ(read_integer_attribute(file, "step"), 5);
    EXPECT_EQ(read_integer_attribute(file, "rank"), shard.rank);
    EXPECT_EQ(read_text_attribute(file, "save_id"), manifest.save_id);
    ShardIdentity identity;
    EXPECT_TRUE(find_identity(read_text(path), identity));
    EXPECT_EQ(identity.rank, shard.rank);
    EXPECT_EQ(identity.ranks, 2);
    EXPECT_EQ(identity.save_id, manifest.save_id);
  }
}

}  // namespace
}  // namespace sluice::checkpoint

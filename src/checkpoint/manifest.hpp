#pragma once
// manifest.json: what a checkpoint is, written last. Everything a reader believes about the shards stands here; the format is
// specified in checkpoints/FORMAT.md.

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/state.hpp"

namespace sluice::checkpoint {

inline constexpr int kFormatVersion = 1;
inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kIndexName = "model.h5";
inline constexpr std::int64_t kElementBytes = 4;  // version 1 stores f32

/// One plane of one shard: its pieces lie one after the other, without gaps, from byte `offset` of the file.
struct StoredPlane {
  int plane = 0;                      // index into kPlaneNames
  std::int64_t offset = 0;            // byte in the file
  std::int64_t elements = 0;          // sum over the pieces
  std::int64_t checksums_offset = 0;  // byte of the first block checksum
  std::int64_t blocks = 0;            // sum over the pieces of ceil(bytes / block_bytes)
  std::vector<Region> pieces;         // none is empty
};

struct ShardInfo {
  std::string file;
  int rank = 0;
  std::int64_t bytes = 0;
  std::string structure;  // XXH64 of all bytes outside the planes, in file order
  std::vector<StoredPlane> planes;
};

struct Manifest {
  int version = kFormatVersion;
  std::string save_id;       // unique to one save: tells its shards from another's
  std::string writer;        // "sluice 0.1.0"
  std::int64_t created = 0;  // seconds since 1970
  Progress progress;
  Documents documents;
  std::int64_t block_bytes = 0;
  std::vector<ParamInfo> params;
  std::vector<ShardInfo> shards;
  std::int64_t index_bytes = 0;  // of model.h5, for verifying it
  std::string index_checksum;    // XXH64 of its bytes
  std::int64_t bytes() const;    // of all shards
};

/// The manifest's text, with its own checksum in the first key.
std::string to_json(const Manifest& manifest);
/// Inverse. Throws FormatError naming `source`, what was found and what was expected: not JSON, another checksum, another version, a
/// missing or mistyped key, planes that leave their file, parameters that the pieces don't hold exactly once.
Manifest manifest_from_json(const std::string& text, const std::string& source);

/// One shard's part of a manifest, to be sent between ranks.
std::string to_json(const ShardInfo& shard);
ShardInfo shard_from_json(const std::string& text, const std::string& source);

/// Which save, step and rank a shard belongs to: the first line of its /map text. Found without HDF5, so that a damaged file
/// can be named safely.
struct ShardIdentity {
  std::string save_id;
  std::int64_t step = 0;
  int rank = 0;
  int ranks = 0;
};
/// The text of a shard's /map dataset: its identity, then the parameters and the pieces of each plane.
std::string shard_map_text(const ShardIdentity& identity, const std::vector<ParamInfo>& params, const std::vector<StoredPlane>& planes);
/// The identity in bytes from a shard; false when there is none.
bool find_identity(const std::string& bytes, ShardIdentity& identity);

/// What is wrong with how the shards' pieces hold the parameters of `params`, or empty: each element of "working" once; a parameter
/// that has any moment has those that any parameter has, each element once, and none has "exp_avg_sq" alone.
std::string shards_fault(const std::vector<ParamInfo>& params, const std::vector<ShardInfo>& shards);

/// "rank-00002.h5".
std::string shard_name(int rank);
/// "step-00000050".
std::string step_name(std::int64_t step);
/// The step of a committed directory's name, or -1 for any other name.
std::int64_t step_of_name(const std::string& name);
/// Blocks that `elements` elements have.
std::int64_t blocks_of(std::int64_t elements, std::int64_t block_bytes);

}  // namespace sluice::checkpoint

#pragma once
// One rank's file of a checkpoint. HDF5 lays it out, with every dataset's bytes allocated, and is closed again; the bulk then goes
// to the datasets' places by checked writes, since HDF5 reports success after losing data. Reading trusts only checksums.

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "checkpoint/geometry.hpp"
#include "checkpoint/manifest.hpp"

namespace sluice::checkpoint {

inline constexpr std::int64_t kBlockBytes = 1 << 20;  // what one checksum guards; small against a tensor, large against 8 bytes

/// Bytes of a shard that holds `pieces`, from above: bulk, checksums, map text and HDF5's own.
std::int64_t shard_bytes_bound(const std::vector<ParamInfo>& params, const std::vector<Piece>& pieces, std::int64_t block_bytes);

/// Writes a shard piece by piece. Throws IoError or EnvironmentError; after a throw the file is worthless.
class ShardWriter {
 public:
  /// Creates `directory`/rank-xxxxx.h5, which must not exist, and takes all its disk space. Of the pieces everything counts but `data`.
  /// Waits up to some seconds for a directory that another host has just made.
  ShardWriter(const std::string& directory, const ShardIdentity& identity, const std::vector<ParamInfo>& params, std::vector<Piece> pieces,
              std::int64_t block_bytes);

  /// Writes piece `index` from `data` and computes its checksums. Waits for the write call, not for the disk; `data` isn't read later.
  /// Different pieces may be written by different threads at a time; each exactly once.
  void write(std::size_t index, const void* data);

  /// Writes the checksums, waits until the disk has everything, closes. All pieces must have been written.
  /// `before_sync` runs once all writes are done.
  template <typename Hook>
  ShardInfo finish(const Hook& before_sync) {
    write_checksums();
    before_sync();
    return sync_and_close();
  }

 private:
  struct Place {
    int slot = -1;  // index into info_.planes; -1: the piece is empty
    std::int64_t offset = 0;
    std::int64_t first_block = 0;
  };
  void lay_out(const ShardIdentity& identity, const std::vector<ParamInfo>& params);
  void write_checksums();
  ShardInfo sync_and_close();

  std::string directory_;
  std::vector<Piece> pieces_;
  std::int64_t block_bytes_;
  std::vector<Place> places_;
  std::vector<std::vector<std::uint64_t>> checksums_;  // per plane of info_
  std::vector<std::uint8_t> written_;
  std::atomic<std::int64_t> unwritten_{0};  // bytes since the last write_behind()
  ShardInfo info_;
  File file_;
};

/// Reads a shard that a manifest describes. Every refusal is a FormatError that names the file, what was found and what was expected.
class ShardReader {
 public:
  /// Opens the file; checks its size and the checksum of everything outside its planes. `manifest` must outlive the reader.
  ShardReader(const std::string& directory, const Manifest& manifest, const ShardInfo& shard);

  /// Copies the runs (increasing in source) of piece `index` of `plane`, an element of the shard's planes, to element run.target on
  /// of `target`, rounded to `dtype`; each block that is touched is read once and checked. The last block that was wanted in part is kept
  /// for the next call.
  void read(const StoredPlane& plane, std::size_t index, const std::vector<SharedRun>& runs, void* target, DType dtype);

  /// Reads and checks every block of every plane, and that HDF5 sees the planes where the manifest says they are.
  void check_all();

  std::int64_t bytes_read() const noexcept { return bytes_read_; }

 private:
  struct PiecePlace {
    std::int64_t offset;
    std::int64_t first_block;
  };
  [[noreturn]] void refuse(const std::string& detail) const;
  void read_bytes(void* data, std::int64_t bytes, std::int64_t offset);
  std::string identity_note() const;
  void check_structure();
  void check_block(const StoredPlane& plane, std::size_t index, std::int64_t block, const void* data, std::int64_t bytes) const;

  const Manifest& manifest_;
  const ShardInfo& shard_;
  std::string path_;
  File file_;
  std::vector<std::vector<PiecePlace>> places_;        // per plane of shard_, per piece
  std::vector<std::vector<std::uint64_t>> checksums_;  // per plane of shard_
  std::vector<char> block_;                            // scratch of one block
  /// The block that stands in block_, checked: (plane of shard_, piece, block); -1: none.
  std::array<std::int64_t, 3> held_{-1, -1, -1};
  std::int64_t bytes_read_ = 0;
};

}  // namespace sluice::checkpoint

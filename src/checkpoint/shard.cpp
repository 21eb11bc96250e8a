#include "checkpoint/shard.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/check.hpp"
#include "base/units.hpp"
#include "checkpoint/checksum.hpp"
#include "checkpoint/hdf5.hpp"
#include "ops/convert.hpp"

namespace sluice::checkpoint {
namespace {

// What HDF5 itself takes in a shard with at most three planes: some KiB of headers and alignment; generous.
constexpr std::int64_t kStructureBytes = 64 * kKiB;
// A directory made by one host may be unseen by another for the time of its attribute cache (NFS: 3 to 60 s; commonly few).
constexpr int kDirectoryTries = 50;
constexpr auto kDirectoryPause = std::chrono::milliseconds(200);
// Twice this much may wait in the page cache.
constexpr std::int64_t kWriteBehindBytes = 8 * kMiB;

void wait_for_directory(const std::string& path) {
  for (int i = 0; i < kDirectoryTries && !is_directory(path); ++i) std::this_thread::sleep_for(kDirectoryPause);
  if (!is_directory(path)) throw IoError("waiting for the directory made by rank 0", path, ENOENT);
}

std::string dataset_name(const char* group, int plane) {
  return cat(group, "/", kPlaneNames[plane]);
}

// A contiguous dataset that has its place in the file at once and whose bytes HDF5 never touches.
std::int64_t place_dataset(hid_t file, const std::string& name, hid_t type, std::int64_t elements) {
  const auto extent = static_cast<hsize_t>(elements);
  const Hdf5Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "dataset creation list");
  check_hdf5(H5Pset_layout(creation, H5D_CONTIGUOUS), "choosing the layout");
  check_hdf5(H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY), "choosing the allocation");
  check_hdf5(H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER), "choosing the fill");
  check_hdf5(H5Pset_obj_track_times(creation, false), "choosing the time stamps");
  const Hdf5Handle space(H5Screate_simple(1, &extent, nullptr), H5Sclose, "shape of " + name);
  Hdf5Handle dataset(H5Dcreate2(file, name.c_str(), type, space, H5P_DEFAULT, creation, H5P_DEFAULT), H5Dclose, "creating " + name);
  const haddr_t offset = H5Dget_offset(dataset);
  if (offset == HADDR_UNDEF) throw EnvironmentError(cat("HDF5 gave dataset ", name, " no place in its file"));
  dataset.close();
  return static_cast<std::int64_t>(offset);
}

void write_text_dataset(hid_t file, const std::string& name, const std::string& text) {
  const Hdf5Handle type(H5Tcopy(H5T_C_S1), H5Tclose, name);
  check_hdf5(H5Tset_size(type, text.size()), name);
  check_hdf5(H5Tset_strpad(type, H5T_STR_NULLPAD), name);
  check_hdf5(H5Tset_cset(type, H5T_CSET_UTF8), name);
  const Hdf5Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "dataset creation list");
  check_hdf5(H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY), "choosing the allocation");
  check_hdf5(H5Pset_obj_track_times(creation, false), "choosing the time stamps");
  const Hdf5Handle space(H5Screate(H5S_SCALAR), H5Sclose, name);
  Hdf5Handle dataset(H5Dcreate2(file, name.c_str(), type, space, H5P_DEFAULT, creation, H5P_DEFAULT), H5Dclose, "creating " + name);
  check_hdf5(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()), "writing " + name);
  dataset.close();
}

// What a reopened file says about a dataset's place; empty when it is as expected.
std::string dataset_fault(hid_t file, const std::string& name, std::int64_t elements, std::int64_t offset) {
  const Hdf5Handle dataset(H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose, "opening " + name);
  const Hdf5Handle space(H5Dget_space(dataset), H5Sclose, "shape of " + name);
  const auto found_elements = static_cast<std::int64_t>(H5Sget_simple_extent_npoints(space));
  const auto found_offset = static_cast<std::int64_t>(H5Dget_offset(dataset));
  if (found_elements == elements && found_offset == offset) return {};
  return cat("HDF5 sees ", name, " with ", found_elements, " elements at byte ", found_offset, ", expected ", elements, " at ", offset);
}

std::string layout_seen_by_hdf5(const std::string& path, const ShardInfo& shard) {
  const Hdf5Section section;
  Hdf5Handle file = open_hdf5(path);
  std::string fault;
  for (const StoredPlane& plane : shard.planes) {
    if (fault.empty()) fault = dataset_fault(file, dataset_name("planes", plane.plane), plane.elements, plane.offset);
    if (fault.empty()) fault = dataset_fault(file, dataset_name("checksums", plane.plane), plane.blocks, plane.checksums_offset);
  }
  file.close();
  return fault;
}

// The bytes outside the planes, in file order. `read(data, bytes, offset)` reads.
template <typename Read>
std::string structure_bytes(const ShardInfo& shard, const Read& read) {
  std::vector<const StoredPlane*> planes;
  for (const StoredPlane& plane : shard.planes) planes.push_back(&plane);
  std::sort(planes.begin(), planes.end(), [](const StoredPlane* a, const StoredPlane* b) { return a->offset < b->offset; });
  std::string bytes;
  std::int64_t at = 0;
  const auto take_until = [&](std::int64_t end) {
    const std::size_t size = bytes.size();
    bytes.resize(size + static_cast<std::size_t>(end - at));
    read(bytes.data() + size, end - at, at);
  };
  for (const StoredPlane* plane : planes) {
    take_until(plane->offset);
    at = plane->offset + plane->elements * kElementBytes;
  }
  take_until(shard.bytes);
  return bytes;
}

}  // namespace

std::int64_t shard_bytes_bound(const std::vector<ParamInfo>& params, const std::vector<Piece>& pieces, std::int64_t block_bytes) {
  std::int64_t bytes = kStructureBytes;
  std::vector<StoredPlane> planes(kPlaneCount);
  for (int i = 0; i < kPlaneCount; ++i) planes[static_cast<std::size_t>(i)].plane = i;
  for (const Piece& piece : pieces) {
    if (piece.region.elements == 0) continue;
    bytes += piece.region.elements * kElementBytes + blocks_of(piece.region.elements, block_bytes) * 8;
    planes[static_cast<std::size_t>(plane_index(piece.plane))].pieces.push_back(piece.region);
  }
  return bytes + static_cast<std::int64_t>(shard_map_text({}, params, planes).size()) + 256;
}

ShardWriter::ShardWriter(const std::string& directory, const ShardIdentity& identity, const std::vector<ParamInfo>& params,
                         std::vector<Piece> pieces, std::int64_t block_bytes)
    : directory_(directory), pieces_(std::move(pieces)), block_bytes_(block_bytes), places_(pieces_.size()), written_(pieces_.size(), 0) {
  info_.file = shard_name(identity.rank);
  info_.rank = identity.rank;
  const std::string path = directory_ + "/" + info_.file;

  // A write beyond this limit kills the process by a signal, so it is asked beforehand.
  rlimit limit{};
  const std::int64_t bound = shard_bytes_bound(params, pieces_, block_bytes_);
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && static_cast<rlim_t>(bound) > limit.rlim_cur) {
    throw EnvironmentError(cat(path, ": needs ", format_bytes(bound), ", the file size limit (ulimit -f) is ",
                               format_bytes(static_cast<std::int64_t>(limit.rlim_cur)), "; raise the limit"));
  }
  wait_for_directory(directory_);

  for (int plane = 0; plane < kPlaneCount; ++plane) {
    StoredPlane stored;
    stored.plane = plane;
    const int slot = static_cast<int>(info_.planes.size());
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      if (plane_index(pieces_[i].plane) != plane || pieces_[i].region.elements == 0) continue;
      places_[i] = {slot, stored.elements * kElementBytes, stored.blocks};  // relative to the plane until it has its place
      stored.elements += pieces_[i].region.elements;
      stored.blocks += blocks_of(pieces_[i].region.elements, block_bytes_);
      stored.pieces.push_back(pieces_[i].region);
    }
    if (stored.elements > 0) info_.planes.push_back(std::move(stored));
  }
  lay_out(identity, params);
  for (Place& place : places_) {
    if (place.slot >= 0) place.offset += info_.planes[static_cast<std::size_t>(place.slot)].offset;
  }
  for (const StoredPlane& plane : info_.planes) checksums_.emplace_back(static_cast<std::size_t>(plane.blocks));

  file_ = File(path, O_RDWR);
  info_.bytes = file_.bytes();
  for (const StoredPlane& plane : info_.planes) {
    if (plane.offset + plane.elements * kElementBytes > info_.bytes || plane.checksums_offset + plane.blocks * 8 > info_.bytes) {
      throw EnvironmentError(
          cat(path, ": HDF5 left the file with ", info_.bytes, " bytes, too short for plane ", kPlaneNames[plane.plane]));
    }
  }
  file_.reserve(info_.bytes);
}

void ShardWriter::lay_out(const ShardIdentity& identity, const std::vector<ParamInfo>& params) {
  const std::string path = directory_ + "/" + info_.file;
  {
    const Hdf5Section section;
    Hdf5Handle file = create_hdf5(path);
    write_attribute(file, "format", std::string("sluice-checkpoint-shard"));
    write_attribute(file, "version", std::int64_t{kFormatVersion});
    write_attribute(file, "save_id", identity.save_id);
    write_attribute(file, "step", identity.step);
    write_attribute(file, "rank", std::int64_t{identity.rank});
    write_attribute(file, "ranks", std::int64_t{identity.ranks});
    write_attribute(file, "block_bytes", block_bytes_);
    write_text_dataset(file, "map", shard_map_text(identity, params, info_.planes));
    create_group(file, "planes").close();
    create_group(file, "checksums").close();
    for (StoredPlane& plane : info_.planes) {
      plane.checksums_offset = place_dataset(file, dataset_name("checksums", plane.plane), H5T_STD_U64LE, plane.blocks);
    }
    for (StoredPlane& plane : info_.planes) {
      plane.offset = place_dataset(file, dataset_name("planes", plane.plane), H5T_IEEE_F32LE, plane.elements);
    }
    check_hdf5(H5Fflush(file, H5F_SCOPE_LOCAL), "flushing " + path);
    file.close();
  }
  const std::string fault = layout_seen_by_hdf5(path, info_);
  if (!fault.empty()) throw EnvironmentError(cat(path, ": ", fault, "; the file system lost a write"));
}

void ShardWriter::write(std::size_t index, const void* data) {
  SLUICE_CHECK(index < pieces_.size(), "piece ", index, " of ", pieces_.size());
  SLUICE_CHECK(written_[index] == 0, "piece ", index, " is written twice");
  written_[index] = 1;
  const Place& place = places_[index];
  if (place.slot < 0) return;
  const Piece& piece = pieces_[index];
  const std::int64_t bytes = piece.region.elements * kElementBytes;
  std::uint64_t* checksum = checksums_[static_cast<std::size_t>(place.slot)].data() + place.first_block;
  std::vector<float> widened(piece.dtype == DType::kF32 ? 0 : static_cast<std::size_t>(std::min(block_bytes_, bytes) / kElementBytes));
  // Block by block, so that the write call finds in cache what the checksum has just read.
  for (std::int64_t at = 0; at < bytes; at += block_bytes_) {
    const std::int64_t count = std::min(block_bytes_, bytes - at);
    const auto* block = static_cast<const char*>(data) + at;
    if (piece.dtype != DType::kF32) {
      const auto* stored = static_cast<const std::uint16_t*>(data) + at / kElementBytes;
      ops::widen(ops::make_cpu_context(1), stored, count / kElementBytes, piece.dtype, widened.data());
      block = reinterpret_cast<const char*>(widened.data());
    }
    *checksum++ = xxh64(block, static_cast<std::size_t>(count));
    file_.write_at(block, count, place.offset + at);
    // In a job's memory limit the cached pages count, and the state in memory may leave little of it.
    if (unwritten_.fetch_add(count, std::memory_order_relaxed) + count < kWriteBehindBytes) continue;
    unwritten_.store(0, std::memory_order_relaxed);
    file_.write_behind();
  }
}

void ShardWriter::write_checksums() {
  for (std::size_t i = 0; i < written_.size(); ++i) SLUICE_CHECK(written_[i] != 0, "piece ", i, " has not been written");
  for (std::size_t i = 0; i < info_.planes.size(); ++i) {
    file_.write_at(checksums_[i].data(), info_.planes[i].blocks * 8, info_.planes[i].checksums_offset);
  }
}

ShardInfo ShardWriter::sync_and_close() {
  file_.sync();
  if (file_.bytes() != info_.bytes) {
    throw EnvironmentError(cat(file_.path(), ": has ", file_.bytes(), " bytes, expected ", info_.bytes, "; somebody else writes to it"));
  }
  const std::string structure =
      structure_bytes(info_, [&](void* data, std::int64_t bytes, std::int64_t offset) { file_.read_at(data, bytes, offset); });
  info_.structure = to_hex(xxh64(structure.data(), structure.size()));
  file_.close();
  sync_directory(directory_);
  return info_;
}

ShardReader::ShardReader(const std::string& directory, const Manifest& manifest, const ShardInfo& shard)
    : manifest_(manifest), shard_(shard), path_(directory + "/" + shard.file) {
  try {
    file_ = File(path_, O_RDONLY);
  } catch (const IoError& error) {
    if (error.error_number == ENOENT) throw FormatError(path_, cat("is missing, expected a shard of ", shard.bytes, " bytes"));
    throw;
  }
  const std::int64_t bytes = file_.bytes();
  if (bytes != shard_.bytes) {
    refuse(cat("has ", bytes, " bytes, expected ", shard_.bytes, bytes < shard_.bytes ? " (truncated)" : " (longer)", identity_note()));
  }
  for (const StoredPlane& plane : shard_.planes) {
    std::vector<PiecePlace> places;
    std::int64_t offset = plane.offset, block = 0;
    for (const Region& region : plane.pieces) {
      places.push_back({offset, block});
      offset += region.elements * kElementBytes;
      block += blocks_of(region.elements, manifest_.block_bytes);
    }
    places_.push_back(std::move(places));
  }
  check_structure();
}

void ShardReader::refuse(const std::string& detail) const {
  throw FormatError(path_, detail);
}

void ShardReader::read_bytes(void* data, std::int64_t bytes, std::int64_t offset) {
  try {
    file_.read_at(data, bytes, offset);
  } catch (const IoError& error) {
    // Bytes that the disk can't give back are damage of this checkpoint; an older one may be whole.
    if (error.error_number == 0 || error.error_number == EIO) refuse(cat(bytes, " bytes at ", offset, " can't be read: ", error.what()));
    throw;
  }
  bytes_read_ += bytes;
}

std::string ShardReader::identity_note() const {
  std::string head(static_cast<std::size_t>(std::min(file_.bytes(), std::int64_t{4 * kMiB})), '\0');
  ShardIdentity found;
  try {
    file_.read_at(head.data(), static_cast<std::int64_t>(head.size()), 0);
  } catch (const IoError& error) {
    return cat("; its head can't be read: ", error.what());
  }
  if (!find_identity(head, found)) return "; it carries no readable identity";
  if (found.rank == shard_.rank && found.step == manifest_.progress.step && found.save_id == manifest_.save_id) return {};
  return cat("; it is the shard of rank ", found.rank, ", step ", found.step, ", save ", found.save_id, ", expected rank ", shard_.rank,
             ", step ", manifest_.progress.step, ", save ", manifest_.save_id);
}

void ShardReader::check_structure() {
  const std::string bytes =
      structure_bytes(shard_, [&](void* data, std::int64_t count, std::int64_t offset) { read_bytes(data, count, offset); });
  const std::string found = to_hex(xxh64(bytes.data(), bytes.size()));
  if (found != shard_.structure) refuse(cat("its structure has checksum ", found, ", expected ", shard_.structure, identity_note()));
  for (const StoredPlane& plane : shard_.planes) {
    std::vector<std::uint64_t> table(static_cast<std::size_t>(plane.blocks));
    read_bytes(table.data(), plane.blocks * 8, plane.checksums_offset);
    checksums_.push_back(std::move(table));
  }
}

void ShardReader::check_block(const StoredPlane& plane, std::size_t index, std::int64_t block, const void* data, std::int64_t bytes) const {
  const auto slot = static_cast<std::size_t>(&plane - shard_.planes.data());
  const std::uint64_t expected = checksums_[slot][static_cast<std::size_t>(places_[slot][index].first_block + block)];
  const std::uint64_t found = xxh64(data, static_cast<std::size_t>(bytes));
  if (found == expected) return;
  const Region& region = plane.pieces[index];
  const std::int64_t first = block * (manifest_.block_bytes / kElementBytes);
  refuse(cat("plane ", kPlaneNames[plane.plane], " of parameter ", manifest_.params[static_cast<std::size_t>(region.param)].name,
             ", elements ", region.flat_begin + first, " to ", region.flat_begin + first + bytes / kElementBytes - 1, " (byte ",
             places_[slot][index].offset + block * manifest_.block_bytes, "): checksum ", to_hex(found), ", expected ", to_hex(expected)));
}

void ShardReader::read(const StoredPlane& plane, std::size_t index, const std::vector<SharedRun>& runs, void* target, DType dtype) {
  const auto slot = static_cast<std::size_t>(&plane - shard_.planes.data());
  const Region& region = plane.pieces[index];
  const std::int64_t step = manifest_.block_bytes / kElementBytes;
  const std::int64_t offset = places_[slot][index].offset;
  block_.resize(static_cast<std::size_t>(manifest_.block_bytes));
  for (const SharedRun& run : runs) {
    for (std::int64_t block = run.source / step; block * step < run.source + run.count; ++block) {
      const std::int64_t begin = block * step;
      const std::int64_t length = std::min(step, region.elements - begin);
      const std::int64_t low = std::max(run.source, begin);
      const std::int64_t high = std::min(run.source + run.count, begin + length);
      char* out = static_cast<char*>(target) + (run.target + low - run.source) * size_of(dtype);
      if (dtype == DType::kF32 && low == begin && high == begin + length) {
        read_bytes(out, length * kElementBytes, offset + begin * kElementBytes);
        check_block(plane, index, block, out, length * kElementBytes);
        continue;
      }
      const std::array<std::int64_t, 3> wanted{static_cast<std::int64_t>(slot), static_cast<std::int64_t>(index), block};
      if (held_ != wanted) {
        held_.fill(-1);
        read_bytes(block_.data(), length * kElementBytes, offset + begin * kElementBytes);
        check_block(plane, index, block, block_.data(), length * kElementBytes);
        held_ = wanted;
      }
      const char* source = block_.data() + (low - begin) * kElementBytes;
      if (dtype == DType::kF32) {
        std::memcpy(out, source, static_cast<std::size_t>((high - low) * kElementBytes));
      } else {
        ops::narrow(ops::make_cpu_context(1), reinterpret_cast<const float*>(source), high - low, dtype,
                    reinterpret_cast<std::uint16_t*>(out));
      }
    }
  }
}

void ShardReader::check_all() {
  block_.resize(static_cast<std::size_t>(manifest_.block_bytes));
  held_.fill(-1);
  for (std::size_t slot = 0; slot < shard_.planes.size(); ++slot) {
    const StoredPlane& plane = shard_.planes[slot];
    for (std::size_t i = 0; i < plane.pieces.size(); ++i) {
      const std::int64_t bytes = plane.pieces[i].elements * kElementBytes;
      for (std::int64_t block = 0; block * manifest_.block_bytes < bytes; ++block) {
        const std::int64_t count = std::min(manifest_.block_bytes, bytes - block * manifest_.block_bytes);
        read_bytes(block_.data(), count, places_[slot][i].offset + block * manifest_.block_bytes);
        check_block(plane, i, block, block_.data(), count);
      }
    }
  }
  std::string fault;
  try {
    fault = layout_seen_by_hdf5(path_, shard_);
  } catch (const EnvironmentError& error) {
    fault = error.what();
  }
  if (!fault.empty()) refuse(fault);
}

}  // namespace sluice::checkpoint

#include "checkpoint/index.hpp"

#include <fcntl.h>

#include <limits>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/input_file.hpp"
#include "base/text.hpp"
#include "checkpoint/checksum.hpp"
#include "checkpoint/geometry.hpp"
#include "checkpoint/hdf5.hpp"

namespace sluice::checkpoint {
namespace {

struct Source {
  const ShardInfo* shard;
  const StoredPlane* plane;
  const Region* region;
  std::int64_t position;  // elements before the piece in its plane
};

// As HDF5 takes it; `lone` where there is no dimension.
std::vector<hsize_t> sizes_of(const std::vector<std::int64_t>& values, hsize_t lone) {
  if (values.empty()) return {lone};
  std::vector<hsize_t> sizes(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) sizes[i] = static_cast<hsize_t>(values[i]);
  return sizes;
}

void map_box(hid_t creation, const std::string& name, const std::vector<hsize_t>& shape, const Source& source, const Box& box) {
  const Hdf5Handle whole(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), H5Sclose, "shape of " + name);
  const std::vector<hsize_t> offset = sizes_of(box.offset, 0);
  const std::vector<hsize_t> extent = sizes_of(box.extent, 1);
  check_hdf5(H5Sselect_hyperslab(whole, H5S_SELECT_SET, offset.data(), nullptr, extent.data(), nullptr), "selecting in " + name);
  const auto length = static_cast<hsize_t>(source.plane->elements);
  const Hdf5Handle line(H5Screate_simple(1, &length, nullptr), H5Sclose, "shape of a plane");
  const std::int64_t begin = source.position + box.position;
  const auto first = static_cast<hsize_t>(begin);
  const auto count = static_cast<hsize_t>(box.elements());
  check_hdf5(H5Sselect_hyperslab(line, H5S_SELECT_SET, &first, nullptr, &count, nullptr), "selecting in a plane");
  const std::string dataset = cat("planes/", kPlaneNames[source.plane->plane]);
  check_hdf5(H5Pset_virtual(creation, whole, source.shard->file.c_str(), dataset.c_str(), line), "mapping " + name);
}

void add_tensor(hid_t group, const ParamInfo& param, const std::vector<Source>& sources) {
  const std::vector<hsize_t> shape = sizes_of(param.shape, 1);
  const Hdf5Handle space(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), H5Sclose, "shape of " + param.name);
  const Hdf5Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "dataset creation list");
  // What a reader sees where a shard is missing: a value that can't be taken for a weight.
  const float fill = std::numeric_limits<float>::quiet_NaN();
  check_hdf5(H5Pset_fill_value(creation, H5T_NATIVE_FLOAT, &fill), "choosing the fill value");
  check_hdf5(H5Pset_obj_track_times(creation, false), "choosing the time stamps");
  for (const Source& source : sources) {
    for (const Box& box : boxes_of(*source.region)) map_box(creation, param.name, shape, source, box);
  }
  Hdf5Handle dataset(H5Dcreate2(group, param.name.c_str(), H5T_IEEE_F32LE, space, H5P_DEFAULT, creation, H5P_DEFAULT), H5Dclose,
                     "creating " + param.name);
  dataset.close();
}

using Sources = std::vector<std::vector<Source>>[kPlaneCount];  // per plane and parameter

std::string group_name(int plane) {
  return plane == 0 ? "params" : std::string(kPlaneNames[plane]);
}

bool has_tensor(const Sources& sources, int plane, std::size_t param) {
  // A parameter without elements has no sources, but is one of the model's.
  return plane == 0 || !sources[plane][param].empty();
}

// HDF5 may have lost what it wrote: the closed file must show every tensor with all its mappings.
void check_mappings(const std::string& path, const Manifest& manifest, const Sources& sources) {
  const Hdf5Section section;
  Hdf5Handle file = open_hdf5(path);
  for (int plane = 0; plane < kPlaneCount; ++plane) {
    for (std::size_t p = 0; p < manifest.params.size(); ++p) {
      if (sources[plane][p].empty()) continue;
      const std::string name = group_name(plane) + "/" + manifest.params[p].name;
      const Hdf5Handle dataset(H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose, "reopening " + name);
      const Hdf5Handle creation(H5Dget_create_plist(dataset), H5Pclose, "reopening " + name);
      std::size_t expected = 0, found = 0;
      for (const Source& source : sources[plane][p]) expected += boxes_of(*source.region).size();
      check_hdf5(H5Pget_virtual_count(creation, &found), "reopening " + name);
      if (found != expected) throw EnvironmentError(cat(path, ": ", name, " has ", found, " mappings, expected ", expected));
    }
  }
  file.close();
}

}  // namespace

void write_index(const std::string& directory, Manifest& manifest) {
  Sources sources;
  for (auto& list : sources) list.resize(manifest.params.size());
  for (const ShardInfo& shard : manifest.shards) {
    for (const StoredPlane& plane : shard.planes) {
      std::int64_t position = 0;
      for (const Region& region : plane.pieces) {
        sources[plane.plane][static_cast<std::size_t>(region.param)].push_back({&shard, &plane, &region, position});
        position += region.elements;
      }
    }
  }
  const std::string path = directory + "/" + kIndexName;
  {
    const Hdf5Section section;
    Hdf5Handle file = create_hdf5(path);
    write_attribute(file, "format", std::string("sluice-checkpoint-index"));
    write_attribute(file, "version", std::int64_t{kFormatVersion});
    write_attribute(file, "save_id", manifest.save_id);
    write_attribute(file, "step", manifest.progress.step);
    for (int plane = 0; plane < kPlaneCount; ++plane) {
      Hdf5Handle group = create_group(file, group_name(plane));
      for (std::size_t p = 0; p < manifest.params.size(); ++p) {
        if (has_tensor(sources, plane, p)) add_tensor(group, manifest.params[p], sources[plane][p]);
      }
      group.close();
    }
    check_hdf5(H5Fflush(file, H5F_SCOPE_LOCAL), "flushing " + path);
    file.close();
  }
  check_mappings(path, manifest, sources);
  File file(path, O_RDWR);
  file.sync();
  manifest.index_bytes = file.bytes();
  file.close();
  const std::string bytes = read_text(path);
  manifest.index_checksum = to_hex(xxh64(bytes.data(), bytes.size()));
}

std::string index_fault(const std::string& directory, const Manifest& manifest) {
  const std::string path = directory + "/" + kIndexName;
  if (!exists(path)) return "model.h5 is missing";
  const std::string bytes = read_text(path);
  const std::string found = to_hex(xxh64(bytes.data(), bytes.size()));
  if (found == manifest.index_checksum) return {};
  return cat("model.h5 has ", bytes.size(), " bytes with checksum ", found, ", expected ", manifest.index_bytes, " with ",
             manifest.index_checksum);
}

}  // namespace sluice::checkpoint

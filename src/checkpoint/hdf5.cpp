#include "checkpoint/hdf5.hpp"

#include <cerrno>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"

namespace sluice::checkpoint {
namespace {

// HDF5 has one state for the whole process, so its lock has to be the process's as well.
std::recursive_mutex& library_mutex() {
  static std::recursive_mutex mutex;
  // Before any other call. After a failed H5Fclose (disk full) the library's own clean-up at exit crashes, and there is nothing for it to
  // do: everything is closed by its handle. Refused where a host program uses HDF5 already; then the clean-up is that program's.
  [[maybe_unused]] static const herr_t kStatus = H5dont_atexit();
  return mutex;
}

extern "C" herr_t keep_innermost(unsigned, const H5E_error2_t* error, void* data) {
  auto* text = static_cast<std::string*>(data);
  if (text->empty() && error->desc != nullptr) *text = error->desc;
  return 0;
}

std::string innermost_reason() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_innermost, &text);
  H5Eclear2(H5E_DEFAULT);
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return text.empty() ? "no reason given" : text;
}

Hdf5Handle file_access() {
  Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "file access list");
  check_hdf5(H5Pset_fapl_sec2(access), "choosing the POSIX driver");
  check_hdf5(H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110), "choosing the file version");
  check_hdf5(H5Pset_file_locking(access, false, true), "choosing the locking");
  check_hdf5(H5Pset_fclose_degree(access, H5F_CLOSE_STRONG), "choosing the close degree");
  check_hdf5(H5Pset_alignment(access, 4096, 4096), "choosing the alignment");
  return access;
}

}  // namespace

Hdf5Section::Hdf5Section() : lock_(library_mutex()) {
  H5Eget_auto2(H5E_DEFAULT, &function_, &data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Hdf5Section::~Hdf5Section() {
  H5Eset_auto2(H5E_DEFAULT, function_, data_);
}

Hdf5Handle::Hdf5Handle(hid_t id, Closer closer, const std::string& what) : id_(id), closer_(closer), what_(what) {
  if (id_ < 0) throw EnvironmentError(cat(what, " failed in HDF5: ", innermost_reason()));
}

Hdf5Handle::Hdf5Handle(Hdf5Handle&& other) noexcept
    : id_(std::exchange(other.id_, -1)), closer_(other.closer_), what_(std::move(other.what_)) {}

Hdf5Handle::~Hdf5Handle() {
  if (id_ >= 0) closer_(id_);
}

void Hdf5Handle::close() {
  if (id_ < 0) return;
  check_hdf5(closer_(std::exchange(id_, -1)), "closing " + what_);
}

void check_hdf5(herr_t status, const std::string& what) {
  if (status < 0) throw EnvironmentError(cat(what, " failed in HDF5: ", innermost_reason()));
}

Hdf5Handle create_hdf5(const std::string& path) {
  const Hdf5Handle access = file_access();
  const Hdf5Handle creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "file creation list");
  check_hdf5(H5Pset_obj_track_times(creation, false), "choosing the time stamps");
  return {H5Fcreate(path.c_str(), H5F_ACC_EXCL, creation, access), H5Fclose, "creating " + path};
}

Hdf5Handle create_group(hid_t parent, const std::string& name) {
  const Hdf5Handle creation(H5Pcreate(H5P_GROUP_CREATE), H5Pclose, "group creation list");
  check_hdf5(H5Pset_obj_track_times(creation, false), "choosing the time stamps");
  return {H5Gcreate2(parent, name.c_str(), H5P_DEFAULT, creation, H5P_DEFAULT), H5Gclose, "creating group " + name};
}

Hdf5Handle open_hdf5(const std::string& path) {
  const Hdf5Handle access = file_access();
  return {H5Fopen(path.c_str(), H5F_ACC_RDONLY, access), H5Fclose, "opening " + path};
}

void write_attribute(hid_t object, const std::string& name, std::int64_t value) {
  Hdf5Handle space(H5Screate(H5S_SCALAR), H5Sclose, "attribute " + name);
  Hdf5Handle attribute(H5Acreate2(object, name.c_str(), H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, "attribute " + name);
  check_hdf5(H5Awrite(attribute, H5T_NATIVE_INT64, &value), "attribute " + name);
  attribute.close();
}

void write_attribute(hid_t object, const std::string& name, const std::string& value) {
  Hdf5Handle type(H5Tcopy(H5T_C_S1), H5Tclose, "attribute " + name);
  check_hdf5(H5Tset_size(type, value.empty() ? 1 : value.size()), "attribute " + name);
  check_hdf5(H5Tset_strpad(type, H5T_STR_NULLPAD), "attribute " + name);
  check_hdf5(H5Tset_cset(type, H5T_CSET_UTF8), "attribute " + name);
  Hdf5Handle space(H5Screate(H5S_SCALAR), H5Sclose, "attribute " + name);
  Hdf5Handle attribute(H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, "attribute " + name);
  check_hdf5(H5Awrite(attribute, type, value.empty() ? "\0" : value.data()), "attribute " + name);
  attribute.close();
}

std::int64_t read_integer_attribute(hid_t object, const std::string& name) {
  const Hdf5Handle attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose, "attribute " + name);
  std::int64_t value = 0;
  check_hdf5(H5Aread(attribute, H5T_NATIVE_INT64, &value), "attribute " + name);
  return value;
}

std::string read_text_attribute(hid_t object, const std::string& name) {
  const Hdf5Handle attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose, "attribute " + name);
  const Hdf5Handle type(H5Aget_type(attribute), H5Tclose, "attribute " + name);
  if (H5Tget_class(type) != H5T_STRING || H5Tis_variable_str(type) > 0) {
    throw EnvironmentError(cat("attribute ", name, " is no text of fixed length"));
  }
  std::string value(H5Tget_size(type), '\0');
  check_hdf5(H5Aread(attribute, type, value.data()), "attribute " + name);
  while (!value.empty() && value.back() == '\0') value.pop_back();
  return value;
}

}  // namespace sluice::checkpoint

#pragma once
// HDF5 handles and calls with every return code checked. HDF5 reports success after losing data, so nothing here counts as
// proof that bytes are on disk: only our own checksums do.

#include <hdf5.h>

#include <cstdint>
#include <mutex>
#include <string>

namespace sluice::checkpoint {

/// Holding one is the right to call HDF5: one thread of the process at a time, since the library may be built without
/// thread safety, and quiet, since its own error printing is for developers.
class Hdf5Section {
 public:
  Hdf5Section();
  Hdf5Section(const Hdf5Section&) = delete;
  Hdf5Section& operator=(const Hdf5Section&) = delete;
  ~Hdf5Section();

 private:
  std::unique_lock<std::recursive_mutex> lock_;
  H5E_auto2_t function_ = nullptr;
  void* data_ = nullptr;
};

/// Owns one HDF5 identifier.
class Hdf5Handle {
 public:
  using Closer = herr_t (*)(hid_t);
  /// Throws EnvironmentError naming `what` and the library's innermost reason when `id` is invalid.
  Hdf5Handle(hid_t id, Closer closer, const std::string& what);
  Hdf5Handle(Hdf5Handle&& other) noexcept;
  Hdf5Handle(const Hdf5Handle&) = delete;
  Hdf5Handle& operator=(const Hdf5Handle&) = delete;
  Hdf5Handle& operator=(Hdf5Handle&&) = delete;
  ~Hdf5Handle();
  operator hid_t() const noexcept { return id_; }  // NOLINT: an identifier is what the C interface takes
  /// Closes and checks.
  void close();

 private:
  hid_t id_;
  Closer closer_;
  std::string what_;
};

/// Throws EnvironmentError naming `what` and the library's innermost reason when `status` is negative.
void check_hdf5(herr_t status, const std::string& what);

/// Files of format 1.10 (superblock 3, metadata checksummed), plain POSIX driver, large objects at multiples of 4096 bytes, no
/// locking of its own (the run lock guards; where HDF5_USE_FILE_LOCKING is set, the library obeys that instead).
Hdf5Handle create_hdf5(const std::string& path);  // the file must not exist
Hdf5Handle open_hdf5(const std::string& path);    // for reading
Hdf5Handle create_group(hid_t parent, const std::string& name);

void write_attribute(hid_t object, const std::string& name, std::int64_t value);
void write_attribute(hid_t object, const std::string& name, const std::string& value);
std::int64_t read_integer_attribute(hid_t object, const std::string& name);
std::string read_text_attribute(hid_t object, const std::string& name);

}  // namespace sluice::checkpoint

#pragma once
// What kind of file system a path lies on, and whether it has room.

#include <cstdint>
#include <span>
#include <string>

#include "memory/io/io_system.hpp"

namespace sluice::memory {

struct FileSystem {
  std::string name;               // "ext4", "NFS"; "type 0x1234" where it is none that we know
  bool is_network = false;        // other hosts share it, or may: a FUSE file system doesn't tell
  bool is_memory = false;         // its files take memory, not a disk
  bool is_synchronous = false;    // kernel aio on it runs inside io_submit, one request after the other
  bool is_copy_on_write = false;  // writing again takes new space
};

/// The file system of an existing path. Throws IoError.
FileSystem file_system_of(const std::string& path, const IoSystem& system = IoSystem::real());

/// Bytes that somebody is going to write below `path`, an existing directory or file.
struct SpaceClaim {
  std::string path;
  std::string what;  // "swap of ranks 0 to 3", "checkpoints"
  std::int64_t bytes = 0;
};

/// Adds up what is claimed of each file system and throws EnvironmentError for the first that has less free: needed (claim by
/// claim), free, missing. A quota isn't seen here, so preallocation can still fail. Throws IoError where a path can't be asked.
void check_free_space(std::span<const SpaceClaim> claims);

}  // namespace sluice::memory

#include "memory/io/file_system.hpp"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <array>
#include <cerrno>
#include <ios>
#include <map>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/units.hpp"

namespace sluice::memory {
namespace {

struct Known {
  std::uint32_t type;
  const char* name;
  enum Trait : unsigned { kPlain = 0, kNetwork = 1, kMemory = 2, kSynchronous = 4, kCopyOnWrite = 8 };
  unsigned traits;
};

// Types without a name of the kernel's are the file systems' own: Lustre's LL_SUPER_MAGIC, GPFS', BeeGFS' (fhgfs), PanFS', XFS',
// ZFS', GFS2's.
constexpr std::array kKnown{
    Known{EXT4_SUPER_MAGIC, "ext4", Known::kPlain},
    Known{0x58465342, "XFS", Known::kPlain},
    Known{F2FS_SUPER_MAGIC, "F2FS", Known::kPlain},
    Known{BTRFS_SUPER_MAGIC, "btrfs", Known::kCopyOnWrite},
    Known{0x2FC12FC1, "ZFS", Known::kCopyOnWrite | Known::kSynchronous},
    Known{OVERLAYFS_SUPER_MAGIC, "overlay", Known::kPlain},
    Known{TMPFS_MAGIC, "tmpfs", Known::kMemory | Known::kSynchronous},
    Known{RAMFS_MAGIC, "ramfs", Known::kMemory | Known::kSynchronous},
    Known{NFS_SUPER_MAGIC, "NFS", Known::kNetwork},
    Known{SMB_SUPER_MAGIC, "SMB", Known::kNetwork | Known::kSynchronous},
    Known{0xFE534D42, "SMB", Known::kNetwork | Known::kSynchronous},
    Known{0xFF534D42, "CIFS", Known::kNetwork | Known::kSynchronous},
    Known{V9FS_MAGIC, "9p", Known::kNetwork | Known::kSynchronous},
    Known{0x65735546, "FUSE", Known::kNetwork | Known::kSynchronous},
    Known{CEPH_SUPER_MAGIC, "Ceph", Known::kNetwork},
    Known{AFS_SUPER_MAGIC, "AFS", Known::kNetwork | Known::kSynchronous},
    Known{CODA_SUPER_MAGIC, "Coda", Known::kNetwork | Known::kSynchronous},
    Known{OCFS2_SUPER_MAGIC, "OCFS2", Known::kNetwork},
    Known{0x01161970, "GFS2", Known::kNetwork},
    Known{0x0BD00BD0, "Lustre", Known::kNetwork},
    Known{0x47504653, "GPFS", Known::kNetwork},
    Known{0x19830326, "BeeGFS", Known::kNetwork | Known::kSynchronous},
    Known{0xAAD7AAEA, "PanFS", Known::kNetwork},
};

}  // namespace

FileSystem file_system_of(const std::string& path, const IoSystem& system) {
  const std::int64_t type = system.file_system_type(path.c_str());
  if (type < 0) throw IoError("asking for the file system", path, static_cast<int>(-type));
  for (const Known& known : kKnown) {
    if (type != known.type) continue;
    const auto has = [&](Known::Trait trait) { return (known.traits & trait) != 0; };
    return {known.name, has(Known::kNetwork), has(Known::kMemory), has(Known::kSynchronous), has(Known::kCopyOnWrite)};
  }
  return {cat("type 0x", std::hex, type)};
}

void check_free_space(std::span<const SpaceClaim> claims) {
  struct Device {
    std::vector<const SpaceClaim*> claims;
    std::int64_t bytes = 0;
  };
  std::map<dev_t, Device> devices;
  for (const SpaceClaim& claim : claims) {
    struct stat info {};
    if (::stat(claim.path.c_str(), &info) != 0) throw IoError("asking for the device", claim.path, errno);
    Device& device = devices[info.st_dev];
    device.claims.push_back(&claim);
    device.bytes += claim.bytes;
  }
  for (const auto& [number, device] : devices) {
    const std::string& path = device.claims.front()->path;
    struct statvfs info {};
    if (::statvfs(path.c_str(), &info) != 0) throw IoError("asking for the free space", path, errno);
    const auto free = static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize);
    if (device.bytes <= free) continue;
    std::string parts;
    for (const SpaceClaim* claim : device.claims) {
      parts += cat(parts.empty() ? "" : ", ", claim->what, " ", format_bytes(claim->bytes));
    }
    throw EnvironmentError(cat(path, ": ", format_bytes(device.bytes), " are needed (", parts, "), but ", format_bytes(free), " are free, ",
                               format_bytes(device.bytes - free),
                               " too few; free some, choose another directory or let less of the state live on disk"));
  }
}

}  // namespace sluice::memory

#pragma once
// Small file systems of their own, mounted below a temporary directory. They need root, and what can't be mounted is none.

#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "support/temp_dir.hpp"

namespace sluice::testing {

/// Runs a shell command silently.
inline bool succeeds(const std::string& command) {
  return std::system(("PATH=$PATH:/sbin:/usr/sbin; " + command + " > /dev/null 2>&1").c_str()) == 0;
}

class SmallDisk {
 public:
  static std::optional<SmallDisk> tmpfs(std::int64_t bytes) {
    SmallDisk disk;
    if (!succeeds("mount -t tmpfs -o size=" + std::to_string(bytes) + ",mode=0755 none " + disk.mounted_)) return std::nullopt;
    disk.is_mounted_ = true;
    return disk;
  }
  /// ext4 on a loop device with sectors of `sector` bytes, whose image lies in `images`.
  static std::optional<SmallDisk> ext4(std::int64_t bytes, int sector, const std::string& images = "") {
    SmallDisk disk;
    const std::string image = (images.empty() ? disk.dir_->path() : images) + "/image";
    std::ofstream(image).close();
    if (::truncate(image.c_str(), bytes) != 0) return std::nullopt;
    if (!succeeds("mkfs.ext4 -q -F -b 4096 -O ^has_journal " + image)) return std::nullopt;
    const std::string name = disk.dir_->path() + "/device";
    succeeds("losetup -b " + std::to_string(sector) + " --find --show " + image + " | tee " + name);
    std::ifstream(name) >> disk.device_;
    if (disk.device_.empty() || !succeeds("mount " + disk.device_ + " " + disk.mounted_)) return std::nullopt;
    disk.is_mounted_ = true;
    return disk;
  }
  /// Two folders of `disk`, one over the other.
  static std::optional<SmallDisk> overlay(const SmallDisk& disk) {
    SmallDisk over;
    const std::string& below = disk.path();
    for (const char* name : {"/lower", "/upper", "/work"}) std::filesystem::create_directories(below + name);
    if (!succeeds("mount -t overlay overlay -o lowerdir=" + below + "/lower,upperdir=" + below + "/upper,workdir=" + below + "/work " +
                  over.mounted_)) {
      return std::nullopt;
    }
    over.is_mounted_ = true;
    return over;
  }
  SmallDisk(SmallDisk&& other) noexcept
      : dir_(std::move(other.dir_)),
        mounted_(std::move(other.mounted_)),
        device_(std::exchange(other.device_, "")),
        is_mounted_(std::exchange(other.is_mounted_, false)) {}
  SmallDisk& operator=(SmallDisk&&) = delete;
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() {
    if (is_mounted_ && ::umount(mounted_.c_str()) != 0) ::umount2(mounted_.c_str(), MNT_DETACH);
    if (!device_.empty()) succeeds("losetup -d " + device_);
  }
  const std::string& path() const { return mounted_; }

 private:
  SmallDisk() : dir_(std::make_unique<TempDir>()), mounted_(dir_->path() + "/disk") {
    std::filesystem::create_directories(mounted_);
    ::chmod(dir_->path().c_str(), 0755);  // other users are sent here
  }
  std::unique_ptr<TempDir> dir_;
  std::string mounted_;
  std::string device_;
  bool is_mounted_ = false;
};

#define SKIP_WITHOUT(disk, what) \
  if (!(disk)) GTEST_SKIP() << what " can't be made here (needs root and a kernel that allows it)"

}  // namespace sluice::testing

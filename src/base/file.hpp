#pragma once
// Files whose every call is checked, and the few ways of making a change durable.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

/// Owns a file descriptor. Every failure throws IoError with the path; only the destructor ignores close's result.
class File {
 public:
  File() = default;
  /// `flags` as of open(2); O_CLOEXEC is added.
  File(const std::string& path, int flags, unsigned mode = 0666);
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  bool is_open() const noexcept { return fd_ >= 0; }
  int fd() const noexcept { return fd_; }
  const std::string& path() const noexcept { return path_; }
  std::int64_t bytes() const;
  /// Whole transfers at `offset`: short ones are continued, an end of file before the last byte is an error. Thread-safe.
  void write_at(const void* data, std::int64_t bytes, std::int64_t offset) const;
  void read_at(void* data, std::int64_t bytes, std::int64_t offset) const;
  /// Takes disk space for the first `bytes` bytes now, so that writing them can't find the disk full; false where the file
  /// system can't reserve.
  bool reserve(std::int64_t bytes) const;
  /// fsync, once: an error is reported a single time by the system, so a repeated call proves nothing.
  void sync() const;
  /// Starts to bring to the disk what was written last, waits for what an earlier call has started, and gives its cached pages back: called
  /// every few MiB, a long write needs no more memory than two of them. A write error that shows here is thrown, and sync() may not show it
  /// again.
  void write_behind() const;
  /// Asks the system to forget the file's cached bytes, so that the next read comes from the disk. Advice only.
  void drop_cache() const noexcept;
  /// Closes; an error of close is one of writing.
  void close();

 private:
  std::string path_;
  int fd_ = -1;
};

/// fsync of a directory: makes the names in it durable. Throws IoError.
void sync_directory(const std::string& path);
/// Writes `text` to `path` so that a crash leaves the old or the new content: path.tmp, fsync, rename, fsync of the directory. A
/// failure leaves the old one and nothing else. Of two processes that write the same path at once (a cache) one may fail, and whoever reads
/// it meanwhile may find a part. Waits for the disk; throws IoError.
void write_durably(const std::string& path, const std::string& text);
/// rename(2), throwing IoError.
void rename_path(const std::string& from, const std::string& to);
/// Makes the directory and its missing parents; throws IoError.
void make_directories(const std::string& path);
bool exists(const std::string& path);
bool is_directory(const std::string& path);
/// Names in a directory, sorted; empty when there is no such directory. Throws IoError on other failures.
std::vector<std::string> names_in(const std::string& path);
/// Removes a directory and what is in it, `first` (a name in it) before everything else. Throws IoError, half-done.
void remove_tree(const std::string& path, const std::string& first);

}  // namespace sluice

#include "checkpoint/run_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "base/error.hpp"
#include "base/owner.hpp"
#include "base/text.hpp"

namespace sluice::checkpoint {
namespace {

// The owner in the file, or none: a clean end empties it, and what a crash tore names nobody.
std::optional<Owner> read_owner(const File& file) {
  std::string text(static_cast<std::size_t>(file.bytes()), '\0');
  file.read_at(text.data(), static_cast<std::int64_t>(text.size()), 0);
  return Owner::parse(text);
}

}  // namespace

RunLock RunLock::acquire(const std::string& directory, const Options& options) {
  make_directories(directory);
  const std::string path = directory + "/.sluice-lock";
  File file(path, O_RDWR | O_CREAT);
  const bool locked = ::flock(file.fd(), LOCK_EX | LOCK_NB) == 0;
  const int failure = locked ? 0 : errno;
  const std::optional<Owner> owner = read_owner(file);
  if (failure == EWOULDBLOCK) {
    throw RequestError(cat(directory, ": ", owner ? owner->describe() : "another process",
                           " works in this run directory; wait for it or choose another one"));
  }
  std::string note;
  if (!locked) {
    // ENOLCK, ENOSYS, EOPNOTSUPP: a network file system without locks. The content is all there is to go by.
    if (failure != ENOLCK && failure != ENOSYS && failure != EOPNOTSUPP && failure != EINVAL) throw IoError("flock", path, failure);
    note = cat(path, ": this file system has no locks; two runs started at the same moment would not notice each other");
    if (owner && !options.take_over) {
      const bool here = owner->host == options.host;
      if (here && owner->is_running()) {
        throw RequestError(cat(directory, ": ", owner->describe(), " works in this run directory; wait for it or choose another one"));
      }
      if (!here) {
        throw RequestError(cat(directory, ": ", owner->describe(), " has not released this run directory, and from host ", options.host,
                               " there is no telling whether it still runs; when it has ended, remove ", path));
      }
    }
  }
  if (owner) {
    note += cat(
        note.empty() ? "" : "; ", owner->describe(), " ended without releasing this run directory; taken over",
        owner->host == options.host ? "" : ", since the lock is free (where locks don't reach other hosts, make sure that it has ended)");
  }
  const std::string text = Owner::this_process(options.host, options.label).to_text();
  if (::ftruncate(file.fd(), 0) != 0) throw IoError("emptying", path, errno);
  file.write_at(text.data(), static_cast<std::int64_t>(text.size()), 0);
  return {std::move(file), std::move(note)};
}

RunLock& RunLock::operator=(RunLock&& other) noexcept {
  if (this != &other) {
    release();
    file_ = std::move(other.file_);
    note_ = std::move(other.note_);
  }
  return *this;
}

RunLock::~RunLock() {
  release();
}

void RunLock::release() noexcept {
  if (!file_.is_open()) return;
  // Emptied, not removed: a remover could take away the file that a third process has just locked. A failure leaves a stale name,
  // which the next owner reports.
  [[maybe_unused]] const int result = ::ftruncate(file_.fd(), 0);
  file_ = File();
}

}  // namespace sluice::checkpoint

#include "checkpoint/run_lock.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/text.hpp"

namespace sluice::checkpoint {
namespace {

struct Owner {
  std::string host;
  std::int64_t pid = 0;
  std::int64_t since = 0;  // seconds since 1970
  std::string label;
};

// The owner in the file, or none: a clean end empties it.
bool read_owner(const File& file, Owner& owner) {
  std::string text(static_cast<std::size_t>(file.bytes()), '\0');
  if (text.empty()) return false;
  file.read_at(text.data(), static_cast<std::int64_t>(text.size()), 0);
  const nlohmann::json value = nlohmann::json::parse(text, nullptr, false);
  try {
    owner = {value.at("host").get<std::string>(), value.at("pid").get<std::int64_t>(), value.at("since").get<std::int64_t>(),
             value.at("label").get<std::string>()};
  } catch (const nlohmann::json::exception&) {
    return false;  // torn by a crash: names nobody
  }
  return true;
}

std::string describe(const Owner& owner) {
  std::array<char, 32> when{};
  const auto seconds = static_cast<std::time_t>(owner.since);
  std::tm local{};
  localtime_r(&seconds, &local);
  std::strftime(when.data(), when.size(), "%Y-%m-%d %H:%M:%S", &local);
  return cat("process ", owner.pid, " on host ", owner.host, owner.label.empty() ? "" : cat(" (", owner.label, ")"), " since ",
             when.data());
}

}  // namespace

RunLock RunLock::acquire(const std::string& directory, const Options& options) {
  make_directories(directory);
  const std::string path = directory + "/.sluice-lock";
  File file(path, O_RDWR | O_CREAT);
  const bool locked = ::flock(file.fd(), LOCK_EX | LOCK_NB) == 0;
  const int failure = locked ? 0 : errno;
  Owner owner;
  const bool owned = read_owner(file, owner);
  if (failure == EWOULDBLOCK) {
    throw RequestError(cat(directory, ": ", owned ? describe(owner) : "another process",
                           " works in this run directory; wait for it or choose another one"));
  }
  std::string note;
  if (!locked) {
    // ENOLCK, ENOSYS, EOPNOTSUPP: a network file system without locks. The content is all there is to go by.
    if (failure != ENOLCK && failure != ENOSYS && failure != EOPNOTSUPP && failure != EINVAL) throw IoError("flock", path, failure);
    note = cat(path, ": this file system has no locks; two runs started at the same moment would not notice each other");
    if (owned && !options.take_over) {
      const bool here = owner.host == options.host;
      if (here && (::kill(static_cast<pid_t>(owner.pid), 0) == 0 || errno == EPERM)) {
        throw RequestError(cat(directory, ": ", describe(owner), " works in this run directory; wait for it or choose another one"));
      }
      if (!here) {
        throw RequestError(cat(directory, ": ", describe(owner), " has not released this run directory, and from host ", options.host,
                               " there is no telling whether it still runs; when it has ended, remove ", path));
      }
    }
  }
  if (owned) {
    note += cat(
        note.empty() ? "" : "; ", describe(owner), " ended without releasing this run directory; taken over",
        owner.host == options.host ? "" : ", since the lock is free (where locks don't reach other hosts, make sure that it has ended)");
  }
  const nlohmann::json content = {{"host", options.host},
                                  {"pid", static_cast<std::int64_t>(::getpid())},
                                  {"since", static_cast<std::int64_t>(wall_seconds())},
                                  {"label", options.label}};
  const std::string text = content.dump() + "\n";
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

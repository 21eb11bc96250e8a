#include "memory/io/swap_file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <limits>
#include <string_view>
#include <thread>
#include <utility>

#include "base/check.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "memory/io/file_system.hpp"

namespace sluice::memory {
namespace {

using State = SwapFinding::State;

constexpr std::string_view kPrefix = "sluice-";
constexpr std::string_view kMagic = "sluice swap file 1\n";
constexpr int kTries = 20;  // of taking a name over, 50 ms apart: longer than any other process holds a leftover to judge it
constexpr std::chrono::milliseconds kPause{50};
constexpr std::string_view kAdvice = "; choose another directory, or remove the file when its owner has ended";

bool has_no_locks(int error) {
  return error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP || error == EINVAL;
}

// A name that can stand between dashes in a file's name and is never another's: what isn't plain becomes =XX.
std::string as_name(const std::string& text) {
  std::string name;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '.' || c == '_' || c == '-') {
      name += c;
      continue;
    }
    char code[4];
    std::snprintf(code, sizeof code, "=%02X", byte);
    name += code;
  }
  return name;
}

std::string directory_name(const SwapIdentity& identity) {
  return cat(kPrefix, ::geteuid(), "-", as_name(identity.job), "-", as_name(identity.host));
}

std::string file_name(int rank) {
  char name[32];
  std::snprintf(name, sizeof name, "rank-%05d.swap", rank);
  return name;
}

bool is_file_name(std::string_view name) {
  return name.starts_with("rank-") && name.ends_with(".swap");
}

// The user id in a directory's name: another program's directory if there is none.
std::optional<uid_t> user_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  std::uint64_t uid = 0;
  std::size_t digits = 0;
  for (; digits < name.size() && digits < 10 && std::isdigit(static_cast<unsigned char>(name[digits])) != 0; ++digits) {
    uid = uid * 10 + static_cast<std::uint64_t>(name[digits] - '0');
  }
  if (digits == 0 || digits == name.size() || name[digits] != '-' || uid > std::numeric_limits<uid_t>::max()) return std::nullopt;
  return static_cast<uid_t>(uid);
}

// What a directory that we are going to trust must be: /scratch is often writable by everybody, who could have put it there.
void check_private(const std::string& directory) {
  struct stat info {};
  if (::lstat(directory.c_str(), &info) != 0) throw IoError("asking for the mode", directory, errno);
  if (S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() && (info.st_mode & 077) == 0) return;
  char mode[8];
  std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(info.st_mode & 07777));
  throw EnvironmentError(cat(directory, ": is ", S_ISDIR(info.st_mode) ? "a directory" : "no directory", " of user ", info.st_uid,
                             " with mode ", mode, ", where a directory of user ", ::geteuid(),
                             " with mode 0700 is needed to keep swapped data private; remove it"));
}

std::optional<Owner> read_owner(const File& file) {
  std::string text(static_cast<std::size_t>(std::min(file.bytes(), kSwapHeaderBytes)), '\0');
  file.read_at(text.data(), static_cast<std::int64_t>(text.size()), 0);
  text.resize(std::min(text.find('\0'), text.size()));
  return text.starts_with(kMagic) ? Owner::parse(std::string_view(text).substr(kMagic.size())) : std::nullopt;
}

struct Judged {
  SwapFinding finding;
  File lock;  // of a leftover: nobody else may take it until this goes
};

std::string described(const std::optional<Owner>& owner) {
  return owner ? owner->describe() : "an unknown owner (damaged header)";
}

// The verdict over an existing swap file in a directory of ours. `exclusive`: as a leftover it will be removed.
Judged judge(const std::string& path, const std::string& host, bool exclusive, const IoSystem& system) {
  Judged judged{{path, State::kUnclear, 0, std::nullopt, ""}, File()};
  SwapFinding& finding = judged.finding;
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) throw IoError("asking for the owner", path, errno);
  if (!S_ISREG(info.st_mode) || info.st_uid != ::geteuid()) {
    finding.reason = S_ISREG(info.st_mode) ? cat("belongs to user ", info.st_uid) : std::string("is no regular file");
    return judged;
  }
  finding.bytes = static_cast<std::int64_t>(info.st_blocks) * 512;
  File file(path, O_RDWR | O_NOFOLLOW);
  finding.owner = read_owner(file);
  const std::string who = described(finding.owner);
  // Two that only look don't take each other for the owner.
  const int failure = ::flock(file.fd(), (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0 ? 0 : errno;
  const bool same_host = finding.owner && finding.owner->host == host;
  if (failure == EWOULDBLOCK) {
    finding.state = State::kInUse;
    finding.reason = cat("in use by ", who);
  } else if (failure == 0 && (same_host || !file_system_of(path, system).is_network)) {
    finding.state = State::kLeftover;
    finding.reason = cat("left behind by ", who);
    judged.lock = std::move(file);
  } else if (failure != 0 && !has_no_locks(failure)) {
    throw IoError("flock", path, failure);
  } else if (failure != 0 && same_host) {
    const bool lives = finding.owner->is_running();
    finding.state = lives ? State::kInUse : State::kLeftover;
    finding.reason = cat(lives ? "in use by " : "left behind by ", who);
    judged.lock = std::move(file);
  } else {
    finding.reason = cat("of ", who, ", of whom host ", host, " can't tell whether it still runs");
  }
  return judged;
}

void remove_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) throw IoError("removing", path, errno);
}

std::vector<SwapFinding> look_at_all(const std::string& nvme_path, const std::string& host, bool remove, const IoSystem& system) {
  std::vector<SwapFinding> findings;
  for (const std::string& name : names_in(nvme_path)) {
    const std::optional<uid_t> user = user_of(name);
    if (!user) continue;
    const std::string directory = cat(nvme_path, "/", name);
    struct stat info {};
    if (::lstat(directory.c_str(), &info) != 0) continue;  // gone meanwhile
    if (*user != ::geteuid() || info.st_uid != ::geteuid() || !S_ISDIR(info.st_mode)) {
      findings.push_back({directory, State::kForeign, 0, std::nullopt, cat("belongs to user ", info.st_uid)});
      continue;
    }
    for (const std::string& file : names_in(directory)) {
      if (!is_file_name(file)) continue;
      const std::string path = cat(directory, "/", file);
      try {
        Judged judged = judge(path, host, remove, system);
        if (remove && judged.finding.state == State::kLeftover) {
          remove_file(path);
          judged.finding.state = State::kRemoved;
        }
        findings.push_back(std::move(judged.finding));
      } catch (const IoError& error) {
        if (error.error_number != ENOENT) findings.push_back({path, State::kUnclear, 0, std::nullopt, error.what()});
      }
    }
    // What somebody is about to create a file in is theirs again at once: SwapFile::create makes it anew.
    if (remove) ::rmdir(directory.c_str());
  }
  return findings;
}

// Where `error` is about space, the same with numbers, thrown.
void throw_if_full(const IoError& error, const File& file) {
  if (error.error_number != ENOSPC && error.error_number != EDQUOT && error.error_number != EFBIG) return;
  struct statvfs info {};
  const bool known = ::fstatvfs(file.fd(), &info) == 0;
  const std::int64_t free = known ? static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize) : 0;
  throw EnvironmentError(cat(error.what(), known ? cat("; ", format_bytes(free), " are free") : std::string(),
                             "; free some (a quota may be in the way), choose another directory or let less of the state live on disk"));
}

// Opens the new file `path`, exclusively, and locks it; none if it must be tried again, because of `obstacle`.
std::optional<File> create_locked(const std::string& directory, const std::string& path, const SwapIdentity& identity,
                                  const IoSystem& system, std::string& obstacle) {
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) throw IoError("making the directory", directory, errno);
  File file;
  try {
    check_private(directory);
    file = File(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
  } catch (const IoError& error) {
    if (error.error_number == ENOENT) return std::nullopt;  // a remover of leftovers took the empty directory
    if (error.error_number != EEXIST) throw;
    const Judged judged = judge(path, identity.host, true, system);
    if (judged.finding.state == State::kLeftover) {
      remove_file(path);
      return std::nullopt;
    }
    obstacle = judged.finding.reason;
    const std::optional<Owner>& owner = judged.finding.owner;
    // An owner that isn't there holds no lock: another judge does, or the owner hides in another container.
    if (judged.finding.state == State::kInUse && !(owner && owner->is_running())) return std::nullopt;
    throw RequestError(cat(path, ": ", obstacle, kAdvice));
  }
  // Only somebody who judges leftovers can be in the way, for a moment.
  int result = 0;
  while ((result = ::flock(file.fd(), LOCK_EX)) != 0 && errno == EINTR) {
  }
  if (result != 0 && !has_no_locks(errno)) {
    const int error = errno;
    remove_file(path);
    throw IoError("flock", path, error);
  }
  struct stat info {};
  if (::fstat(file.fd(), &info) != 0) throw IoError("fstat", path, errno);
  if (info.st_nlink == 0) return std::nullopt;  // taken for a leftover before it was locked
  return file;
}

}  // namespace

void check_swap_directory(const std::string& nvme_path) {
  struct stat info {};
  const bool found = ::stat(nvme_path.c_str(), &info) == 0;
  if (!found && errno != ENOENT && errno != ENOTDIR) throw IoError("looking for the directory to swap to", nvme_path, errno);
  if (found && S_ISDIR(info.st_mode)) return;
  throw RequestError(cat(nvme_path, ": ", found ? "is not a directory" : "does not exist",
                         ", so nothing can be swapped there; make it or choose another directory"));
}

SwapFile SwapFile::create(const std::string& nvme_path, const SwapIdentity& identity, const IoSystem& system) {
  SLUICE_CHECK(!identity.job.empty() && !identity.host.empty() && identity.rank >= 0, "rank ", identity.rank, " of job \"", identity.job,
               "\" on host \"", identity.host, "\"");
  check_swap_directory(nvme_path);
  const std::string directory = cat(nvme_path, "/", directory_name(identity));
  const std::string path = cat(directory, "/", file_name(identity.rank));
  std::string obstacle = "other processes keep removing it";
  for (int i = 0; i < kTries; ++i) {
    if (i > 0) std::this_thread::sleep_for(kPause);
    std::optional<File> file = create_locked(directory, path, identity, system, obstacle);
    if (!file) continue;
    SwapFile created(std::move(*file), directory);  // from here on a failure unlinks it
    std::string header = cat(kMagic, Owner::this_process(identity.host, cat("job ", identity.job, ", rank ", identity.rank)).to_text());
    SLUICE_CHECK(static_cast<std::int64_t>(header.size()) < kSwapHeaderBytes, path, ": the names of job and host are too long");
    header.resize(static_cast<std::size_t>(kSwapHeaderBytes), '\0');
    try {
      created.file_.write_at(header.data(), kSwapHeaderBytes, 0);
      created.file_.sync();
    } catch (const IoError& error) {
      throw_if_full(error, created.file_);
      throw;
    }
    return created;
  }
  throw RequestError(cat(path, ": ", obstacle, kAdvice));
}

SwapFile::~SwapFile() {
  if (!file_.is_open()) return;
  ::unlink(file_.path().c_str());  // a failure leaves a leftover, which the next start removes
  file_ = File();
  ::rmdir(directory_.c_str());  // fails while other ranks' files are in it
}

bool SwapFile::reserve(std::int64_t bytes) const {
  const std::int64_t all = kSwapHeaderBytes + bytes;
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && static_cast<std::uint64_t>(all) > limit.rlim_cur) {
    throw EnvironmentError(cat(path(), ": ", format_bytes(all), " are needed, but this process may write files of ",
                               format_bytes(static_cast<std::int64_t>(limit.rlim_cur)), " at most; raise the limit (ulimit -f)"));
  }
  try {
    return file_.reserve(all);
  } catch (const IoError& error) {
    throw_if_full(error, file_);
    throw;
  }
}

std::vector<SwapFinding> list_swap_files(const std::string& nvme_path, const std::string& host, const IoSystem& system) {
  return look_at_all(nvme_path, host, false, system);
}

std::vector<SwapFinding> remove_swap_leftovers(const std::string& nvme_path, const std::string& host, const IoSystem& system) {
  return look_at_all(nvme_path, host, true, system);
}

}  // namespace sluice::memory

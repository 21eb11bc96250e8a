#pragma once
// The errors a rank can throw. Each carries the exit code of design section 7; only `app/` turns it into an exit.
// A message is one line: what, where, found, expected, what to do.

#include <cstdint>
#include <stdexcept>
#include <string>

namespace sluice {

enum class ExitCode : int {
  kFinished = 0,
  kDefect = 1,       // a broken contract of ours
  kRequest = 2,      // the request can't be honoured: command line, configuration, launch, fingerprint, text too short
  kEnvironment = 3,  // does not fit, permission, missing library or file
  kFormat = 4,       // a file violates its format
  kDiverged = 5,     // training diverged
  kResumable = 75,   // stopped on request, peer lost or disk full, after a complete checkpoint
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const noexcept { return code_; }
  /// Every rank throws the same error at the same point, so that all can end in order; where only some do, the job is aborted.
  bool is_agreed() const noexcept { return agreed_; }
  void set_agreed() noexcept { agreed_ = true; }

 private:
  ExitCode code_;
  bool agreed_ = false;
};

/// Throws `error`, known to be thrown by every rank.
template <typename Kind>
[[noreturn]] void throw_on_all_ranks(Kind error) {
  error.set_agreed();
  throw error;
}

/// A contract between our own parts is broken. Thrown by SLUICE_CHECK.
struct LogicError : Error {
  explicit LogicError(const std::string& message) : Error(ExitCode::kDefect, message) {}
};

/// The user asked for something that can't be honoured.
struct RequestError : Error {
  explicit RequestError(const std::string& message) : Error(ExitCode::kRequest, message) {}
};

/// The machine does not give what is needed.
struct EnvironmentError : Error {
  explicit EnvironmentError(const std::string& message) : Error(ExitCode::kEnvironment, message) {}
};

/// A reservation or allocation does not fit. `wanted` and `available` in bytes.
struct OutOfMemory : EnvironmentError {
  OutOfMemory(const std::string& tier, const std::string& tag, std::int64_t wanted, std::int64_t available);
  std::int64_t wanted;
  std::int64_t available;
};

/// A file operation failed; `error_number` is errno (0: a short transfer).
struct IoError : EnvironmentError {
  IoError(const std::string& operation, const std::string& path, int error_number, std::int64_t offset = -1);
  std::string path;
  int error_number;
};

struct DeviceError : EnvironmentError {
  explicit DeviceError(const std::string& message) : EnvironmentError(message) {}
};

/// A communication failed or the ranks disagree. `operation` names the collective and its group.
struct CommError : EnvironmentError {
  CommError(const std::string& operation, const std::string& detail);
};

/// A file's content violates its format (damaged data, weights or checkpoint).
struct FormatError : Error {
  FormatError(const std::string& path, const std::string& detail) : Error(ExitCode::kFormat, path + ": " + detail) {}
};

/// Training left the finite numbers.
struct DivergedError : Error {
  explicit DivergedError(const std::string& message) : Error(ExitCode::kDiverged, message) {}
};

/// An agreed end that can be continued later.
struct ResumableStop : Error {
  explicit ResumableStop(const std::string& message) : Error(ExitCode::kResumable, message) {}
};

}  // namespace sluice

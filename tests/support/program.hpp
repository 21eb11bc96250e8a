#pragma once
// Programs started by tests from outside, as a user starts them: with a time limit, their output caught, nothing of them left behind.

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace sluice::testing {

struct ProgramCommand {
  std::vector<std::string> words;                  // program (a path, or found on the PATH) and arguments
  std::map<std::string, std::string> environment;  // added to this process's own
  double limit_seconds = 120;                      // then everything is ended; four times as much under sanitizers
  /// Runs in the child before the program starts; only what is allowed after fork(). A result other than 0 becomes the exit code.
  std::function<int()> prepare;
};

struct ProgramOutcome {
  int code = -1;   // exit status; -1 where a signal ended it
  int signal = 0;  // the signal that ended it
  bool timed_out = false;
  double seconds = 0;
  long peak_kib = 0;        // largest resident size of the program and those it waited for
  std::string output;       // standard output
  std::string errors;       // standard error
  std::vector<pid_t> left;  // processes of it that outlived it by more than five seconds (ended then)
  std::string all() const { return output + errors; }
  /// Lines that tell of an error of ours: "error: ...", "rank 1: error: ...", "sluice: ...".
  std::vector<std::string> error_lines() const;
};

/// A program that runs. Launchers put ranks into process groups of their own, so its processes are known by a mark in their
/// environment; all of them are ended in wait() and in the destructor.
class Program {
 public:
  explicit Program(const ProgramCommand& command);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program();

  pid_t pid() const { return pid_; }
  bool is_running();
  /// Polls `condition` until it holds (true), or the program ends or `seconds` are over (false).
  bool wait_until(const std::function<bool()>& condition, double seconds = 60);
  /// The living processes of this program, whatever they are.
  std::vector<pid_t> processes() const;
  /// The process that the launcher started as this rank; 0 where there is none (yet).
  pid_t rank(int number) const;
  /// SIGKILL to all of it at once, the launcher last.
  void kill_all();
  /// Waits for its end, or ends it at the limit.
  ProgramOutcome wait();

 private:
  void collect(int status, long peak_kib);

  ProgramCommand command_;
  std::string mark_;
  std::string folder_;  // of the caught output
  pid_t pid_ = -1;
  bool ended_ = false;
  double begin_ = 0;
  ProgramOutcome outcome_;
};

ProgramOutcome run_program(const ProgramCommand& command);

/// The bytes of a file; nothing where it can't be read.
std::string read_all(const std::string& path);

constexpr int kNotAllowed = 119;  // of a child whose preparation this user may not make
/// For `prepare`. Root may read and write where it likes and lock what it likes; without these powers it is like anybody else.
int become_ordinary();

}  // namespace sluice::testing

#pragma once
// Who asks the run to stop: signals that batch queues send, and a file that a person can make.

#include <atomic>
#include <cstdint>
#include <string>

namespace sluice::train {

/// Hears SIGUSR1, SIGUSR2, SIGTERM, SIGINT and SIGALRM (Flux's time limit) from construction to destruction. At most one at a
/// time in a process (LogicError). Also looks for the file `stop_file` (empty: none), at most twice a second.
///
/// The signals are blocked in the constructing thread and so in all that it starts from then on: make it before the threads that
/// compute. oneDNN's sgemm for AVX-512 keeps data below the stack pointer, where a handler's frame would overwrite it (measured with
/// 2.6.3: the heap is damaged). What is sent to the process waits until requested() or hastened() looks; a library's thread that
/// blocks nothing counts it in a handler.
class StopSource {
 public:
  explicit StopSource(std::string stop_file);
  StopSource(const StopSource&) = delete;
  StopSource& operator=(const StopSource&) = delete;
  ~StopSource();
  /// A signal came, the file is there, or request() was called.
  bool requested();
  /// Asks from inside the program, as for a disk that is full. Any thread.
  void request(const std::string& reason);
  /// Two signals came: skip what can be skipped.
  bool hastened() const;
  /// "SIGUSR1", "the file runs/a/STOP"; empty where nothing asked.
  std::string reason() const;

 private:
  std::string stop_file_;
  std::atomic<std::int64_t> next_look_ns_{0};  // ranks that are threads share one
  std::atomic<bool> file_found_{false};
  std::atomic<bool> asked_{false};
  std::string asked_reason_;  // written once, before asked_
};

}  // namespace sluice::train

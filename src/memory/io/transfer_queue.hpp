#pragma once
// The half of the file engine that all its services share: transfers waiting in one direction, cut into blocks on demand, and
// what became of them.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace sluice::memory {

enum class IoDirection : std::uint8_t { kRead, kWrite };

/// What became of the transfers on one ticket. Shared by the ticket's owner and the blocks on their way.
class Completion {
 public:
  struct Failure {
    std::shared_ptr<const std::string> path;
    IoDirection direction;
    std::int64_t offset;
    std::int64_t bytes;
    int error_number;  // 0: the transfer stayed short
  };
  /// `bytes` more are to come to an end. Owner's thread.
  void begin(std::int64_t bytes) noexcept { open_.fetch_add(bytes, std::memory_order_relaxed); }
  /// `bytes` have come to their end, moved or not: the memory is free when the last have. Any thread, as fail().
  void end(std::int64_t bytes) noexcept;
  /// Keeps the first failure; the rest of a failed ticket isn't started.
  void fail(Failure failure) noexcept;
  bool has_failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  bool is_complete() const noexcept { return open_.load(std::memory_order_acquire) == 0; }
  void wait() noexcept;
  /// The failure, if any, forgotten here. Owner's thread, when complete.
  std::optional<Failure> take_failure();

 private:
  std::atomic<std::int64_t> open_{0};  // bytes
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::condition_variable over_;
  std::optional<Failure> failure_;  // guarded by mutex_
};

/// One request to the system: a piece of a transfer.
struct IoBlock {
  std::shared_ptr<Completion> completion;
  std::byte* data = nullptr;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  int attempts = 0;  // in a row that moved nothing
};

/// First in, first out. post() and close() from any thread; the rest from the service's threads.
class TransferQueue {
 public:
  /// Blocks have at most `block_bytes`. A short transfer is continued at a multiple of `alignment`.
  TransferQueue(IoDirection direction, std::shared_ptr<const std::string> path, std::int64_t block_bytes, std::int64_t alignment)
      : direction_(direction), path_(std::move(path)), block_bytes_(block_bytes), alignment_(alignment) {}

  void post(const std::shared_ptr<Completion>& completion, std::byte* data, std::int64_t offset, std::int64_t bytes);
  /// Nothing more will be posted.
  void close();

  IoDirection direction() const noexcept { return direction_; }
  /// Waits until a block may be there (true) or the queue is closed and empty (false).
  bool wait();
  /// Takes the next block; false: there is none. Doesn't wait.
  bool take(IoBlock& block);
  enum class Verdict : std::uint8_t { kDone, kAgain };
  /// Books what the system said about `block`, bytes or -errno. kAgain: the block now is what is left, to be submitted again;
  /// kDone: it is over and empty. A short transfer is continued, EINTR and EAGAIN are repeated (the latter after a sleep, in
  /// here, that doubles from 1 ms, for 2 s in all), three transfers of nothing in a row and every other error are failures.
  Verdict settle(IoBlock& block, std::int64_t result) noexcept;
  /// Bytes moved so far.
  std::int64_t moved_bytes() const noexcept { return moved_.load(std::memory_order_relaxed); }

 private:
  struct Waiting {
    std::shared_ptr<Completion> completion;
    std::byte* data;
    std::int64_t offset;
    std::int64_t bytes;
  };
  const IoDirection direction_;
  const std::shared_ptr<const std::string> path_;
  const std::int64_t block_bytes_;
  const std::int64_t alignment_;
  std::atomic<std::int64_t> moved_{0};
  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<Waiting> waiting_;  // guarded by mutex_, as closed_
  bool closed_ = false;
};

}  // namespace sluice::memory

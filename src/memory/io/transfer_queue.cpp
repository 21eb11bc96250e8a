#include "memory/io/transfer_queue.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

namespace sluice::memory {
namespace {
constexpr int kEmptyAttempts = 3;   // a read at the end of a file answers 0 for ever
constexpr int kAgainAttempts = 12;  // 1 + 2 + 4 ... + 1024 ms between them: 2 s
}  // namespace

void Completion::end(std::int64_t bytes) noexcept {
  if (open_.fetch_sub(bytes, std::memory_order_acq_rel) != bytes) return;
  // A waiter that saw bytes open before has either gone to sleep by now or will look again.
  { const std::lock_guard<std::mutex> lock(mutex_); }
  over_.notify_all();
}

void Completion::fail(Failure failure) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (failure_) return;
  failure_ = std::move(failure);
  failed_.store(true, std::memory_order_release);
}

void Completion::wait() noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  over_.wait(lock, [&] { return is_complete(); });
}

std::optional<Completion::Failure> Completion::take_failure() {
  if (!has_failed()) return std::nullopt;
  const std::lock_guard<std::mutex> lock(mutex_);
  failed_.store(false, std::memory_order_relaxed);
  return std::exchange(failure_, std::nullopt);
}

void TransferQueue::post(const std::shared_ptr<Completion>& completion, std::byte* data, std::int64_t offset, std::int64_t bytes) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_.push_back({completion, data, offset, bytes});
    completion->begin(bytes);  // under the lock: no block of it may end before
  }
  // A service of calls has a thread per block.
  if (bytes > block_bytes_) {
    posted_.notify_all();
  } else {
    posted_.notify_one();
  }
}

void TransferQueue::close() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
  }
  posted_.notify_all();
}

bool TransferQueue::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  posted_.wait(lock, [&] { return closed_ || !waiting_.empty(); });
  return !waiting_.empty();
}

bool TransferQueue::take(IoBlock& block) {
  const std::lock_guard<std::mutex> lock(mutex_);
  while (!waiting_.empty()) {
    Waiting& next = waiting_.front();
    if (next.completion->has_failed()) {
      next.completion->end(next.bytes);
      waiting_.pop_front();
      continue;
    }
    const std::int64_t bytes = std::min(next.bytes, block_bytes_);
    const bool last = bytes == next.bytes;
    block = {last ? std::move(next.completion) : next.completion, next.data, next.offset, bytes};
    if (last) {
      waiting_.pop_front();
    } else {
      next.data += bytes;
      next.offset += bytes;
      next.bytes -= bytes;
    }
    return true;
  }
  return false;
}

TransferQueue::Verdict TransferQueue::settle(IoBlock& block, std::int64_t result) noexcept {
  int error = 0;
  if (result == block.bytes) {
    moved_.fetch_add(block.bytes, std::memory_order_relaxed);
    block.completion->end(block.bytes);
    block = {};
    return Verdict::kDone;
  }
  if (result == -EINTR) return Verdict::kAgain;
  if (result == -EAGAIN) {
    if (++block.attempts < kAgainAttempts) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1LL << (block.attempts - 1)));
      return Verdict::kAgain;
    }
    error = EAGAIN;
  } else if (result < 0) {
    error = static_cast<int>(-result);
  } else if (result > block.bytes) {
    error = EIO;  // more than asked for: memory beyond the block is in doubt
  } else {
    const std::int64_t whole = result / alignment_ * alignment_;
    block.attempts = whole > 0 ? 0 : block.attempts + 1;
    if (block.attempts < kEmptyAttempts) {
      moved_.fetch_add(whole, std::memory_order_relaxed);
      block.completion->end(whole);
      block.data += whole;
      block.offset += whole;
      block.bytes -= whole;
      return Verdict::kAgain;
    }
  }
  block.completion->fail({path_, direction_, block.offset, block.bytes, error});
  block.completion->end(block.bytes);
  block = {};
  return Verdict::kDone;
}

}  // namespace sluice::memory

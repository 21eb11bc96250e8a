#pragma once
// Asynchronous reads and writes of aligned ranges of one open file, from and into the caller's memory.
//
// Who does what. The caller posts transfers onto tickets and goes on; threads of the engine cut them into blocks and keep a
// chosen number of blocks in flight. Reads and writes have a queue, a depth and threads of their own, so a long write never
// makes a read wait for anything but the disk. Within a direction blocks start in the order of posting and end in any order;
// between the directions, and between transfers that overlap, there is no order: whoever reads what is being written waits for
// the ticket first (in the step graph, by an edge).
//
// Two services, chosen at open by trying, with a note where it isn't the first:
// - aio: O_DIRECT and the kernel's asynchronous I/O through libaio, one thread per direction that sleeps in the kernel until
//   blocks come back. No copy, no page cache, hardly any processor time.
// - calls: a few threads per direction with pread and pwrite, on the same direct descriptor where only kernel aio is refused
//   (contexts used up, a container's filter, file systems that would run it in the submitting thread), else buffered.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/file.hpp"
#include "memory/io/alignment.hpp"
#include "memory/io/io_system.hpp"
#include "memory/io/transfer_queue.hpp"

namespace sluice::memory {

class AioContext;

/// The outcome of the transfers posted onto it, and the proof that their memory may be used again: it outlives them, since its
/// destructor waits. Move-only; used by one thread at a time; used again after wait(), then posting allocates nothing for it.
class IoTicket {
 public:
  IoTicket();
  IoTicket(IoTicket&&) noexcept = default;  // a moved-from ticket may only be destroyed or assigned to
  IoTicket& operator=(IoTicket&& other) noexcept;
  IoTicket(const IoTicket&) = delete;
  IoTicket& operator=(const IoTicket&) = delete;
  ~IoTicket();

  /// Whether all transfers are over, well or not: then wait() doesn't block. True before the first. Cheap enough to poll.
  bool is_complete() const noexcept { return completion_->is_complete(); }
  /// Blocks until all transfers are over. Throws IoError (file, direction, bytes, offset, cause) for the first that failed;
  /// what its memory or its range of the file then holds is undefined. The rest of a ticket's transfers isn't started after a
  /// failure.
  void wait();

 private:
  friend class FileEngine;
  std::shared_ptr<Completion> completion_;
};

/// Memory at `data` and `bytes` of the file from `offset` on. All three are multiples of the engine's alignment.
struct IoTransfer {
  IoDirection direction = IoDirection::kRead;
  std::int64_t offset = 0;
  std::byte* data = nullptr;  // not written to where the direction is kWrite
  std::int64_t bytes = 0;     // > 0
};

class FileEngine {
 public:
  struct Options {
    std::int64_t block_bytes = 1 << 20;  // of one request; rounded up to the alignment
    int read_depth = 32;                 // blocks in flight, at most; of the calls service kCallThreads
    int write_depth = 32;
  };
  enum class Service : std::uint8_t { kAio, kCalls };
  /// More calls at once gain nothing on the file systems that need this service, and each costs a thread.
  static constexpr int kCallThreads = 8;

  /// Opens an existing file for reading and writing. `system` outlives the engine. Its first 128 KiB are best written already
  /// (alignment.hpp). Throws IoError.
  static std::unique_ptr<FileEngine> open(const std::string& path, const Options& options, const IoSystem& system = IoSystem::real());
  FileEngine(const FileEngine&) = delete;
  FileEngine& operator=(const FileEngine&) = delete;
  /// Waits until everything posted is over.
  ~FileEngine();

  /// Starts a transfer whose end `ticket` then waits for; a ticket takes any number, of any engines. Doesn't wait. Any thread.
  /// LogicError on a misaligned or empty transfer. Nothing checks the file's end: a read beyond it is a failure, a write grows
  /// the file.
  void post(IoTicket& ticket, const IoTransfer& transfer);

  const std::string& path() const noexcept { return file_.path(); }
  Service service() const noexcept { return service_; }
  bool is_direct() const noexcept { return direct_; }
  const IoAlignment& alignment() const noexcept { return alignment_; }
  std::int64_t block_bytes() const noexcept { return block_bytes_; }
  /// Why this isn't aio on O_DIRECT and what that means, one line for people, or empty.
  const std::string& note() const noexcept { return note_; }
  /// Bytes moved since open.
  std::int64_t bytes_read() const noexcept { return reads_->moved_bytes(); }
  std::int64_t bytes_written() const noexcept { return writes_->moved_bytes(); }

 private:
  FileEngine(const std::string& path, const Options& options, const IoSystem& system);
  std::string choose_service(const Options& options);
  std::string choose_direct();
  void start(TransferQueue& queue, int depth, AioContext* context);
  void stop() noexcept;

  const IoSystem& system_;
  File file_;
  Service service_ = Service::kCalls;
  bool direct_ = false;
  IoAlignment alignment_;
  std::int64_t block_bytes_ = 0;
  std::string note_;
  std::unique_ptr<AioContext> read_context_;
  std::unique_ptr<AioContext> write_context_;
  std::unique_ptr<TransferQueue> reads_;
  std::unique_ptr<TransferQueue> writes_;
  std::vector<std::thread> threads_;
};

}  // namespace sluice::memory

#pragma once
// The half of the file engine that talks to the system: two ways of working a queue of transfers off.

#include <memory>

#include "memory/io/io_system.hpp"
#include "memory/io/transfer_queue.hpp"

namespace sluice::memory {

/// Owns a context of the kernel's asynchronous I/O.
class AioContext {
 public:
  /// Room for `depth` requests in flight. On failure there is none and error() says why: EAGAIN where fs.aio-max-nr is used up.
  AioContext(const IoSystem& system, int depth) : system_(system), depth_(depth), error_(-system.aio_setup(depth, &context_)) {}
  AioContext(const AioContext&) = delete;
  AioContext& operator=(const AioContext&) = delete;
  ~AioContext() { destroy(); }
  int error() const noexcept { return error_; }
  int depth() const noexcept { return depth_; }
  io_context* get() const noexcept { return context_; }
  /// Waits for what is in flight.
  void destroy() noexcept;

 private:
  const IoSystem& system_;
  int depth_;
  io_context* context_ = nullptr;
  int error_;
};

/// Reads `bytes` from the file's beginning into `data` through `context`, which is idle: bytes, or -errno where this file or
/// kernel has no asynchronous I/O. Waits.
std::int64_t try_aio_read(AioContext& context, const IoSystem& system, int fd, std::byte* data, std::int64_t bytes);

/// Works `queue` off until it is closed and empty, keeping up to the context's depth of blocks in flight: whenever some come
/// back, as many follow. Ends the context. The one thread of its direction.
void serve_with_aio(TransferQueue& queue, const IoSystem& system, int fd, AioContext& context);

/// The same with one blocking call after the other; run by as many threads as blocks shall be in flight.
void serve_with_calls(TransferQueue& queue, const IoSystem& system, int fd);

}  // namespace sluice::memory

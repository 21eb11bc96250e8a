#pragma once
// The system calls whose failures the file engine has to survive, behind one table so that tests can make them happen.

#include <cstdint>

// libaio's types, by name only: its header stays in the .cpp files.
struct io_context;
struct io_event;
struct iocb;

namespace sluice::memory {

/// The operating system. Every call returns what it says, or -errno. Stateless, any thread.
class IoSystem {
 public:
  IoSystem() = default;
  IoSystem(const IoSystem&) = delete;
  IoSystem& operator=(const IoSystem&) = delete;
  virtual ~IoSystem() = default;

  virtual std::int64_t file_system_type(const char* path) const;  // statfs(2)'s f_type, 32 bits
  virtual int set_direct(int fd) const;                           // O_DIRECT on an open descriptor: 0
  /// pread(2), pwrite(2): bytes moved. May be short.
  virtual std::int64_t read(int fd, void* data, std::int64_t bytes, std::int64_t offset) const;
  virtual std::int64_t write(int fd, const void* data, std::int64_t bytes, std::int64_t offset) const;
  /// io_setup, io_destroy (waits for what the context has in flight), io_submit (requests accepted), and io_getevents for at
  /// least one event without a time limit (events reaped).
  virtual int aio_setup(int depth, io_context** context) const;
  virtual void aio_destroy(io_context* context) const;
  virtual int aio_submit(io_context* context, long count, iocb** requests) const;
  virtual int aio_reap(io_context* context, long most, io_event* events) const;

  /// The one that asks the kernel.
  static const IoSystem& real();
};

}  // namespace sluice::memory

#include "memory/io/file_engine.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "memory/io/file_system.hpp"
#include "memory/io/service.hpp"

namespace sluice::memory {

IoTicket::IoTicket() : completion_(std::make_shared<Completion>()) {}

IoTicket& IoTicket::operator=(IoTicket&& other) noexcept {
  if (this != &other) {
    if (completion_) completion_->wait();
    completion_ = std::move(other.completion_);
  }
  return *this;
}

IoTicket::~IoTicket() {
  if (completion_) completion_->wait();
}

void IoTicket::wait() {
  completion_->wait();
  const std::optional<Completion::Failure> failure = completion_->take_failure();
  if (!failure) return;
  throw IoError(cat(failure->direction == IoDirection::kRead ? "reading " : "writing ", failure->bytes, " bytes"), *failure->path,
                failure->error_number, failure->offset);
}

std::unique_ptr<FileEngine> FileEngine::open(const std::string& path, const Options& options, const IoSystem& system) {
  return std::unique_ptr<FileEngine>(new FileEngine(path, options, system));
}

FileEngine::FileEngine(const std::string& path, const Options& options, const IoSystem& system) : system_(system), file_(path, O_RDWR) {
  SLUICE_CHECK(options.block_bytes > 0 && options.read_depth > 0 && options.write_depth > 0, path, ": blocks of ", options.block_bytes,
               ", depths ", options.read_depth, " and ", options.write_depth);
  note_ = choose_service(options);
  block_bytes_ = round_up(options.block_bytes, alignment_.transfer);
  const auto name = std::make_shared<const std::string>(path);
  reads_ = std::make_unique<TransferQueue>(IoDirection::kRead, name, block_bytes_, alignment_.transfer);
  writes_ = std::make_unique<TransferQueue>(IoDirection::kWrite, name, block_bytes_, alignment_.transfer);
  try {
    start(*reads_, options.read_depth, read_context_.get());
    start(*writes_, options.write_depth, write_context_.get());
  } catch (...) {
    stop();  // some threads may run
    throw;
  }
}

FileEngine::~FileEngine() {
  stop();
}

// Turns O_DIRECT on where it works; else says why it doesn't.
std::string FileEngine::choose_direct() {
  const FileSystem file_system = file_system_of(file_.path(), system_);
  if (file_system.is_memory) return cat(file_system.name, " keeps files in memory");
  const int refused = system_.set_direct(file_.fd());
  if (refused != 0) return cat(file_system.name, " refuses O_DIRECT (", std::strerror(-refused), ")");
  std::optional<IoAlignment> alignment = alignment_from_kernel(file_.fd());
  if (!alignment) alignment = alignment_by_trial(file_.fd(), system_);
  if (!alignment || alignment->transfer == 0) {
    file_ = File(file_.path(), O_RDWR);
    return cat(file_system.name, " accepts O_DIRECT but no transfer");
  }
  direct_ = true;
  alignment_ = *alignment;
  return file_system.is_synchronous ? cat(file_system.name, " has no asynchronous I/O") : "";
}

// Settles direct or not, aio or not; the note for people.
std::string FileEngine::choose_service(const Options& options) {
  const auto instead = [&](const std::string& why) {
    read_context_.reset();
    write_context_.reset();
    service_ = Service::kCalls;
    return cat(file_.path(), ": ", why, ", so ", kCallThreads, " threads read and write it ",
               direct_ ? "with direct calls" : "through the page cache", ", which takes more processor time");
  };
  const std::string why = choose_direct();
  if (!why.empty()) return instead(why);
  read_context_ = std::make_unique<AioContext>(system_, options.read_depth);
  write_context_ = std::make_unique<AioContext>(system_, options.write_depth);
  for (const AioContext* context : {read_context_.get(), write_context_.get()}) {
    if (context->error() == EAGAIN) return instead("no kernel aio contexts are left (fs.aio-max-nr)");
    if (context->error() != 0) return instead(cat("the kernel refuses io_setup (", std::strerror(context->error()), ")"));
  }
  const std::int64_t bytes = std::max(alignment_.transfer, alignment_.memory);
  std::vector<std::byte> buffer(static_cast<std::size_t>(2 * bytes));
  void* data = buffer.data();
  std::size_t room = buffer.size();
  std::align(static_cast<std::size_t>(bytes), static_cast<std::size_t>(bytes), data, room);
  const std::int64_t result = try_aio_read(*read_context_, system_, file_.fd(), static_cast<std::byte*>(data), alignment_.transfer);
  if (result < 0) return instead(cat("asynchronous reads fail (", std::strerror(static_cast<int>(-result)), ")"));
  service_ = Service::kAio;
  return "";
}

void FileEngine::start(TransferQueue& queue, int depth, AioContext* context) {
  if (context != nullptr) {
    threads_.emplace_back([this, &queue, context] { serve_with_aio(queue, system_, file_.fd(), *context); });
    return;
  }
  for (int i = 0; i < std::min(depth, kCallThreads); ++i) {
    threads_.emplace_back([this, &queue] { serve_with_calls(queue, system_, file_.fd()); });
  }
}

void FileEngine::stop() noexcept {
  reads_->close();
  writes_->close();
  for (std::thread& thread : threads_) thread.join();
}

void FileEngine::post(IoTicket& ticket, const IoTransfer& transfer) {
  const auto address = reinterpret_cast<std::uintptr_t>(transfer.data);
  SLUICE_CHECK(transfer.bytes > 0 && transfer.offset >= 0 && transfer.offset % alignment_.transfer == 0 &&
                   transfer.bytes % alignment_.transfer == 0 && address % static_cast<std::uintptr_t>(alignment_.memory) == 0,
               path(), ": ", transfer.bytes, " bytes at ", transfer.offset, ", memory at ", transfer.data, "; alignment ",
               alignment_.transfer, ", of memory ", alignment_.memory);
  TransferQueue& queue = transfer.direction == IoDirection::kRead ? *reads_ : *writes_;
  queue.post(ticket.completion_, transfer.data, transfer.offset, transfer.bytes);
}

}  // namespace sluice::memory

#include "memory/io/service.hpp"

#include <libaio.h>

#include <cerrno>
#include <utility>
#include <vector>

namespace sluice::memory {
namespace {

struct Slot {
  iocb request{};
  IoBlock block;
  bool in_flight = false;
};

/// One direction's requests. The kernel gives a slot's address back with its event.
class AioLoop {
 public:
  AioLoop(TransferQueue& queue, const IoSystem& system, int fd, AioContext& context)
      : queue_(queue),
        system_(system),
        fd_(fd),
        context_(context),
        slots_(static_cast<std::size_t>(context.depth())),
        events_(static_cast<std::size_t>(context.depth())) {
    for (Slot& slot : slots_) idle_.push_back(&slot);
    ready_.reserve(slots_.size());
  }

  void run() {
    while (in_flight_ > 0 || !ready_.empty() || queue_.wait()) {
      while (!idle_.empty() && queue_.take(idle_.back()->block)) {
        make_ready(*idle_.back());
        idle_.pop_back();
      }
      submit();
      if (in_flight_ > 0) reap();
    }
  }

 private:
  void make_ready(Slot& slot) {
    IoBlock& block = slot.block;
    const auto bytes = static_cast<std::size_t>(block.bytes);
    if (queue_.direction() == IoDirection::kRead) {
      io_prep_pread(&slot.request, fd_, block.data, bytes, block.offset);
    } else {
      io_prep_pwrite(&slot.request, fd_, block.data, bytes, block.offset);
    }
    slot.request.data = &slot;
    ready_.push_back(&slot.request);
  }

  void settle(Slot& slot, std::int64_t result) {
    slot.in_flight = false;
    if (queue_.settle(slot.block, result) == TransferQueue::Verdict::kAgain) {
      make_ready(slot);
    } else {
      idle_.push_back(&slot);
    }
  }

  // A refusal is about the first request; those behind it haven't been looked at.
  void refuse_first(std::int64_t result) {
    Slot& slot = *static_cast<Slot*>(ready_.front()->data);
    ready_.erase(ready_.begin());
    settle(slot, result);
  }

  // Hands over what is ready, as far as the kernel takes it.
  void submit() {
    while (!ready_.empty()) {
      const int taken = error_ != 0 ? error_ : system_.aio_submit(context_.get(), static_cast<long>(ready_.size()), ready_.data());
      if (taken > 0) {
        for (int i = 0; i < taken; ++i) static_cast<Slot*>(ready_[static_cast<std::size_t>(i)]->data)->in_flight = true;
        ready_.erase(ready_.begin(), ready_.begin() + taken);
        in_flight_ += taken;
      } else if (taken == 0 || taken == -EAGAIN) {
        if (in_flight_ > 0) return;  // the kernel is full of ours: some must come back first
        refuse_first(-EAGAIN);
      } else if (taken != -EINTR) {
        refuse_first(taken);
      }
    }
  }

  void reap() {
    const int count = system_.aio_reap(context_.get(), static_cast<long>(events_.size()), events_.data());
    if (count == -EINTR) return;
    if (count < 0) {
      lose_context(count);
      return;
    }
    for (int i = 0; i < count; ++i) {
      const io_event& event = events_[static_cast<std::size_t>(i)];
      --in_flight_;
      // The field is unsigned and holds -errno.
      settle(*static_cast<Slot*>(event.data), static_cast<std::int64_t>(static_cast<long>(event.res)));
    }
  }

  // Without a working reap there is no telling what became of the requests in flight, and their memory is free only once the
  // kernel has let go of it.
  void lose_context(int error) {
    error_ = error == -EAGAIN ? -EIO : error;
    context_.destroy();
    in_flight_ = 0;
    for (Slot& slot : slots_) {
      if (slot.in_flight) settle(slot, error_);
    }
  }

  TransferQueue& queue_;
  const IoSystem& system_;
  const int fd_;
  AioContext& context_;
  std::vector<Slot> slots_;
  std::vector<io_event> events_;
  std::vector<Slot*> idle_;
  std::vector<iocb*> ready_;  // prepared, not yet taken by the kernel
  int in_flight_ = 0;
  int error_ = 0;  // -errno once the context is lost
};

}  // namespace

void AioContext::destroy() noexcept {
  if (context_ != nullptr) system_.aio_destroy(std::exchange(context_, nullptr));
}

std::int64_t try_aio_read(AioContext& context, const IoSystem& system, int fd, std::byte* data, std::int64_t bytes) {
  iocb request{};
  io_prep_pread(&request, fd, data, static_cast<std::size_t>(bytes), 0);
  iocb* first = &request;
  const int taken = system.aio_submit(context.get(), 1, &first);
  if (taken <= 0) return taken == 0 ? -EAGAIN : taken;
  io_event event{};
  int count = 0;
  do {
    count = system.aio_reap(context.get(), 1, &event);
  } while (count == -EINTR || count == 0);
  return count < 0 ? count : static_cast<std::int64_t>(static_cast<long>(event.res));
}

void serve_with_aio(TransferQueue& queue, const IoSystem& system, int fd, AioContext& context) {
  AioLoop(queue, system, fd, context).run();
  context.destroy();  // takes the kernel tens of milliseconds; here both directions' threads spend them at the same time
}

void serve_with_calls(TransferQueue& queue, const IoSystem& system, int fd) {
  IoBlock block;
  while (queue.wait()) {
    if (!queue.take(block)) continue;  // another thread was faster
    std::int64_t result = 0;
    do {
      result = queue.direction() == IoDirection::kRead ? system.read(fd, block.data, block.bytes, block.offset)
                                                       : system.write(fd, block.data, block.bytes, block.offset);
    } while (queue.settle(block, result) == TransferQueue::Verdict::kAgain);
  }
}

}  // namespace sluice::memory

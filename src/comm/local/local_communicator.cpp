#include "comm/local/local_communicator.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/check.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "comm/exchange.hpp"

namespace sluice::comm {
namespace {

std::string name_of_host() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return "localhost";
  return name;
}

/// What the ranks of one run share: the lock of all their meetings, and whether one of them has failed.
class LocalJob {
 public:
  explicit LocalJob(int ranks, bool owns_process) : threads_(static_cast<std::size_t>(ranks)), owns_process_(owns_process) {}

  std::mutex& mutex() { return mutex_; }
  std::condition_variable& changed() { return changed_; }
  bool failed() const { return failed_.load(std::memory_order_acquire); }

  /// Throws CommError when a rank has failed; `lock` holds mutex().
  void check_locked(const std::unique_lock<std::mutex>& /*lock*/) const {
    if (failed()) throw CommError("local ranks", reason_);
  }
  void check() {
    if (!failed()) return;
    const std::unique_lock<std::mutex> lock(mutex_);
    check_locked(lock);
  }

  /// Only the first failure counts.
  void fail(std::exception_ptr failure, const std::string& reason) {
    const std::unique_lock<std::mutex> lock(mutex_);
    if (failed()) return;
    failure_ = std::move(failure);
    reason_ = reason;
    failed_.store(true, std::memory_order_release);
    changed_.notify_all();
  }

  void begin(int rank) {
    const std::unique_lock<std::mutex> lock(mutex_);
    threads_[rank].id = std::this_thread::get_id();
  }
  void end(int rank) {
    const std::unique_lock<std::mutex> lock(mutex_);
    threads_[rank].state = State::kEnded;
    changed_.notify_all();
  }

  /// The calling thread never goes on: nothing can be thrown here, and its stack may be in any state.
  [[noreturn]] void abort(int rank, int code) noexcept {
    if (owns_process_) std::_Exit(code);
    fail(std::make_exception_ptr(CommError("abort", cat("rank ", rank, " ended the run with code ", code))),
         cat("rank ", rank, " ended the run with code ", code));
    {
      const std::unique_lock<std::mutex> lock(mutex_);
      for (Thread& thread : threads_) {
        if (thread.id == std::this_thread::get_id()) thread.state = State::kParked;
      }
      changed_.notify_all();
    }
    for (;;) pause();
  }

  /// Waits until every rank's thread has ended or is parked; true for the ended ones.
  std::vector<bool> wait_for_all() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] {
      return std::all_of(threads_.begin(), threads_.end(), [](const Thread& thread) { return thread.state != State::kRunning; });
    });
    std::vector<bool> ended;
    for (const Thread& thread : threads_) ended.push_back(thread.state == State::kEnded);
    return ended;
  }
  std::exception_ptr failure() {
    const std::unique_lock<std::mutex> lock(mutex_);
    return failure_;
  }

 private:
  enum class State { kRunning, kEnded, kParked };
  struct Thread {
    std::thread::id id;
    State state = State::kRunning;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;
  std::string reason_;
  std::vector<Thread> threads_;
  const bool owns_process_;  // a group of one on the caller's thread: abort ends the process
};

/// The meeting place of a group's blocking calls.
class LocalGroup {
 public:
  struct Gift {
    std::string bytes;
    std::shared_ptr<void> object;
  };
  using Gifts = std::shared_ptr<const std::vector<Gift>>;

  LocalGroup(std::shared_ptr<LocalJob> job, int size) : job_(std::move(job)), arriving_(static_cast<std::size_t>(size)) {}
  int size() const { return static_cast<int>(arriving_.size()); }
  LocalJob& job() { return *job_; }
  const std::shared_ptr<LocalJob>& shared_job() const { return job_; }

  /// Every rank's gift on every rank.
  Gifts meet(int rank, Gift gift) {
    std::unique_lock<std::mutex> lock(job_->mutex());
    job_->check_locked(lock);
    arriving_[rank] = std::move(gift);
    if (++arrived_ == size()) {
      const auto count = arriving_.size();
      all_ = std::make_shared<const std::vector<Gift>>(std::exchange(arriving_, std::vector<Gift>(count)));
      arrived_ = 0;
      ++meetings_;
      job_->changed().notify_all();
      return all_;
    }
    const std::uint64_t before = meetings_;
    job_->changed().wait(lock, [&] { return meetings_ != before || job_->failed(); });
    if (meetings_ == before) job_->check_locked(lock);
    return all_;  // of this meeting: the next one needs this rank
  }

 private:
  std::shared_ptr<LocalJob> job_;
  std::vector<Gift> arriving_;
  int arrived_ = 0;
  std::uint64_t meetings_ = 0;
  Gifts all_;
};

/// Threads address everything.
class LocalMemory final : public PeerMemory {
 public:
  LocalMemory(std::shared_ptr<LocalJob> job, int rank, std::vector<std::shared_ptr<RankBoard>> boards)
      : job_(std::move(job)), rank_(rank), boards_(std::move(boards)) {}
  RankBoard* own_board() const override { return boards_.size() > 1 ? boards_[rank_].get() : nullptr; }
  const RankBoard* board(int peer) const override { return boards_[peer].get(); }
  void locate(const std::byte* data, std::int64_t /*bytes*/, Publication& publication) const override {
    publication.place = Publication::Place::kPointer;
    publication.offset = reinterpret_cast<std::uintptr_t>(data);
  }
  bool reaches(int /*peer*/, const Publication& mine) const override { return mine.place == Publication::Place::kPointer; }
  const std::byte* resolve(int /*peer*/, const Publication& theirs) const override {
    const auto address = static_cast<std::uintptr_t>(theirs.offset);
    return reinterpret_cast<const std::byte*>(address);  // NOLINT(performance-no-int-to-ptr): publications hold plain numbers
  }
  void check() const override { job_->check(); }

 private:
  std::shared_ptr<LocalJob> job_;
  int rank_;
  std::vector<std::shared_ptr<RankBoard>> boards_;
};

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<LocalGroup> group, int rank) : group_(std::move(group)), rank_(rank) {}

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return group_->size(); }
  int node_rank() const noexcept override { return rank_; }
  int node_size() const noexcept override { return group_->size(); }
  std::string host_name() const override { return name_of_host(); }

  std::unique_ptr<Channel> open_channel(const std::string& name) override {
    const LocalGroup::Gifts gifts = group_->meet(rank_, {std::string(), std::make_shared<RankBoard>()});
    std::vector<std::shared_ptr<RankBoard>> boards;
    for (const LocalGroup::Gift& gift : *gifts) boards.push_back(std::static_pointer_cast<RankBoard>(gift.object));
    auto memory = std::make_unique<LocalMemory>(group_->shared_job(), rank_, std::move(boards));
    return std::make_unique<ExchangeChannel>(name, rank_, size(), std::move(memory), nullptr);
  }

  std::unique_ptr<memory::Backing> allocate_window(std::int64_t bytes, const std::string& tag) override {
    std::unique_ptr<memory::Backing> backing;
    all_or_none(*this, [&] { backing = memory::make_plain_backing(bytes, tag); });
    return backing;
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    SLUICE_CHECK(color >= 0, "split: colour ", color);
    const LocalGroup::Gifts wishes = group_->meet(rank_, {cat(color, ' ', key), nullptr});
    std::vector<std::pair<int, int>> members;  // (key, rank) of this colour
    for (int r = 0; r < size(); ++r) {
      std::istringstream text((*wishes)[r].bytes);
      int its_color = 0;
      int its_key = 0;
      text >> its_color >> its_key;
      if (its_color == color) members.emplace_back(its_key, r);
    }
    std::sort(members.begin(), members.end());
    std::shared_ptr<void> group;
    if (members.front().second == rank_) group = std::make_shared<LocalGroup>(group_->shared_job(), static_cast<int>(members.size()));
    const LocalGroup::Gifts groups = group_->meet(rank_, {std::string(), group});
    const auto mine = std::find(members.begin(), members.end(), std::make_pair(key, rank_));
    return std::make_unique<LocalCommunicator>(std::static_pointer_cast<LocalGroup>((*groups)[members.front().second].object),
                                               static_cast<int>(mine - members.begin()));
  }

  void barrier() override { group_->meet(rank_, {}); }

  std::string broadcast(const std::string& bytes, int root) override {
    SLUICE_CHECK(root >= 0 && root < size(), "broadcast: root ", root, " of ", size(), " ranks");
    return (*group_->meet(rank_, {rank_ == root ? bytes : std::string(), nullptr}))[root].bytes;
  }

  std::vector<std::string> all_gather(const std::string& bytes) override {
    const LocalGroup::Gifts gifts = group_->meet(rank_, {bytes, nullptr});
    std::vector<std::string> all;
    for (const LocalGroup::Gift& gift : *gifts) all.push_back(gift.bytes);
    return all;
  }

  [[noreturn]] void abort(int code) noexcept override { group_->job().abort(rank_, code); }

 private:
  std::shared_ptr<LocalGroup> group_;
  int rank_;
};

/// What is thrown now, as the reason that the other ranks are told.
std::string current_failure(int rank) {
  try {
    throw;
  } catch (const std::exception& error) {
    return cat("rank ", rank, " failed: ", error.what());
  } catch (...) {
    return cat("rank ", rank, " failed");
  }
}

}  // namespace

void run_local_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  SLUICE_CHECK(ranks >= 1, "run of ", ranks, " ranks");
  const auto job = std::make_shared<LocalJob>(ranks, false);
  const auto world = std::make_shared<LocalGroup>(job, ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([job, world, rank, &body] {
      job->begin(rank);
      try {
        LocalCommunicator communicator(world, rank);
        body(communicator);
      } catch (...) {
        job->fail(std::current_exception(), current_failure(rank));
      }
      job->end(rank);
    });
  }
  const std::vector<bool> ended = job->wait_for_all();
  for (int rank = 0; rank < ranks; ++rank) {
    if (ended[rank]) {
      threads[rank].join();
    } else {
      threads[rank].detach();  // parked in abort() for good
    }
  }
  if (const std::exception_ptr failure = job->failure()) std::rethrow_exception(failure);
}

std::unique_ptr<Communicator> make_single_rank() {
  return std::make_unique<LocalCommunicator>(std::make_shared<LocalGroup>(std::make_shared<LocalJob>(1, true), 1), 0);
}

}  // namespace sluice::comm

#include "comm/mpi/mpi_communicator.hpp"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <thread>
#include <utility>

#include "base/check.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "comm/mpi/mpi_channel.hpp"
#include "comm/mpi/mpi_handle.hpp"
#include "comm/mpi/node_memory.hpp"

namespace sluice::comm {
namespace {

constexpr std::int64_t kLongestPiece = 1 << 30;  // bytes of one MPI call, whose counts are int
constexpr std::int64_t kGatherPiece = 64 << 20;  // bytes of one rank in one round of all_gather
constexpr int kSecondsToAbort = 5;

const char* name_of_thread_level(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE:
      return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED:
      return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED:
      return "MPI_THREAD_SERIALIZED";
    default:
      return "MPI_THREAD_MULTIPLE";
  }
}

/// Memory of this rank in a NodeMemory, known to the registry while it lives.
class WindowBacking final : public memory::Backing {
 public:
  WindowBacking(std::unique_ptr<NodeMemory> memory, std::shared_ptr<WindowRegistry> registry)
      : memory_(std::move(memory)), registry_(std::move(registry)) {
    registry_->add(*memory_);
  }
  WindowBacking(const WindowBacking&) = delete;
  WindowBacking& operator=(const WindowBacking&) = delete;
  ~WindowBacking() override { registry_->remove(*memory_); }
  std::byte* data() const noexcept override { return memory_->own().data; }
  std::int64_t bytes() const noexcept override { return memory_->own().bytes; }

 private:
  std::unique_ptr<NodeMemory> memory_;
  std::shared_ptr<WindowRegistry> registry_;
};

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(CommHandle comm, const MpiOptions& options, std::shared_ptr<WindowRegistry> registry)
      : comm_(std::move(comm)), options_(options), registry_(std::move(registry)), rank_(comm_.rank()), size_(comm_.size()) {
    find_world_ranks();
    node_ = CommHandle::split_by_node(comm_.get(), rank_);
    if (options_.ranks_per_node > 0) node_ = CommHandle::split(node_.get(), world_ranks_[rank_] / options_.ranks_per_node, rank_);
    node_rank_ = node_.rank();
    node_size_ = node_.size();
    std::vector<int> members(static_cast<std::size_t>(node_size_));
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Iallgather(&rank_, 1, MPI_INT, members.data(), 1, MPI_INT, node_.get(), &request), "MPI_Iallgather");
    wait(request, "ranks of a node");
    node_rank_of_.assign(static_cast<std::size_t>(size_), -1);
    for (int i = 0; i < node_size_; ++i) node_rank_of_[members[i]] = i;
  }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  int node_rank() const noexcept override { return node_rank_; }
  int node_size() const noexcept override { return node_size_; }

  std::string host_name() const override {
    char name[MPI_MAX_PROCESSOR_NAME] = {};
    int length = 0;
    check_mpi(MPI_Get_processor_name(name, &length), "MPI_Get_processor_name");
    return std::string(name, static_cast<std::size_t>(length));
  }

  std::unique_ptr<Channel> open_channel(const std::string& name) override {
    std::unique_ptr<NodeMemory> boards;
    if (windows_anywhere()) boards = allocate_on_node(sizeof(RankBoard), cat("channel ", name));
    auto memory = std::make_unique<MpiMemory>(registry_, std::move(boards), node_rank_of_, world_ranks_);
    std::unique_ptr<PeerMessages> messages;
    if (size_ > 1) messages = std::make_unique<MpiMessages>(CommHandle::duplicate(comm_.get()), cat("channel ", name));
    auto channel =
        std::make_unique<ExchangeChannel>(name, rank_, size_, std::move(memory), std::move(messages), options_.silence_limit_seconds);
    barrier();  // every board is in its first state before anyone posts
    return channel;
  }

  std::unique_ptr<memory::Backing> allocate_window(std::int64_t bytes, const std::string& tag) override {
    if (windows_anywhere()) return std::make_unique<WindowBacking>(allocate_on_node(bytes, tag), registry_);
    std::unique_ptr<memory::Backing> backing;
    all_or_none(*this, [&] { backing = memory::make_plain_backing(bytes, tag); });
    return backing;
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    SLUICE_CHECK(color >= 0, "split: colour ", color);
    return std::make_unique<MpiCommunicator>(CommHandle::split(comm_.get(), color, key), options_, registry_);
  }

  void barrier() override {
    refuse_after_loss("barrier");
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibarrier(comm_.get(), &request), "MPI_Ibarrier");
    wait(request, "barrier");
  }

  std::string broadcast(const std::string& bytes, int root) override {
    SLUICE_CHECK(root >= 0 && root < size_, "broadcast: root ", root, " of ", size_, " ranks");
    std::int64_t length = static_cast<std::int64_t>(bytes.size());
    broadcast_piece(&length, sizeof(length), root);
    std::string all = rank_ == root ? bytes : std::string(static_cast<std::size_t>(length), '\0');
    for (std::int64_t done = 0; done < length; done += kLongestPiece) {
      broadcast_piece(all.data() + done, static_cast<int>(std::min(kLongestPiece, length - done)), root);
    }
    return all;
  }

  std::vector<std::string> all_gather(const std::string& bytes) override {
    refuse_after_loss("all_gather");
    const auto length = static_cast<std::int64_t>(bytes.size());
    std::vector<std::int64_t> lengths(static_cast<std::size_t>(size_));
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Iallgather(&length, 1, MPI_INT64_T, lengths.data(), 1, MPI_INT64_T, comm_.get(), &request), "MPI_Iallgather");
    wait(request, "all_gather of lengths");

    std::vector<std::string> all(static_cast<std::size_t>(size_));
    for (int r = 0; r < size_; ++r) all[r].reserve(static_cast<std::size_t>(lengths[r]));
    const std::int64_t longest = *std::max_element(lengths.begin(), lengths.end());
    const std::int64_t piece = std::clamp<std::int64_t>(kLongestPiece / size_, 1, kGatherPiece);  // a round's sum stays an int
    std::vector<int> counts(static_cast<std::size_t>(size_));
    std::vector<int> offsets(static_cast<std::size_t>(size_));
    std::string round;
    for (std::int64_t done = 0; done < longest; done += piece) {
      int total = 0;
      for (int r = 0; r < size_; ++r) {
        counts[r] = static_cast<int>(std::clamp<std::int64_t>(lengths[r] - done, 0, piece));
        offsets[r] = total;
        total += counts[r];
      }
      round.resize(static_cast<std::size_t>(total));
      check_mpi(MPI_Iallgatherv(bytes.data() + std::min(done, length), counts[rank_], MPI_BYTE, round.data(), counts.data(), offsets.data(),
                                MPI_BYTE, comm_.get(), &request),
                "MPI_Iallgatherv");
      wait(request, "all_gather");
      for (int r = 0; r < size_; ++r) all[r].append(round, static_cast<std::size_t>(offsets[r]), static_cast<std::size_t>(counts[r]));
    }
    return all;
  }

  /// MPI may be in any state and in use by another thread, so a second way out stands ready.
  [[noreturn]] void abort(int code) noexcept override {
    try {
      std::thread([code] {
        std::this_thread::sleep_for(std::chrono::seconds(kSecondsToAbort));
        _exit(code);
      }).detach();
    } catch (...) {
      _exit(code);  // no thread to be had: the launcher ends the other ranks
    }
    if (mpi_is_running()) MPI_Abort(MPI_COMM_WORLD, code);
    _exit(code);
  }

 private:
  /// The same on all ranks of the group.
  bool windows_anywhere() const { return options_.use_windows && size_ > 1; }

  void find_world_ranks() {
    MPI_Group here = MPI_GROUP_NULL;
    MPI_Group world = MPI_GROUP_NULL;
    check_mpi(MPI_Comm_group(comm_.get(), &here), "MPI_Comm_group");
    check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
    std::vector<int> ranks(static_cast<std::size_t>(size_));
    std::iota(ranks.begin(), ranks.end(), 0);
    world_ranks_.resize(ranks.size());
    check_mpi(MPI_Group_translate_ranks(here, size_, ranks.data(), world, world_ranks_.data()), "MPI_Group_translate_ranks");
    check_mpi(MPI_Group_free(&here), "MPI_Group_free");
    check_mpi(MPI_Group_free(&world), "MPI_Group_free");
  }

  /// Collective over the whole group where windows are in use; throws on all of its ranks when one fails.
  std::unique_ptr<NodeMemory> allocate_on_node(std::int64_t bytes, const std::string& tag) {
    std::string failure;
    std::unique_ptr<NodeMemory> memory =
        NodeMemory::allocate(node_.get(), bytes, world_ranks_[rank_], registry_->next_serial(), tag, failure);
    agree_or_throw(*this, failure, static_cast<int>(ExitCode::kEnvironment));
    return memory;
  }

  /// Before each collective: none may follow on one that was given up, whose buffers are gone while its messages may still come.
  void refuse_after_loss(const char* operation) const {
    if (lost_) throw PeerLost(operation, "a rank was lost before");
  }

  void wait(MPI_Request request, const char* operation) {
    try {
      wait_for(request, operation, kPatience * options_.silence_limit_seconds);
    } catch (const PeerLost&) {
      lost_ = true;
      throw;
    }
  }

  void broadcast_piece(void* data, int bytes, int root) {
    refuse_after_loss("broadcast");
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibcast(data, bytes, MPI_BYTE, root, comm_.get(), &request), "MPI_Ibcast");
    wait(request, "broadcast");
  }

  CommHandle comm_;
  CommHandle node_;
  MpiOptions options_;
  std::shared_ptr<WindowRegistry> registry_;
  int rank_ = 0;
  int size_ = 1;
  int node_rank_ = 0;
  int node_size_ = 1;
  bool lost_ = false;              // a peer, in a collective of this communicator
  std::vector<int> world_ranks_;   // of the group's ranks
  std::vector<int> node_rank_of_;  // of the group's ranks; -1 on other nodes
};

}  // namespace

struct MpiEnvironment::State {
  std::shared_ptr<WindowRegistry> registry = std::make_shared<WindowRegistry>();
  int exceptions_at_start = 0;
};

MpiEnvironment::MpiEnvironment() : state_(std::make_unique<State>()) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  SLUICE_CHECK(initialized == 0, "MPI is started twice");
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  state_->exceptions_at_start = std::uncaught_exceptions();
  if (provided < MPI_THREAD_SERIALIZED) {
    MPI_Finalize();
    throw EnvironmentError(cat("MPI: ", mpi_library_version(), " gives ", name_of_thread_level(provided),
                               ", MPI_THREAD_SERIALIZED is needed; use an MPI built with threads"));
  }
}

MpiEnvironment::~MpiEnvironment() {
  if (std::uncaught_exceptions() > state_->exceptions_at_start) return;
  if (mpi_is_running()) MPI_Finalize();
}

std::unique_ptr<Communicator> MpiEnvironment::world(const MpiOptions& options) {
  return std::make_unique<MpiCommunicator>(CommHandle::duplicate(MPI_COMM_WORLD), options, state_->registry);
}

std::string mpi_library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  check_mpi(MPI_Get_library_version(text, &length), "MPI_Get_library_version");
  const std::string version(text, static_cast<std::size_t>(length));
  return version.substr(0, version.find_first_of(",\n"));
}

}  // namespace sluice::comm

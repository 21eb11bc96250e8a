#pragma once
// What MPI adds to the exchange: windows of the node's ranks, and messages. Not for other folders.

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/exchange.hpp"
#include "comm/mpi/mpi_handle.hpp"
#include "comm/mpi/node_memory.hpp"

namespace sluice::comm {

/// Boards in one collective NodeMemory per channel; sources in the windows of the registry.
class MpiMemory final : public PeerMemory {
 public:
  /// `boards`: null without windows. `board_of_rank`: per rank of the group its place in boards->parts(), -1 on other nodes.
  MpiMemory(std::shared_ptr<const WindowRegistry> registry, std::unique_ptr<NodeMemory> boards, std::vector<int> board_of_rank,
            std::vector<int> world_ranks);
  RankBoard* own_board() const override { return own_board_; }
  const RankBoard* board(int peer) const override { return boards_of_peers_[peer]; }
  void locate(const std::byte* data, std::int64_t bytes, Publication& publication) const override;
  bool reaches(int peer, const Publication& mine) const override;
  const std::byte* resolve(int peer, const Publication& theirs) const override;
  void check() const override {}

 private:
  std::shared_ptr<const WindowRegistry> registry_;
  std::unique_ptr<NodeMemory> boards_;
  RankBoard* own_board_ = nullptr;
  std::vector<const RankBoard*> boards_of_peers_;
  std::vector<int> world_ranks_;
};

/// Messages on a communicator of their own.
class MpiMessages final : public PeerMessages {
 public:
  MpiMessages(CommHandle comm, std::string name) : comm_(std::move(comm)), name_(std::move(name)) {}
  MpiMessages(const MpiMessages&) = delete;
  MpiMessages& operator=(const MpiMessages&) = delete;
  /// What is still under way was given up by the caller: receives are cancelled, the rest is left to MPI.
  ~MpiMessages() override;
  Handle send(const std::byte* data, std::int64_t bytes, int peer, int tag) override;
  Handle receive(std::byte* data, std::int64_t bytes, int peer, int tag) override;
  bool test(Handle handle) override;

 private:
  struct Transfer {
    MPI_Request request = MPI_REQUEST_NULL;
    int bytes = 0;
    int peer = 0;
    bool is_receive = false;
  };
  Handle take_handle();
  CommHandle comm_;
  std::string name_;
  std::vector<Transfer> transfers_;
  std::vector<Handle> free_;
};

}  // namespace sluice::comm

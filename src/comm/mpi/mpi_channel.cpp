#include "comm/mpi/mpi_channel.hpp"

#include <new>
#include <utility>

#include "base/check.hpp"
#include "base/error.hpp"
#include "base/text.hpp"

namespace sluice::comm {

MpiMemory::MpiMemory(std::shared_ptr<const WindowRegistry> registry, std::unique_ptr<NodeMemory> boards, std::vector<int> board_of_rank,
                     std::vector<int> world_ranks)
    : registry_(std::move(registry)),
      boards_(std::move(boards)),
      boards_of_peers_(world_ranks.size(), nullptr),
      world_ranks_(std::move(world_ranks)) {
  if (!boards_) return;
  own_board_ = new (boards_->own().data) RankBoard;
  for (std::size_t r = 0; r < board_of_rank.size(); ++r) {
    if (board_of_rank[r] >= 0) boards_of_peers_[r] = reinterpret_cast<const RankBoard*>(boards_->parts()[board_of_rank[r]].data);
  }
}

void MpiMemory::locate(const std::byte* data, std::int64_t bytes, Publication& publication) const {
  registry_->locate(data, bytes, publication);
}

bool MpiMemory::reaches(int peer, const Publication& mine) const {
  return mine.place == Publication::Place::kWindow && registry_->is_mapped_by(world_ranks_[peer], mine.serial);
}

const std::byte* MpiMemory::resolve(int /*peer*/, const Publication& theirs) const {
  return registry_->resolve(theirs);
}

MpiMessages::~MpiMessages() {
  if (!mpi_is_running()) return;
  for (Transfer& transfer : transfers_) {
    if (transfer.request == MPI_REQUEST_NULL) continue;
    if (transfer.is_receive) MPI_Cancel(&transfer.request);
    MPI_Request_free(&transfer.request);
  }
}

PeerMessages::Handle MpiMessages::take_handle() {
  if (free_.empty()) {
    transfers_.emplace_back();
    return static_cast<Handle>(transfers_.size() - 1);
  }
  const Handle handle = free_.back();
  free_.pop_back();
  return handle;
}

PeerMessages::Handle MpiMessages::send(const std::byte* data, std::int64_t bytes, int peer, int tag) {
  SLUICE_CHECK(bytes > 0 && bytes <= kMessageBytes, name_, ": a message of ", bytes, " bytes");
  const Handle handle = take_handle();
  Transfer& transfer = transfers_[handle];
  transfer = {MPI_REQUEST_NULL, static_cast<int>(bytes), peer, false};
  check_mpi(MPI_Isend(data, transfer.bytes, MPI_BYTE, peer, tag, comm_.get(), &transfer.request), cat(name_, ": message to rank ", peer));
  return handle;
}

PeerMessages::Handle MpiMessages::receive(std::byte* data, std::int64_t bytes, int peer, int tag) {
  SLUICE_CHECK(bytes > 0 && bytes <= kMessageBytes, name_, ": a message of ", bytes, " bytes");
  const Handle handle = take_handle();
  Transfer& transfer = transfers_[handle];
  transfer = {MPI_REQUEST_NULL, static_cast<int>(bytes), peer, true};
  check_mpi(MPI_Irecv(data, transfer.bytes, MPI_BYTE, peer, tag, comm_.get(), &transfer.request), cat(name_, ": message from rank ", peer));
  return handle;
}

bool MpiMessages::test(Handle handle) {
  Transfer& transfer = transfers_[handle];
  int done = 0;
  MPI_Status status;
  const int code = MPI_Test(&transfer.request, &done, &status);
  if (code != MPI_SUCCESS) check_mpi(code, cat(name_, transfer.is_receive ? ": message from rank " : ": message to rank ", transfer.peer));
  if (done == 0) return false;
  if (transfer.is_receive) {
    int count = 0;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count");
    if (count != transfer.bytes) {
      throw CommError(name_, cat("rank ", transfer.peer, " sent ", count, " bytes where ", transfer.bytes,
                                 " were expected; the ranks must post the same sequence"));
    }
  }
  free_.push_back(handle);
  return true;
}

}  // namespace sluice::comm

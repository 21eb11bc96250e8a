#include "comm/mpi/node_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "comm/mpi/mpi_handle.hpp"
#include "device/cpu/cpu_device.hpp"

namespace sluice::comm {
namespace {

/// What a rank tells the others about its part.
struct Offer {
  std::int64_t bytes;
  std::uint64_t device;  // of the file, with inode: that /proc led to the very same
  std::uint64_t inode;
  std::uint64_t serial;
  std::int32_t process;
  std::int32_t descriptor;  // -1: it failed
  std::int32_t world_rank;
  std::int32_t unused;
};

class FileDescriptor {
 public:
  explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

std::int64_t whole_pages(std::int64_t bytes) {
  const auto page = static_cast<std::int64_t>(sysconf(_SC_PAGESIZE));
  return std::max(page, round_up(bytes, page));
}

/// An anonymous file of `bytes`; -1 and a reason when it can't be.
int make_file(std::int64_t bytes, const std::string& tag, std::string& failure) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < static_cast<rlim_t>(bytes)) {
    failure = cat(tag, ": a shared window of ", format_bytes(bytes), " exceeds the limit on file sizes, ",
                  format_bytes(static_cast<std::int64_t>(limit.rlim_cur)), "; raise it (ulimit -f unlimited)");
    return -1;
  }
  const int descriptor = memfd_create("sluice-window", MFD_CLOEXEC);
  if (descriptor < 0) {
    failure = cat(tag, ": can't make a shared window: memfd_create: ", std::strerror(errno));
    return -1;
  }
  if (ftruncate(descriptor, bytes) != 0) {
    failure = cat(tag, ": can't make a shared window of ", format_bytes(bytes), ": ftruncate: ", std::strerror(errno));
    close(descriptor);
    return -1;
  }
  return descriptor;
}

std::byte* map_file(int descriptor, std::int64_t bytes, int protection) {
  void* data = mmap(nullptr, static_cast<std::size_t>(bytes), protection, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) return nullptr;
  // Best effort: fewer TLB misses where the system allows huge pages in shared memory.
  static_cast<void>(madvise(data, static_cast<std::size_t>(bytes), MADV_HUGEPAGE));
  return static_cast<std::byte*>(data);
}

/// Maps what another rank offers; nullptr and a reason when it can't be.
std::byte* map_offer(const Offer& offer, const std::string& tag, std::string& failure) {
  const std::string path = cat("/proc/", offer.process, "/fd/", offer.descriptor);
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status = {};
  std::string reason;
  if (file.get() < 0 || fstat(file.get(), &status) != 0) {
    reason = std::strerror(errno);
  } else if (status.st_dev != offer.device || status.st_ino != offer.inode) {
    reason = "it is another process's";
  } else if (std::byte* data = map_file(file.get(), offer.bytes, PROT_READ)) {
    return data;
  } else {
    reason = cat("mmap: ", std::strerror(errno));
  }
  failure = cat(tag, ": can't map the shared window of rank ", offer.world_rank, " (", path, "): ", reason,
                "; start all ranks of a node as one user in one process namespace");
  return nullptr;
}

std::vector<Offer> exchange_offers(MPI_Comm node, int size, const Offer& mine) {
  std::vector<Offer> offers(static_cast<std::size_t>(size));
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgather(&mine, sizeof(Offer), MPI_BYTE, offers.data(), sizeof(Offer), MPI_BYTE, node, &request), "MPI_Iallgather");
  wait_for(request, "shared windows of a node");
  return offers;
}

}  // namespace

std::unique_ptr<NodeMemory> NodeMemory::allocate(MPI_Comm node, std::int64_t bytes, int world_rank, std::uint64_t serial,
                                                 const std::string& tag, std::string& failure) {
  SLUICE_CHECK(bytes >= 0, tag, ": a window of ", bytes, " bytes");
  int rank = 0;
  int size = 0;
  check_mpi(MPI_Comm_rank(node, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(node, &size), "MPI_Comm_size");
  std::unique_ptr<NodeMemory> memory(new NodeMemory());
  memory->parts_.resize(static_cast<std::size_t>(size));
  memory->own_ = static_cast<std::size_t>(rank);

  Offer mine{};
  mine.bytes = whole_pages(bytes);
  mine.serial = serial;
  mine.process = getpid();
  mine.world_rank = world_rank;
  const FileDescriptor file(make_file(mine.bytes, tag, failure));
  mine.descriptor = file.get();
  struct stat status = {};
  if (file.get() >= 0 && fstat(file.get(), &status) == 0) {
    mine.device = status.st_dev;
    mine.inode = status.st_ino;
  }
  const std::vector<Offer> offers = exchange_offers(node, size, mine);

  // The kernel grants any size and kills when it is touched, so what is plainly too much is refused here. The node's ranks ask
  // at once.
  std::int64_t wanted = 0;
  for (const Offer& offer : offers) wanted = std::max(wanted, wanted + offer.bytes);
  if (const std::int64_t available = device::read_cpu_facts().memory_available_bytes; failure.empty() && wanted > available) {
    failure = OutOfMemory("host", cat(tag, " (", size, size == 1 ? " rank" : " ranks", " of this node)"), wanted, available).what();
  }
  for (int r = 0; r < size && failure.empty(); ++r) {
    const Offer& offer = offers[r];
    if (offer.descriptor < 0) continue;  // that rank says why
    std::byte* data = nullptr;
    if (r != rank) {
      data = map_offer(offer, tag, failure);
    } else if (data = map_file(file.get(), mine.bytes, PROT_READ | PROT_WRITE); data == nullptr) {
      failure = cat(tag, ": can't map ", format_bytes(mine.bytes), ": ", std::strerror(errno));
    }
    memory->parts_[r] = {data, offer.bytes, offer.bytes, offer.world_rank, offer.serial};
  }
  memory->parts_[rank].bytes = bytes;
  // Nobody closes its file before all have opened it; whether they could is the caller's to agree on.
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(node, &request), "MPI_Ibarrier");
  wait_for(request, "shared windows of a node");
  if (!failure.empty()) return nullptr;
  return memory;
}

NodeMemory::~NodeMemory() {
  for (const Part& part : parts_) {
    if (part.data != nullptr) munmap(part.data, static_cast<std::size_t>(part.mapped_bytes));
  }
}

void WindowRegistry::add(const NodeMemory& memory) {
  const NodeMemory::Part& own = memory.own();
  OwnWindow window{own.data, own.bytes, own.world_rank, own.serial, {}};
  for (const NodeMemory::Part& part : memory.parts()) {
    if (&part == &own) continue;
    window.mapped_by.push_back(part.world_rank);
    peers_[{part.world_rank, part.serial}] = part.data;
  }
  own_.push_back(std::move(window));
}

void WindowRegistry::remove(const NodeMemory& memory) noexcept {
  const NodeMemory::Part& own = memory.own();
  std::erase_if(own_, [&](const OwnWindow& window) { return window.serial == own.serial; });
  for (const NodeMemory::Part& part : memory.parts()) {
    if (const auto found = peers_.find({part.world_rank, part.serial}); found != peers_.end()) found->second = nullptr;
  }
}

void WindowRegistry::locate(const std::byte* data, std::int64_t bytes, Publication& publication) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  for (const OwnWindow& window : own_) {
    const auto window_begin = reinterpret_cast<std::uintptr_t>(window.data);
    const auto window_end = window_begin + static_cast<std::uintptr_t>(window.bytes);
    if (begin < window_begin || begin + static_cast<std::uintptr_t>(bytes) > window_end) continue;
    publication.place = Publication::Place::kWindow;
    publication.owner = static_cast<std::uint32_t>(window.world_rank);
    publication.serial = window.serial;
    publication.offset = begin - window_begin;
    return;
  }
}

bool WindowRegistry::is_mapped_by(int world_rank, std::uint64_t serial) const {
  const auto window = std::find_if(own_.begin(), own_.end(), [&](const OwnWindow& own) { return own.serial == serial; });
  return window != own_.end() && std::find(window->mapped_by.begin(), window->mapped_by.end(), world_rank) != window->mapped_by.end();
}

const std::byte* WindowRegistry::resolve(const Publication& publication) const {
  if (publication.place != Publication::Place::kWindow) return nullptr;
  const auto found = peers_.find({static_cast<int>(publication.owner), publication.serial});
  if (found == peers_.end()) return nullptr;
  SLUICE_CHECK(found->second != nullptr, "this rank has released the window of rank ", publication.owner, " while channels still use it");
  return found->second + publication.offset;
}

}  // namespace sluice::comm

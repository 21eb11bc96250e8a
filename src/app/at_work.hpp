#pragma once
// One rank works, the others wait and know that it does.

#include <condition_variable>
#include <string>
#include <thread>

namespace sluice::comm {
class Communicator;
}

namespace sluice::app {

/// While it lives, this rank works alone, for hours perhaps, and the others, in wait_while_at_work(), hear from it, so that they don't give
/// it up. A thread of its own tells them, since what works may be inside one long document; meanwhile no other may use `world`.
class AtWork {
 public:
  explicit AtWork(comm::Communicator& world);
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;
  ~AtWork();

 private:
  void tell(const std::stop_token& end);
  void say(const std::string& word) noexcept;

  comm::Communicator& world_;
  std::condition_variable_any ended_;
  std::jthread thread_;
};

/// Of the other ranks, until `rank` is done. Throws comm::PeerLost where it falls silent.
void wait_while_at_work(comm::Communicator& world, int rank);

}  // namespace sluice::app

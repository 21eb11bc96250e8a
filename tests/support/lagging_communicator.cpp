#include "support/lagging_communicator.hpp"

#include <exception>
#include <map>
#include <random>

namespace sluice::testing {
namespace {

class LaggingChannel final : public comm::Channel {
 public:
  LaggingChannel(std::unique_ptr<comm::Channel> inner, std::uint64_t seed) : inner_(std::move(inner)), random_(seed) {}

  Ticket post_gather(const void* slice, void* region, std::span<const std::int64_t> bounds) override {
    return drawn(inner_->post_gather(slice, region, bounds));
  }
  Ticket post_scatter(const float* region, float* out, std::span<const std::int64_t> bounds, bool accumulate) override {
    return drawn(inner_->post_scatter(region, out, bounds, accumulate));
  }
  Ticket post_exchange(const void* mine, void* all, std::int64_t bytes) override { return drawn(inner_->post_exchange(mine, all, bytes)); }
  bool progress() override {
    if (stalled_ > 0) {
      --stalled_;
      return false;
    }
    if (random_() % 8 == 0) stalled_ = static_cast<int>(random_() % 30);
    return inner_->progress();
  }
  bool test(Ticket ticket) const override {
    if (!inner_->test(ticket)) return false;
    const auto lag = lag_.find(ticket);
    if (lag == lag_.end()) return true;
    if (lag->second-- > 0) return false;
    lag_.erase(lag_.begin(), std::next(lag));
    return true;
  }
  comm::Traffic traffic() const override { return inner_->traffic(); }

 private:
  Ticket drawn(Ticket ticket) {
    if (random_() % 3 == 0) lag_[ticket] = static_cast<int>(random_() % 30);
    return ticket;
  }
  std::unique_ptr<comm::Channel> inner_;
  std::mt19937_64 random_;
  int stalled_ = 0;                    // calls of progress() that do nothing
  mutable std::map<Ticket, int> lag_;  // calls of test() that still say no
};

class LaggingCommunicator final : public comm::Communicator {
 public:
  LaggingCommunicator(comm::Communicator& inner, std::uint64_t seed) : inner_(inner), seed_(seed) {}
  int rank() const noexcept override { return inner_.rank(); }
  int size() const noexcept override { return inner_.size(); }
  int node_rank() const noexcept override { return inner_.node_rank(); }
  int node_size() const noexcept override { return inner_.node_size(); }
  std::string host_name() const override { return inner_.host_name(); }
  std::unique_ptr<comm::Channel> open_channel(const std::string& name) override {
    return std::make_unique<LaggingChannel>(inner_.open_channel(name), seed_++ * 64 + static_cast<std::uint64_t>(inner_.rank()));
  }
  std::unique_ptr<memory::Backing> allocate_window(std::int64_t bytes, const std::string& tag) override {
    return inner_.allocate_window(bytes, tag);
  }
  std::unique_ptr<comm::Communicator> split(int color, int key) override { return inner_.split(color, key); }
  void barrier() override { inner_.barrier(); }
  std::string broadcast(const std::string& bytes, int root) override { return inner_.broadcast(bytes, root); }
  std::vector<std::string> all_gather(const std::string& bytes) override { return inner_.all_gather(bytes); }
  [[noreturn]] void abort(int code) noexcept override {
    inner_.abort(code);
    std::terminate();
  }

 private:
  comm::Communicator& inner_;
  std::uint64_t seed_;
};

}  // namespace

std::unique_ptr<comm::Communicator> make_lagging(comm::Communicator& inner, std::uint64_t seed) {
  return std::make_unique<LaggingCommunicator>(inner, seed);
}

}  // namespace sluice::testing

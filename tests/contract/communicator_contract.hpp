#pragma once
// What every Communicator and its Channels must do. A backend is a type with
//   static void run(const std::function<void(comm::Communicator&)>& body);  // body on every rank of a fresh world
//   static constexpr bool kSeesOtherSequences;                              // ranks that post different things get a CommError
// and instantiates the suite: INSTANTIATE_TYPED_TEST_SUITE_P(Name, CommunicatorContract, Backend).

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "comm/backoff.hpp"
#include "comm/communicator.hpp"

namespace sluice::comm::contract {

using Bounds = std::vector<std::int64_t>;

inline std::uint64_t mixed(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}
inline std::uint64_t mixed(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  return mixed(mixed(mixed(a) ^ b) ^ c);
}

inline std::byte byte_of(std::uint64_t seed, int rank, std::int64_t i) {
  return static_cast<std::byte>(mixed(seed, static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(i)));
}

/// Numbers of widely different sizes and both signs, so that another order of adding gives other bits.
inline float float_of(std::uint64_t seed, int rank, std::int64_t i) {
  const std::uint64_t word = mixed(seed, static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(i));
  const float fraction = static_cast<float>(static_cast<std::int64_t>(word >> 40) - (1 << 23)) * 0x1.0p-23f;
  return std::ldexp(fraction, static_cast<int>(word % 25) - 12);
}

inline void finish(Channel& channel, Channel::Ticket ticket) {
  Backoff backoff;
  const std::int64_t deadline = now_ns() + 50'000'000'000;
  while (!channel.test(ticket)) {
    if (channel.progress()) {
      backoff.moved();
    } else {
      backoff.idle();
      if (now_ns() > deadline) throw std::runtime_error("the contract test waited 50 s for a ticket");
    }
  }
}

/// Sleeps up to 2 ms on some ranks and not on others.
inline void delay(const Communicator& world, std::uint64_t seed) {
  const std::uint64_t word = mixed(seed, static_cast<std::uint64_t>(world.rank()), 77);
  if (word % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(word / 3 % 2000));
}

/// Memory for a test, in a window or outside; 4-byte aligned only, and 0xA5 everywhere.
class Memory {
 public:
  Memory(Communicator& world, std::int64_t window_bytes) : window_(world.allocate_window(window_bytes, "contract")) {}
  std::byte* take(std::int64_t bytes, bool in_window) {
    std::byte* memory = nullptr;
    if (in_window) {
      if (used_ + bytes > window_->bytes()) throw std::runtime_error("the contract test's window is too small");
      memory = window_->data() + used_;
      used_ += (bytes + 3) / 4 * 4 + 4;
    } else {
      heap_.push_back(std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes) + 8));
      memory = heap_.back().get() + 4;
    }
    std::memset(memory, 0xA5, static_cast<std::size_t>(bytes));
    return memory;
  }
  float* take_floats(std::int64_t count, bool in_window) { return reinterpret_cast<float*>(take(count * 4, in_window)); }
  void reset() {
    used_ = 0;
    heap_.clear();
  }

 private:
  std::unique_ptr<memory::Backing> window_;
  std::int64_t used_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> heap_;
};

enum class Cut { kEqual, kRandom, kFirstEmpty, kLastEmpty, kAllOnLast };
inline constexpr Cut kCuts[] = {Cut::kEqual, Cut::kRandom, Cut::kFirstEmpty, Cut::kLastEmpty, Cut::kAllOnLast};

inline Bounds cut(Cut how, int size, std::int64_t total, std::uint64_t seed) {
  Bounds bounds(static_cast<std::size_t>(size) + 1);
  for (int r = 0; r <= size; ++r) bounds[r] = r * total / size;
  if (how == Cut::kRandom) {
    for (int r = 1; r < size; ++r)
      bounds[r] = static_cast<std::int64_t>(mixed(seed, 5, static_cast<std::uint64_t>(r)) % static_cast<std::uint64_t>(total + 1));
    std::sort(bounds.begin(), bounds.end());
  }
  if (how == Cut::kFirstEmpty && size > 1) bounds[1] = 0;
  if (how == Cut::kLastEmpty) bounds[size - 1] = size > 1 ? total : 0;
  if (how == Cut::kAllOnLast) std::fill(bounds.begin(), bounds.end() - 1, 0);
  return bounds;
}

/// One gather from posting to checking its values and its completion.
class Gather {
 public:
  Gather(Communicator& world, Memory& memory, Bounds bounds, std::uint64_t seed, bool in_place, bool in_window)
      : rank_(world.rank()), size_(world.size()), bounds_(std::move(bounds)), seed_(seed) {
    region_ = memory.take(bounds_.back(), in_window);
    const std::int64_t bytes = bounds_[rank_ + 1] - bounds_[rank_];
    slice_ = in_place ? region_ + bounds_[rank_] : memory.take(bytes, in_window);
    for (std::int64_t i = 0; i < bytes; ++i) slice_[i] = byte_of(seed_, rank_, i);
  }
  void post(Channel& channel) { ticket_ = channel.post_gather(slice_, region_, bounds_); }
  Channel::Ticket ticket() const { return ticket_; }
  /// After completion: also destroys the source, which nobody may need now.
  void check() {
    for (int r = 0; r < size_; ++r) {
      for (std::int64_t i = bounds_[r]; i < bounds_[r + 1]; ++i) {
        if (region_[i] == byte_of(seed_, r, i - bounds_[r])) continue;
        ADD_FAILURE() << "rank " << rank_ << ": byte " << i - bounds_[r] << " of rank " << r << "'s slice is wrong; region of "
                      << bounds_.back();
        return;
      }
    }
    std::memset(slice_, 0x5A, static_cast<std::size_t>(bounds_[rank_ + 1] - bounds_[rank_]));
  }

 private:
  int rank_;
  int size_;
  Bounds bounds_;
  std::uint64_t seed_;
  std::byte* region_ = nullptr;
  std::byte* slice_ = nullptr;
  Channel::Ticket ticket_ = 0;
};

/// One scatter, likewise.
class Scatter {
 public:
  Scatter(Communicator& world, Memory& memory, Bounds bounds, std::uint64_t seed, bool in_place, bool accumulate, bool in_window)
      : rank_(world.rank()), size_(world.size()), bounds_(std::move(bounds)), seed_(seed), in_place_(in_place), accumulate_(accumulate) {
    region_ = memory.take_floats(bounds_.back(), in_window);
    for (std::int64_t i = 0; i < bounds_.back(); ++i) region_[i] = float_of(seed_, rank_, i);
    const std::int64_t count = bounds_[rank_ + 1] - bounds_[rank_];
    out_ = in_place ? region_ + bounds_[rank_] : memory.take_floats(count, in_window);
    if (accumulate_) {
      for (std::int64_t i = 0; i < count; ++i) out_[i] = before(i);
    }
  }
  void post(Channel& channel) { ticket_ = channel.post_scatter(region_, out_, bounds_, accumulate_); }
  Channel::Ticket ticket() const { return ticket_; }
  void check() {
    const std::int64_t begin = bounds_[rank_];
    for (std::int64_t i = begin; i < bounds_[rank_ + 1]; ++i) {
      float expected = float_of(seed_, 0, i);
      for (int r = 1; r < size_; ++r) expected = expected + float_of(seed_, r, i);
      if (accumulate_) expected = before(i - begin) + expected;
      if (std::memcmp(&expected, out_ + (i - begin), sizeof(float)) == 0) continue;
      ADD_FAILURE() << "rank " << rank_ << ": element " << i << " of " << bounds_.back() << " is " << out_[i - begin] << ", not "
                    << expected << (accumulate_ ? ", accumulated" : "") << (in_place_ ? ", in place" : "");
      return;
    }
    for (std::int64_t i = 0; i < bounds_.back(); ++i) {
      const bool replaced = in_place_ && i >= begin && i < bounds_[rank_ + 1];
      if (replaced || region_[i] == float_of(seed_, rank_, i)) continue;
      ADD_FAILURE() << "rank " << rank_ << ": element " << i << " of its own region has changed";
      return;
    }
    std::memset(region_, 0x5A, static_cast<std::size_t>(bounds_.back()) * sizeof(float));
  }

 private:
  float before(std::int64_t i) const { return float_of(seed_ + 1000, rank_, i); }
  int rank_;
  int size_;
  Bounds bounds_;
  std::uint64_t seed_;
  bool in_place_;
  bool accumulate_;
  float* region_ = nullptr;
  float* out_ = nullptr;
  Channel::Ticket ticket_ = 0;
};

// The checks, on one rank of many; not templates, so that they are compiled once.

inline void check_ranks_know_their_places(Communicator& world) {
  EXPECT_GE(world.rank(), 0);
  EXPECT_LT(world.rank(), world.size());
  EXPECT_GE(world.node_rank(), 0);
  EXPECT_LT(world.node_rank(), world.node_size());
  EXPECT_LE(world.node_size(), world.size());
  EXPECT_FALSE(world.host_name().empty());
  const std::vector<std::string> ranks = world.all_gather(std::to_string(world.rank()));
  ASSERT_EQ(ranks.size(), static_cast<std::size_t>(world.size()));
  for (int r = 0; r < world.size(); ++r) EXPECT_EQ(ranks[r], std::to_string(r));
}

inline void check_barrier_holds_until_all_have_come(Communicator& world) {
  for (std::uint64_t round = 0; round < 10; ++round) {
    delay(world, round);
    const std::int64_t came = now_ns();
    world.barrier();
    const std::int64_t left = now_ns();
    for (const std::string& text : world.all_gather(std::to_string(came))) EXPECT_LE(std::stoll(text), left);
  }
}

inline void check_broadcast_gives_the_roots_bytes(Communicator& world) {
  for (const std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{4097}, std::size_t{1'000'003}}) {
    for (int root = 0; root < world.size(); ++root) {
      std::string expected(length, '\0');
      for (std::size_t i = 0; i < length; ++i) expected[i] = static_cast<char>(byte_of(length, root, static_cast<std::int64_t>(i)));
      const std::string mine = world.rank() == root ? expected : "something else on rank " + std::to_string(world.rank());
      EXPECT_TRUE(world.broadcast(mine, root) == expected) << length << " bytes of " << root;
    }
  }
}

inline void check_all_gather_takes_any_sizes(Communicator& world) {
  const auto text_of = [](int rank, std::size_t round) {
    std::string text(mixed(3, static_cast<std::uint64_t>(rank), round) % (round * round * 500 + 2), '\0');
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(byte_of(round, rank, static_cast<std::int64_t>(i)));
    return (static_cast<std::size_t>(rank) + round) % 4 == 0 ? std::string() : text;
  };
  for (std::size_t round = 0; round < 12; ++round) {
    delay(world, round);
    const std::vector<std::string> all = world.all_gather(text_of(world.rank(), round));
    ASSERT_EQ(all.size(), static_cast<std::size_t>(world.size()));
    for (int r = 0; r < world.size(); ++r) EXPECT_TRUE(all[r] == text_of(r, round)) << "round " << round << " rank " << r;
  }
}

inline void check_all_agree_needs_all(Communicator& world) {
  EXPECT_TRUE(world.all_agree(true));
  EXPECT_FALSE(world.all_agree(false));
  for (int dissenter = 0; dissenter < world.size(); ++dissenter) EXPECT_FALSE(world.all_agree(world.rank() != dissenter));
}

inline void check_agree_or_throw_tells_one_failure_on_all_ranks(Communicator& world) {
  const int last = world.size() - 1;
  EXPECT_NO_THROW(agree_or_throw(world, "", 3));
  const auto told = [&](const std::string& failure, int code) -> std::pair<int, std::string> {
    try {
      agree_or_throw(world, failure, code);
    } catch (const Error& error) {
      return {static_cast<int>(error.code()), error.what()};
    }
    return {0, ""};
  };
  using Told = std::pair<int, std::string>;
  const std::string rank_last = "rank " + std::to_string(last);
  EXPECT_EQ(told("no room", 3), (Told{3, "no room"}));
  EXPECT_EQ(told(world.rank() == last ? "bad\nfile" : "", 4), (Told{4, last == 0 ? "bad\nfile" : rank_last + ": bad\nfile"}));
  if (world.size() < 2) return;
  // The lowest failing rank's code and message; another message is counted, not shown.
  const bool other = world.rank() == 1;
  const Told got = told(other ? "second" : "first", other ? 75 : 2);
  EXPECT_EQ(got.first, 2);
  const std::string sharing = world.size() == 2 ? "rank 0" : world.size() == 3 ? "ranks 0, 2" : "ranks 0, 2-3";
  ASSERT_LE(world.size(), 4);
  EXPECT_EQ(got.second, sharing + ": first (and another failure on rank 1)");
  EXPECT_THROW(agree_or_throw(world, "asked to stop", 75), ResumableStop);
  EXPECT_THROW(agree_or_throw(world, "bad flag", 2), RequestError);
  EXPECT_THROW(agree_or_throw(world, "infinite loss", 5), DivergedError);
  EXPECT_THROW(agree_or_throw(world, "broken", 1), LogicError);
  EXPECT_THROW(agree_or_throw(world, "full", 3), EnvironmentError);
}

inline void check_split_makes_groups_in_order_of_keys(Communicator& world) {
  const int color = world.rank() % 2;
  const auto group = world.split(color, -world.rank());
  std::vector<int> members;
  for (int r = world.size() - 1; r >= 0; --r) {
    if (r % 2 == color) members.push_back(r);
  }
  ASSERT_EQ(group->size(), static_cast<int>(members.size()));
  EXPECT_EQ(members[group->rank()], world.rank());
  const std::vector<std::string> seen = group->all_gather(std::to_string(world.rank()));
  for (std::size_t i = 0; i < members.size(); ++i) EXPECT_EQ(seen[i], std::to_string(members[i]));

  const auto alone = world.split(world.rank(), 0);
  EXPECT_EQ(alone->size(), 1);
  EXPECT_EQ(alone->all_gather("x"), std::vector<std::string>{"x"});

  // Channels of groups work on windows of the world, of the group, and on none of both.
  const auto channel = group->open_channel("half");
  Memory of_world(world, 1 << 20);
  Memory of_group(*group, 1 << 20);
  for (std::uint64_t round = 0; round < 6; ++round) {
    Memory& memory = round % 2 == 0 ? of_world : of_group;
    Gather gather(*group, memory, cut(Cut::kRandom, group->size(), 50'001, round), round, round % 3 == 0, round < 4);
    Scatter scatter(*group, memory, cut(Cut::kRandom, group->size(), 7'001, round), round, false, true, round < 4);
    gather.post(*channel);
    scatter.post(*channel);
    finish(*channel, scatter.ticket());
    gather.check();
    scatter.check();
  }
  // A window of the halves, in a channel of the world: some peers address it, others don't.
  const auto whole = world.open_channel("whole");
  Gather gather(world, of_group, cut(Cut::kEqual, world.size(), 40'003, 9), 9, false, true);
  Scatter scatter(world, of_group, cut(Cut::kEqual, world.size(), 40'003, 9), 9, false, false, true);
  gather.post(*whole);
  scatter.post(*whole);
  finish(*whole, scatter.ticket());
  gather.check();
  scatter.check();
  world.barrier();
}

inline void check_windows_are_of_the_size_asked_and_zero(Communicator& world) {
  for (const std::int64_t base : {std::int64_t{0}, std::int64_t{1}, std::int64_t{100'000}}) {
    const std::int64_t bytes = base * (world.rank() + 1);
    const auto window = world.allocate_window(bytes, "zero");
    EXPECT_EQ(window->bytes(), bytes);
    for (std::int64_t i = 0; i < bytes; ++i) {
      if (window->data()[i] != std::byte{0}) {
        ADD_FAILURE() << "byte " << i << " isn't zero";
        break;
      }
    }
    if (bytes > 0) std::memset(window->data(), 0xFF, static_cast<std::size_t>(bytes));
  }
}

inline void check_gather_moves_every_slice_to_every_rank(Communicator& world) {
  const auto channel = world.open_channel("gather");
  Memory memory(world, 12 << 20);
  std::uint64_t seed = 1;
  for (const std::int64_t total : {0, 1, 2, 1023, 70'001, 5'000'011}) {
    for (const Cut how : kCuts) {
      if (total > 1'000'000 && how != Cut::kRandom && how != Cut::kAllOnLast) continue;
      for (const bool in_place : {true, false}) {
        for (const bool in_window : {true, false}) {
          memory.reset();
          Gather gather(world, memory, cut(how, world.size(), total, seed), seed, in_place, in_window);
          gather.post(*channel);
          finish(*channel, gather.ticket());
          gather.check();
          ++seed;
        }
      }
    }
  }
}

inline void check_scatter_adds_in_rank_order_bit_for_bit(Communicator& world) {
  const auto channel = world.open_channel("scatter");
  Memory memory(world, 24 << 20);
  std::uint64_t seed = 1;
  for (const std::int64_t total : {0, 1, 2, 1023, 20'001, 1'250'003}) {
    for (const Cut how : kCuts) {
      if (total > 1'000'000 && how != Cut::kRandom && how != Cut::kAllOnLast) continue;
      for (int variant = 0; variant < 6; ++variant) {
        const bool in_place = variant % 3 == 0;
        const bool accumulate = variant % 3 == 1;
        // The long ones cost time: accumulating from windows, and in place from outside, with slices of several messages.
        if (total > 1'000'000 && variant != (how == Cut::kRandom ? 1 : 3)) continue;
        memory.reset();
        Scatter scatter(world, memory, cut(how, world.size(), total, seed), seed, in_place, accumulate, variant < 3);
        scatter.post(*channel);
        finish(*channel, scatter.ticket());
        scatter.check();
        ++seed;
      }
    }
  }
}

inline void check_scatter_knows_that_order_matters(Communicator& world) {
  // Rank order gives 1 on three ranks: (1e8 + -1e8) + 1; other orders lose it. With accumulation, out is added last.
  const float contribution[] = {1e8f, -1e8f, 1.0f, 0.25f};
  if (world.size() < 3) return;
  Memory memory(world, 1 << 16);
  const auto channel = world.open_channel("order");
  const std::int64_t per_rank = 40;
  Bounds bounds = cut(Cut::kEqual, world.size(), per_rank * world.size(), 0);
  for (const bool accumulate : {false, true}) {
    float* region = memory.take_floats(bounds.back(), true);
    float* out = memory.take_floats(per_rank, true);
    std::fill(region, region + bounds.back(), contribution[world.rank()]);
    std::fill(out, out + per_rank, 1e8f);
    finish(*channel, channel->post_scatter(region, out, bounds, accumulate));
    const float sum = world.size() == 3 ? 1.0f : 1.25f;
    for (std::int64_t i = 0; i < per_rank; ++i) EXPECT_EQ(out[i], accumulate ? 1e8f + sum : sum);
  }
  world.barrier();
}

inline void check_exchange_gathers_small_things(Communicator& world) {
  const auto channel = world.open_channel("exchange");
  for (const std::int64_t bytes : {0, 1, 7, 64, 4096}) {
    for (const bool in_place : {false, true}) {
      std::vector<std::byte> all(static_cast<std::size_t>(bytes * world.size()));
      std::vector<std::byte> apart(static_cast<std::size_t>(bytes));
      std::byte* mine = in_place ? all.data() + world.rank() * bytes : apart.data();
      for (std::int64_t i = 0; i < bytes; ++i) mine[i] = byte_of(static_cast<std::uint64_t>(bytes), world.rank(), i);
      finish(*channel, channel->post_exchange(mine, all.data(), bytes));
      for (int r = 0; r < world.size(); ++r) {
        for (std::int64_t i = 0; i < bytes; ++i) ASSERT_EQ(all[r * bytes + i], byte_of(static_cast<std::uint64_t>(bytes), r, i));
      }
    }
  }
  EXPECT_EQ(channel->traffic().exchanged_bytes, 2 * (1 + 7 + 64 + 4096) * (world.size() - 1));
  EXPECT_EQ(channel->traffic().gathered_bytes, 0);
  std::vector<std::byte> too_much(4097 * static_cast<std::size_t>(world.size()));
  EXPECT_THROW(channel->post_exchange(too_much.data(), too_much.data(), 4097), LogicError);
}

inline void check_traffic_follows_the_formulas(Communicator& world) {
  const auto channel = world.open_channel("traffic");
  Memory memory(world, 16 << 20);
  Traffic expected;
  for (std::uint64_t round = 0; round < 8; ++round) {
    memory.reset();
    const bool in_window = mixed(round, static_cast<std::uint64_t>(world.rank()), 4) % 2 == 0;
    const std::int64_t total = round == 7 ? 1'000'001 : static_cast<std::int64_t>(round * round * 101);
    const Bounds bytes = cut(kCuts[round % 5], world.size(), total, round);
    const Bounds floats = cut(kCuts[(round + 1) % 5], world.size(), total, round);
    Gather gather(world, memory, bytes, round, round % 2 == 0, in_window);
    Scatter scatter(world, memory, floats, round, false, round % 2 == 0, in_window);
    gather.post(*channel);
    scatter.post(*channel);
    finish(*channel, scatter.ticket());
    gather.check();
    scatter.check();
    const int rank = world.rank();
    expected.gathered_bytes += total - (bytes[rank + 1] - bytes[rank]);
    expected.reduced_bytes += (world.size() - 1) * 4 * (floats[rank + 1] - floats[rank]);
    expected.operations += 2;
    const Traffic traffic = channel->traffic();
    EXPECT_EQ(traffic.gathered_bytes, expected.gathered_bytes) << round;
    EXPECT_EQ(traffic.reduced_bytes, expected.reduced_bytes) << round;
    EXPECT_EQ(traffic.exchanged_bytes, 0);
    EXPECT_EQ(traffic.operations, expected.operations);
  }
  world.barrier();
}

inline void check_posting_does_not_wait_and_nothing_is_complete_alone(Communicator& world) {
  const auto channel = world.open_channel("alone");
  Memory memory(world, 1 << 20);
  Gather gather(world, memory, cut(Cut::kEqual, world.size(), 100'000, 1), 1, true, true);
  Scatter scatter(world, memory, cut(Cut::kEqual, world.size(), 1000, 2), 2, true, false, true);
  EXPECT_FALSE(channel->progress());
  EXPECT_TRUE(channel->test(0));
  const bool early = world.rank() == 0;
  if (early) {
    gather.post(*channel);
    scatter.post(*channel);
    EXPECT_EQ(gather.ticket(), 1u);
    EXPECT_EQ(scatter.ticket(), 2u);
    if (world.size() > 1) {
      for (int i = 0; i < 200; ++i) channel->progress();
      EXPECT_FALSE(channel->progress());
      EXPECT_FALSE(channel->test(1));
      EXPECT_FALSE(channel->test(2));
    }
  }
  world.barrier();
  if (!early) {
    gather.post(*channel);
    scatter.post(*channel);
  }
  finish(*channel, scatter.ticket());
  gather.check();
  scatter.check();
  world.barrier();
}

inline void check_many_in_flight_on_two_channels_from_mixed_memory(Communicator& world) {
  constexpr std::uint64_t kOperations = 150;  // more than any channel keeps on its boards
  std::unique_ptr<Channel> channels[] = {world.open_channel("one"), world.open_channel("two")};
  Memory memory(world, 24 << 20);
  std::vector<Gather> gathers;
  std::vector<Scatter> scatters;
  gathers.reserve(kOperations);
  scatters.reserve(kOperations);
  for (std::uint64_t i = 0; i < kOperations; ++i) {
    // What a rank uses is its own choice; what all post is the same.
    const std::uint64_t own = mixed(i, static_cast<std::uint64_t>(world.rank()), 6);
    const std::int64_t total = i % 30 == 0 ? 300'000 : static_cast<std::int64_t>(mixed(i) % 5000);
    gathers.emplace_back(world, memory, cut(kCuts[i % 5], world.size(), total, i), i, own % 2 == 0, own % 4 < 2);
    scatters.emplace_back(world, memory, cut(kCuts[(i + 2) % 5], world.size(), total, i), i, own % 3 == 0, own % 3 == 1, own % 8 < 4);
    Channel& first = *channels[i % 2];
    Channel& second = *channels[i % 3 == 0 ? i % 2 : 1 - i % 2];
    gathers.back().post(first);
    scatters.back().post(second);
    if (own % 7 == 0) first.progress();
    if (own % 5 == 0) second.progress();
    delay(world, i);
  }
  std::set<std::uint64_t> open_gathers;
  std::set<std::uint64_t> open_scatters;
  for (std::uint64_t i = 0; i < kOperations; ++i) {
    open_gathers.insert(i);
    open_scatters.insert(i);
  }
  Backoff backoff;
  const std::int64_t deadline = now_ns() + 50'000'000'000;
  while (!open_gathers.empty() || !open_scatters.empty()) {
    bool moved = channels[0]->progress();
    moved = channels[1]->progress() || moved;
    std::erase_if(open_gathers, [&](std::uint64_t i) {
      if (!channels[i % 2]->test(gathers[i].ticket())) return false;
      gathers[i].check();
      return true;
    });
    std::erase_if(open_scatters, [&](std::uint64_t i) {
      if (!channels[i % 3 == 0 ? i % 2 : 1 - i % 2]->test(scatters[i].ticket())) return false;
      scatters[i].check();
      return true;
    });
    if (moved) {
      backoff.moved();
    } else {
      backoff.idle();
    }
    ASSERT_LT(now_ns(), deadline);
  }
  EXPECT_EQ(channels[0]->traffic().operations + channels[1]->traffic().operations, static_cast<std::int64_t>(2 * kOperations));
  EXPECT_FALSE(channels[0]->progress());
  world.barrier();
}

inline void check_sources_are_free_once_complete(Communicator& world) {
  // One buffer for all rounds: each rank overwrites it as soon as its ticket is complete, while others may still be slow.
  const auto channel = world.open_channel("reuse");
  Memory memory(world, 1 << 20);
  const Bounds bounds = cut(Cut::kEqual, world.size(), 1 << 15, 0);
  float* region = memory.take_floats(bounds.back(), true);
  float* out = memory.take_floats(bounds.back(), true);
  for (std::uint64_t round = 0; round < 60; ++round) {
    for (std::int64_t i = 0; i < bounds.back(); ++i) region[i] = float_of(round, world.rank(), i);
    const Channel::Ticket ticket = channel->post_scatter(region, out, bounds, false);
    delay(world, round);
    finish(*channel, ticket);
    for (std::int64_t i = bounds[world.rank()]; i < bounds[world.rank() + 1]; ++i) {
      float expected = float_of(round, 0, i);
      for (int r = 1; r < world.size(); ++r) expected += float_of(round, r, i);
      ASSERT_EQ(out[i - bounds[world.rank()]], expected) << "round " << round;
    }
  }
  world.barrier();
}

inline void check_different_sequences_are_an_error(Communicator& world) {
  if (world.size() < 2) return;
  Memory memory(world, 1 << 20);
  const auto sizes = world.open_channel("sizes");
  const auto kinds = world.open_channel("kinds");
  const std::int64_t total = world.rank() == 0 ? 1000 : 2000;
  std::byte* region = memory.take(8000, true);
  const std::byte* mine = memory.take(8000, true);
  const Channel::Ticket first = sizes->post_gather(mine, region, cut(Cut::kEqual, world.size(), total, 0));
  EXPECT_THROW(finish(*sizes, first), CommError);
  const Bounds bounds = cut(Cut::kEqual, world.size(), 4000, 0);
  const Channel::Ticket second =
      world.rank() == 0 ? kinds->post_gather(mine, region, bounds) : kinds->post_exchange(mine, region, 1000 / world.size());
  EXPECT_THROW(finish(*kinds, second), CommError);
  world.barrier();
}

inline void check_misused_bounds_are_a_logic_error(Communicator& world) {
  const auto channel = world.open_channel("misuse");
  std::vector<float> region(64);
  Bounds too_few(static_cast<std::size_t>(world.size()), 0);
  Bounds falling(static_cast<std::size_t>(world.size()) + 1, 0);
  falling.front() = 5;
  EXPECT_THROW(channel->post_gather(region.data(), region.data(), too_few), LogicError);
  EXPECT_THROW(channel->post_scatter(region.data(), region.data(), falling, false), LogicError);
  const Bounds equal = cut(Cut::kEqual, world.size(), 64, 0);
  EXPECT_THROW(channel->post_scatter(region.data(), region.data() + equal[world.rank()], equal, true), LogicError);
  EXPECT_THROW(channel->test(1), LogicError);
}

template <typename Backend>
class CommunicatorContract : public ::testing::Test {};

TYPED_TEST_SUITE_P(CommunicatorContract);

TYPED_TEST_P(CommunicatorContract, RanksKnowTheirPlaces) {
  TypeParam::run(check_ranks_know_their_places);
}

TYPED_TEST_P(CommunicatorContract, BarrierHoldsUntilAllHaveCome) {
  TypeParam::run(check_barrier_holds_until_all_have_come);
}

TYPED_TEST_P(CommunicatorContract, BroadcastGivesTheRootsBytes) {
  TypeParam::run(check_broadcast_gives_the_roots_bytes);
}

TYPED_TEST_P(CommunicatorContract, AllGatherTakesAnySizes) {
  TypeParam::run(check_all_gather_takes_any_sizes);
}

TYPED_TEST_P(CommunicatorContract, AllAgreeNeedsAll) {
  TypeParam::run(check_all_agree_needs_all);
}

TYPED_TEST_P(CommunicatorContract, AgreeOrThrowTellsOneFailureOnAllRanks) {
  TypeParam::run(check_agree_or_throw_tells_one_failure_on_all_ranks);
}

TYPED_TEST_P(CommunicatorContract, SplitMakesGroupsInOrderOfKeys) {
  TypeParam::run(check_split_makes_groups_in_order_of_keys);
}

TYPED_TEST_P(CommunicatorContract, WindowsAreOfTheSizeAskedAndZero) {
  TypeParam::run(check_windows_are_of_the_size_asked_and_zero);
}

TYPED_TEST_P(CommunicatorContract, GatherMovesEverySliceToEveryRank) {
  TypeParam::run(check_gather_moves_every_slice_to_every_rank);
}

TYPED_TEST_P(CommunicatorContract, ScatterAddsInRankOrderBitForBit) {
  TypeParam::run(check_scatter_adds_in_rank_order_bit_for_bit);
}

TYPED_TEST_P(CommunicatorContract, ScatterKnowsThatOrderMatters) {
  TypeParam::run(check_scatter_knows_that_order_matters);
}

TYPED_TEST_P(CommunicatorContract, ExchangeGathersSmallThings) {
  TypeParam::run(check_exchange_gathers_small_things);
}

TYPED_TEST_P(CommunicatorContract, TrafficFollowsTheFormulas) {
  TypeParam::run(check_traffic_follows_the_formulas);
}

TYPED_TEST_P(CommunicatorContract, PostingDoesNotWaitAndNothingIsCompleteAlone) {
  TypeParam::run(check_posting_does_not_wait_and_nothing_is_complete_alone);
}

TYPED_TEST_P(CommunicatorContract, ManyInFlightOnTwoChannelsFromMixedMemory) {
  TypeParam::run(check_many_in_flight_on_two_channels_from_mixed_memory);
}

TYPED_TEST_P(CommunicatorContract, SourcesAreFreeOnceComplete) {
  TypeParam::run(check_sources_are_free_once_complete);
}

TYPED_TEST_P(CommunicatorContract, DifferentSequencesAreAnError) {
  if (!TypeParam::kSeesOtherSequences) return;
  TypeParam::run(check_different_sequences_are_an_error);
}

TYPED_TEST_P(CommunicatorContract, MisusedBoundsAreALogicError) {
  TypeParam::run(check_misused_bounds_are_a_logic_error);
}

REGISTER_TYPED_TEST_SUITE_P(CommunicatorContract, RanksKnowTheirPlaces, BarrierHoldsUntilAllHaveCome, BroadcastGivesTheRootsBytes,
                            AllGatherTakesAnySizes, AllAgreeNeedsAll, AgreeOrThrowTellsOneFailureOnAllRanks, SplitMakesGroupsInOrderOfKeys,
                            WindowsAreOfTheSizeAskedAndZero, GatherMovesEverySliceToEveryRank, ScatterAddsInRankOrderBitForBit,
                            ScatterKnowsThatOrderMatters, ExchangeGathersSmallThings, TrafficFollowsTheFormulas,
                            PostingDoesNotWaitAndNothingIsCompleteAlone, ManyInFlightOnTwoChannelsFromMixedMemory,
                            SourcesAreFreeOnceComplete, DifferentSequencesAreAnError, MisusedBoundsAreALogicError);

}  // namespace sluice::comm::contract

#pragma once
// What every Device, with its Streams and Events, must do. A backend is a type with
//   static std::unique_ptr<device::Device> make();
// and instantiates the suite: INSTANTIATE_TYPED_TEST_SUITE_P(Name, DeviceContract, Backend).

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "device/device.hpp"

namespace sluice::device::contract {

/// A body from a lambda; lives until the stream is synchronized.
using Work = std::function<void()>;
inline void run_work(void* context, Stream& /*stream*/) {
  (*static_cast<Work*>(context))();
}

inline void nap(std::uint64_t microseconds) {
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
}

template <typename Backend>
class DeviceContract : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = Backend::make();
};
TYPED_TEST_SUITE_P(DeviceContract);

TYPED_TEST_P(DeviceContract, HasAName) {
  EXPECT_FALSE(this->device_->name().empty());
}

TYPED_TEST_P(DeviceContract, AnEventCountsEpochs) {
  const auto stream = this->device_->make_stream("s");
  const auto event = this->device_->make_event();
  EXPECT_FALSE(event->is_recorded(1));
  EXPECT_FALSE(event->is_complete(1));
  for (const std::uint64_t epoch : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{7}}) {
    EXPECT_FALSE(event->is_recorded(epoch)) << epoch;
    EXPECT_FALSE(event->is_complete(epoch)) << epoch;
    stream->record(*event, epoch);
    EXPECT_TRUE(event->is_recorded(epoch)) << epoch;
    stream->synchronize();
    EXPECT_TRUE(event->is_complete(epoch)) << epoch;
    EXPECT_TRUE(event->is_complete(epoch - 1) || epoch == 1);
    EXPECT_FALSE(event->is_recorded(epoch + 1));
    EXPECT_FALSE(event->is_complete(epoch + 1));
    event->wait_recorded(epoch);  // neither blocks now
    event->wait_complete(epoch);
  }
}

TYPED_TEST_P(DeviceContract, RecordedIsNotYetComplete) {
  const auto stream = this->device_->make_stream("s");
  const auto event = this->device_->make_event();
  std::atomic<bool> open{false};
  Work gate = [&] {
    while (!open) nap(50);
  };
  if (this->device_->completes_inline()) {
    open = true;
    stream->launch(&run_work, &gate);
    stream->record(*event, 1);
    EXPECT_TRUE(event->is_complete(1));
    return;
  }
  stream->launch(&run_work, &gate);
  stream->record(*event, 1);
  EXPECT_TRUE(event->is_recorded(1));
  event->wait_recorded(1);
  nap(2000);
  EXPECT_FALSE(event->is_complete(1)) << "complete before the work launched ahead of it";
  open = true;
  event->wait_complete(1);
  EXPECT_TRUE(event->is_complete(1));
  stream->synchronize();
}

TYPED_TEST_P(DeviceContract, TheHostCompletesAnEvent) {
  const auto event = this->device_->make_event();
  std::atomic<int> woken{0};
  std::vector<std::thread> waiting;
  for (int i = 0; i < 2; ++i) {
    waiting.emplace_back([&] {
      event->wait_recorded(3);
      ++woken;
    });
    waiting.emplace_back([&] {
      event->wait_complete(3);
      EXPECT_TRUE(event->is_complete(3));
      ++woken;
    });
  }
  event->complete_from_host(2);
  nap(3000);
  EXPECT_EQ(woken, 0) << "an older epoch woke somebody";
  event->complete_from_host(3);
  for (std::thread& thread : waiting) thread.join();
  EXPECT_TRUE(event->is_recorded(3));
  EXPECT_TRUE(event->is_complete(3));
  EXPECT_FALSE(event->is_recorded(4));
}

TYPED_TEST_P(DeviceContract, AStreamKeepsItsOrder) {
  const auto stream = this->device_->make_stream("s");
  std::vector<int> seen;
  std::vector<Work> works;
  for (int i = 0; i < 200; ++i) works.emplace_back([&seen, i] { seen.push_back(i); });
  for (Work& work : works) stream->launch(&run_work, &work);
  stream->synchronize();
  ASSERT_EQ(seen.size(), 200U);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
}

TYPED_TEST_P(DeviceContract, TheBodyGetsItsStream) {
  const auto stream = this->device_->make_stream("s");
  Stream* given = nullptr;
  stream->launch([](void* context, Stream& s) { *static_cast<Stream**>(context) = &s; }, &given);
  stream->synchronize();
  EXPECT_EQ(given, stream.get());
}

TYPED_TEST_P(DeviceContract, SynchronizeWaitsForEverything) {
  const auto stream = this->device_->make_stream("s");
  const auto event = this->device_->make_event();
  std::atomic<int> done{0};
  Work slow = [&] {
    nap(1000);
    ++done;
  };
  for (int i = 0; i < 5; ++i) stream->launch(&run_work, &slow);
  stream->record(*event, 1);
  stream->synchronize();
  EXPECT_EQ(done, 5);
  EXPECT_TRUE(event->is_complete(1));
  stream->synchronize();  // nothing to wait for
}

TYPED_TEST_P(DeviceContract, AFailureOfABodyComesOutOnce) {
  const auto stream = this->device_->make_stream("s");
  const auto event = this->device_->make_event();
  Work fails = [] { throw DivergedError("seven"); };
  int caught = 0;
  const auto attempt = [&](auto&& call) {
    try {
      call();
    } catch (const DivergedError& error) {
      EXPECT_STREQ(error.what(), "seven");
      ++caught;
    }
  };
  attempt([&] { stream->launch(&run_work, &fails); });
  stream->record(*event, 1);
  attempt([&] { stream->synchronize(); });
  EXPECT_EQ(caught, 1);
  EXPECT_TRUE(event->is_complete(1)) << "who waits for a failed task would wait for ever";
  attempt([&] { stream->synchronize(); });
  EXPECT_EQ(caught, 1);
}

/// Every stream is issued by a thread of its own, as lanes are: value i + 1 is written after value i was read.
TYPED_TEST_P(DeviceContract, StreamsWaitForEachOther) {
  constexpr int kRounds = 60;
  const auto ping = this->device_->make_stream("ping"), pong = this->device_->make_stream("pong");
  std::vector<std::unique_ptr<Event>> written, read;
  for (int i = 0; i < kRounds; ++i) {
    written.push_back(this->device_->make_event());
    read.push_back(this->device_->make_event());
  }
  for (std::uint64_t epoch = 1; epoch <= 3; ++epoch) {
    std::int64_t value = -1;
    std::vector<std::int64_t> seen(kRounds, -2);
    std::vector<Work> writers, readers;
    for (int i = 0; i < kRounds; ++i) {
      writers.emplace_back([&value, i] {
        if (i % 7 == 0) nap(30);
        value = i;
      });
      readers.emplace_back([&value, &seen, i] { seen[static_cast<std::size_t>(i)] = value; });
    }
    std::thread consumer([&] {
      for (std::size_t i = 0; i < kRounds; ++i) {
        written[i]->wait_recorded(epoch);
        pong->wait(*written[i], epoch);
        pong->launch(&run_work, &readers[i]);
        pong->record(*read[i], epoch);
      }
    });
    for (std::size_t i = 0; i < kRounds; ++i) {
      if (i > 0) {
        read[i - 1]->wait_recorded(epoch);
        ping->wait(*read[i - 1], epoch);
      }
      ping->launch(&run_work, &writers[i]);
      ping->record(*written[i], epoch);
    }
    consumer.join();
    ping->synchronize();
    pong->synchronize();
    for (int i = 0; i < kRounds; ++i) ASSERT_EQ(seen[static_cast<std::size_t>(i)], i) << "epoch " << epoch;
  }
}

/// Random waits over four streams and some events completed by the host: each task finds all it waits for done.
TYPED_TEST_P(DeviceContract, RandomWaitsHold) {
  constexpr std::size_t kStreams = 4, kTasks = 120;
  std::mt19937 random(11);
  std::vector<std::unique_ptr<Stream>> streams;
  for (std::size_t s = 0; s < kStreams; ++s) streams.push_back(this->device_->make_stream(std::to_string(s)));
  std::vector<std::unique_ptr<Event>> events;
  std::vector<std::size_t> lane(kTasks);
  std::vector<std::vector<std::size_t>> waits(kTasks);
  for (std::size_t t = 0; t < kTasks; ++t) {
    events.push_back(this->device_->make_event());
    lane[t] = random() % (kStreams + 1);  // the last one: a host lane
    for (std::size_t n = t == 0 ? 0 : random() % 4; n > 0; --n) waits[t].push_back(random() % t);
  }
  for (std::uint64_t epoch = 1; epoch <= 4; ++epoch) {
    std::vector<std::atomic<bool>> done(kTasks);
    std::atomic<int> early{0};
    std::vector<Work> works;
    for (std::size_t t = 0; t < kTasks; ++t) {
      works.emplace_back([&, t] {
        for (const std::size_t w : waits[t]) early += done[w] ? 0 : 1;
        if (t % 13 == 0) nap(40);
        done[t] = true;
      });
    }
    std::vector<std::thread> issuers;
    for (std::size_t l = 0; l <= kStreams; ++l) {
      issuers.emplace_back([&, l] {
        for (std::size_t t = 0; t < kTasks; ++t) {
          if (lane[t] != l) continue;
          for (const std::size_t w : waits[t]) {
            events[w]->wait_recorded(epoch);
            if (l == kStreams) {
              events[w]->wait_complete(epoch);
            } else {
              streams[l]->wait(*events[w], epoch);
            }
          }
          if (l == kStreams) {
            works[t]();
            events[t]->complete_from_host(epoch);
          } else {
            streams[l]->launch(&run_work, &works[t]);
            streams[l]->record(*events[t], epoch);
          }
        }
      });
    }
    for (std::thread& issuer : issuers) issuer.join();
    for (const auto& stream : streams) stream->synchronize();
    EXPECT_EQ(early, 0) << "epoch " << epoch;
    EXPECT_TRUE(std::all_of(done.begin(), done.end(), [](const std::atomic<bool>& d) { return d.load(); }));
    for (const auto& event : events) EXPECT_TRUE(event->is_complete(epoch));
  }
}

REGISTER_TYPED_TEST_SUITE_P(DeviceContract, HasAName, AnEventCountsEpochs, RecordedIsNotYetComplete, TheHostCompletesAnEvent,
                            AStreamKeepsItsOrder, TheBodyGetsItsStream, SynchronizeWaitsForEverything, AFailureOfABodyComesOutOnce,
                            StreamsWaitForEachOther, RandomWaitsHold);

}  // namespace sluice::device::contract

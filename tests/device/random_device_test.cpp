#include "support/random_device.hpp"

#include "contract/device_contract.hpp"

namespace sluice::testing {
namespace {

template <int kSeed, int kWorkers>
struct Random {
  static std::unique_ptr<device::Device> make() {
    return std::make_unique<RandomDevice>(RandomDeviceOptions{.seed = kSeed, .workers = kWorkers});
  }
};

}  // namespace
}  // namespace sluice::testing

namespace sluice::device::contract {
using Devices = ::testing::Types<sluice::testing::Random<1, 1>, sluice::testing::Random<2, 1>, sluice::testing::Random<3, 2>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Random, DeviceContract, Devices);
}  // namespace sluice::device::contract

namespace sluice::testing {
namespace {

using device::contract::run_work;
using device::contract::Work;

TEST(RandomDevice, PutsWorkOffAndReordersStreams) {
  RandomDevice device({.seed = 5});
  std::vector<std::unique_ptr<device::Stream>> streams;
  for (int s = 0; s < 4; ++s) streams.push_back(device.make_stream("s"));
  std::vector<std::size_t> order;
  std::vector<Work> works;
  std::atomic<bool> open{false};
  Work gate = [&] {
    while (!open) device::contract::nap(50);
  };
  streams[0]->launch(&run_work, &gate);
  for (std::size_t i = 0; i < 100; ++i) works.emplace_back([&order, i] { order.push_back(i); });
  for (std::size_t i = 0; i < works.size(); ++i) streams[i % 4]->launch(&run_work, &works[i]);
  EXPECT_LT(order.size(), works.size());
  open = true;
  for (const auto& stream : streams) stream->synchronize();
  ASSERT_EQ(order.size(), 100U);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  EXPECT_GT(device.reorderings(), 10);
  EXPECT_EQ(device.launches(), 101);
}

TEST(RandomDevice, AWaitForAnUnrecordedEventIsAnError) {
  RandomDevice device({});
  const auto stream = device.make_stream("upload");
  const auto event = device.make_event();
  EXPECT_THROW(stream->wait(*event, 1), LogicError);
  event->complete_from_host(1);
  stream->wait(*event, 1);
  EXPECT_THROW(stream->wait(*event, 2), LogicError);
  stream->synchronize();
}

TEST(RandomDevice, InjectsFaults) {
  RandomDevice device({.fail_body = 2, .fail_launch = 4});
  const auto stream = device.make_stream("s"), other = device.make_stream("other");
  int ran = 0;
  Work work = [&] { ++ran; };
  stream->launch(&run_work, &work);
  other->launch(&run_work, &work);  // 2
  stream->launch(&run_work, &work);
  EXPECT_THROW(stream->launch(&run_work, &work), DeviceError);  // 4
  stream->launch(&run_work, &work);
  stream->synchronize();
  EXPECT_THROW(other->synchronize(), DeviceError);
  EXPECT_EQ(ran, 3);
}

TEST(RandomDevice, AStreamThatGoesDropsWhatHasNotBegun) {
  RandomDevice device({});
  auto stream = device.make_stream("s");
  std::atomic<int> ran{0};
  std::atomic<bool> began{false};
  Work slow = [&] {
    began = true;
    device::contract::nap(3000);
    ++ran;
  };
  stream->launch(&run_work, &slow);
  while (!began) device::contract::nap(20);
  for (int i = 0; i < 20; ++i) stream->launch(&run_work, &slow);
  stream.reset();
  const int at_once = ran;
  EXPECT_EQ(at_once, 1);
  device::contract::nap(5000);
  EXPECT_EQ(ran, at_once);
}

}  // namespace
}  // namespace sluice::testing

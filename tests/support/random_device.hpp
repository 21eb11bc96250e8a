#pragma once
// A device whose streams put work off, as a GPU's do, and run it in any order that waits and streams allow: whatever relies on
// an order that nobody asked for finds out.

#include <cstdint>
#include <memory>
#include <string>

#include "device/device.hpp"

namespace sluice::testing {

struct RandomDeviceOptions {
  std::uint64_t seed = 1;
  int workers = 1;            // threads that run bodies; with more than one, bodies of different streams run at once
  int naps_in_thousand = 20;  // steps before which a worker sleeps
  int nap_microseconds_most = 50;
  /// The launch with this number (of all streams, from 1) fails as a kernel does: its body never runs, and the failure comes out
  /// of synchronize() of its stream. 0: none.
  std::int64_t fail_body = 0;
  /// The launch with this number throws at once. 0: none.
  std::int64_t fail_launch = 0;
};

class RandomDevice final : public device::Device {
 public:
  explicit RandomDevice(const RandomDeviceOptions& options);
  ~RandomDevice() override;
  device::DeviceKind kind() const override { return device::DeviceKind::kCpu; }
  std::string name() const override { return "random order"; }
  bool completes_inline() const override { return false; }
  std::unique_ptr<device::Stream> make_stream(const std::string& name) override;
  std::unique_ptr<device::Event> make_event() override;

  /// Launches so far: what fail_body and fail_launch count.
  std::int64_t launches() const;
  /// How often a worker chose among several streams, and didn't take the one that has waited longest.
  std::int64_t reorderings() const;

  class Core;

 private:
  std::shared_ptr<Core> core_;
};

}  // namespace sluice::testing

#pragma once
// Who holds how many bytes of which tier: budgets, and reservations charged against them.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spec/plan.hpp"

namespace sluice::memory {

class Ledger;

/// A right to `bytes` of a tier, returned in the destructor. Move-only.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation();
  std::int64_t bytes() const noexcept { return bytes_; }

 private:
  friend class Ledger;
  Reservation(Ledger* ledger, spec::Tier tier, std::string tag, std::int64_t bytes);
  Ledger* ledger_ = nullptr;
  spec::Tier tier_ = spec::Tier::kDevice;
  std::string tag_;
  std::int64_t bytes_ = 0;
};

/// One rank's account. Not thread-safe: reservations are made while planning and setting up, by one thread.
class Ledger {
 public:
  struct Line {
    spec::Tier tier;
    std::string tag;
    std::int64_t bytes_in_use;
    std::int64_t bytes_peak;
  };
  /// `capacity[tier]` in bytes; 0 means the tier isn't there.
  explicit Ledger(const std::array<std::int64_t, spec::kTierCount>& capacity);
  /// Throws OutOfMemory naming tier, tag, wanted and available.
  Reservation reserve(spec::Tier tier, const std::string& tag, std::int64_t bytes);
  std::optional<Reservation> try_reserve(spec::Tier tier, const std::string& tag, std::int64_t bytes);
  std::int64_t capacity(spec::Tier tier) const;
  std::int64_t available(spec::Tier tier) const;
  const std::vector<Line>& lines() const noexcept { return lines_; }

 private:
  friend class Reservation;
  void give_back(spec::Tier tier, const std::string& tag, std::int64_t bytes) noexcept;
  std::array<std::int64_t, spec::kTierCount> capacity_;
  std::vector<Line> lines_;
};

}  // namespace sluice::memory

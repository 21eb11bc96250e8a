#include "memory/ledger.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace sluice::memory {

Reservation::Reservation(Ledger* ledger, spec::Tier tier, std::string tag, std::int64_t bytes)
    : ledger_(ledger), tier_(tier), tag_(std::move(tag)), bytes_(bytes) {}

Reservation::Reservation(Reservation&& other) noexcept
    : ledger_(std::exchange(other.ledger_, nullptr)),
      tier_(other.tier_),
      tag_(std::move(other.tag_)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    if (ledger_ != nullptr) ledger_->give_back(tier_, tag_, bytes_);
    ledger_ = std::exchange(other.ledger_, nullptr);
    tier_ = other.tier_;
    tag_ = std::move(other.tag_);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

Reservation::~Reservation() {
  if (ledger_ != nullptr) ledger_->give_back(tier_, tag_, bytes_);
}

Ledger::Ledger(const std::array<std::int64_t, spec::kTierCount>& capacity) : capacity_(capacity) {}

std::int64_t Ledger::capacity(spec::Tier tier) const {
  return capacity_[static_cast<std::size_t>(tier)];
}

std::int64_t Ledger::available(spec::Tier tier) const {
  std::int64_t used = 0;
  for (const Line& line : lines_) used += line.tier == tier ? line.bytes_in_use : 0;
  return capacity(tier) - used;
}

std::optional<Reservation> Ledger::try_reserve(spec::Tier tier, const std::string& tag, std::int64_t bytes) {
  SLUICE_CHECK(bytes >= 0, tag, ": ", bytes, " bytes");
  if (bytes > available(tier)) return std::nullopt;
  auto line = std::find_if(lines_.begin(), lines_.end(), [&](const Line& l) { return l.tier == tier && l.tag == tag; });
  if (line == lines_.end()) line = lines_.insert(lines_.end(), Line{tier, tag, 0, 0});
  line->bytes_in_use += bytes;
  line->bytes_peak = std::max(line->bytes_peak, line->bytes_in_use);
  return Reservation(this, tier, tag, bytes);
}

Reservation Ledger::reserve(spec::Tier tier, const std::string& tag, std::int64_t bytes) {
  std::optional<Reservation> reservation = try_reserve(tier, tag, bytes);
  if (!reservation) throw OutOfMemory(std::string(name_of(tier)), tag, bytes, available(tier));
  return std::move(*reservation);
}

void Ledger::give_back(spec::Tier tier, const std::string& tag, std::int64_t bytes) noexcept {
  for (Line& line : lines_) {
    if (line.tier == tier && line.tag == tag) line.bytes_in_use -= bytes;
  }
}

}  // namespace sluice::memory

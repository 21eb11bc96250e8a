#pragma once
// A communicator whose channels take their time, at random: what they move moves late, and what is complete says so late.

#include <cstdint>
#include <memory>

#include "comm/communicator.hpp"

namespace sluice::testing {

/// Passes everything on to `inner`, which must outlive it.
std::unique_ptr<comm::Communicator> make_lagging(comm::Communicator& inner, std::uint64_t seed);

}  // namespace sluice::testing

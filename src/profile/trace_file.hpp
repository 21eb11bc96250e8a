#pragma once
// trace.json: what was predicted beside what was measured, for Perfetto and chrome://tracing.

#include <iosfwd>
#include <span>

#include "profile/trace_ring.hpp"
#include "schedule/simulate.hpp"

namespace sluice::profile {

/// Writes the Chrome trace format: one process "rank r, measured" with a track per lane, and, where `predicted` isn't null, one
/// "predicted" with the graph's tasks at the beginning of the last measured step (of time 0 without any). Microseconds from the
/// first measured span on; names, chunk and micro-batch from the graph whose ids the spans carry.
/// Throws IoError(path) when the stream fails.
void write_trace(std::ostream& out, const std::string& path, const schedule::StepGraph& graph, const schedule::Simulation* predicted,
                 std::span<const StepSpan> measured, int rank);

}  // namespace sluice::profile

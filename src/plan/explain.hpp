#pragma once
// A plan and its reasons, for people and for plan.json.

#include <string>

#include "plan/search.hpp"

namespace sluice::plan {

/// Several lines: what was chosen in plain words, bytes per tier and tag of one rank and per tier of a node, what goes to and from the
/// disk, what leaves the device and why, whether gathered parameters or states come first and at which prices, predicted step time and what
/// bounds it, what became of the hints, the best refused candidates with reason and number. Ends with a newline.
std::string explain(const PlanRequest& request, const PlanResult& result);

/// plan.json: {"plan", "segments_between_agrees", "prediction", "hint", "moves", "cache", "refused", "search", "machine", "budget",
/// "graph_hash", "signature"}; "moves" and "cache" where something leaves the device. `signature_json`: spec::to_json of the arithmetic
/// signature. Indented, ends with a newline.
std::string to_json(const PlanRequest& request, const PlanResult& result, const std::string& signature_json);

/// What a later attempt takes from plan.json.
struct PlanRecord {
  spec::Plan plan;
  int segments_between_agrees = 0;
  double predicted_seconds = 0;
  std::int64_t disk_read_bytes = 0, disk_write_bytes = 0;  // per rank and step
  std::int64_t unplanned_bytes = 0;                        // outside the arenas, per rank; 0 if unknown
  std::string graph_hash;                                  // as Hash::hex
  spec::ArithmeticSignature signature;
};
/// `source` names the file in errors. Throws FormatError.
PlanRecord plan_record_from_json(const std::string& text, const std::string& source);

/// The rule that a plan from elsewhere breaks, in words for a file's reader, or empty: what a builder would call a contradiction. Says
/// nothing of the bytes it needs, nor of tiers that aren't there.
std::string plan_problem(const spec::Plan& plan, const PlanRequest& request);

}  // namespace sluice::plan

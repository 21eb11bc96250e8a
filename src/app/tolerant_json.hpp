#pragma once
// DeepSpeed reads its files as Hjson; this turns the parts of that which people use into plain JSON.

#include <map>
#include <string>

namespace sluice::app {

/// JSON without what the standard forbids, and where each key stood.
struct TolerantJson {
  std::string strict;                // the same text as plain JSON, line by line
  std::map<std::string, int> lines;  // "optimizer.params.lr" -> 1-based line of the key; list elements as "key[2].inner"
};

/// Understands comments (# or // to the end of the line, and between /* and */), keys without quotes, single quotes, a comma before a
/// closing bracket, none where a line ends, and texts without quotes that have the rest of their line to themselves. Throws
/// RequestError "SOURCE:LINE: ..." when an object holds a key twice. Other mistakes are left for the JSON parser.
TolerantJson read_tolerant_json(const std::string& text, const std::string& source);

}  // namespace sluice::app

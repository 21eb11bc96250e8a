#pragma once
// Rows that hold several documents.

#include <cstdint>

namespace sluice::ops {

/// Where the document of each token begins: [rows, tokens], starts[b, t] is the first token of row b that is of one document with token t;
/// so 0 <= starts[b, t] <= t, and starts never fall along a row. A document that began in another row begins here with the row.
/// Null: every row is one document.
using DocumentStarts = const std::int32_t*;

/// Throws LogicError naming the first token whose start can't be.
void check_document_starts(DocumentStarts starts, std::int64_t rows, std::int64_t tokens);

}  // namespace sluice::ops

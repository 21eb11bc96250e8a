#include "ops/documents.hpp"

#include "base/check.hpp"

namespace sluice::ops {

void check_document_starts(DocumentStarts starts, std::int64_t rows, std::int64_t tokens) {
  if (starts == nullptr) return;
  for (std::int64_t b = 0; b < rows; ++b) {
    std::int64_t before = 0;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t start = starts[b * tokens + t];
      SLUICE_CHECK(start >= before && start <= t, "token ", t, " of row ", b, ": its document starts at ", start, ", the one before at ",
                   before);
      before = start;
    }
  }
}

}  // namespace sluice::ops

#pragma once

namespace sluice::testing {

/// Whether tests and the programs that they start carry a sanitizer: its memory and time aren't theirs, and it makes mlock() do nothing.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif

}  // namespace sluice::testing

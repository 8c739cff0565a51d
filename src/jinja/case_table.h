// Case mappings beyond ASCII (case_table.cpp is made by scripts/golden/unicode_case.py).

#pragma once

#include <cstddef>
#include <cstdint>

namespace outrider::jinja {

// The characters first, first + stride, ..., last map to themselves + delta. Ascending, not
// overlapping.
struct CaseRange {
  std::uint32_t first, last, stride;
  std::int32_t delta;
};

extern const CaseRange kToUpper[];
extern const std::size_t kToUpperCount;
extern const CaseRange kToLower[];
extern const std::size_t kToLowerCount;

}  // namespace outrider::jinja

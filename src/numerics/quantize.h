// Numbers in int8, a scale per group: activations (docs/arithmetic.md, "Products with quantized
// weights"), keys and values of the cache (there, "Attention"). The references; the kernel tables
// of cpu/ hold their twins.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "numerics/half.h"

namespace outrider {

// One row: columns is a multiple of `group`, 32, 128 or 256.
struct QuantizedRow {
  std::int8_t* q;        // [columns]
  float* d;              // [columns / group]
  std::int16_t* sums16;  // [columns / 16]: sums of q
};

// What a group is quantized with, from the largest of its bit patterns without their signs.
struct GroupScale {
  float d;
  float inverse;  // q = round-to-even(x * inverse); 0 if the group becomes zeros
  bool finite;    // if not, q = 0 without looking at x
};
GroupScale group_scale(std::uint32_t largest_bits);

void quantize_reference(std::span<const float> x, std::size_t group, QuantizedRow out);

// How the cache keeps x in type q8_0: clamped to +-65504, a scale in half precision, d = f16(max /
// 127), and q = round-to-even(x / d) within +-127, 0 where d is 0. A NaN makes its group d = NaN, q
// = 0. x.size() is a multiple of group; q: [x.size()]; d: [x.size() / group].
void keep_q8_0_reference(std::span<const float> x, std::size_t group, std::int8_t* q, Half* d);

}  // namespace outrider

// Activations in int8, a scale per group (docs/arithmetic.md, "Products with quantized weights").
// The reference; the kernel tables of cpu/ hold its twins.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace outrider {

// One row: columns is a multiple of `group`, 32 or 256.
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

}  // namespace outrider

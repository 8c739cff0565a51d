// Sums over a vector in an order that every instruction set can follow (docs/arithmetic.md, rule
// 2): element i goes to accumulator i mod 16, ascending from +0; then the accumulators are added
// pairwise at distance 8, 4, 2, 1.

#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace outrider {

inline constexpr std::size_t kLanes = 16;
using Lanes = std::array<float, kLanes>;

inline float sum_of_lanes(Lanes lanes) {
  for (std::size_t distance = kLanes / 2; distance > 0; distance /= 2)
    for (std::size_t i = 0; i < distance; ++i) lanes[i] += lanes[i + distance];
  return lanes[0];
}

float lane_sum(std::span<const float> x);
// Of x * x, each fused with its addition.
float lane_sum_of_squares(std::span<const float> x);

}  // namespace outrider

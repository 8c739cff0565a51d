// Softmax: over a vocabulary, and over one tile of attention scores.

#pragma once

#include <cstddef>
#include <span>

namespace outrider {

// p_i = exp(x_i - max) / (lane sum of all exp). Where x_i is -inf, p_i is +0. The largest x must be
// finite. p may be x.
void softmax_reference(std::span<const float> x, std::span<float> p);

// Positions are cut into tiles of 64 at multiples of 64; a page of the cache is a tile.
inline constexpr std::size_t kTile = 64;

struct TileSum {
  float max, sum;
};

// p: scaled scores, absent ones -inf, at least one present. p_j = exp(p_j - max); returns the
// largest score and the lane sum of the new p. A NaN among the scores makes max, sum and every p
// NaN.
TileSum tile_softmax_reference(std::span<float, kTile> p);

}  // namespace outrider

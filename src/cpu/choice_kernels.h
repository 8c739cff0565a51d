// What the fast choice does to whole vocabularies, per instruction set. The reference has no table:
// choose_reference serves.

#pragma once

#include <cstddef>
#include <span>

#include "cpu/isa.h"
#include "numerics/noise.h"

namespace outrider {

// Maxima are kept per block of this many values, and noise is made for as many tokens at once.
inline constexpr std::size_t kChoiceBlock = 64;

struct ChoiceKernels {
  // maxima[b] = largest of x[64 b .. 64 b + 63], unspecified if any x is NaN. Returns the largest
  // of all, or NaN if any is NaN. x is not empty.
  float (*block_maxima)(std::span<const float> x, std::span<float> maxima);
  // y = exp(x - max); returns the lane sum of y.
  float (*exp_differences)(std::span<const float> x, float max, std::span<float> y);
  // y /= divisor
  void (*divide)(float divisor, std::span<float> y);
  // Gumbel noise, use = choice, for the tokens first .. first + 63; first is a multiple of 64. That
  // of token t is at noise_place(t).
  void (*noise)(const NoiseKey& key, Token first, std::span<float, kChoiceBlock> out);
};

// The four outputs of a counter are apart: [output][counter].
constexpr std::size_t noise_place(Token token) {
  const auto t = static_cast<std::size_t>(token) % kChoiceBlock;
  return t % 4 * (kChoiceBlock / 4) + t / 4;
}

extern const ChoiceKernels kChoiceAvx2, kChoiceAvx512;

}  // namespace outrider

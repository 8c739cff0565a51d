// Loads and stores with ragged ends, and the lane sum (docs/arithmetic.md, rule 2), for AVX2.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cpu/kernels/x86/intrinsics.h"

namespace outrider::avx2 {

inline constexpr std::size_t kWidth = 8;

// The lanes of the block that begins `left` elements before the end.
struct LaneMask {
  std::size_t count;  // 1 to 8
  __m256i mask;
};

[[OUTRIDER_AVX2, gnu::always_inline]] inline LaneMask lanes(std::size_t left) {
  alignas(32) static constexpr int kEnds[2 * kWidth] = {-1, -1, -1, -1, -1, -1, -1, -1};
  const std::size_t count = std::min(left, kWidth);
  return {count, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kEnds + kWidth - count))};
}

[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256 load(const float* at) {
  return _mm256_loadu_ps(at);
}
[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256 load(const std::uint16_t* at) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}
[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256 load(const LaneMask& some, const float* at) {
  return _mm256_maskload_ps(at, some.mask);
}
[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256 load(const LaneMask& some,
                                                         const std::uint16_t* at) {
  if (some.count == kWidth) return load(at);
  alignas(16) std::uint16_t copy[kWidth] = {};
  std::copy_n(at, some.count, copy);
  return load(copy);
}

[[OUTRIDER_AVX2, gnu::always_inline]] inline void store(float* at, __m256 x) {
  _mm256_storeu_ps(at, x);
}
[[OUTRIDER_AVX2, gnu::always_inline]] inline void store(const LaneMask& some, float* at, __m256 x) {
  _mm256_maskstore_ps(at, some.mask, x);
}
// Rounded to nearest even.
[[OUTRIDER_AVX2, gnu::always_inline]] inline void store(const LaneMask& some, std::uint16_t* at,
                                                        __m256 x) {
  alignas(16) std::uint16_t rounded[kWidth];
  _mm_store_si128(reinterpret_cast<__m128i*>(rounded),
                  _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  std::copy_n(rounded, some.count, at);
}

// Of 16 accumulators, the first eight in `low`: pairwise at distance 8, 4, 2, 1.
[[OUTRIDER_AVX2, gnu::always_inline]] inline float sum_of_lanes(__m256 low, __m256 high) {
  const __m256 by8 = _mm256_add_ps(low, high);
  const __m128 by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
  const __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
  return _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)));
}

}  // namespace outrider::avx2

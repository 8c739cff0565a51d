// Loads and stores with ragged ends, operations by name, and the lane sum (docs/arithmetic.md, rule
// 2), for AVX-512.

#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/x86/intrinsics.h"

namespace outrider::avx512 {

inline constexpr std::size_t kWidth = 16;

// The lanes of the block that begins `left` elements before the end.
[[OUTRIDER_AVX512, gnu::always_inline]] inline __mmask16 lanes(std::size_t left) {
  return static_cast<__mmask16>(left >= kWidth ? 0xffffu : (1u << left) - 1);
}

[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 load(__mmask16 mask, const float* at) {
  return _mm512_maskz_loadu_ps(mask, at);
}
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 load(__mmask16 mask,
                                                           const std::uint16_t* at) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, at));
}
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 load(const float* at) {
  return _mm512_loadu_ps(at);
}
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 load(const std::uint16_t* at) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}

[[OUTRIDER_AVX512, gnu::always_inline]] inline void store(float* at, __m512 x) {
  _mm512_storeu_ps(at, x);
}
[[OUTRIDER_AVX512, gnu::always_inline]] inline void store(__mmask16 mask, float* at, __m512 x) {
  _mm512_mask_storeu_ps(at, mask, x);
}
// Rounded to nearest even.
[[OUTRIDER_AVX512, gnu::always_inline]] inline void store(__mmask16 mask, std::uint16_t* at,
                                                          __m512 x) {
  _mm256_mask_storeu_epi16(at, mask,
                           _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

// By the names that attention_*_lanes.h and choice_lanes.h call.
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 all(float x) {
  return _mm512_set1_ps(x);
}
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512i all(std::int32_t x) {
  return _mm512_set1_epi32(x);
}
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512i load(const std::int32_t* at) {
  return _mm512_loadu_si512(at);
}
[[OUTRIDER_AVX512, gnu::always_inline]] inline void store(std::int32_t* at, __m512i x) {
  _mm512_storeu_si512(at, x);
}
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 add(__m512 a, __m512 b) {
  return _mm512_add_ps(a, b);
}
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 subtract(__m512 a, __m512 b) {
  return _mm512_sub_ps(a, b);
}
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 multiply(__m512 a, __m512 b) {
  return _mm512_mul_ps(a, b);
}
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 divide(__m512 a, __m512 b) {
  return _mm512_div_ps(a, b);
}
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 fused(__m512 a, __m512 b, __m512 c) {
  return _mm512_fmadd_ps(a, b, c);
}
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 larger(__m512 a, __m512 b) {
  return _mm512_max_ps(a, b);
}
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 lesser(__m512 a, __m512 b) {
  return _mm512_min_ps(a, b);
}
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512i larger(__m512i a, __m512i b) {
  return _mm512_max_epi32(a, b);
}
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512i lesser(__m512i a, __m512i b) {
  return _mm512_min_epi32(a, b);
}

// Pairwise at distance 8, 4, 2, 1.
[[OUTRIDER_AVX512, gnu::always_inline]] inline float sum_of_lanes(__m512 x) {
  const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1));
  const __m256 by8 = _mm256_add_ps(_mm512_castps512_ps256(x), high);
  const __m128 by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
  const __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
  return _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)));
}

}  // namespace outrider::avx512

// numerics/functions.h on 8 floats at once, with the same bits. Where the reference branches, both
// sides are computed and one is kept.

#pragma once

#include <limits>

#include "cpu/kernels/x86/intrinsics.h"
#include "numerics/functions.h"

namespace outrider::avx2 {

using namespace function_constants;

template <int n>
[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256 polynomial(const float (&coefficients)[n],
                                                               __m256 x) {
  __m256 sum = _mm256_set1_ps(coefficients[0]);
#pragma GCC unroll 16
  for (int i = 1; i < n; ++i) sum = _mm256_fmadd_ps(sum, x, _mm256_set1_ps(coefficients[i]));
  return sum;
}

// a where the mask's sign bits are set, else b.
[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256 select(__m256 mask, __m256 a, __m256 b) {
  return _mm256_blendv_ps(b, a, mask);
}

struct ExpParts {
  __m256i n;
  __m256 t;
};

[[OUTRIDER_AVX2, gnu::always_inline]] inline ExpParts exp_parts(__m256 x) {
  const __m256 rounder = _mm256_set1_ps(kRounder);
  const __m256 rounded = _mm256_fmadd_ps(x, _mm256_set1_ps(kLog2e), rounder);
  const __m256 n = _mm256_sub_ps(rounded, rounder);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(kLn2High), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(kLn2Low), r);
  const __m256 t = _mm256_fmadd_ps(_mm256_mul_ps(r, r), polynomial(kExp, r), r);
  return {_mm256_sub_epi32(_mm256_castps_si256(rounded), _mm256_castps_si256(rounder)), t};
}

[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256 power_of_two(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256 exp_f32(__m256 x) {
  const ExpParts e = exp_parts(x);
  const __m256 power = power_of_two(_mm256_sub_epi32(e.n, _mm256_set1_epi32(1)));
  __m256 result = _mm256_mul_ps(_mm256_add_ps(_mm256_set1_ps(1), e.t), power);
  result = _mm256_add_ps(result, result);
  const __m256 infinity = _mm256_set1_ps(std::numeric_limits<float>::infinity());
  const __m256 high = _mm256_cmp_ps(x, _mm256_set1_ps(kExpHighest), _CMP_GT_OQ);
  const __m256 not_low = _mm256_cmp_ps(x, _mm256_set1_ps(kExpLowest), _CMP_NLT_UQ);
  // What NaN gives above may be anything: its power is not bounded.
  const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  return _mm256_or_ps(nan, _mm256_and_ps(not_low, select(high, infinity, result)));
}

// The same for x that are at most 0 or NaN, with nothing to watch above: no power needs two steps.
[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256 exp_of_negative(__m256 x) {
  const ExpParts e = exp_parts(x);
  const __m256 result = _mm256_mul_ps(_mm256_add_ps(_mm256_set1_ps(1), e.t), power_of_two(e.n));
  const __m256 not_low = _mm256_cmp_ps(x, _mm256_set1_ps(kExpLowest), _CMP_NLT_UQ);
  const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  return _mm256_or_ps(nan, _mm256_and_ps(not_low, result));
}

// x * sigmoid(z)
[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256 gate(__m256 x, __m256 z) {
  const __m256 one = _mm256_set1_ps(1);
  const ExpParts e = exp_parts(_mm256_sub_ps(_mm256_setzero_ps(), z));
  const __m256i half = _mm256_srai_epi32(e.n, 1);
  const __m256 w1 = power_of_two(_mm256_sub_epi32(_mm256_setzero_si256(), half));
  const __m256 w2 = power_of_two(_mm256_sub_epi32(half, e.n));
  const __m256 w = _mm256_mul_ps(w1, w2);
  const __m256 sum = _mm256_add_ps(one, w);
  const __m256 lost = _mm256_sub_ps(w, _mm256_sub_ps(sum, one));
  const __m256 divisor = _mm256_add_ps(sum, _mm256_add_ps(e.t, lost));
  const __m256 result = _mm256_div_ps(_mm256_mul_ps(_mm256_mul_ps(x, w1), w2), divisor);
  const __m256 high = _mm256_cmp_ps(z, _mm256_set1_ps(kGateHighest), _CMP_GT_OQ);
  const __m256 not_low = _mm256_cmp_ps(z, _mm256_set1_ps(kGateLowest), _CMP_NLT_UQ);
  return _mm256_and_ps(not_low, select(high, x, result));
}

[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256 sigmoid_f32(__m256 x) {
  return gate(_mm256_set1_ps(1), x);
}

[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256 silu_f32(__m256 x) {
  return gate(x, x);
}

[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256 gelu_tanh_f32(__m256 x) {
  const __m256 slope =
      _mm256_fmadd_ps(_mm256_mul_ps(x, x), _mm256_set1_ps(kGelu3), _mm256_set1_ps(kGelu1));
  return gate(x, _mm256_mul_ps(x, slope));
}

[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256 tanh_f32(__m256 x) {
  const __m256 sign_bit = _mm256_set1_ps(-0.0f);
  const __m256 size = _mm256_andnot_ps(sign_bit, x), square = _mm256_mul_ps(x, x);
  const __m256 small = _mm256_fmadd_ps(_mm256_mul_ps(x, square), polynomial(kTanh, square), x);
  const __m256 complement = gate(_mm256_set1_ps(2), _mm256_mul_ps(_mm256_set1_ps(-2), size));
  const __m256 large = _mm256_sub_ps(_mm256_set1_ps(1), complement);  // its sign bit is 0
  const __m256 signed_large = _mm256_or_ps(large, _mm256_and_ps(x, sign_bit));
  return select(_mm256_cmp_ps(size, _mm256_set1_ps(kTanhSmall), _CMP_LT_OQ), small, signed_large);
}

struct Exponent {
  __m256i e;
  __m256 m;
};

[[OUTRIDER_AVX2, gnu::always_inline]] inline Exponent split(__m256 x) {
  const __m256i base = _mm256_set1_epi32(kTwoThirdsBits);
  const __m256i above = _mm256_sub_epi32(_mm256_castps_si256(x), base);
  const __m256i mantissa = _mm256_and_si256(above, _mm256_set1_epi32(0x7fffff));
  return {_mm256_srai_epi32(above, 23), _mm256_castsi256_ps(_mm256_add_epi32(mantissa, base))};
}

[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256 log_of_parts(__m256i e, __m256 f) {
  const __m256 log1p = _mm256_fmadd_ps(_mm256_mul_ps(f, f), polynomial(kLog, f), f);
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(e), _mm256_set1_ps(kLn2), log1p);
}

// `result` but where x is infinite, zero_at, below it or NaN.
[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256 log_edges(__m256 x, __m256 zero_at,
                                                              __m256 result) {
  const __m256 infinity = _mm256_set1_ps(std::numeric_limits<float>::infinity());
  const __m256 nan = _mm256_set1_ps(std::numeric_limits<float>::quiet_NaN());
  result = select(_mm256_cmp_ps(x, infinity, _CMP_EQ_OQ), infinity, result);
  result = select(_mm256_cmp_ps(x, zero_at, _CMP_EQ_OQ),
                  _mm256_sub_ps(_mm256_setzero_ps(), infinity), result);
  return select(_mm256_cmp_ps(x, zero_at, _CMP_NGE_UQ), nan, result);
}

[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256 log_f32(__m256 x) {
  const __m256 least = _mm256_set1_ps(std::numeric_limits<float>::min());
  const __m256 subnormal = _mm256_cmp_ps(x, least, _CMP_LT_OQ);
  const Exponent s = split(select(subnormal, _mm256_mul_ps(x, _mm256_set1_ps(0x1p23f)), x));
  const __m256i lift = _mm256_and_si256(_mm256_castps_si256(subnormal), _mm256_set1_epi32(23));
  const __m256 f = _mm256_sub_ps(s.m, _mm256_set1_ps(1));
  return log_edges(x, _mm256_setzero_ps(), log_of_parts(_mm256_sub_epi32(s.e, lift), f));
}

[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256 log1p_f32(__m256 x) {
  const __m256 one = _mm256_set1_ps(1);
  const __m256 sum = _mm256_add_ps(one, x);
  const __m256 x_part = _mm256_sub_ps(sum, one);
  const __m256 lost =
      _mm256_add_ps(_mm256_sub_ps(one, _mm256_sub_ps(sum, x_part)), _mm256_sub_ps(x, x_part));
  const Exponent s = split(sum);
  const __m256i minus_e =
      _mm256_max_epi32(_mm256_sub_epi32(_mm256_setzero_si256(), s.e), _mm256_set1_epi32(-126));
  const __m256 f = _mm256_fmadd_ps(lost, power_of_two(minus_e), _mm256_sub_ps(s.m, one));
  return log_edges(x, _mm256_set1_ps(-1), log_of_parts(s.e, f));
}

}  // namespace outrider::avx2

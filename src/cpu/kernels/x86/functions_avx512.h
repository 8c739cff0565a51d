// numerics/functions.h on 16 floats at once, with the same bits. Where the reference branches, both
// sides are computed and one is kept; scalef multiplies by a power of two with one rounding, as the
// reference's exact steps do.

#pragma once

#include <limits>

#include "cpu/kernels/x86/intrinsics.h"
#include "numerics/functions.h"

namespace outrider::avx512 {

using namespace function_constants;

template <int n>
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 polynomial(const float (&coefficients)[n],
                                                                 __m512 x) {
  __m512 sum = _mm512_set1_ps(coefficients[0]);
#pragma GCC unroll 16
  for (int i = 1; i < n; ++i) sum = _mm512_fmadd_ps(sum, x, _mm512_set1_ps(coefficients[i]));
  return sum;
}

struct ExpParts {
  __m512 n, t;
};

[[OUTRIDER_AVX512, gnu::always_inline]] inline ExpParts exp_parts(__m512 x) {
  const __m512 rounder = _mm512_set1_ps(kRounder);
  const __m512 n = _mm512_sub_ps(_mm512_fmadd_ps(x, _mm512_set1_ps(kLog2e), rounder), rounder);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2High), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2Low), r);
  return {n, _mm512_fmadd_ps(_mm512_mul_ps(r, r), polynomial(kExp, r), r)};
}

[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 exp_f32(__m512 x) {
  const __m512 lowest = _mm512_set1_ps(kExpLowest), highest = _mm512_set1_ps(kExpHighest);
  const ExpParts e = exp_parts(x);
  const __m512 result = _mm512_scalef_ps(_mm512_add_ps(_mm512_set1_ps(1), e.t), e.n);
  const __m512 infinity = _mm512_set1_ps(std::numeric_limits<float>::infinity());
  const __m512 finite =
      _mm512_mask_mov_ps(result, _mm512_cmp_ps_mask(x, highest, _CMP_GT_OQ), infinity);
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, lowest, _CMP_NLT_UQ), finite);
}

// The same for x that are at most 0 or NaN, with nothing to watch above.
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 exp_of_negative(__m512 x) {
  const ExpParts e = exp_parts(x);
  const auto not_low = _mm512_cmp_ps_mask(x, _mm512_set1_ps(kExpLowest), _CMP_NLT_UQ);
  return _mm512_maskz_scalef_ps(not_low, _mm512_add_ps(_mm512_set1_ps(1), e.t), e.n);
}

// x * sigmoid(z)
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 gate(__m512 x, __m512 z) {
  const __m512 zero = _mm512_setzero_ps(), one = _mm512_set1_ps(1);
  const ExpParts e = exp_parts(_mm512_sub_ps(zero, z));
  const __m512 minus_n = _mm512_sub_ps(zero, e.n);
  const __m512 w = _mm512_scalef_ps(one, minus_n);
  const __m512 sum = _mm512_add_ps(one, w);
  const __m512 lost = _mm512_sub_ps(w, _mm512_sub_ps(sum, one));
  const __m512 divisor = _mm512_add_ps(sum, _mm512_add_ps(e.t, lost));
  const __m512 result = _mm512_div_ps(_mm512_scalef_ps(x, minus_n), divisor);
  const auto high = _mm512_cmp_ps_mask(z, _mm512_set1_ps(kGateHighest), _CMP_GT_OQ);
  const auto not_low = _mm512_cmp_ps_mask(z, _mm512_set1_ps(kGateLowest), _CMP_NLT_UQ);
  return _mm512_maskz_mov_ps(not_low, _mm512_mask_mov_ps(result, high, x));
}

[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 sigmoid_f32(__m512 x) {
  return gate(_mm512_set1_ps(1), x);
}

[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 silu_f32(__m512 x) {
  return gate(x, x);
}

[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 gelu_tanh_f32(__m512 x) {
  const __m512 slope =
      _mm512_fmadd_ps(_mm512_mul_ps(x, x), _mm512_set1_ps(kGelu3), _mm512_set1_ps(kGelu1));
  return gate(x, _mm512_mul_ps(x, slope));
}

[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 tanh_f32(__m512 x) {
  const __m512 size = _mm512_abs_ps(x), square = _mm512_mul_ps(x, x);
  const __m512 small = _mm512_fmadd_ps(_mm512_mul_ps(x, square), polynomial(kTanh, square), x);
  const __m512 complement = gate(_mm512_set1_ps(2), _mm512_mul_ps(_mm512_set1_ps(-2), size));
  const __m512 large = _mm512_sub_ps(_mm512_set1_ps(1), complement);  // its sign bit is 0
  const __m512i sign =
      _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(std::numeric_limits<int>::min()));
  const __m512 signed_large =
      _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(large), sign));
  return _mm512_mask_mov_ps(
      signed_large, _mm512_cmp_ps_mask(size, _mm512_set1_ps(kTanhSmall), _CMP_LT_OQ), small);
}

struct Exponent {
  __m512i e;
  __m512 m;
};

[[OUTRIDER_AVX512, gnu::always_inline]] inline Exponent split(__m512 x) {
  const __m512i base = _mm512_set1_epi32(kTwoThirdsBits);
  const __m512i above = _mm512_sub_epi32(_mm512_castps_si512(x), base);
  const __m512i mantissa = _mm512_and_si512(above, _mm512_set1_epi32(0x7fffff));
  return {_mm512_srai_epi32(above, 23), _mm512_castsi512_ps(_mm512_add_epi32(mantissa, base))};
}

[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 log_of_parts(__m512i e, __m512 f) {
  const __m512 log1p = _mm512_fmadd_ps(_mm512_mul_ps(f, f), polynomial(kLog, f), f);
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(e), _mm512_set1_ps(kLn2), log1p);
}

// `result` but where x is infinite, zero_at, below it or NaN.
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 log_edges(__m512 x, __m512 zero_at,
                                                                __m512 result) {
  const __m512 infinity = _mm512_set1_ps(std::numeric_limits<float>::infinity());
  const __m512 nan = _mm512_set1_ps(std::numeric_limits<float>::quiet_NaN());
  result = _mm512_mask_mov_ps(result, _mm512_cmp_ps_mask(x, infinity, _CMP_EQ_OQ), infinity);
  result = _mm512_mask_mov_ps(result, _mm512_cmp_ps_mask(x, zero_at, _CMP_EQ_OQ),
                              _mm512_sub_ps(_mm512_setzero_ps(), infinity));
  return _mm512_mask_mov_ps(result, _mm512_cmp_ps_mask(x, zero_at, _CMP_NGE_UQ), nan);
}

[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 log_f32(__m512 x) {
  const __m512 least = _mm512_set1_ps(std::numeric_limits<float>::min());
  const auto subnormal = _mm512_cmp_ps_mask(x, least, _CMP_LT_OQ);
  const Exponent s = split(_mm512_mask_mul_ps(x, subnormal, x, _mm512_set1_ps(0x1p23f)));
  const __m512i e = _mm512_mask_sub_epi32(s.e, subnormal, s.e, _mm512_set1_epi32(23));
  const __m512 f = _mm512_sub_ps(s.m, _mm512_set1_ps(1));
  return log_edges(x, _mm512_setzero_ps(), log_of_parts(e, f));
}

[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 log1p_f32(__m512 x) {
  const __m512 one = _mm512_set1_ps(1);
  const __m512 sum = _mm512_add_ps(one, x);
  const __m512 x_part = _mm512_sub_ps(sum, one);
  const __m512 lost =
      _mm512_add_ps(_mm512_sub_ps(one, _mm512_sub_ps(sum, x_part)), _mm512_sub_ps(x, x_part));
  const Exponent s = split(sum);
  const __m512i least = _mm512_set1_epi32(-126);
  const __m512i minus_e = _mm512_max_epi32(_mm512_sub_epi32(_mm512_setzero_si512(), s.e), least);
  const __m512 power =
      _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(minus_e, _mm512_set1_epi32(127)), 23));
  const __m512 f = _mm512_fmadd_ps(lost, power, _mm512_sub_ps(s.m, one));
  return log_edges(x, _mm512_set1_ps(-1), log_of_parts(s.e, f));
}

}  // namespace outrider::avx512

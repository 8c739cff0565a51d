// The 16 lanes of choice_lanes.h in one register.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "cpu/kernels/choice_kernels.h"
#include "cpu/kernels/x86/functions_avx512.h"
#include "cpu/kernels/x86/lanes_avx512.h"
#include "cpu/kernels/x86/tables.h"

#define OUTRIDER_TARGET OUTRIDER_AVX512
#define OUTRIDER_OP [[OUTRIDER_AVX512, gnu::always_inline]] inline

namespace outrider {
namespace {

using avx512::add;
using avx512::all;
using avx512::divide;
using avx512::fused;
using avx512::larger;
using avx512::lesser;
using avx512::load;
using avx512::multiply;
using avx512::store;
using avx512::subtract;

using Floats = __m512;
using Ints = __m512i;
using Wide = __m512i;  // 8 lanes of 64 bits
using Mask = __mmask16;

OUTRIDER_OP Mask first_lanes(std::size_t n) {
  return avx512::lanes(n);
}
OUTRIDER_OP Floats load(Mask mask, const float* at, Floats others) {
  return _mm512_mask_loadu_ps(others, mask, at);
}
OUTRIDER_OP Ints load(Mask mask, const std::int32_t* at, Ints others) {
  return _mm512_mask_loadu_epi32(others, mask, at);
}
// at[4 lane], or `others`.
OUTRIDER_OP Floats load_fourth(Mask mask, const float* at, Floats others) {
  const __m512i index =
      _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60);
  return _mm512_mask_i32gather_ps(others, mask, index, at, sizeof(float));
}
// The lanes of the mask, close together; the rest of at[0 .. 15] is overwritten too. To a register
// first: compressing to memory takes some 140 cycles on Zen 4.
OUTRIDER_OP void store_close(float* at, Mask mask, Floats x) {
  _mm512_storeu_ps(at, _mm512_maskz_compress_ps(mask, x));
}
OUTRIDER_OP void store_close(std::int32_t* at, Mask mask, Ints x) {
  _mm512_storeu_si512(at, _mm512_maskz_compress_epi32(mask, x));
}

OUTRIDER_OP Floats size(Floats x) {
  return _mm512_abs_ps(x);
}
OUTRIDER_OP Floats rounded(Floats x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
OUTRIDER_OP Floats exp_f32(Floats x) {
  return avx512::exp_f32(x);
}
OUTRIDER_OP Floats log_f32(Floats x) {
  return avx512::log_f32(x);
}
OUTRIDER_OP Floats log1p_f32(Floats x) {
  return avx512::log1p_f32(x);
}

OUTRIDER_OP Ints lesser_unsigned(Ints a, Ints b) {
  return _mm512_min_epu32(a, b);
}
OUTRIDER_OP Ints and_bits(Ints a, Ints b) {
  return _mm512_and_si512(a, b);
}
OUTRIDER_OP Ints xor_bits(Ints a, Ints b) {
  return _mm512_xor_si512(a, b);
}
template <int n>
OUTRIDER_OP Ints shift_down(Ints x) {
  return _mm512_srli_epi32(x, n);
}
template <int n>
OUTRIDER_OP Ints shift_down_signed(Ints x) {
  return _mm512_srai_epi32(x, n);
}
OUTRIDER_OP Ints bits_of(Floats x) {
  return _mm512_castps_si512(x);
}
OUTRIDER_OP Floats floats_of(Ints x) {
  return _mm512_castsi512_ps(x);
}
OUTRIDER_OP Floats to_floats(Ints x) {
  return _mm512_cvtepi32_ps(x);
}

OUTRIDER_OP Mask both(Mask a, Mask b) {
  return a & b;
}
OUTRIDER_OP Mask either(Mask a, Mask b) {
  return a | b;
}
OUTRIDER_OP Mask above(Floats a, Floats b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
}
OUTRIDER_OP Mask at_least(Floats a, Floats b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ);
}
OUTRIDER_OP Mask equal(Floats a, Floats b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
OUTRIDER_OP Mask either_nan(Floats a, Floats b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
}
OUTRIDER_OP Mask above(Ints a, Ints b) {
  return _mm512_cmpgt_epi32_mask(a, b);
}
OUTRIDER_OP Mask at_most(Ints a, Ints b) {
  return _mm512_cmple_epi32_mask(a, b);
}
OUTRIDER_OP Mask equal(Ints a, Ints b) {
  return _mm512_cmpeq_epi32_mask(a, b);
}
OUTRIDER_OP Mask at_most_unsigned(Ints a, Ints b) {
  return _mm512_cmple_epu32_mask(a, b);
}
OUTRIDER_OP unsigned set_lanes(Mask mask) {
  return mask;
}
OUTRIDER_OP Mask mask_of(unsigned bits) {
  return static_cast<Mask>(bits);
}
OUTRIDER_OP Floats select(Mask mask, Floats a, Floats b) {
  return _mm512_mask_mov_ps(b, mask, a);
}
OUTRIDER_OP Ints select(Mask mask, Ints a, Ints b) {
  return _mm512_mask_mov_epi32(b, mask, a);
}

OUTRIDER_OP float largest(Floats x) {
  return _mm512_reduce_max_ps(x);
}
OUTRIDER_OP std::int32_t largest(Ints x) {
  return _mm512_reduce_max_epi32(x);
}
OUTRIDER_OP std::int32_t least(Ints x) {
  return _mm512_reduce_min_epi32(x);
}
OUTRIDER_OP float sum_of_lanes(Floats x) {
  return avx512::sum_of_lanes(x);
}

OUTRIDER_OP Wide all_wide(std::uint32_t x) {
  return _mm512_set1_epi64(x);
}
// In lane i, 4 at[i / 2] + 2 (i mod 2) + odd.
OUTRIDER_OP Wide counters(const std::uint32_t* at, int odd) {
  const __m256i four = _mm256_cvtepu32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  const __m512i twice = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3),
                                                 _mm512_castsi256_si512(four));
  const __m512i places = _mm512_setr_epi64(0, 2, 0, 2, 0, 2, 0, 2);
  return _mm512_add_epi64(_mm512_slli_epi64(twice, 2),
                          _mm512_add_epi64(places, _mm512_set1_epi64(odd)));
}
// Of the low halves.
OUTRIDER_OP Wide multiply_low(Wide a, Wide b) {
  return _mm512_mul_epu32(a, b);
}
OUTRIDER_OP Wide high_half(Wide x) {
  return _mm512_srli_epi64(x, 32);
}
OUTRIDER_OP Wide xor_bits(Wide a, Wide b, Wide c) {
  return _mm512_ternarylogic_epi64(a, b, c, 0x96);
}
// Low halves, by turns.
OUTRIDER_OP Ints interleaved(Wide even, Wide odd) {
  return _mm512_mask_mov_epi32(even, 0xaaaa, _mm512_slli_epi64(odd, 32));
}

#include "cpu/kernels/x86/choice_lanes.h"

}  // namespace

const ChoiceKernels kChoiceAvx512 = kTable;

}  // namespace outrider

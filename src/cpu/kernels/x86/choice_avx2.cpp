// The 16 lanes of choice_lanes.h in two registers.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "cpu/kernels/choice_kernels.h"
#include "cpu/kernels/x86/functions_avx2.h"
#include "cpu/kernels/x86/lanes_avx2.h"
#include "cpu/kernels/x86/tables.h"

#define OUTRIDER_TARGET OUTRIDER_AVX2
#define OUTRIDER_OP [[OUTRIDER_AVX2, gnu::always_inline]] inline

namespace outrider {
namespace {

struct Floats {
  __m256 low, high;
};
struct Ints {
  __m256i low, high;
};
using Wide = Ints;  // 8 lanes of 64 bits
using Mask = Ints;  // lanes all ones or zero

constexpr std::size_t kHalf = 8;

OUTRIDER_OP Floats all(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
OUTRIDER_OP Ints all(std::int32_t x) {
  return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
OUTRIDER_OP Ints bits_of(Floats x) {
  return {_mm256_castps_si256(x.low), _mm256_castps_si256(x.high)};
}
OUTRIDER_OP Floats floats_of(Ints x) {
  return {_mm256_castsi256_ps(x.low), _mm256_castsi256_ps(x.high)};
}
OUTRIDER_OP Floats to_floats(Ints x) {
  return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)};
}
OUTRIDER_OP Floats select(Mask mask, Floats a, Floats b) {
  const Floats m = floats_of(mask);
  return {_mm256_blendv_ps(b.low, a.low, m.low), _mm256_blendv_ps(b.high, a.high, m.high)};
}
OUTRIDER_OP Ints select(Mask mask, Ints a, Ints b) {
  return bits_of(select(mask, floats_of(a), floats_of(b)));
}

OUTRIDER_OP Floats load(const float* at) {
  return {_mm256_loadu_ps(at), _mm256_loadu_ps(at + kHalf)};
}
OUTRIDER_OP Ints load(const std::int32_t* at) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + kHalf))};
}
OUTRIDER_OP Mask first_lanes(std::size_t n) {
  alignas(64) static constexpr std::array<std::int32_t, 4 * kHalf> kEnds = [] {
    std::array<std::int32_t, 4 * kHalf> ends{};
    for (std::size_t i = 0; i < 2 * kHalf; ++i) ends[i] = -1;
    return ends;
  }();
  return load(&kEnds[2 * kHalf - std::min(n, 2 * kHalf)]);
}
OUTRIDER_OP Floats load(Mask mask, const float* at, Floats others) {
  return select(mask, {_mm256_maskload_ps(at, mask.low), _mm256_maskload_ps(at + kHalf, mask.high)},
                others);
}
OUTRIDER_OP Ints load(Mask mask, const std::int32_t* at, Ints others) {
  return select(mask,
                {_mm256_maskload_epi32(at, mask.low), _mm256_maskload_epi32(at + kHalf, mask.high)},
                others);
}
// at[4 lane], or `others`.
OUTRIDER_OP Floats load_fourth(Mask mask, const float* at, Floats others) {
  const __m256i index = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
  const Floats m = floats_of(mask);
  return {_mm256_mask_i32gather_ps(others.low, at, index, m.low, sizeof(float)),
          _mm256_mask_i32gather_ps(others.high, at + 4 * kHalf, index, m.high, sizeof(float))};
}
OUTRIDER_OP void store(float* at, Floats x) {
  _mm256_storeu_ps(at, x.low);
  _mm256_storeu_ps(at + kHalf, x.high);
}
OUTRIDER_OP void store(std::int32_t* at, Ints x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), x.low);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at + kHalf), x.high);
}

// The lanes that are set in each mask of 8, ascending.
using LaneLists = std::array<std::array<std::uint8_t, kHalf>, 256>;
alignas(64) constexpr LaneLists kSetLanes = [] {
  LaneLists lists{};
  for (unsigned mask = 0; mask < lists.size(); ++mask) {
    std::size_t n = 0;
    for (unsigned lane = 0; lane < kHalf; ++lane)
      if ((mask >> lane & 1) != 0) lists[mask][n++] = static_cast<std::uint8_t>(lane);
  }
  return lists;
}();

OUTRIDER_OP int store_close(std::int32_t* at, __m256i mask, __m256i x) {
  const auto set = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(mask)));
  const __m256i from =
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(&kSetLanes[set])));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm256_permutevar8x32_epi32(x, from));
  return std::popcount(set);
}
// The lanes of the mask, close together; the rest of at[0 .. 15] may be overwritten too.
OUTRIDER_OP void store_close(std::int32_t* at, Mask mask, Ints x) {
  at += store_close(at, mask.low, x.low);
  store_close(at, mask.high, x.high);
}
OUTRIDER_OP void store_close(float* at, Mask mask, Floats x) {
  store_close(reinterpret_cast<std::int32_t*>(at), mask, bits_of(x));
}

OUTRIDER_OP Floats add(Floats a, Floats b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
OUTRIDER_OP Floats subtract(Floats a, Floats b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
OUTRIDER_OP Floats multiply(Floats a, Floats b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
OUTRIDER_OP Floats divide(Floats a, Floats b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
OUTRIDER_OP Floats fused(Floats a, Floats b, Floats c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
OUTRIDER_OP Floats larger(Floats a, Floats b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
OUTRIDER_OP Floats lesser(Floats a, Floats b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
OUTRIDER_OP Floats size(Floats x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.low), _mm256_andnot_ps(sign, x.high)};
}
OUTRIDER_OP Floats rounded(Floats x) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.low, kNearest), _mm256_round_ps(x.high, kNearest)};
}
OUTRIDER_OP Floats exp_f32(Floats x) {
  return {avx2::exp_f32(x.low), avx2::exp_f32(x.high)};
}
OUTRIDER_OP Floats log_f32(Floats x) {
  return {avx2::log_f32(x.low), avx2::log_f32(x.high)};
}
OUTRIDER_OP Floats log1p_f32(Floats x) {
  return {avx2::log1p_f32(x.low), avx2::log1p_f32(x.high)};
}

OUTRIDER_OP Ints larger(Ints a, Ints b) {
  return {_mm256_max_epi32(a.low, b.low), _mm256_max_epi32(a.high, b.high)};
}
OUTRIDER_OP Ints lesser(Ints a, Ints b) {
  return {_mm256_min_epi32(a.low, b.low), _mm256_min_epi32(a.high, b.high)};
}
OUTRIDER_OP Ints lesser_unsigned(Ints a, Ints b) {
  return {_mm256_min_epu32(a.low, b.low), _mm256_min_epu32(a.high, b.high)};
}
OUTRIDER_OP Ints and_bits(Ints a, Ints b) {
  return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
}
OUTRIDER_OP Ints xor_bits(Ints a, Ints b) {
  return {_mm256_xor_si256(a.low, b.low), _mm256_xor_si256(a.high, b.high)};
}
template <int n>
OUTRIDER_OP Ints shift_down(Ints x) {
  return {_mm256_srli_epi32(x.low, n), _mm256_srli_epi32(x.high, n)};
}
template <int n>
OUTRIDER_OP Ints shift_down_signed(Ints x) {
  return {_mm256_srai_epi32(x.low, n), _mm256_srai_epi32(x.high, n)};
}

OUTRIDER_OP Mask both(Mask a, Mask b) {
  return and_bits(a, b);
}
OUTRIDER_OP Mask either(Mask a, Mask b) {
  return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}
template <int predicate>
OUTRIDER_OP Mask compare(Floats a, Floats b) {
  return bits_of(
      Floats{_mm256_cmp_ps(a.low, b.low, predicate), _mm256_cmp_ps(a.high, b.high, predicate)});
}
OUTRIDER_OP Mask above(Floats a, Floats b) {
  return compare<_CMP_GT_OQ>(a, b);
}
OUTRIDER_OP Mask at_least(Floats a, Floats b) {
  return compare<_CMP_GE_OQ>(a, b);
}
OUTRIDER_OP Mask equal(Floats a, Floats b) {
  return compare<_CMP_EQ_OQ>(a, b);
}
OUTRIDER_OP Mask either_nan(Floats a, Floats b) {
  return compare<_CMP_UNORD_Q>(a, b);
}
OUTRIDER_OP Mask above(Ints a, Ints b) {
  return {_mm256_cmpgt_epi32(a.low, b.low), _mm256_cmpgt_epi32(a.high, b.high)};
}
OUTRIDER_OP Mask at_most(Ints a, Ints b) {
  return xor_bits(above(a, b), all(-1));
}
OUTRIDER_OP Mask equal(Ints a, Ints b) {
  return {_mm256_cmpeq_epi32(a.low, b.low), _mm256_cmpeq_epi32(a.high, b.high)};
}
OUTRIDER_OP Mask at_most_unsigned(Ints a, Ints b) {
  return equal(lesser_unsigned(a, b), a);
}
OUTRIDER_OP unsigned set_lanes(Mask mask) {
  const Floats m = floats_of(mask);
  return static_cast<unsigned>(_mm256_movemask_ps(m.low) | _mm256_movemask_ps(m.high) << kHalf);
}
OUTRIDER_OP Mask mask_of(unsigned bits) {
  const Ints lane = {
      _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128),
      _mm256_setr_epi32(1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15)};
  return equal(and_bits(all(static_cast<std::int32_t>(bits)), lane), lane);
}

OUTRIDER_OP float largest(Floats x) {
  const __m256 by8 = _mm256_max_ps(x.low, x.high);
  const __m128 by4 = _mm_max_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
  const __m128 by2 = _mm_max_ps(by4, _mm_movehl_ps(by4, by4));
  return _mm_cvtss_f32(_mm_max_ss(by2, _mm_movehdup_ps(by2)));
}
OUTRIDER_OP std::int32_t least(Ints x) {
  const __m256i by8 = _mm256_min_epi32(x.low, x.high);
  const __m128i by4 = _mm_min_epi32(_mm256_castsi256_si128(by8), _mm256_extracti128_si256(by8, 1));
  const __m128i by2 = _mm_min_epi32(by4, _mm_shuffle_epi32(by4, 0b1110));
  return _mm_cvtsi128_si32(_mm_min_epi32(by2, _mm_shuffle_epi32(by2, 1)));
}
OUTRIDER_OP std::int32_t largest(Ints x) {
  return ~least(xor_bits(x, all(-1)));
}
OUTRIDER_OP float sum_of_lanes(Floats x) {
  return avx2::sum_of_lanes(x.low, x.high);
}

OUTRIDER_OP Wide all_wide(std::uint32_t x) {
  return {_mm256_set1_epi64x(x), _mm256_set1_epi64x(x)};
}
// In lane i, 4 at[i / 2] + 2 (i mod 2) + odd.
OUTRIDER_OP Wide counters(const std::uint32_t* at, int odd) {
  const __m256i four = _mm256_slli_epi64(
      _mm256_cvtepu32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at))), 2);
  const __m256i places = _mm256_setr_epi64x(odd, 2 + odd, odd, 2 + odd);
  return {_mm256_add_epi64(_mm256_permute4x64_epi64(four, 0b01010000), places),
          _mm256_add_epi64(_mm256_permute4x64_epi64(four, 0b11111010), places)};
}
// Of the low halves.
OUTRIDER_OP Wide multiply_low(Wide a, Wide b) {
  return {_mm256_mul_epu32(a.low, b.low), _mm256_mul_epu32(a.high, b.high)};
}
OUTRIDER_OP Wide high_half(Wide x) {
  return {_mm256_srli_epi64(x.low, 32), _mm256_srli_epi64(x.high, 32)};
}
OUTRIDER_OP Wide xor_bits(Wide a, Wide b, Wide c) {
  return xor_bits(xor_bits(a, b), c);
}
// Low halves, by turns.
OUTRIDER_OP Ints interleaved(Wide even, Wide odd) {
  constexpr int kOdd = 0b10101010;
  return {_mm256_blend_epi32(even.low, _mm256_slli_epi64(odd.low, 32), kOdd),
          _mm256_blend_epi32(even.high, _mm256_slli_epi64(odd.high, 32), kOdd)};
}

#include "cpu/kernels/x86/choice_lanes.h"

}  // namespace

const ChoiceKernels kChoiceAvx2 = kTable;

}  // namespace outrider

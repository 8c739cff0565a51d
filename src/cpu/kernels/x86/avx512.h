// Vectors of 16 lanes: AVX-512. The operations that kernels over a vector type call
// (vector_functions.h says which).

#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/x86/intrinsics.h"

#define OUTRIDER_OP [[OUTRIDER_AVX512, gnu::always_inline]] static inline

namespace outrider {

struct Avx512 {
  using Floats = __m512;
  using Ints = __m512i;
  using Wide = __m512i;
  using Mask = __mmask16;
  using Lanes = __mmask16;
  static constexpr std::size_t kWidth = 16;
  static constexpr int kRegisters = 32;

  // Memory.

  OUTRIDER_OP Lanes lanes(std::size_t left) {
    return static_cast<Lanes>(left >= kWidth ? 0xffffu : (1u << left) - 1);
  }
  OUTRIDER_OP Mask first_lanes(std::size_t n) { return lanes(n); }
  OUTRIDER_OP Mask lanes_in(int begin, int end, int first) {
    return static_cast<Mask>(~std::uint64_t{0} >> (64 - (end - begin)) << begin >> first);
  }
  OUTRIDER_OP Floats all(float x) { return _mm512_set1_ps(x); }
  OUTRIDER_OP Ints all(std::int32_t x) { return _mm512_set1_epi32(x); }
  OUTRIDER_OP Floats load(const float* at) { return _mm512_loadu_ps(at); }
  OUTRIDER_OP Floats load(const std::uint16_t* at) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  }
  OUTRIDER_OP Ints load(const std::int32_t* at) { return _mm512_loadu_si512(at); }
  OUTRIDER_OP Floats load(Lanes some, const float* at) { return _mm512_maskz_loadu_ps(some, at); }
  OUTRIDER_OP Floats load(Lanes some, const std::uint16_t* at) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(some, at));
  }
  OUTRIDER_OP Floats load(Mask mask, const float* at, Floats others) {
    return _mm512_mask_loadu_ps(others, mask, at);
  }
  OUTRIDER_OP Ints load(Mask mask, const std::int32_t* at, Ints others) {
    return _mm512_mask_loadu_epi32(others, mask, at);
  }
  OUTRIDER_OP Floats load_fourth(Mask mask, const float* at, Floats others) {
    const __m512i index =
        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60);
    return _mm512_mask_i32gather_ps(others, mask, index, at, sizeof(float));
  }
  OUTRIDER_OP void store(float* at, Floats x) { _mm512_storeu_ps(at, x); }
  OUTRIDER_OP void store(std::int32_t* at, Ints x) { _mm512_storeu_si512(at, x); }
  OUTRIDER_OP void store(Lanes some, float* at, Floats x) { _mm512_mask_storeu_ps(at, some, x); }
  OUTRIDER_OP void store(Lanes some, std::uint16_t* at, Floats x) {
    _mm256_mask_storeu_epi16(at, some,
                             _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  OUTRIDER_OP void store_words(std::int16_t* at, Ints x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm512_cvtepi32_epi16(x));
  }
  OUTRIDER_OP void store_bytes(std::int8_t* at, Ints x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm512_cvtepi32_epi8(x));
  }
  // To a register first: compressing to memory takes some 140 cycles on Zen 4.
  OUTRIDER_OP void store_close(float* at, Mask mask, Floats x) {
    _mm512_storeu_ps(at, _mm512_maskz_compress_ps(mask, x));
  }
  OUTRIDER_OP void store_close(std::int32_t* at, Mask mask, Ints x) {
    _mm512_storeu_si512(at, _mm512_maskz_compress_epi32(mask, x));
  }

  // Floats.

  OUTRIDER_OP Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  OUTRIDER_OP Floats subtract(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
  OUTRIDER_OP Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  OUTRIDER_OP Floats divide(Floats a, Floats b) { return _mm512_div_ps(a, b); }
  OUTRIDER_OP Floats fused(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  OUTRIDER_OP Floats minus_product(Floats a, Floats b, Floats c) {
    return _mm512_fnmadd_ps(a, b, c);
  }
  OUTRIDER_OP Floats larger(Floats a, Floats b) { return _mm512_max_ps(a, b); }
  OUTRIDER_OP Floats lesser(Floats a, Floats b) { return _mm512_min_ps(a, b); }
  OUTRIDER_OP Floats size(Floats x) { return _mm512_abs_ps(x); }
  OUTRIDER_OP Floats nearest(Floats x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }

  // Powers of two: scalef multiplies by one with one rounding, as the reference's exact steps do.
  using Power = Floats;
  OUTRIDER_OP Power power(Floats n, Ints) { return n; }
  OUTRIDER_OP Power power_below_128(Floats n, Ints) { return n; }
  OUTRIDER_OP Power inverse_power(Floats n, Ints) { return _mm512_sub_ps(_mm512_setzero_ps(), n); }
  OUTRIDER_OP Floats times(Floats x, Power n) { return _mm512_scalef_ps(x, n); }

  OUTRIDER_OP float first_lane(Floats x) { return _mm512_cvtss_f32(x); }
  OUTRIDER_OP Floats largest_lane(Floats x) {
    x = _mm512_max_ps(x, _mm512_shuffle_f32x4(x, x, 0b01001110));
    x = _mm512_max_ps(x, _mm512_shuffle_f32x4(x, x, 0b10110001));
    x = _mm512_max_ps(x, _mm512_permute_ps(x, 0b01001110));
    return _mm512_max_ps(x, _mm512_permute_ps(x, 0b10110001));
  }
  OUTRIDER_OP float largest(Floats x) { return _mm512_reduce_max_ps(x); }
  OUTRIDER_OP float total(const Floats (&sums)[1]) {
    const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(sums[0]), 1));
    const __m256 by8 = _mm256_add_ps(_mm512_castps512_ps256(sums[0]), high);
    const __m128 by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
    const __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
    return _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)));
  }
  OUTRIDER_OP Floats each_twice(Floats x) {
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7),
                                 x);
  }
  OUTRIDER_OP Floats swap_pairs(Floats x) { return _mm512_permute_ps(x, 0b10110001); }
  OUTRIDER_OP Floats subtract_add(Floats a, Floats b) {
    return _mm512_mask_sub_ps(_mm512_add_ps(a, b), 0x5555, a, b);
  }

  // Integers of 32 bits.

  OUTRIDER_OP Ints bits_of(Floats x) { return _mm512_castps_si512(x); }
  OUTRIDER_OP Floats floats_of(Ints x) { return _mm512_castsi512_ps(x); }
  OUTRIDER_OP Floats to_floats(Ints x) { return _mm512_cvtepi32_ps(x); }
  OUTRIDER_OP Ints to_ints(Floats x) { return _mm512_cvtps_epi32(x); }
  OUTRIDER_OP Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
  OUTRIDER_OP Ints subtract(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
  OUTRIDER_OP Ints larger(Ints a, Ints b) { return _mm512_max_epi32(a, b); }
  OUTRIDER_OP Ints lesser(Ints a, Ints b) { return _mm512_min_epi32(a, b); }
  OUTRIDER_OP Ints lesser_unsigned(Ints a, Ints b) { return _mm512_min_epu32(a, b); }
  OUTRIDER_OP Ints and_bits(Ints a, Ints b) { return _mm512_and_si512(a, b); }
  OUTRIDER_OP Ints or_bits(Ints a, Ints b) { return _mm512_or_si512(a, b); }
  OUTRIDER_OP Ints xor_bits(Ints a, Ints b) { return _mm512_xor_si512(a, b); }
  template <int n>
  OUTRIDER_OP Ints shift_up(Ints x) {
    return _mm512_slli_epi32(x, n);
  }
  template <int n>
  OUTRIDER_OP Ints shift_down(Ints x) {
    return _mm512_srli_epi32(x, n);
  }
  template <int n>
  OUTRIDER_OP Ints shift_down_signed(Ints x) {
    return _mm512_srai_epi32(x, n);
  }
  OUTRIDER_OP std::int32_t least(Ints x) { return _mm512_reduce_min_epi32(x); }
  OUTRIDER_OP std::int32_t largest(Ints x) { return _mm512_reduce_max_epi32(x); }

  // Products of small integers. Keys stay 128 more than they mean, which the bias takes back.
  OUTRIDER_OP Ints biased_sum(std::int32_t bias) { return all(bias); }
  OUTRIDER_OP Ints load_keys(const std::uint8_t* at) { return _mm512_loadu_si512(at); }
  OUTRIDER_OP Ints add_fours(Ints sum, Ints key, Ints channels) {
    return _mm512_dpbusd_epi32(sum, key, channels);
  }
  OUTRIDER_OP Ints load_pairs(const std::int8_t* at) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  }
  OUTRIDER_OP Ints add_pairs(Ints sum, Ints a, Ints b) { return _mm512_dpwssd_epi32(sum, a, b); }

  // Masks.

  OUTRIDER_OP Mask both(Mask a, Mask b) { return a & b; }
  OUTRIDER_OP Mask either(Mask a, Mask b) { return a | b; }
  OUTRIDER_OP Mask above(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
  OUTRIDER_OP Mask below(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  OUTRIDER_OP Mask at_least(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
  OUTRIDER_OP Mask not_below(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ); }
  OUTRIDER_OP Mask equal(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
  OUTRIDER_OP Mask unequal(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ); }
  OUTRIDER_OP Mask either_nan(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q); }
  OUTRIDER_OP Mask above(Ints a, Ints b) { return _mm512_cmpgt_epi32_mask(a, b); }
  OUTRIDER_OP Mask at_most(Ints a, Ints b) { return _mm512_cmple_epi32_mask(a, b); }
  OUTRIDER_OP Mask equal(Ints a, Ints b) { return _mm512_cmpeq_epi32_mask(a, b); }
  OUTRIDER_OP Mask at_most_unsigned(Ints a, Ints b) { return _mm512_cmple_epu32_mask(a, b); }
  OUTRIDER_OP unsigned set_lanes(Mask mask) { return mask; }
  OUTRIDER_OP Mask mask_of(unsigned bits) { return static_cast<Mask>(bits); }
  OUTRIDER_OP Floats select(Mask mask, Floats a, Floats b) {
    return _mm512_mask_mov_ps(b, mask, a);
  }
  OUTRIDER_OP Ints select(Mask mask, Ints a, Ints b) { return _mm512_mask_mov_epi32(b, mask, a); }
  OUTRIDER_OP Floats zero_unless(Mask mask, Floats x) { return _mm512_maskz_mov_ps(mask, x); }

  // Integers of 64 bits.

  OUTRIDER_OP Wide all_wide(std::uint32_t x) { return _mm512_set1_epi64(x); }
  OUTRIDER_OP Wide counters(const std::uint32_t* at, int odd) {
    const __m256i four =
        _mm256_cvtepu32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
    const __m512i twice = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3),
                                                   _mm512_castsi256_si512(four));
    const __m512i places = _mm512_setr_epi64(0, 2, 0, 2, 0, 2, 0, 2);
    return _mm512_add_epi64(_mm512_slli_epi64(twice, 2),
                            _mm512_add_epi64(places, _mm512_set1_epi64(odd)));
  }
  OUTRIDER_OP Wide multiply_low(Wide a, Wide b) { return _mm512_mul_epu32(a, b); }
  OUTRIDER_OP Wide high_half(Wide x) { return _mm512_srli_epi64(x, 32); }
  OUTRIDER_OP Wide xor_bits(Wide a, Wide b, Wide c) {
    return _mm512_ternarylogic_epi64(a, b, c, 0x96);
  }
  OUTRIDER_OP Ints interleaved(Wide even, Wide odd) {
    return _mm512_mask_mov_epi32(even, 0xaaaa, _mm512_slli_epi64(odd, 32));
  }
};

}  // namespace outrider

#undef OUTRIDER_OP

// Vectors of 8 lanes: AVX2. The operations that kernels over a vector type call (vector_functions.h
// says which).

#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "cpu/kernels/x86/intrinsics.h"

#define OUTRIDER_OP [[OUTRIDER_AVX2, gnu::always_inline]] static inline

namespace outrider {

struct Avx2 {
  using Floats = __m256;
  using Ints = __m256i;
  using Wide = __m256i;
  using Mask = __m256i;  // lanes all ones or zero
  struct Lanes {
    std::size_t count;  // 1 to 8
    Mask mask;
  };
  static constexpr std::size_t kWidth = 8;
  static constexpr int kRegisters = 16;

  // Memory.

  OUTRIDER_OP Mask first_lanes(std::size_t n) {
    alignas(32) static constexpr std::int32_t kEnds[2 * kWidth] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return load(&kEnds[kWidth - std::min(n, kWidth)]);
  }
  OUTRIDER_OP Lanes lanes(std::size_t left) { return {std::min(left, kWidth), first_lanes(left)}; }
  OUTRIDER_OP Mask lanes_in(int begin, int end, int first) {
    const Ints place = add(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), all(first));
    return both(above(place, all(begin - 1)), above(all(end), place));
  }
  OUTRIDER_OP Floats all(float x) { return _mm256_set1_ps(x); }
  OUTRIDER_OP Ints all(std::int32_t x) { return _mm256_set1_epi32(x); }
  OUTRIDER_OP Floats load(const float* at) { return _mm256_loadu_ps(at); }
  OUTRIDER_OP Floats load(const std::uint16_t* at) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
  OUTRIDER_OP Ints load(const std::int32_t* at) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  }
  OUTRIDER_OP Floats load(const Lanes& some, const float* at) {
    return _mm256_maskload_ps(at, some.mask);
  }
  OUTRIDER_OP Floats load(const Lanes& some, const std::uint16_t* at) {
    if (some.count == kWidth) return load(at);
    alignas(16) std::uint16_t copy[kWidth] = {};
    std::copy_n(at, some.count, copy);
    return load(copy);
  }
  OUTRIDER_OP Floats load(Mask mask, const float* at, Floats others) {
    return select(mask, _mm256_maskload_ps(at, mask), others);
  }
  OUTRIDER_OP Ints load(Mask mask, const std::int32_t* at, Ints others) {
    return select(mask, _mm256_maskload_epi32(at, mask), others);
  }
  OUTRIDER_OP Floats load_fourth(Mask mask, const float* at, Floats others) {
    const __m256i index = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    return _mm256_mask_i32gather_ps(others, at, index, floats_of(mask), sizeof(float));
  }
  OUTRIDER_OP void store(float* at, Floats x) { _mm256_storeu_ps(at, x); }
  OUTRIDER_OP void store(std::int32_t* at, Ints x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), x);
  }
  OUTRIDER_OP void store(const Lanes& some, float* at, Floats x) {
    _mm256_maskstore_ps(at, some.mask, x);
  }
  OUTRIDER_OP void store(const Lanes& some, std::uint16_t* at, Floats x) {
    alignas(16) std::uint16_t rounded[kWidth];
    _mm_store_si128(reinterpret_cast<__m128i*>(rounded),
                    _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    std::copy_n(rounded, some.count, at);
  }
  OUTRIDER_OP void store_words(std::int16_t* at, Ints x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), words(x));
  }
  OUTRIDER_OP void store_bytes(std::int8_t* at, Ints x) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(at), _mm_packs_epi16(words(x), words(x)));
  }
  OUTRIDER_OP void store_close(std::int32_t* at, Mask mask, Ints x) {
    const __m128i set =
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(&kSetLanes[set_lanes(mask)]));
    store(at, _mm256_permutevar8x32_epi32(x, _mm256_cvtepu8_epi32(set)));
  }
  OUTRIDER_OP void store_close(float* at, Mask mask, Floats x) {
    store_close(reinterpret_cast<std::int32_t*>(at), mask, bits_of(x));
  }

  // Floats.

  OUTRIDER_OP Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  OUTRIDER_OP Floats subtract(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
  OUTRIDER_OP Floats multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  OUTRIDER_OP Floats divide(Floats a, Floats b) { return _mm256_div_ps(a, b); }
  OUTRIDER_OP Floats fused(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  OUTRIDER_OP Floats minus_product(Floats a, Floats b, Floats c) {
    return _mm256_fnmadd_ps(a, b, c);
  }
  OUTRIDER_OP Floats larger(Floats a, Floats b) { return _mm256_max_ps(a, b); }
  OUTRIDER_OP Floats lesser(Floats a, Floats b) { return _mm256_min_ps(a, b); }
  OUTRIDER_OP Floats size(Floats x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
  OUTRIDER_OP Floats nearest(Floats x) {
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }

  // Powers of two, in two steps, of which the first is exact: no float holds all that are needed.
  struct Power {
    Floats first, second;
  };
  OUTRIDER_OP Power power(Floats, Ints n) { return {power_of_two(subtract(n, all(1))), all(2.0f)}; }
  OUTRIDER_OP Power power_below_128(Floats, Ints n) { return {power_of_two(n), all(1.0f)}; }
  OUTRIDER_OP Power inverse_power(Floats, Ints n) {
    const Ints half = shift_down_signed<1>(n);
    return {power_of_two(subtract(all(0), half)), power_of_two(subtract(half, n))};
  }
  OUTRIDER_OP Floats times(Floats x, const Power& power) {
    return multiply(multiply(x, power.first), power.second);
  }

  OUTRIDER_OP float first_lane(Floats x) { return _mm256_cvtss_f32(x); }
  OUTRIDER_OP Floats largest_lane(Floats x) {
    x = larger(x, _mm256_permute2f128_ps(x, x, 1));
    x = larger(x, _mm256_permute_ps(x, 0b01001110));
    return larger(x, _mm256_permute_ps(x, 0b10110001));
  }
  OUTRIDER_OP float largest(Floats x) {
    const __m128 by4 = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 by2 = _mm_max_ps(by4, _mm_movehl_ps(by4, by4));
    return _mm_cvtss_f32(_mm_max_ss(by2, _mm_movehdup_ps(by2)));
  }
  OUTRIDER_OP float total(const Floats (&sums)[2]) {
    const __m256 by8 = _mm256_add_ps(sums[0], sums[1]);
    const __m128 by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
    const __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
    return _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)));
  }
  OUTRIDER_OP Floats each_twice(Floats x) {
    return _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
  }
  OUTRIDER_OP Floats swap_pairs(Floats x) { return _mm256_permute_ps(x, 0b10110001); }
  OUTRIDER_OP Floats subtract_add(Floats a, Floats b) { return _mm256_addsub_ps(a, b); }

  // Integers of 32 bits.

  OUTRIDER_OP Ints bits_of(Floats x) { return _mm256_castps_si256(x); }
  OUTRIDER_OP Floats floats_of(Ints x) { return _mm256_castsi256_ps(x); }
  OUTRIDER_OP Floats to_floats(Ints x) { return _mm256_cvtepi32_ps(x); }
  OUTRIDER_OP Ints to_ints(Floats x) { return _mm256_cvtps_epi32(x); }
  OUTRIDER_OP Ints add(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
  OUTRIDER_OP Ints subtract(Ints a, Ints b) { return _mm256_sub_epi32(a, b); }
  OUTRIDER_OP Ints larger(Ints a, Ints b) { return _mm256_max_epi32(a, b); }
  OUTRIDER_OP Ints lesser(Ints a, Ints b) { return _mm256_min_epi32(a, b); }
  OUTRIDER_OP Ints lesser_unsigned(Ints a, Ints b) { return _mm256_min_epu32(a, b); }
  OUTRIDER_OP Ints and_bits(Ints a, Ints b) { return _mm256_and_si256(a, b); }
  OUTRIDER_OP Ints or_bits(Ints a, Ints b) { return _mm256_or_si256(a, b); }
  OUTRIDER_OP Ints xor_bits(Ints a, Ints b) { return _mm256_xor_si256(a, b); }
  template <int n>
  OUTRIDER_OP Ints shift_up(Ints x) {
    return _mm256_slli_epi32(x, n);
  }
  template <int n>
  OUTRIDER_OP Ints shift_down(Ints x) {
    return _mm256_srli_epi32(x, n);
  }
  template <int n>
  OUTRIDER_OP Ints shift_down_signed(Ints x) {
    return _mm256_srai_epi32(x, n);
  }
  OUTRIDER_OP std::int32_t least(Ints x) {
    const __m128i by4 = _mm_min_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    const __m128i by2 = _mm_min_epi32(by4, _mm_shuffle_epi32(by4, 0b1110));
    return _mm_cvtsi128_si32(_mm_min_epi32(by2, _mm_shuffle_epi32(by2, 1)));
  }
  OUTRIDER_OP std::int32_t largest(Ints x) { return ~least(xor_bits(x, all(-1))); }

  // Products of small integers. Keys get their sign back: as |q| and |k| are at most 127, two
  // products then fit into 16 bits.
  OUTRIDER_OP Ints biased_sum(std::int32_t) { return all(0); }
  OUTRIDER_OP Ints load_keys(const std::uint8_t* at) {
    return _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)),
                            _mm256_set1_epi8(-128));
  }
  OUTRIDER_OP Ints add_fours(Ints sum, Ints key, Ints channels) {
    const Ints pairs =
        _mm256_maddubs_epi16(_mm256_abs_epi8(channels), _mm256_sign_epi8(key, channels));
    return add(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  OUTRIDER_OP Ints load_pairs(const std::int8_t* at) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
  OUTRIDER_OP Ints add_pairs(Ints sum, Ints a, Ints b) { return add(sum, _mm256_madd_epi16(a, b)); }

  // Masks.

  OUTRIDER_OP Mask both(Mask a, Mask b) { return and_bits(a, b); }
  OUTRIDER_OP Mask either(Mask a, Mask b) { return or_bits(a, b); }
  OUTRIDER_OP Mask above(Floats a, Floats b) { return compare<_CMP_GT_OQ>(a, b); }
  OUTRIDER_OP Mask below(Floats a, Floats b) { return compare<_CMP_LT_OQ>(a, b); }
  OUTRIDER_OP Mask at_least(Floats a, Floats b) { return compare<_CMP_GE_OQ>(a, b); }
  OUTRIDER_OP Mask not_below(Floats a, Floats b) { return compare<_CMP_NLT_UQ>(a, b); }
  OUTRIDER_OP Mask equal(Floats a, Floats b) { return compare<_CMP_EQ_OQ>(a, b); }
  OUTRIDER_OP Mask unequal(Floats a, Floats b) { return compare<_CMP_NEQ_UQ>(a, b); }
  OUTRIDER_OP Mask either_nan(Floats a, Floats b) { return compare<_CMP_UNORD_Q>(a, b); }
  OUTRIDER_OP Mask above(Ints a, Ints b) { return _mm256_cmpgt_epi32(a, b); }
  OUTRIDER_OP Mask at_most(Ints a, Ints b) { return xor_bits(above(a, b), all(-1)); }
  OUTRIDER_OP Mask equal(Ints a, Ints b) { return _mm256_cmpeq_epi32(a, b); }
  OUTRIDER_OP Mask at_most_unsigned(Ints a, Ints b) { return equal(lesser_unsigned(a, b), a); }
  OUTRIDER_OP unsigned set_lanes(Mask mask) {
    return static_cast<unsigned>(_mm256_movemask_ps(floats_of(mask)));
  }
  OUTRIDER_OP Mask mask_of(unsigned bits) {
    const Ints lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return equal(and_bits(all(static_cast<std::int32_t>(bits)), lane), lane);
  }
  OUTRIDER_OP Floats select(Mask mask, Floats a, Floats b) {
    return _mm256_blendv_ps(b, a, floats_of(mask));
  }
  OUTRIDER_OP Ints select(Mask mask, Ints a, Ints b) {
    return bits_of(select(mask, floats_of(a), floats_of(b)));
  }
  OUTRIDER_OP Floats zero_unless(Mask mask, Floats x) { return _mm256_and_ps(floats_of(mask), x); }

  // Integers of 64 bits.

  OUTRIDER_OP Wide all_wide(std::uint32_t x) { return _mm256_set1_epi64x(x); }
  OUTRIDER_OP Wide counters(const std::uint32_t* at, int odd) {
    const __m256i two =
        _mm256_cvtepu32_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
    const __m256i twice = _mm256_permute4x64_epi64(_mm256_slli_epi64(two, 2), 0b01010000);
    return _mm256_add_epi64(twice, _mm256_setr_epi64x(odd, 2 + odd, odd, 2 + odd));
  }
  OUTRIDER_OP Wide multiply_low(Wide a, Wide b) { return _mm256_mul_epu32(a, b); }
  OUTRIDER_OP Wide high_half(Wide x) { return _mm256_srli_epi64(x, 32); }
  OUTRIDER_OP Wide xor_bits(Wide a, Wide b, Wide c) { return xor_bits(xor_bits(a, b), c); }
  OUTRIDER_OP Ints interleaved(Wide even, Wide odd) {
    return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0b10101010);
  }

 private:
  OUTRIDER_OP __m128i words(Ints x) {
    return _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  }
  OUTRIDER_OP Floats power_of_two(Ints n) { return floats_of(shift_up<23>(add(n, all(127)))); }
  template <int predicate>
  OUTRIDER_OP Mask compare(Floats a, Floats b) {
    return bits_of(_mm256_cmp_ps(a, b, predicate));
  }

  // The lanes that are set in each mask of 8, ascending.
  using LaneLists = std::array<std::array<std::uint8_t, kWidth>, 256>;
  static constexpr LaneLists set_lanes_of_all() {
    LaneLists lists{};
    for (unsigned mask = 0; mask < lists.size(); ++mask) {
      std::size_t n = 0;
      for (unsigned lane = 0; lane < kWidth; ++lane)
        if ((mask >> lane & 1) != 0) lists[mask][n++] = static_cast<std::uint8_t>(lane);
    }
    return lists;
  }
  alignas(64) static const LaneLists kSetLanes;
};

alignas(64) inline constexpr Avx2::LaneLists Avx2::kSetLanes = Avx2::set_lanes_of_all();

}  // namespace outrider

#undef OUTRIDER_OP

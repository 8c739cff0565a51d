// The parts of a packed panel (cpu/panel.h) in AVX-512 registers: a lane an output, a register a
// unit of [16 outputs][4 columns].

#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/x86/intrinsics.h"
#include "cpu/panel.h"

namespace outrider::avx512 {

[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512i line(const std::byte* at) {
  return _mm512_load_si512(at);
}

[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 halves(const std::byte* at) {
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(at)));
}

// a | (b & mask)
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512i or_masked(__m512i a, __m512i b,
                                                                 __m512i mask) {
  return _mm512_ternarylogic_epi32(a, b, mask, 0xf8);
}

// The eight units of a sub-block of 32 columns in 4 bits.
[[OUTRIDER_AVX512, gnu::always_inline]] inline void units_of_4_bits(const std::byte* lines,
                                                                    __m512i (&units)[8]) {
  const __m512i mask = _mm512_set1_epi8(15);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i both = line(lines + i * kLine);
    units[i] = _mm512_and_si512(both, mask);
    units[i + 4] = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
  }
}

// The same in 5 bits.
[[OUTRIDER_AVX512, gnu::always_inline]] inline void units_of_5_bits(const std::byte* lines,
                                                                    __m512i (&units)[8]) {
  const __m512i sixteen = _mm512_set1_epi8(16), fifths = line(lines);
  units_of_4_bits(lines + kLine, units);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    // Bits i and i + 4 come to bit 4.
    units[i] = or_masked(units[i], _mm512_slli_epi16(fifths, 4 - i), sixteen);
    units[i + 4] = or_masked(units[i + 4], _mm512_srli_epi16(fifths, i), sixteen);
  }
}

// The four units of a sub-block of 16 columns in 6 bits.
[[OUTRIDER_AVX512, gnu::always_inline]] inline void units_of_6_bits(const std::byte* lines,
                                                                    __m512i (&units)[4]) {
  const __m512i mask = _mm512_set1_epi8(63);
  const __m512i l0 = line(lines), l1 = line(lines + kLine), l2 = line(lines + 2 * kLine);
  units[0] = _mm512_and_si512(l0, mask);
  units[1] = _mm512_and_si512(l1, mask);
  units[2] = _mm512_and_si512(l2, mask);
  // The lines' two high bits, side by side.
  units[3] = _mm512_and_si512(_mm512_srli_epi16(l0, 6), _mm512_set1_epi8(3));
  units[3] = or_masked(units[3], _mm512_srli_epi16(l1, 4), _mm512_set1_epi8(12));
  units[3] = or_masked(units[3], _mm512_srli_epi16(l2, 2), _mm512_set1_epi8(48));
}

// Q4_K's and Q5_K's scales and minimums, four sub-blocks a register: a byte each, in the order
// kScaleByte.
struct SixBitScales {
  __m512i scales[2], mins[2];
};

[[OUTRIDER_AVX512, gnu::always_inline]] inline SixBitScales six_bit_scales(const std::byte* lines) {
  const __m512i l0 = line(lines), l1 = line(lines + kLine), l2 = line(lines + 2 * kLine);
  const __m512i low6 = _mm512_set1_epi8(63), low4 = _mm512_set1_epi8(15);
  const __m512i bits45 = _mm512_set1_epi8(48);
  const __m512i low_scales = _mm512_and_si512(l2, low4);
  const __m512i low_mins = _mm512_and_si512(_mm512_srli_epi16(l2, 4), low4);
  return {{_mm512_and_si512(l0, low6), or_masked(low_scales, _mm512_srli_epi16(l0, 2), bits45)},
          {_mm512_and_si512(l1, low6), or_masked(low_mins, _mm512_srli_epi16(l1, 2), bits45)}};
}

}  // namespace outrider::avx512

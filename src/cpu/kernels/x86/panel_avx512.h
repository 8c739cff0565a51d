// The parts of a packed panel (cpu/panel.h) in AVX-512 registers: a lane an output, a register a
// unit of [16 outputs][4 columns].

#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/x86/intrinsics.h"
#include "cpu/panel.h"
#include "numerics/blocks.h"

namespace outrider::avx512 {

[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512i line(const std::byte* at) {
  return _mm512_load_si512(at);
}

[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 halves(const std::byte* at) {
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(at)));
}

// A block's d, ready to be multiplied.
template <TensorType kType>
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 factors(const std::byte* d) {
  constexpr float kFactor = block_shape(kType).d_factor;
  return kFactor == 1 ? halves(d) : _mm512_mul_ps(halves(d), _mm512_set1_ps(kFactor));
}

// How many bytes ahead of their use lines are requested for each level of caches.
struct Ahead {
  std::size_t first_level, second_level;
};
inline constexpr Ahead kNear = {1 << 10, 7 << 9}, kFar = {3 << 10, 12 << 10};

template <Ahead kAhead>
[[gnu::always_inline]] inline void request(const std::byte* at, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += kLine) {
    _mm_prefetch(reinterpret_cast<const char*>(at + kAhead.first_level + i), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(at + kAhead.second_level + i), _MM_HINT_T1);
  }
}

// The first level alone.
template <Ahead kAhead>
[[gnu::always_inline]] inline void request_first(const std::byte* at, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += kLine)
    _mm_prefetch(reinterpret_cast<const char*>(at + kAhead.first_level + i), _MM_HINT_T0);
}

// The float at `word`, in all lanes.
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 broadcast(const std::int32_t* word) {
  return _mm512_castsi512_ps(_mm512_set1_epi32(*word));
}

// a | (b & mask)
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512i or_masked(__m512i a, __m512i b,
                                                                 __m512i mask) {
  return _mm512_ternarylogic_epi32(a, b, mask, 0xf8);
}

// What four bits stand for: themselves, or a level with its bias.
template <TensorType kType>
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512i from_nibbles(__m512i numbers) {
  if constexpr (!block_shape(kType).has_levels) return numbers;
  const __m128i levels = _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kLevels)),
                                       _mm_set1_epi8(-128));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(levels), numbers);
}

// Calls take(u, unit), a function with the set's target, for each unit of a sub-block: an array of
// all units would keep as many registers busy, and spill. second: 0 or 1, which of two sub-blocks.
// lines: from sub_block_begin() on.
template <TensorType kType, typename Take>
[[OUTRIDER_AVX512, gnu::always_inline]] inline void for_units(const std::byte* lines, int second,
                                                              const Take& take) {
  constexpr int kBits = block_shape(kType).bits;
  constexpr int kHalf = static_cast<int>(block_shape(kType).sub_columns() / 8);
  const __m512i nibble = _mm512_set1_epi8(15);
  if constexpr (kBits == 2) {
    const __m512i all = line(lines), low = _mm512_set1_epi8(3);
    take(0, _mm512_and_si512(all, low));
#pragma GCC unroll 3
    for (int u = 1; u < 4; ++u) take(u, _mm512_and_si512(_mm512_srli_epi16(all, 2 * u), low));
  }
  if constexpr (kBits == 3) {
    const __m512i own = line(lines + (1 + second) * kLine), seven = _mm512_set1_epi8(7);
    const __m512i shared = second == 0 ? line(lines) : _mm512_srli_epi16(line(lines), 4);
    take(0, _mm512_and_si512(own, seven));
    take(1, _mm512_and_si512(_mm512_srli_epi16(own, 3), seven));
    const __m512i low = _mm512_and_si512(_mm512_srli_epi16(own, 6), _mm512_set1_epi8(3));
    take(2, or_masked(low, _mm512_srli_epi16(shared, 1), _mm512_set1_epi8(4)));
    take(3, _mm512_and_si512(shared, seven));
  }
  if constexpr (kBits == 4) {
#pragma GCC unroll 4
    for (int i = 0; i < kHalf; ++i) {
      const __m512i both = line(lines + i * kLine);
      take(i, from_nibbles<kType>(_mm512_and_si512(both, nibble)));
      take(i + kHalf, from_nibbles<kType>(_mm512_and_si512(_mm512_srli_epi16(both, 4), nibble)));
    }
  }
  if constexpr (kBits == 5) {
    const __m512i sixteen = _mm512_set1_epi8(16), fifths = line(lines);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m512i both = line(lines + (i + 1) * kLine);
      const __m512i low = _mm512_and_si512(both, nibble);
      const __m512i high = _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble);
      // Bits i and i + 4 come to bit 4.
      const __m512i low_fifth = _mm512_slli_epi16(fifths, 4 - i);
      const __m512i high_fifth = i == 0 ? fifths : _mm512_srli_epi16(fifths, i);
      take(i, or_masked(low, low_fifth, sixteen));
      take(i + 4, or_masked(high, high_fifth, sixteen));
    }
  }
  if constexpr (kBits == 6) {
    const __m512i mask = _mm512_set1_epi8(63);
    const __m512i l0 = line(lines), l1 = line(lines + kLine), l2 = line(lines + 2 * kLine);
    take(0, _mm512_and_si512(l0, mask));
    take(1, _mm512_and_si512(l1, mask));
    take(2, _mm512_and_si512(l2, mask));
    // The lines' two high bits, side by side.
    __m512i shared = _mm512_and_si512(_mm512_srli_epi16(l0, 6), _mm512_set1_epi8(3));
    shared = or_masked(shared, _mm512_srli_epi16(l1, 4), _mm512_set1_epi8(12));
    shared = or_masked(shared, _mm512_srli_epi16(l2, 2), _mm512_set1_epi8(48));
    take(3, shared);
  }
}

// All of them.
template <int kUnits>
struct UnitsInto {
  __m512i (&units)[kUnits];

  [[OUTRIDER_AVX512, gnu::always_inline]] inline void operator()(int u, __m512i unit) const {
    units[u] = unit;
  }
};
template <TensorType kType, int kUnits>
[[OUTRIDER_AVX512, gnu::always_inline]] inline void read_units(const std::byte* lines, int second,
                                                               __m512i (&units)[kUnits]) {
  if constexpr (block_shape(kType).bits < 8) {
    for_units<kType>(lines, second, UnitsInto<kUnits>{units});
  } else {
#pragma GCC unroll 8
    for (int u = 0; u < kUnits; ++u) units[u] = line(lines + u * kLine);
  }
}

// Q4_128's scales of sub-blocks 2j and 2j + 1, 16 bits each, one output per lane.
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512i four_bit_pair(__m512i scales, int j) {
  return _mm512_and_si512(_mm512_srli_epi32(scales, 4 * j), _mm512_set1_epi32(0x000f000f));
}

// Scales and minimums of K types, four sub-blocks a register: a byte each, in the order kScaleByte.
template <TensorType kType>
struct ScalesAndMins {
  static constexpr int kRegisters = static_cast<int>(block_shape(kType).sub_blocks / 4);
  __m512i scales[kRegisters], mins[kRegisters];
};

[[OUTRIDER_AVX512, gnu::always_inline]] inline ScalesAndMins<TensorType::q2_k> q2_k_scales(
    const std::byte* lines) {
  const __m512i low4 = _mm512_set1_epi8(15);
  ScalesAndMins<TensorType::q2_k> out;
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i both = line(lines + i * kLine);
    out.scales[i] = _mm512_and_si512(both, low4);
    out.mins[i] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low4);
  }
  return out;
}

// Of Q4_K and Q5_K.
template <TensorType kType>
[[OUTRIDER_AVX512, gnu::always_inline]] inline ScalesAndMins<kType> six_bit_scales(
    const std::byte* lines) {
  const __m512i l0 = line(lines), l1 = line(lines + kLine), l2 = line(lines + 2 * kLine);
  const __m512i low6 = _mm512_set1_epi8(63), low4 = _mm512_set1_epi8(15);
  const __m512i bits45 = _mm512_set1_epi8(48);
  const __m512i low_scales = _mm512_and_si512(l2, low4);
  const __m512i low_mins = _mm512_and_si512(_mm512_srli_epi16(l2, 4), low4);
  return {{_mm512_and_si512(l0, low6), or_masked(low_scales, _mm512_srli_epi16(l0, 2), bits45)},
          {_mm512_and_si512(l1, low6), or_masked(low_mins, _mm512_srli_epi16(l1, 2), bits45)}};
}

}  // namespace outrider::avx512

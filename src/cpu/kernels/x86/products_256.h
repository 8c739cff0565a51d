// Products with registers of 256 bits: a lane an output, two registers, the halves of a line, a
// unit of [16 outputs][4 columns]. This is what AVX2 and AVX-VNNI share. Where they differ, a class
// of static functions, `Sums`, says how:
//
//   kGroupRows                  rows whose sums stay in registers, a sum for each half
//   bias(type)                  the ExtraKind of types that have a bias (interleaved_rows.h)
//   units_per_sum(type)         units that a sum holds before it must be taken into a total
//   part(w, i)                  what a row's word i of a unit meets; words per unit: is_wide(bias)
//   add_unit(sum, w, q)         sum += w * q, four columns per lane, two of a part; w: as stored,
//                               without sign; q: a row's word
//   scale<type>(bytes)          eight outputs' scales, from signed bytes
//   scale_of(lanes, byte)       the same, from a byte without sign of every lane
//   one()                       a scale of one
//   add_scaled(total, sum, scale)
//   add_pairs(total, a, b)      total += the dot product of two numbers of 16 bits in each lane

#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/x86/interleaved_rows.h"
#include "cpu/kernels/x86/intrinsics.h"
#include "cpu/panel.h"

namespace outrider::products256 {

inline constexpr std::size_t kHalfLine = kLine / 2;

// Rows of one call. Weights of 2 to 6 bits are unpacked once for 16 rows; otherwise there are as
// many rows as registers hold sums for.
inline constexpr int kMostRows = 16;

template <class Sums>
constexpr int most_rows(TensorType type) {
  const BlockShape shape = block_shape(type);
  if (shape.elements == 0) return 5;
  return shape.bits == 8 ? Sums::kGroupRows : kMostRows;
}

// Blocks that a kernel takes at a time: one, or eight groups of 32.
constexpr std::size_t batch_blocks(TensorType type) {
  return block_shape(type).sub_blocks > 1 ? 1 : 8;
}

[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256i half_line(const std::byte* at) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(at));
}

[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256 broadcast(const std::int32_t* word) {
  return _mm256_castsi256_ps(_mm256_set1_epi32(*word));
}

[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256 halves(const std::byte* at) {
  return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(at)));
}

// Where a kernel finds weights.
enum class From {
  panel,          // unpacked as they come
  panel_to_kept,  // and kept for the next rows
  kept,
};

// Asks for weights before they are needed, a few lines at a time: a block's worth at once fills the
// buffers for misses. A request holds such a buffer of the first-level cache for the whole way from
// memory, so where there are enough rows to hide the latency, lines come to the second-level cache
// first (16 rows from memory: Q6_K in 7.9 instead of 10.3 ms, Q8_0 in 3.5 instead of 4.7).
template <int kRows, From kFrom>
[[OUTRIDER_AVX2, gnu::always_inline]] inline void prefetch(const std::byte* at, std::size_t bytes) {
  constexpr bool kInTwoSteps = kRows > 2 || kFrom == From::panel_to_kept;
  const char* first = reinterpret_cast<const char*>(at);
  for (const char* line = first; line < first + bytes; line += kLine) {
    if constexpr (kInTwoSteps) _mm_prefetch(line + (12 << 10), _MM_HINT_T1);
    _mm_prefetch(line + (kInTwoSteps ? 3 << 10 : 5 << 10), _MM_HINT_T0);
  }
}

// GCC 12 would turn a chain of additions into a tree and spill its leaves: this keeps the sum as
// written.
[[OUTRIDER_AVX2, gnu::always_inline]] inline void keep_order(__m256i& sum) {
  asm("" : "+x"(sum));
}

// Unit `u` of a sub-block, the first or second of two, half `h` of its outputs. lines: from
// sub_block_begin() on.
template <TensorType kType>
[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256i unit(const std::byte* lines, int second, int u,
                                                          int h) {
  constexpr int kBits = block_shape(kType).bits;
  const __m256i low4 = _mm256_set1_epi8(15);
  lines += h * kHalfLine;
  if constexpr (kBits == 2) {
    const __m256i all = half_line(lines), moved = _mm256_srli_epi16(all, 2 * u);
    return _mm256_and_si256(u == 0 ? all : moved, _mm256_set1_epi8(3));
  }
  if constexpr (kBits == 3) {
    const __m256i own = half_line(lines + (1 + second) * kLine), seven = _mm256_set1_epi8(7);
    const __m256i shared = _mm256_srl_epi16(half_line(lines), _mm_cvtsi32_si128(4 * second));
    if (u == 0) return _mm256_and_si256(own, seven);
    if (u == 1) return _mm256_and_si256(_mm256_srli_epi16(own, 3), seven);
    if (u == 3) return _mm256_and_si256(shared, seven);
    return _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(own, 6), _mm256_set1_epi8(3)),
                           _mm256_and_si256(_mm256_srli_epi16(shared, 1), _mm256_set1_epi8(4)));
  }
  if constexpr (kBits == 4) {
    constexpr int kHalf = static_cast<int>(block_shape(kType).sub_columns() / 8);
    const __m256i both = half_line(lines + u % kHalf * kLine);
    const __m256i nibbles = _mm256_and_si256(u < kHalf ? both : _mm256_srli_epi16(both, 4), low4);
    if constexpr (!block_shape(kType).has_levels) return nibbles;
    const __m128i levels = _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kLevels)),
                                         _mm_set1_epi8(-128));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(levels), nibbles);
  }
  if constexpr (kBits == 5) {
    const __m256i fifths = half_line(lines), both = half_line(lines + (u % 4 + 1) * kLine);
    const __m256i nibble = _mm256_and_si256(u < 4 ? both : _mm256_srli_epi16(both, 4), low4);
    const __m256i moved = u < 4    ? _mm256_slli_epi16(fifths, 4 - u)
                          : u == 4 ? fifths
                                   : _mm256_srli_epi16(fifths, u - 4);
    return _mm256_or_si256(nibble, _mm256_and_si256(moved, _mm256_set1_epi8(16)));
  }
  if constexpr (kBits == 6) {
    if (u < 3) return _mm256_and_si256(half_line(lines + u * kLine), _mm256_set1_epi8(63));
    const __m256i l0 = half_line(lines), l1 = half_line(lines + kLine);
    const __m256i l2 = half_line(lines + 2 * kLine);
    const __m256i bits01 = _mm256_and_si256(_mm256_srli_epi16(l0, 6), _mm256_set1_epi8(3));
    const __m256i bits23 = _mm256_and_si256(_mm256_srli_epi16(l1, 4), _mm256_set1_epi8(12));
    const __m256i bits45 = _mm256_and_si256(_mm256_srli_epi16(l2, 2), _mm256_set1_epi8(48));
    return _mm256_or_si256(_mm256_or_si256(bits01, bits23), bits45);
  }
  if constexpr (kBits == 8) return half_line(lines + u * kLine);
}

// A batch's weights and scales, unpacked; as `From` says they come from here or go here.
struct alignas(64) Kept {
  __m256i units[64][2];
  __m256i scales[16][2];
  __m256i mins[8][2];
  __m256 d[8][2], m[8][2];
};

template <From kFrom>
[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256 halves(const std::byte* at, __m256& kept) {
  if constexpr (kFrom == From::kept) return kept;
  const __m256 floats = halves(at);
  if constexpr (kFrom == From::panel_to_kept) kept = floats;
  return floats;
}

template <TensorType kType, From kFrom>
[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256i unit(const std::byte* lines, int second,
                                                          __m256i (*kept)[2], int u, int h) {
  if constexpr (kFrom == From::kept) return kept[u][h];
  const __m256i w = unit<kType>(lines, second, u, h);
  if constexpr (kFrom == From::panel_to_kept) kept[u][h] = w;
  return w;
}

// The order in which a sub-block's units come: those of one line together.
template <TensorType kType>
constexpr int unit_order(int i) {
  constexpr BlockShape kShape = block_shape(kType);
  if (kShape.bits != 4 && kShape.bits != 5) return i;
  return i / 2 + i % 2 * static_cast<int>(kShape.sub_columns() / 8);
}

// totals += scale * the sums of a sub-block, the first or second of two. words: [units][n]; starts:
// where the sums start, of a type with a bias; kept: the sub-block's.
template <class Sums, TensorType kType, int kRows, From kFrom>
[[OUTRIDER_AVX2, gnu::always_inline]] inline void add_sub_block(
    __m256i (&totals)[2][kRows], const __m256i (&scale)[2], const std::byte* lines, int second,
    __m256i (*kept)[2], const std::int32_t* words, std::size_t n, const std::int32_t* starts) {
  constexpr int kUnits = static_cast<int>(block_shape(kType).sub_columns() / 4);
  constexpr int kParts = is_wide(Sums::bias(kType)) ? 2 : 1;  // words of a row that a unit meets
  __m256i sums[2][kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    sums[0][r] = sums[1][r] = starts ? _mm256_set1_epi32(starts[r]) : _mm256_setzero_si256();
  }
#pragma GCC unroll 8
  for (int i = 0; i < kUnits; ++i) {
    const int u = unit_order<kType>(i);
    const __m256i w[2] = {unit<kType, kFrom>(lines, second, kept, u, 0),
                          unit<kType, kFrom>(lines, second, kept, u, 1)};
#pragma GCC unroll 2
    for (int part = 0; part < kParts; ++part) {
      const __m256i parts[2] = {Sums::template part<kType>(w[0], part),
                                Sums::template part<kType>(w[1], part)};
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m256i q = _mm256_set1_epi32(words[(u * kParts + part) * n + r]);
#pragma GCC unroll 2
        for (int h = 0; h < 2; ++h) Sums::template add_unit<kType>(sums[h][r], parts[h], q);
      }
    }
    if ((i + 1) % Sums::units_per_sum(kType) != 0 && i + 1 != kUnits) continue;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        Sums::template add_scaled<kType>(totals[h][r], sums[h][r], scale[h]);
        if (i + 1 != kUnits) sums[h][r] = _mm256_setzero_si256();
      }
    }
  }
}

// Half a panel's scales and minimums of a K type, four sub-blocks a register: one byte each, in the
// order kScaleByte.
template <TensorType kType>
struct ScalesAndMins {
  static constexpr int kRegisters = static_cast<int>(block_shape(kType).sub_blocks / 4);
  __m256i scales[kRegisters], mins[kRegisters];
};

[[OUTRIDER_AVX2, gnu::always_inline]] inline ScalesAndMins<TensorType::q2_k> q2_k_scales(
    const std::byte* lines) {
  const __m256i low4 = _mm256_set1_epi8(15);
  ScalesAndMins<TensorType::q2_k> out;
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m256i both = half_line(lines + i * kLine);
    out.scales[i] = _mm256_and_si256(both, low4);
    out.mins[i] = _mm256_and_si256(_mm256_srli_epi16(both, 4), low4);
  }
  return out;
}

// Of Q4_K and Q5_K.
template <TensorType kType>
[[OUTRIDER_AVX2, gnu::always_inline]] inline ScalesAndMins<kType> six_bit_scales(
    const std::byte* lines) {
  const __m256i l0 = half_line(lines), l1 = half_line(lines + kLine);
  const __m256i l2 = half_line(lines + 2 * kLine);
  const __m256i low6 = _mm256_set1_epi8(63), low4 = _mm256_set1_epi8(15);
  const __m256i bits45 = _mm256_set1_epi8(48);
  const __m256i high_scales = _mm256_and_si256(_mm256_srli_epi16(l0, 2), bits45);
  const __m256i high_mins = _mm256_and_si256(_mm256_srli_epi16(l1, 2), bits45);
  const __m256i low_mins = _mm256_and_si256(_mm256_srli_epi16(l2, 4), low4);
  return {{_mm256_and_si256(l0, low6), _mm256_or_si256(_mm256_and_si256(l2, low4), high_scales)},
          {_mm256_and_si256(l1, low6), _mm256_or_si256(low_mins, high_mins)}};
}

// A batch of a type whose groups have 32 columns; acc: [rows][2].
template <class Sums, TensorType kType, int kRows, From kFrom>
[[OUTRIDER_AVX2, gnu::always_inline]] inline void add_batch_of_32(const std::byte* panel,
                                                                  std::size_t first_block,
                                                                  std::size_t n_blocks, Kept& kept,
                                                                  const std::int32_t* words,
                                                                  std::size_t n, __m256 (*acc)[2]) {
  constexpr InterleavedShape kShape = interleaved_shape(kType, Sums::bias(kType));
  constexpr bool kHasMin = block_shape(kType).has_min;
  for (std::size_t b = 0; b < n_blocks; ++b, words += kShape.words() * n) {
    const BlockPlace place = block_place(kType, first_block + b);
    if constexpr (kFrom != From::kept)
      prefetch<kRows, kFrom>(panel + place.body, body_bytes(kType) + kLine);
    __m256 d[2], m[2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      d[h] = halves<kFrom>(panel + place.d + h * kHalfLine / 2, kept.d[b][h]);
      if constexpr (kHasMin)
        m[h] = halves<kFrom>(panel + place.m + h * kHalfLine / 2, kept.m[b][h]);
    }
    const std::int32_t* ds = words + kShape.units * n;
    const std::int32_t* extras = ds + n;
    __m256i totals[2][kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) totals[0][r] = totals[1][r] = _mm256_setzero_si256();
    const __m256i ones[2] = {Sums::one(), Sums::one()};
    add_sub_block<Sums, kType, kRows, kFrom>(totals, ones, panel + place.body, 0,
                                             kept.units + 8 * b, words, n,
                                             kHasMin ? nullptr : extras);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        __m256 term = _mm256_mul_ps(d[h], _mm256_cvtepi32_ps(totals[h][r]));
        if constexpr (kHasMin) term = _mm256_fmadd_ps(m[h], broadcast(extras + r), term);
        acc[r][h] = _mm256_fmadd_ps(term, broadcast(ds + r), acc[r][h]);
      }
    }
  }
}

// A block of Q2_K, Q4_K or Q5_K.
template <class Sums, TensorType kType, int kRows, From kFrom>
[[OUTRIDER_AVX2, gnu::always_inline]] inline void add_block_with_mins(const std::byte* panel,
                                                                      std::size_t block, Kept& kept,
                                                                      const std::int32_t* words,
                                                                      std::size_t n,
                                                                      __m256 (*acc)[2]) {
  constexpr InterleavedShape kShape = interleaved_shape(kType, Sums::bias(kType));
  constexpr int kSubBlocks = static_cast<int>(block_shape(kType).sub_blocks);
  constexpr int kUnits = static_cast<int>(block_shape(kType).sub_columns() / 4);
  const __m256i even_bytes = _mm256_set1_epi16(255);
  const BlockPlace place = block_place(kType, block);
  if constexpr (kFrom != From::kept) {
    prefetch<kRows, kFrom>(panel + place.d, kLine + scale_bytes(kType));
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      ScalesAndMins<kType> small;
      if constexpr (kType == TensorType::q2_k)
        small = q2_k_scales(panel + place.body + h * kHalfLine);
      else
        small = six_bit_scales<kType>(panel + place.body + h * kHalfLine);
#pragma GCC unroll 16
      for (int s = 0; s < kSubBlocks; ++s) {
        kept.scales[s][h] = Sums::scale_of(small.scales[s / 4], kScaleByte[s % 4]);
      }
#pragma GCC unroll 4
      for (int i = 0; i < small.kRegisters; ++i) {
        kept.mins[2 * i][h] = _mm256_and_si256(small.mins[i], even_bytes);
        kept.mins[2 * i + 1][h] = _mm256_srli_epi16(small.mins[i], 8);
      }
      kept.d[0][h] = halves(panel + place.d + h * kHalfLine / 2);
      kept.m[0][h] = halves(panel + place.m + h * kHalfLine / 2);
    }
  }
  const std::byte* lines = panel + place.body + scale_bytes(kType);
  __m256i totals[2][kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) totals[0][r] = totals[1][r] = _mm256_setzero_si256();
    // Not unrolled: GCC 12 would defer the scalings and spill the sums.
#pragma GCC unroll 1
  for (int s = 0; s < kSubBlocks; ++s) {
    if constexpr (kFrom != From::kept)
      prefetch<kRows, kFrom>(lines + sub_block_own_begin(kType, s), sub_block_own_bytes(kType, s));
    add_sub_block<Sums, kType, kRows, kFrom>(
        totals, kept.scales[s], lines + sub_block_begin(kType, s), s % 2, kept.units + kUnits * s,
        words + s * kUnits * n, n, nullptr);
  }
  const std::int32_t* ds = words + kShape.units * n;
  const std::int32_t* pairs = ds + n;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      __m256i minimum = _mm256_setzero_si256();
#pragma GCC unroll 8
      for (int i = 0; i < kSubBlocks / 2; ++i) {
        Sums::add_pairs(minimum, kept.mins[i][h], _mm256_set1_epi32(pairs[i * n + r]));
      }
      const __m256 products = _mm256_mul_ps(kept.d[0][h], _mm256_cvtepi32_ps(totals[h][r]));
      const __m256 term = _mm256_fnmadd_ps(kept.m[0][h], _mm256_cvtepi32_ps(minimum), products);
      acc[r][h] = _mm256_fmadd_ps(term, broadcast(ds + r), acc[r][h]);
    }
  }
}

// Sub-block `s`'s scales of half `h` of the outputs, of a type without minimums.
template <class Sums, TensorType kType>
[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256i scales_of(const std::byte* scales,
                                                               std::size_t s, int h) {
  if constexpr (block_shape(kType).has_byte_scales()) {
    return Sums::template scale<kType>(
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales + 16 * s + 8 * h)));
  } else {
    const __m128i place = _mm_cvtsi32_si128(static_cast<int>(s / 2 * 4 + s % 2 * 16));
    const __m256i moved = _mm256_srl_epi32(half_line(scales + h * kHalfLine), place);
    return Sums::scale_of(_mm256_and_si256(moved, _mm256_set1_epi32(15)), 0);
  }
}

// A block with sub-blocks and without minimums.
template <class Sums, TensorType kType, int kRows, From kFrom>
[[OUTRIDER_AVX2, gnu::always_inline]] inline void add_block_with_bias(const std::byte* panel,
                                                                      std::size_t block, Kept& kept,
                                                                      const std::int32_t* words,
                                                                      std::size_t n,
                                                                      __m256 (*acc)[2]) {
  constexpr InterleavedShape kShape = interleaved_shape(kType, Sums::bias(kType));
  constexpr BlockShape kBlock = block_shape(kType);
  constexpr std::size_t kUnits = kBlock.sub_columns() / 4;
  constexpr std::size_t kSubWords = kShape.units / kBlock.sub_blocks;
  const BlockPlace place = block_place(kType, block);
  const std::byte* scales = panel + place.body;
  const std::byte* lines = scales + scale_bytes(kType);
  const std::int32_t* ds = words + kShape.units * n;
  const std::int32_t* starts = ds + n;
  if constexpr (kFrom != From::kept) prefetch<kRows, kFrom>(scales, scale_bytes(kType) + kLine / 2);
  __m256i totals[2][kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) totals[0][r] = totals[1][r] = _mm256_setzero_si256();
#pragma GCC unroll 1
  for (std::size_t s = 0; s < kBlock.sub_blocks; ++s) {
    if constexpr (kFrom != From::kept) {
      prefetch<kRows, kFrom>(lines + sub_block_own_begin(kType, s), sub_block_own_bytes(kType, s));
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) kept.scales[s][h] = scales_of<Sums, kType>(scales, s, h);
    }
    add_sub_block<Sums, kType, kRows, kFrom>(
        totals, kept.scales[s], lines + sub_block_begin(kType, s), static_cast<int>(s % 2),
        kept.units + kUnits * s, words + s * kSubWords * n, n, starts + s * n);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      __m256 d = halves(panel + place.d + h * kHalfLine / 2);
      if constexpr (kBlock.d_factor != 1) d = _mm256_mul_ps(d, _mm256_set1_ps(kBlock.d_factor));
      const __m256 term = _mm256_mul_ps(d, _mm256_cvtepi32_ps(totals[h][r]));
      acc[r][h] = _mm256_fmadd_ps(term, broadcast(ds + r), acc[r][h]);
    }
  }
}

template <class Sums, TensorType kType, int kRows, From kFrom>
[[OUTRIDER_AVX2, gnu::always_inline]] inline void add_batch_inline(
    const std::byte* panel, std::size_t first_block, std::size_t n_blocks, Kept& kept,
    const std::int32_t* words, std::size_t n, __m256 (*acc)[2]) {
  constexpr BlockShape kShape = block_shape(kType);
  if constexpr (kShape.elements == 32)
    add_batch_of_32<Sums, kType, kRows, kFrom>(panel, first_block, n_blocks, kept, words, n, acc);
  else if constexpr (kShape.has_min)
    add_block_with_mins<Sums, kType, kRows, kFrom>(panel, first_block, kept, words, n, acc);
  else
    add_block_with_bias<Sums, kType, kRows, kFrom>(panel, first_block, kept, words, n, acc);
}

template <class Sums, TensorType kType, int kRows, From kFrom>
[[OUTRIDER_AVX2]] void add_batch(const std::byte* panel, std::size_t first_block,
                                 std::size_t n_blocks, Kept& kept, const std::int32_t* words,
                                 std::size_t n, __m256 (*acc)[2]) {
  add_batch_inline<Sums, kType, kRows, kFrom>(panel, first_block, n_blocks, kept, words, n, acc);
}

// One panel for as many rows as registers hold.
template <class Sums, TensorType kType, int kRows>
[[OUTRIDER_AVX2]] void panel_of_few_rows(const std::byte* panel, std::size_t columns,
                                         const std::int32_t* words, float* out,
                                         std::size_t stride) {
  constexpr InterleavedShape kShape = interleaved_shape(kType, Sums::bias(kType));
  constexpr std::size_t kBatch = batch_blocks(kType);
  const std::size_t n_blocks = columns / kShape.elements;
  Kept kept;
  __m256 acc[kRows][2];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
  for (std::size_t b = 0; b < n_blocks; b += kBatch) {
    add_batch_inline<Sums, kType, kRows, From::panel>(panel, b, std::min(kBatch, n_blocks - b),
                                                      kept, words + b * kShape.words() * kRows,
                                                      kRows, acc);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    _mm256_storeu_ps(out + r * stride, acc[r][0]);
    _mm256_storeu_ps(out + r * stride + 8, acc[r][1]);
  }
}

using AddBatch = void (*)(const std::byte* panel, std::size_t first_block, std::size_t n_blocks,
                          Kept& kept, const std::int32_t* words, std::size_t n, __m256 (*acc)[2]);

template <class Sums, TensorType kType, From kFrom, int... kLess>
constexpr AddBatch add_batch_of(std::size_t rows, std::integer_sequence<int, kLess...>) {
  constexpr AddBatch kByRows[] = {add_batch<Sums, kType, kLess + 1, kFrom>...};
  return kByRows[rows - 1];
}

// One panel for more rows: a few at a time, block by block.
template <class Sums, TensorType kType>
[[OUTRIDER_AVX2]] void panel_of_many_rows(const std::byte* panel, std::size_t columns,
                                          const std::int32_t* words, std::size_t n, float* out,
                                          std::size_t stride) {
  constexpr InterleavedShape kShape = interleaved_shape(kType, Sums::bias(kType));
  constexpr std::size_t kBatch = batch_blocks(kType);
  const std::size_t n_blocks = columns / kShape.elements;
  const std::size_t n_groups = (n + Sums::kGroupRows - 1) / Sums::kGroupRows;
  Kept kept;
  __m256 acc[kMostRows][2];
  for (std::size_t r = 0; r < n; ++r) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
  for (std::size_t b = 0; b < n_blocks; b += kBatch) {
    for (std::size_t g = 0; g < n_groups; ++g) {
      const Range rows = share(n, g, n_groups);
      const auto up_to_group = std::make_integer_sequence<int, Sums::kGroupRows>();
      const AddBatch add =
          g == 0
              ? add_batch_of<Sums, kType, From::panel_to_kept>(rows.end - rows.begin, up_to_group)
              : add_batch_of<Sums, kType, From::kept>(rows.end - rows.begin, up_to_group);
      add(panel, b, std::min(kBatch, n_blocks - b), kept,
          words + b * kShape.words() * n + rows.begin, n, acc + rows.begin);
    }
  }
  for (std::size_t r = 0; r < n; ++r) {
    _mm256_storeu_ps(out + r * stride, acc[r][0]);
    _mm256_storeu_ps(out + r * stride + 8, acc[r][1]);
  }
}

// One panel of F32, F16 or BF16.
template <TensorType kType, int kRows>
[[OUTRIDER_AVX2]] void panel_of_floats(const std::byte* panel, std::size_t columns,
                                       const std::int32_t* words, float* out, std::size_t stride) {
  constexpr std::size_t kColumnBytes = kType == TensorType::f32 ? kLine : kLine / 2;
  __m256 acc[kRows][2];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
  for (std::size_t k = 0; k < columns; ++k, panel += kColumnBytes, words += kRows) {
    prefetch<1, From::panel>(panel, kColumnBytes);
    __m256 w[2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const std::byte* at = panel + h * kColumnBytes / 2;
      if constexpr (kType == TensorType::f32)
        w[h] = _mm256_load_ps(reinterpret_cast<const float*>(at));
      if constexpr (kType == TensorType::f16) w[h] = halves(at);
      if constexpr (kType == TensorType::bf16) {
        const __m128i stored = _mm_load_si128(reinterpret_cast<const __m128i*>(at));
        w[h] = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(stored), 16));
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m256 x = broadcast(words + r);
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) acc[r][h] = _mm256_fmadd_ps(w[h], x, acc[r][h]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    _mm256_storeu_ps(out + r * stride, acc[r][0]);
    _mm256_storeu_ps(out + r * stride + 8, acc[r][1]);
  }
}

template <class Sums, TensorType kType, int kRows>
[[OUTRIDER_AVX2]] void panel_of_rows(const std::byte* panel, std::size_t columns,
                                     const std::int32_t* words, float* out, std::size_t stride) {
  panel_of_many_rows<Sums, kType>(panel, columns, words, kRows, out, stride);
}

template <class Sums, TensorType kType, int kRows>
constexpr PanelKernel panel_kernel() {
  if constexpr (block_shape(kType).elements == 0)
    return panel_of_floats<kType, kRows>;
  else if constexpr (kRows <= Sums::kGroupRows)
    return panel_of_few_rows<Sums, kType, kRows>;
  else
    return panel_of_rows<Sums, kType, kRows>;
}
template <class Sums, TensorType kType>
PanelKernel panel_kernel(std::size_t rows) {
  static constexpr auto kByRows = []<int... kLess>(std::integer_sequence<int, kLess...>) {
    return std::array{panel_kernel<Sums, kType, kLess + 1>()...};
  }
  (std::make_integer_sequence<int, most_rows<Sums>(kType)>());
  return kByRows[rows - 1];
}

template <class Sums>
PanelKernel panel_kernel(TensorType type, const InterleavedRows& group) {
  return kernel_for(type,
                    [&]<TensorType kType>() { return panel_kernel<Sums, kType>(group.rows); });
}

// What ProductKernels says of them.
template <class Sums>
std::size_t lines(const PackedMatrix& weights, std::size_t n_rows) {
  return interleaved_lines(weights, n_rows, Sums::bias(weights.type));
}
template <class Sums>
void arrange(const PackedMatrix& weights, const ProductInput& input, Range rows,
             ArrangedRows& arranged) {
  interleave(weights, input, rows, Sums::bias(weights.type), most_rows<Sums>(weights.type),
             panel_kernel<Sums>, arranged);
}

// What ProductKernels::quantize says; products_avx2.cpp has it.
void quantize(std::span<const float> x, std::size_t group, QuantizedRow out);

}  // namespace outrider::products256

// Products with AVX-512 F, BW, VL and VNNI: a lane an output, a register a unit of [16 outputs][4
// columns].

#include <array>
#include <utility>

#include "cpu/kernels/interleaved_rows.h"
#include "cpu/kernels/intrinsics.h"
#include "cpu/kernels/kernels.h"
#include "cpu/panel.h"

namespace outrider {
namespace {

// Rows that a kernel holds in registers: an int32 and a float accumulator each, and a sum over
// sub-blocks.
constexpr int kMostRows = 8;

[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512i line(const std::byte* at) {
  return _mm512_load_si512(at);
}

// acc + sum of w * q over a unit's four columns; w: never negative, q: the word at `word`, for all
// outputs.
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512i add_unit(__m512i acc, __m512i w,
                                                                const std::int32_t* word) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "m"(*word));
  return acc;
}

template <int kRows>
[[OUTRIDER_AVX512, gnu::always_inline]] inline void add_unit(__m512i (&acc)[kRows], __m512i w,
                                                             const std::int32_t* words) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) acc[r] = add_unit(acc[r], w, words + r);
}

template <int kRows>
[[OUTRIDER_AVX512, gnu::always_inline]] inline void add_nibbles(__m512i (&acc)[kRows],
                                                                const std::byte* lines,
                                                                const std::int32_t* words) {
  const __m512i mask = _mm512_set1_epi8(15);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i both = line(lines + i * kLine);
    add_unit(acc, _mm512_and_si512(both, mask), words + i * kRows);
    add_unit(acc, _mm512_and_si512(_mm512_srli_epi16(both, 4), mask), words + (i + 4) * kRows);
  }
}

template <int kRows>
[[OUTRIDER_AVX512, gnu::always_inline]] inline void add_five_bits(__m512i (&acc)[kRows],
                                                                  const std::byte* lines,
                                                                  const std::int32_t* words) {
  const __m512i mask = _mm512_set1_epi8(15), sixteen = _mm512_set1_epi8(16);
  const __m512i fifths = line(lines);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i both = line(lines + (i + 1) * kLine);
    const __m512i low = _mm512_and_si512(both, mask);
    const __m512i high = _mm512_and_si512(_mm512_srli_epi16(both, 4), mask);
    // Bits i and i + 4 come to bit 4; 0xf8 is a | (b & c).
    const __m512i low_fifth = _mm512_slli_epi16(fifths, 4 - i);
    const __m512i high_fifth = i == 0 ? fifths : _mm512_srli_epi16(fifths, i);
    add_unit(acc, _mm512_ternarylogic_epi32(low, low_fifth, sixteen, 0xf8), words + i * kRows);
    add_unit(acc, _mm512_ternarylogic_epi32(high, high_fifth, sixteen, 0xf8),
             words + (i + 4) * kRows);
  }
}

template <int kRows>
[[OUTRIDER_AVX512, gnu::always_inline]] inline void add_six_bits(__m512i (&acc)[kRows],
                                                                 const std::byte* lines,
                                                                 const std::int32_t* words) {
  const __m512i mask = _mm512_set1_epi8(63);
  const __m512i l0 = line(lines), l1 = line(lines + kLine), l2 = line(lines + 2 * kLine);
  add_unit(acc, _mm512_and_si512(l0, mask), words);
  add_unit(acc, _mm512_and_si512(l1, mask), words + kRows);
  add_unit(acc, _mm512_and_si512(l2, mask), words + 2 * kRows);
  // The lines' two high bits, side by side; 0xf8 is a | (b & c).
  __m512i shared = _mm512_and_si512(_mm512_srli_epi16(l0, 6), _mm512_set1_epi8(3));
  shared = _mm512_ternarylogic_epi32(shared, _mm512_srli_epi16(l1, 4), _mm512_set1_epi8(12), 0xf8);
  shared = _mm512_ternarylogic_epi32(shared, _mm512_srli_epi16(l2, 2), _mm512_set1_epi8(48), 0xf8);
  add_unit(acc, shared, words + 3 * kRows);
}

// One sub-block: 32 columns, 16 of six bits.
template <TensorType kType, int kRows>
[[OUTRIDER_AVX512, gnu::always_inline]] inline void add_sub_block(__m512i (&acc)[kRows],
                                                                  const std::byte* lines,
                                                                  const std::int32_t* words) {
  constexpr int kBits = block_shape(kType).bits;
  if constexpr (kBits == 4) add_nibbles(acc, lines, words);
  if constexpr (kBits == 5) add_five_bits(acc, lines, words);
  if constexpr (kBits == 6) add_six_bits(acc, lines, words);
  if constexpr (kBits == 8) {
#pragma GCC unroll 8
    for (int u = 0; u < 8; ++u) add_unit(acc, line(lines + u * kLine), words + u * kRows);
  }
}

[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 halves(const std::byte* at) {
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(at)));
}

[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 broadcast(const std::int32_t* word) {
  return _mm512_castsi512_ps(_mm512_set1_epi32(*word));
}

template <int kRows>
[[OUTRIDER_AVX512, gnu::always_inline]] inline void store(const __m512 (&acc)[kRows], float* out,
                                                          std::size_t stride) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) _mm512_storeu_ps(out + r * stride, acc[r]);
}

// Asks for weights early, a few lines at a time: a block's worth at once fills the buffers for
// misses, and eight rows took a fifth longer. One or two rows wait for memory alone, and one
// request 5 KiB ahead reads at its limit. More rows multiply meanwhile, and lines that wait for
// memory would hold the few buffers of the first-level cache: bring them to the second early, to
// the first late (Q4_K from memory, four rows: 0.77 of the VNNI peak, with one request 0.71; Q6_K
// 0.61 and 0.52).
template <int kRows>
[[OUTRIDER_AVX512, gnu::always_inline]] inline void prefetch(const std::byte* at,
                                                             std::size_t bytes) {
  constexpr std::size_t kNear = (kRows <= 2 ? 5 : 3) << 10, kFar = 12 << 10;
  for (std::size_t i = 0; i < bytes; i += kLine) {
    _mm_prefetch(reinterpret_cast<const char*>(at + kNear + i), _MM_HINT_T0);
    if (kRows > 2) _mm_prefetch(reinterpret_cast<const char*>(at + kFar + i), _MM_HINT_T1);
  }
}

// One panel of a type whose groups have 32 columns.
template <TensorType kType, int kRows>
[[OUTRIDER_AVX512]] void panel_of_32(const std::byte* panel, std::size_t columns,
                                     const std::int32_t* words, float* out, std::size_t stride) {
  constexpr InterleavedShape kShape = interleaved_shape(kType, ExtraKind::bias_start);
  constexpr bool kHasMin = block_shape(kType).has_min;
  __m512 acc[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) acc[r] = _mm512_setzero_ps();
  for (std::size_t b = 0; b < columns / 32; ++b, words += kShape.words() * kRows) {
    const BlockPlace place = block_place(kType, b);
    prefetch<kRows>(panel + place.body, body_bytes(kType) + kLine);
    const std::int32_t* ds = words + kShape.units * kRows;
    const std::int32_t* extras = ds + kRows;
    __m512i sum[kRows];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      sum[r] = kHasMin ? _mm512_setzero_si512() : _mm512_set1_epi32(extras[r]);
    }
    add_sub_block<kType>(sum, panel + place.body, words);
    const __m512 d = halves(panel + place.d);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const __m512 scale = _mm512_mul_ps(d, broadcast(ds + r));
      acc[r] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(sum[r]), acc[r]);
    }
    if constexpr (kHasMin) {
      const __m512 m = halves(panel + place.m);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const __m512 scale = _mm512_mul_ps(m, broadcast(ds + r));
        acc[r] = _mm512_fmadd_ps(scale, broadcast(extras + r), acc[r]);
      }
    }
  }
  store(acc, out, stride);
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
  return {{_mm512_and_si512(l0, low6),
           _mm512_ternarylogic_epi32(low_scales, _mm512_srli_epi16(l0, 2), bits45, 0xf8)},
          {_mm512_and_si512(l1, low6),
           _mm512_ternarylogic_epi32(low_mins, _mm512_srli_epi16(l1, 2), bits45, 0xf8)}};
}

// A block's 8 sub-blocks are summed in floats, which keeps additions away from the multipliers, in
// so few parts that every part is an integer below 2^24 and so exact:
//   Q4_K   2 parts: 4 * 63 * 32 * 15 * 127 = 15,361,920
//   Q5_K   4 parts: 2 * 63 * 32 * 31 * 127 = 15,873,984
constexpr int parts_of_sum(TensorType type) {
  return block_shape(type).bits == 4 ? 2 : 4;
}

// Their sum, rounded once.
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 sum_of_parts(__m512 a, __m512 b) {
  return _mm512_add_ps(a, b);
}
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 sum_of_parts(__m512 a, __m512 b, __m512 c,
                                                                   __m512 d) {
  const __m512i ab = _mm512_add_epi32(_mm512_cvtps_epi32(a), _mm512_cvtps_epi32(b));
  const __m512i cd = _mm512_add_epi32(_mm512_cvtps_epi32(c), _mm512_cvtps_epi32(d));
  return _mm512_cvtepi32_ps(_mm512_add_epi32(ab, cd));
}

// One panel of Q4_K or Q5_K.
template <TensorType kType, int kRows>
[[OUTRIDER_AVX512]] void panel_with_mins(const std::byte* panel, std::size_t columns,
                                         const std::int32_t* words, float* out,
                                         std::size_t stride) {
  constexpr InterleavedShape kShape = interleaved_shape(kType, ExtraKind::bias_start);
  constexpr std::size_t kSubBytes = 32 * block_shape(kType).bits * 2;
  constexpr int kParts = parts_of_sum(kType), kSubBlocks = 8 / kParts;
  const __m512i low_byte = _mm512_set1_epi32(255), even_bytes = _mm512_set1_epi16(255);
  __m512 acc[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) acc[r] = _mm512_setzero_ps();
  for (std::size_t b = 0; b < columns / 256; ++b, words += kShape.words() * kRows) {
    const BlockPlace place = block_place(kType, b);
    prefetch<kRows>(panel + place.d, 4 * kLine);
    const SixBitScales small = six_bit_scales(panel + place.body);
    __m512 scales[8];
#pragma GCC unroll 8
    for (int s = 0; s < 8; ++s) {
      const __m512i scale = _mm512_srli_epi32(small.scales[s / 4], 8 * kScaleByte[s % 4]);
      scales[s] = _mm512_cvtepi32_ps(_mm512_and_si512(scale, low_byte));
    }
    const std::byte* lines = panel + place.body + 3 * kLine;
    const std::int32_t* q = words;
    __m512 parts[kParts][kRows];
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) {
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) parts[part][r] = _mm512_setzero_ps();
#pragma GCC unroll 1
      for (int j = 0; j < kSubBlocks; ++j) {
        __m512i sum[kRows];
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) sum[r] = _mm512_setzero_si512();
        prefetch<kRows>(lines, kSubBytes);
        add_sub_block<kType>(sum, lines, q);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          parts[part][r] = _mm512_fmadd_ps(scales[kSubBlocks * part + j],
                                           _mm512_cvtepi32_ps(sum[r]), parts[part][r]);
        }
        lines += kSubBytes;
        q += 8 * kRows;
      }
    }
    const std::int32_t* ds = words + kShape.units * kRows;
    const std::int32_t* pairs = ds + kRows;
    const __m512i mins[4] = {
        _mm512_and_si512(small.mins[0], even_bytes), _mm512_srli_epi16(small.mins[0], 8),
        _mm512_and_si512(small.mins[1], even_bytes), _mm512_srli_epi16(small.mins[1], 8)};
    const __m512 d = halves(panel + place.d), dmin = halves(panel + place.m);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      __m512i minimum = _mm512_setzero_si512();
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        minimum = _mm512_dpwssd_epi32(minimum, mins[i], _mm512_set1_epi32(pairs[i * kRows + r]));
      }
      const __m512 scale = _mm512_mul_ps(d, broadcast(ds + r));
      const __m512 min_scale = _mm512_mul_ps(dmin, broadcast(ds + r));
      __m512 products;
      if constexpr (kParts == 2)
        products = sum_of_parts(parts[0][r], parts[1][r]);
      else
        products = sum_of_parts(parts[0][r], parts[1][r], parts[2][r], parts[3][r]);
      acc[r] = _mm512_fmadd_ps(scale, products, acc[r]);
      acc[r] = _mm512_fnmadd_ps(min_scale, _mm512_cvtepi32_ps(minimum), acc[r]);
    }
  }
  store(acc, out, stride);
}

// One panel of Q6_K.
template <TensorType kType, int kRows>
[[OUTRIDER_AVX512]] void panel_of_q6_k(const std::byte* panel, std::size_t columns,
                                       const std::int32_t* words, float* out, std::size_t stride) {
  constexpr InterleavedShape kShape = interleaved_shape(kType, ExtraKind::bias_start);
  constexpr std::size_t kSubBytes = 3 * kLine;
  __m512 acc[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) acc[r] = _mm512_setzero_ps();
  for (std::size_t b = 0; b < columns / 256; ++b, words += kShape.words() * kRows) {
    const BlockPlace place = block_place(kType, b);
    prefetch<kRows>(panel + place.body, 4 * kLine + kLine / 2);
    const __m128i* scales = reinterpret_cast<const __m128i*>(panel + place.body);
    const std::byte* lines = panel + place.body + 4 * kLine;
    const std::int32_t* ds = words + kShape.units * kRows;
    const std::int32_t* starts = ds + kRows;
    __m512i total[kRows];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) total[r] = _mm512_setzero_si512();
#pragma GCC unroll 1
    for (int s = 0; s < 16; ++s) {
      __m512i sum[kRows];
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) sum[r] = _mm512_set1_epi32(starts[s * kRows + r]);
      prefetch<kRows>(lines + s * kSubBytes, kSubBytes);
      add_sub_block<kType>(sum, lines + s * kSubBytes, words + s * 4 * kRows);
      const __m512i scale = _mm512_cvtepi8_epi32(_mm_load_si128(scales + s));
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        total[r] = _mm512_add_epi32(total[r], _mm512_mullo_epi32(sum[r], scale));
      }
    }
    const __m512 d = halves(panel + place.d);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const __m512 scale = _mm512_mul_ps(d, broadcast(ds + r));
      acc[r] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(total[r]), acc[r]);
    }
  }
  store(acc, out, stride);
}

// One panel of F32, F16 or BF16.
template <TensorType kType, int kRows>
[[OUTRIDER_AVX512]] void panel_of_floats(const std::byte* panel, std::size_t columns,
                                         const std::int32_t* words, float* out,
                                         std::size_t stride) {
  constexpr std::size_t kColumnBytes = kType == TensorType::f32 ? kLine : kLine / 2;
  __m512 acc[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) acc[r] = _mm512_setzero_ps();
#pragma GCC unroll 4
  for (std::size_t k = 0; k < columns; ++k, panel += kColumnBytes, words += kRows) {
    prefetch<kRows>(panel, kColumnBytes);
    __m512 w;
    if constexpr (kType == TensorType::f32) w = _mm512_load_ps(panel);
    if constexpr (kType == TensorType::f16) w = halves(panel);
    if constexpr (kType == TensorType::bf16) {
      const __m256i stored = _mm256_load_si256(reinterpret_cast<const __m256i*>(panel));
      w = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(stored), 16));
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) acc[r] = _mm512_fmadd_ps(w, broadcast(words + r), acc[r]);
  }
  store(acc, out, stride);
}

template <TensorType kType, int kRows>
constexpr PanelKernel panel_kernel() {
  constexpr BlockShape kShape = block_shape(kType);
  if constexpr (kShape.elements == 0)
    return panel_of_floats<kType, kRows>;
  else if constexpr (kShape.elements == 32)
    return panel_of_32<kType, kRows>;
  else if constexpr (kShape.has_min)
    return panel_with_mins<kType, kRows>;
  else
    return panel_of_q6_k<kType, kRows>;
}

template <TensorType kType>
PanelKernel panel_kernel(std::size_t rows) {
  static constexpr auto kByRows = []<int... kLess>(std::integer_sequence<int, kLess...>) {
    return std::array{panel_kernel<kType, kLess + 1>()...};
  }
  (std::make_integer_sequence<int, kMostRows>());
  return kByRows[rows - 1];
}

PanelKernel panel_kernel(TensorType type, std::size_t rows) {
  switch (type) {
    case TensorType::f32: return panel_kernel<TensorType::f32>(rows);
    case TensorType::f16: return panel_kernel<TensorType::f16>(rows);
    case TensorType::bf16: return panel_kernel<TensorType::bf16>(rows);
    case TensorType::q4_0: return panel_kernel<TensorType::q4_0>(rows);
    case TensorType::q4_1: return panel_kernel<TensorType::q4_1>(rows);
    case TensorType::q5_0: return panel_kernel<TensorType::q5_0>(rows);
    case TensorType::q5_1: return panel_kernel<TensorType::q5_1>(rows);
    case TensorType::q8_0: return panel_kernel<TensorType::q8_0>(rows);
    case TensorType::q4_k: return panel_kernel<TensorType::q4_k>(rows);
    case TensorType::q5_k: return panel_kernel<TensorType::q5_k>(rows);
    case TensorType::q6_k: return panel_kernel<TensorType::q6_k>(rows);
  }
  return nullptr;
}

void product(const PackedMatrix& weights, const ProductInput& input, Range rows, Range panels,
             MatrixView<float> out) {
  for_each_panel(weights, input, rows, panels, out, ExtraKind::bias_start, kMostRows, panel_kernel);
}

[[OUTRIDER_AVX512]] void quantize(std::span<const float> x, std::size_t group, QuantizedRow out) {
  for (std::size_t first = 0; first < x.size(); first += group) {
    __m512i most = _mm512_setzero_si512();
    for (std::size_t i = first; i < first + group; i += 16) {
      const __m512i bits = _mm512_loadu_si512(&x[i]);
      most = _mm512_max_epi32(most, _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff)));
    }
    const GroupScale scale = group_scale(_mm512_reduce_max_epi32(most));
    out.d[first / group] = scale.d;
    const __mmask16 finite = scale.finite ? 0xffff : 0;
    for (std::size_t i = first; i < first + group; i += 16) {
      const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(&x[i]), _mm512_set1_ps(scale.inverse));
      const __m512i q = _mm512_maskz_cvtps_epi32(finite, scaled);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out.q + i), _mm512_cvtepi32_epi8(q));
      out.sums16[i / 16] = static_cast<std::int16_t>(_mm512_reduce_add_epi32(q));
    }
  }
}

}  // namespace

const ProductKernels kProductsAvx512 = {product, quantize};

}  // namespace outrider

// Products with AVX2: a lane an output, two registers a unit of [16 outputs][4 columns].
//
// vpmaddubsw adds two products in 16 bits, and 16 bits hold several of these sums before they must
// be widened, as |q| <= 127:
//   4 bits       8 units: 16 * 15 * 127 = 30,480
//   5 bits       4 units:  8 * 31 * 127 = 31,496
//   6 bits       4 units of w - 32:  8 * 32 * 127 = 32,512. Sums of w wrap around; starting from
//                the bias they end right.
//   8 bits       1 unit of |w|, with w's sign given to q:  2 * 128 * 127 = 32,512
// One vpmaddwd then multiplies by the scale and widens.

#include <array>
#include <utility>

#include "cpu/kernels/interleaved_rows.h"
#include "cpu/kernels/intrinsics.h"
#include "cpu/kernels/kernels.h"
#include "cpu/panel.h"

namespace outrider {
namespace {

// Rows that a kernel holds in registers, of which there are 16.
constexpr int kMostRows = 8;

// Weights are asked for this many bytes before they are needed, a few lines at a time: a block's
// worth at once fills the buffers for misses.
constexpr std::size_t kAhead = 5 << 10;

constexpr std::size_t kHalfLine = kLine / 2;

// Both halves of a panel read the same words. GCC 12 would keep what it broadcast for the first
// half on the stack for the second, which costs more than to broadcast again: this makes it forget
// that the words are the same.
inline void forget(const std::int32_t*& words) {
  asm volatile("" : "+r"(words));
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

[[OUTRIDER_AVX2, gnu::always_inline]] inline void prefetch(const std::byte* at, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += kLine) {
    _mm_prefetch(reinterpret_cast<const char*>(at + kAhead + i), _MM_HINT_T0);
  }
}

// GCC 12 would make a tree of a chain of additions and spill its leaves: this keeps a sum as
// written.
[[OUTRIDER_AVX2, gnu::always_inline]] inline void keep_order(__m256i& sum) {
  asm("" : "+x"(sum));
}

// sum + products of a unit, in 16 bits; w: never negative.
template <int kRows>
[[OUTRIDER_AVX2, gnu::always_inline]] inline void add_unit(__m256i (&sum)[kRows], __m256i w,
                                                           const std::int32_t* words) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const __m256i products = _mm256_maddubs_epi16(w, _mm256_set1_epi32(words[r]));
    sum[r] = _mm256_add_epi16(sum[r], products);
    keep_order(sum[r]);
  }
}

// total += sum * scale, in 32 bits; scale: the same in both halves of a lane.
template <int kRows>
[[OUTRIDER_AVX2, gnu::always_inline]] inline void widen(__m256i (&total)[kRows],
                                                        const __m256i (&sum)[kRows],
                                                        __m256i scale) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    total[r] = _mm256_add_epi32(total[r], _mm256_madd_epi16(sum[r], scale));
  }
}

template <int kRows>
[[OUTRIDER_AVX2, gnu::always_inline]] inline void clear(__m256i (&sum)[kRows]) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) sum[r] = _mm256_setzero_si256();
}

// Sums start from these words, or from zero if there are none.
template <int kRows>
[[OUTRIDER_AVX2, gnu::always_inline]] inline void start(__m256i (&sum)[kRows],
                                                        const std::int32_t* starts) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    sum[r] = starts ? _mm256_set1_epi32(starts[r]) : _mm256_setzero_si256();
  }
}

template <int kRows>
[[OUTRIDER_AVX2, gnu::always_inline]] inline void add_nibbles(__m256i (&total)[kRows],
                                                              __m256i scale, const std::byte* lines,
                                                              const std::int32_t* words,
                                                              const std::int32_t* starts) {
  const __m256i mask = _mm256_set1_epi8(15);
  __m256i sum[kRows];
  start(sum, starts);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m256i both = half_line(lines + i * kLine);
    add_unit(sum, _mm256_and_si256(both, mask), words + i * kRows);
    add_unit(sum, _mm256_and_si256(_mm256_srli_epi16(both, 4), mask), words + (i + 4) * kRows);
  }
  widen(total, sum, scale);
}

template <int kRows>
[[OUTRIDER_AVX2, gnu::always_inline]] inline void add_five_bits(__m256i (&total)[kRows],
                                                                __m256i scale,
                                                                const std::byte* lines,
                                                                const std::int32_t* words,
                                                                const std::int32_t* starts) {
  const __m256i mask = _mm256_set1_epi8(15), sixteen = _mm256_set1_epi8(16);
  const __m256i fifths = half_line(lines);
  __m256i sum[kRows];
  start(sum, starts);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m256i both = half_line(lines + (i + 1) * kLine);
    const __m256i low_fifth = _mm256_and_si256(_mm256_slli_epi16(fifths, 4 - i), sixteen);
    const __m256i high_fifth =
        _mm256_and_si256(i == 0 ? fifths : _mm256_srli_epi16(fifths, i), sixteen);
    const __m256i low = _mm256_and_si256(both, mask);
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
    add_unit(sum, _mm256_or_si256(low, low_fifth), words + i * kRows);
    add_unit(sum, _mm256_or_si256(high, high_fifth), words + (i + 4) * kRows);
    // With the bias taken off, all 8 units fit: 16 * 16 * 127 = 32,512.
    if (i == 1 && !starts) {
      widen(total, sum, scale);
      clear(sum);
    }
  }
  widen(total, sum, scale);
}

template <int kRows>
[[OUTRIDER_AVX2, gnu::always_inline]] inline void add_six_bits(__m256i (&total)[kRows],
                                                               __m256i scale,
                                                               const std::byte* lines,
                                                               const std::int32_t* words,
                                                               const std::int32_t* starts) {
  const __m256i mask = _mm256_set1_epi8(63);
  const __m256i l0 = half_line(lines), l1 = half_line(lines + kLine);
  const __m256i l2 = half_line(lines + 2 * kLine);
  __m256i sum[kRows];
  start(sum, starts);
  add_unit(sum, _mm256_and_si256(l0, mask), words);
  add_unit(sum, _mm256_and_si256(l1, mask), words + kRows);
  add_unit(sum, _mm256_and_si256(l2, mask), words + 2 * kRows);
  const __m256i bits01 = _mm256_and_si256(_mm256_srli_epi16(l0, 6), _mm256_set1_epi8(3));
  const __m256i bits23 = _mm256_and_si256(_mm256_srli_epi16(l1, 4), _mm256_set1_epi8(12));
  const __m256i bits45 = _mm256_and_si256(_mm256_srli_epi16(l2, 2), _mm256_set1_epi8(48));
  add_unit(sum, _mm256_or_si256(_mm256_or_si256(bits01, bits23), bits45), words + 3 * kRows);
  widen(total, sum, scale);
}

template <int kRows>
[[OUTRIDER_AVX2, gnu::always_inline]] inline void add_bytes(__m256i (&total)[kRows], __m256i scale,
                                                            const std::byte* lines,
                                                            const std::int32_t* words) {
#pragma GCC unroll 8
  for (int u = 0; u < 8; ++u) {
    const __m256i w = _mm256_xor_si256(half_line(lines + u * kLine), _mm256_set1_epi8(-128));
    const __m256i magnitude = _mm256_abs_epi8(w);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m256i q = _mm256_sign_epi8(_mm256_set1_epi32(words[u * kRows + r]), w);
      const __m256i products = _mm256_maddubs_epi16(magnitude, q);
      total[r] = _mm256_add_epi32(total[r], _mm256_madd_epi16(products, scale));
      keep_order(total[r]);
    }
  }
}

// total += scale * the sub-block's sums: 32 columns, 16 of six bits. starts: of a type with a bias.
template <TensorType kType, int kRows>
[[OUTRIDER_AVX2, gnu::always_inline]] inline void add_sub_block(__m256i (&total)[kRows],
                                                                __m256i scale,
                                                                const std::byte* lines,
                                                                const std::int32_t* words,
                                                                const std::int32_t* starts) {
  constexpr int kBits = block_shape(kType).bits;
  if constexpr (kBits == 4) add_nibbles(total, scale, lines, words, starts);
  if constexpr (kBits == 5) add_five_bits(total, scale, lines, words, starts);
  if constexpr (kBits == 6) add_six_bits(total, scale, lines, words, starts);
  if constexpr (kBits == 8) add_bytes(total, scale, lines, words);
}

// Float accumulators of a panel's two halves.
template <int kRows>
struct Accumulators {
  __m256 half[2][kRows];

  [[OUTRIDER_AVX2, gnu::always_inline]] void clear() {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) half[0][r] = half[1][r] = _mm256_setzero_ps();
  }
  [[OUTRIDER_AVX2, gnu::always_inline]] void store(float* out, std::size_t stride) const {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      _mm256_storeu_ps(out + r * stride, half[0][r]);
      _mm256_storeu_ps(out + r * stride + 8, half[1][r]);
    }
  }
};

// One panel of a type whose groups have 32 columns.
template <TensorType kType, int kRows>
[[OUTRIDER_AVX2]] void panel_of_32(const std::byte* panel, std::size_t columns,
                                   const std::int32_t* words, float* out, std::size_t stride) {
  constexpr InterleavedShape kShape = interleaved_shape(kType, ExtraKind::bias_halves);
  constexpr bool kHasMin = block_shape(kType).has_min;
  const __m256i one = _mm256_set1_epi16(1);
  Accumulators<kRows> acc;
  acc.clear();
  for (std::size_t b = 0; b < columns / 32; ++b, words += kShape.words() * kRows) {
    const BlockPlace place = block_place(kType, b);
    prefetch(panel + place.body, body_bytes(kType) + kLine);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      forget(words);
      const std::int32_t* ds = words + kShape.units * kRows;
      const std::int32_t* extras = ds + kRows;
      __m256i total[kRows];
      clear(total);
      add_sub_block<kType>(total, one, panel + place.body + h * kHalfLine, words,
                           kHasMin ? nullptr : extras);
      const __m256 d = halves(panel + place.d + h * kHalfLine / 2);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m256 scale = _mm256_mul_ps(d, broadcast(ds + r));
        acc.half[h][r] = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(total[r]), acc.half[h][r]);
      }
      if constexpr (kHasMin) {
        const __m256 m = halves(panel + place.m + h * kHalfLine / 2);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const __m256 scale = _mm256_mul_ps(m, broadcast(ds + r));
          acc.half[h][r] = _mm256_fmadd_ps(scale, broadcast(extras + r), acc.half[h][r]);
        }
      }
    }
  }
  acc.store(out, stride);
}

// Half a panel's scales and minimums of Q4_K and Q5_K, four sub-blocks a register: a byte each, in
// the order kScaleByte.
struct SixBitScales {
  __m256i scales[2], mins[2];
};

[[OUTRIDER_AVX2, gnu::always_inline]] inline SixBitScales six_bit_scales(const std::byte* lines) {
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

// One panel of Q4_K or Q5_K.
template <TensorType kType, int kRows>
[[OUTRIDER_AVX2]] void panel_with_mins(const std::byte* panel, std::size_t columns,
                                       const std::int32_t* words, float* out, std::size_t stride) {
  constexpr InterleavedShape kShape = interleaved_shape(kType, ExtraKind::bias_halves);
  constexpr std::size_t kSubBytes = 32 * block_shape(kType).bits * 2;
  const __m256i even_bytes = _mm256_set1_epi16(255);
  Accumulators<kRows> acc;
  acc.clear();
  for (std::size_t b = 0; b < columns / 256; ++b, words += kShape.words() * kRows) {
    const BlockPlace place = block_place(kType, b);
    prefetch(panel + place.d, 4 * kLine);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      forget(words);
      const SixBitScales small = six_bit_scales(panel + place.body + h * kHalfLine);
      __m256i scales[8];
#pragma GCC unroll 8
      for (int s = 0; s < 8; ++s) {
        // The byte, widened to 16 bits, in both halves of every lane.
        const __m256i both = _mm256_add_epi32(
            _mm256_set1_epi32(kScaleByte[s % 4] * 0x10001 | static_cast<int>(0x80008000u)),
            _mm256_setr_epi32(0, 0x40004, 0x80008, 0xc000c, 0, 0x40004, 0x80008, 0xc000c));
        scales[s] = _mm256_shuffle_epi8(small.scales[s / 4], both);
      }
      const std::byte* lines = panel + place.body + 3 * kLine + h * kHalfLine;
      __m256i total[kRows];
      clear(total);
      // Not unrolled: GCC 12 would defer the scalings and spill the sums.
#pragma GCC unroll 1
      for (int s = 0; s < 8; ++s) {
        if (h == 0) prefetch(lines + s * kSubBytes, kSubBytes);
        add_sub_block<kType>(total, scales[s], lines + s * kSubBytes, words + s * 8 * kRows,
                             nullptr);
      }
      const __m256i mins[4] = {
          _mm256_and_si256(small.mins[0], even_bytes), _mm256_srli_epi16(small.mins[0], 8),
          _mm256_and_si256(small.mins[1], even_bytes), _mm256_srli_epi16(small.mins[1], 8)};
      const __m256 d = halves(panel + place.d + h * kHalfLine / 2);
      const __m256 dmin = halves(panel + place.m + h * kHalfLine / 2);
      const std::int32_t* ds = words + kShape.units * kRows;
      const std::int32_t* pairs = ds + kRows;
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        __m256i minimum = _mm256_setzero_si256();
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          const __m256i sums = _mm256_set1_epi32(pairs[i * kRows + r]);
          minimum = _mm256_add_epi32(minimum, _mm256_madd_epi16(mins[i], sums));
          keep_order(minimum);
        }
        const __m256 scale = _mm256_mul_ps(d, broadcast(ds + r));
        const __m256 min_scale = _mm256_mul_ps(dmin, broadcast(ds + r));
        __m256 sum = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(total[r]), acc.half[h][r]);
        acc.half[h][r] = _mm256_fnmadd_ps(min_scale, _mm256_cvtepi32_ps(minimum), sum);
      }
    }
  }
  acc.store(out, stride);
}

// One panel of Q6_K.
template <TensorType kType, int kRows>
[[OUTRIDER_AVX2]] void panel_of_q6_k(const std::byte* panel, std::size_t columns,
                                     const std::int32_t* words, float* out, std::size_t stride) {
  constexpr InterleavedShape kShape = interleaved_shape(kType, ExtraKind::bias_halves);
  Accumulators<kRows> acc;
  acc.clear();
  for (std::size_t b = 0; b < columns / 256; ++b, words += kShape.words() * kRows) {
    const BlockPlace place = block_place(kType, b);
    prefetch(panel + place.body, 4 * kLine + kLine / 2);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      forget(words);
      const std::int32_t* ds = words + kShape.units * kRows;
      const std::int32_t* starts = ds + kRows;
      const std::byte* scales = panel + place.body + h * 8;
      const std::byte* lines = panel + place.body + 4 * kLine + h * kHalfLine;
      __m256i total[kRows];
      clear(total);
#pragma GCC unroll 1
      for (int s = 0; s < 16; ++s) {
        if (h == 0) prefetch(lines + s * 3 * kLine, 3 * kLine);
        const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales + 16 * s));
        add_sub_block<kType>(total, _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(bytes, bytes)),
                             lines + s * 3 * kLine, words + s * 4 * kRows, starts + s * kRows);
      }
      const __m256 d = halves(panel + place.d + h * kHalfLine / 2);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m256 scale = _mm256_mul_ps(d, broadcast(ds + r));
        acc.half[h][r] = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(total[r]), acc.half[h][r]);
      }
    }
  }
  acc.store(out, stride);
}

// One panel of F32, F16 or BF16.
template <TensorType kType, int kRows>
[[OUTRIDER_AVX2]] void panel_of_floats(const std::byte* panel, std::size_t columns,
                                       const std::int32_t* words, float* out, std::size_t stride) {
  constexpr std::size_t kColumnBytes = kType == TensorType::f32 ? kLine : kLine / 2;
  Accumulators<kRows> acc;
  acc.clear();
  for (std::size_t k = 0; k < columns; ++k, panel += kColumnBytes, words += kRows) {
    prefetch(panel, kColumnBytes);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const std::byte* at = panel + h * kColumnBytes / 2;
      __m256 w;
      if constexpr (kType == TensorType::f32)
        w = _mm256_load_ps(reinterpret_cast<const float*>(at));
      if constexpr (kType == TensorType::f16) w = halves(at);
      if constexpr (kType == TensorType::bf16) {
        const __m128i stored = _mm_load_si128(reinterpret_cast<const __m128i*>(at));
        w = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(stored), 16));
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        acc.half[h][r] = _mm256_fmadd_ps(w, broadcast(words + r), acc.half[h][r]);
      }
    }
  }
  acc.store(out, stride);
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
  for_each_panel(weights, input, rows, panels, out, ExtraKind::bias_halves, kMostRows,
                 panel_kernel);
}

// The lanes' largest.
[[OUTRIDER_AVX2]] std::uint32_t largest_lane(__m256i lanes) {
  alignas(32) std::uint32_t each[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(each), lanes);
  std::uint32_t largest = 0;
  for (const std::uint32_t lane : each) largest = lane > largest ? lane : largest;
  return largest;
}

// Eight floats, times inverse, to the nearest integers.
[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256i round_scaled(const float* x, __m256 inverse) {
  return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));
}

[[OUTRIDER_AVX2]] void quantize(std::span<const float> x, std::size_t group, QuantizedRow out) {
  for (std::size_t first = 0; first < x.size(); first += group) {
    __m256i most = _mm256_setzero_si256();
    for (std::size_t i = first; i < first + group; i += 8) {
      const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(&x[i]));
      most = _mm256_max_epi32(most, _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)));
    }
    const GroupScale scale = group_scale(largest_lane(most));
    out.d[first / group] = scale.d;
    const __m256 inverse = _mm256_set1_ps(scale.inverse);
    const __m256i finite = _mm256_set1_epi32(scale.finite ? -1 : 0);
    for (std::size_t i = first; i < first + group; i += 16) {
      const __m256i low = _mm256_and_si256(round_scaled(&x[i], inverse), finite);
      const __m256i high = _mm256_and_si256(round_scaled(&x[i + 8], inverse), finite);
      // Packing works within halves of a register; the permutation puts all in order.
      const __m256i q16 =
          _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), _MM_SHUFFLE(3, 1, 2, 0));
      const __m128i q =
          _mm_packs_epi16(_mm256_castsi256_si128(q16), _mm256_extracti128_si256(q16, 1));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out.q + i), q);
      // Sums of eight numbers without sign: q + 128.
      const __m128i sums = _mm_sad_epu8(_mm_xor_si128(q, _mm_set1_epi8(-128)), _mm_setzero_si128());
      out.sums16[i / 16] = static_cast<std::int16_t>(_mm_cvtsi128_si32(sums) +
                                                     _mm_extract_epi16(sums, 4) - 16 * 128);
    }
  }
}

}  // namespace

const ProductKernels kProductsAvx2 = {product, quantize};

}  // namespace outrider

// Products with AVX-512 F, BW, VL and VNNI: a lane an output, a register a unit of [16 outputs][4
// columns].

#include <algorithm>
#include <array>
#include <utility>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/x86/interleaved_rows.h"
#include "cpu/kernels/x86/intrinsics.h"
#include "cpu/kernels/x86/panel_avx512.h"
#include "cpu/kernels/x86/tables.h"

namespace outrider {
namespace {

using avx512::broadcast;
using avx512::halves;
using avx512::line;
using avx512::or_masked;

// Rows that a kernel holds in registers, up to three accumulators each.
constexpr int kMostRows = 8;

// With so few rows a product waits for memory, and saving instructions gains nothing.
constexpr int kFewRows = 2;

// One line of several. With few rows they are read in the order of their addresses, for the
// processor's own prefetching; GCC 12 would reorder the loads (one row of Q8_0 from memory: 6 %
// slower).
template <int kRows>
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512i next_line(const std::byte* at) {
  __m512i x = line(at);
  if constexpr (kRows <= kFewRows) asm volatile("" : "+v"(x) : : "memory");
  return x;
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

// Each unit to the rows' sums.
template <int kRows>
struct AddTo {
  __m512i (&acc)[kRows];
  const std::int32_t* words;

  [[OUTRIDER_AVX512, gnu::always_inline]] inline void operator()(int u, __m512i unit) const {
    add_unit(acc, unit, words + u * kRows);
  }
};

// One sub-block, the first or second of two.
template <TensorType kType, int kRows>
[[OUTRIDER_AVX512, gnu::always_inline]] inline void add_sub_block(__m512i (&acc)[kRows],
                                                                  const std::byte* lines,
                                                                  int second,
                                                                  const std::int32_t* words) {
  constexpr int kUnits = static_cast<int>(block_shape(kType).sub_columns() / 4);
  if constexpr (block_shape(kType).bits < 8) {
    avx512::for_units<kType>(lines, second, AddTo<kRows>{acc, words});
  } else {
#pragma GCC unroll 8
    for (int u = 0; u < kUnits; ++u)
      add_unit(acc, next_line<kRows>(lines + u * kLine), words + u * kRows);
  }
}

template <int kRows>
[[OUTRIDER_AVX512, gnu::always_inline]] inline void store(const __m512 (&acc)[kRows], float* out,
                                                          std::size_t stride) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) _mm512_storeu_ps(out + r * stride, acc[r]);
}

// Asks for weights early, a few lines at a time: a block's worth at once fills the buffers for
// misses, and eight rows took a fifth longer. Lines that wait for memory would hold the few buffers
// of the first-level cache while rows multiply: bring them to the second early, to the first late
// (Q4_K from memory, four rows: 0.77 of the VNNI peak, with one request 0.71; Q6_K 0.61 and 0.52).
// One or two rows only wait for memory, and some processors detect the streams so well that
// requests are in the way, so there are kernels for each way (cpu/prefetch_choice.h).
template <PrefetchPattern kPrefetch>
[[OUTRIDER_AVX512, gnu::always_inline]] inline void prefetch(const std::byte* at,
                                                             std::size_t bytes) {
  if constexpr (kPrefetch != PrefetchPattern::processor) {
    constexpr avx512::Ahead kAhead =
        kPrefetch == PrefetchPattern::near ? avx512::kNear : avx512::kFar;
    avx512::request<kAhead>(at, bytes);
  }
}

// Asks for the words of the next block. Those of a wide row do not stay in the first-level cache
// while a panel's weights pass, and one row is multiplied too fast to wait for them now and then:
// at the highest rates of memory Q4_K with 8960 columns read at 0.83 of what loads alone reach,
// with these requests at 0.99.
template <int kRows>
[[OUTRIDER_AVX512, gnu::always_inline]] inline void prefetch_words(const std::int32_t* next,
                                                                   std::size_t words) {
  if constexpr (kRows == 1) {
    for (std::size_t i = 0; i < words; i += kLine / sizeof *next)
      _mm_prefetch(next + i, _MM_HINT_T0);
  }
}

// One panel of a type whose groups have 32 columns.
template <TensorType kType, int kRows, PrefetchPattern kPrefetch>
[[OUTRIDER_AVX512]] void panel_of_32(const std::byte* panel, std::size_t columns,
                                     const std::int32_t* words, float* out, std::size_t stride) {
  constexpr InterleavedShape kShape = interleaved_shape(kType, ExtraKind::bias_start);
  constexpr bool kHasMin = block_shape(kType).has_min;
  __m512 acc[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) acc[r] = _mm512_setzero_ps();
  for (std::size_t b = 0; b < columns / 32; ++b, words += kShape.words() * kRows) {
    const BlockPlace place = block_place(kType, b);
    prefetch<kPrefetch>(panel + place.body, body_bytes(kType) + kLine);
    const std::int32_t* ds = words + kShape.units * kRows;
    const std::int32_t* extras = ds + kRows;
    __m512i sum[kRows];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      sum[r] = kHasMin ? _mm512_setzero_si512() : _mm512_set1_epi32(extras[r]);
    }
    add_sub_block<kType>(sum, panel + place.body, 0, words);
    const __m512 d = halves(panel + place.d);
    __m512 m;
    if constexpr (kHasMin) m = halves(panel + place.m);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      __m512 term = _mm512_mul_ps(d, _mm512_cvtepi32_ps(sum[r]));
      if constexpr (kHasMin) term = _mm512_fmadd_ps(m, broadcast(extras + r), term);
      acc[r] = _mm512_fmadd_ps(term, broadcast(ds + r), acc[r]);
    }
  }
  store(acc, out, stride);
}

// Four pairs of Q4_K's or Q5_K's six-bit numbers: 16 bits of an even sub-block and above them the
// next one's, one output per lane. `first` has those of sub-blocks 0 to 3 in low bits and the two
// high bits of 4 to 7, the low nibbles of `second` have the rest (cpu/panel.h).
[[OUTRIDER_AVX512, gnu::always_inline]] inline void six_bit_pairs(__m512i first, __m512i second,
                                                                  __m512i (&pairs)[4]) {
  const __m512i even_bytes = _mm512_set1_epi16(255);
  const __m512i low = _mm512_and_si512(first, _mm512_set1_epi8(63));
  const __m512i high = or_masked(_mm512_and_si512(second, _mm512_set1_epi8(15)),
                                 _mm512_srli_epi16(first, 2), _mm512_set1_epi8(48));
  pairs[0] = _mm512_and_si512(low, even_bytes);
  pairs[1] = _mm512_srli_epi16(low, 8);
  pairs[2] = _mm512_and_si512(high, even_bytes);
  pairs[3] = _mm512_srli_epi16(high, 8);
}

// The same of Q2_K's, eight pairs: scales, or (shift: 4) minimums.
[[OUTRIDER_AVX512, gnu::always_inline]] inline void q2_k_pairs(const std::byte* lines, int shift,
                                                               __m512i (&pairs)[8]) {
  const __m512i low = _mm512_set1_epi16(15);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i four = line(lines + i * kLine);
    pairs[2 * i] = _mm512_and_si512(shift == 0 ? four : _mm512_srli_epi16(four, 4), low);
    pairs[2 * i + 1] = _mm512_and_si512(_mm512_srli_epi16(four, 8 + shift), low);
  }
}

// Sub-blocks 2j and 2j + 1 of scales that are bytes.
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512i byte_pair(const std::byte* scales, int j) {
  const __m512i one_after_another =
      _mm512_cvtepi8_epi16(_mm256_load_si256(reinterpret_cast<const __m256i*>(scales) + j));
  const __m512i side_by_side = _mm512_set_epi16(  //
      31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19,
      3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(side_by_side, one_after_another);
}

// How the sums of sub-blocks are scaled and added, in 32 bits.
//   wide    one by one: vpmulld, vpaddd
//   paired  two side by side, 16 bits each: one vpdpwssd. For rows whose sums fit: always with
//           few bits and 16 columns, hardly ever with 8 bits.
// vpmulld, vpdpwssd and vpdpbusd share one instruction per cycle on Zen 4, so pairs raise what
// can be reached at most from 0.80 to 0.84 of the peak for Q4_K and Q5_K, from 0.78 to 0.86 for
// Q6_K.
enum class Scaling { wide, paired };

// One panel of a type with sub-blocks.
template <TensorType kType, Scaling kScaling, int kRows, PrefetchPattern kPrefetch>
[[OUTRIDER_AVX512]] void panel_of_blocks(const std::byte* panel, std::size_t columns,
                                         const std::int32_t* words, float* out,
                                         std::size_t stride) {
  constexpr InterleavedShape kShape = interleaved_shape(kType, ExtraKind::bias_start);
  constexpr BlockShape kBlock = block_shape(kType);
  constexpr int kPairs = static_cast<int>(kBlock.sub_blocks / 2);
  constexpr std::size_t kSubWords = kShape.units / kBlock.sub_blocks * kRows;
  constexpr std::size_t kScaleBytes = scale_bytes(kType);
  __m512 acc[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) acc[r] = _mm512_setzero_ps();
  for (std::size_t b = 0; b < columns / kBlock.elements; ++b, words += kShape.words() * kRows) {
    const BlockPlace place = block_place(kType, b);
    prefetch<kPrefetch>(panel + place.body - kLine, kScaleBytes + kLine);
    prefetch_words<kRows>(words + kShape.words() * kRows, kShape.words() * kRows);
    const std::byte* small = panel + place.body;
    const std::byte* lines = small + kScaleBytes;
    const std::int32_t* ds = words + kShape.units * kRows;
    const std::int32_t* extras = ds + kRows;
    __m512i scale_pairs[kPairs];
    if constexpr (kType == TensorType::q2_k) {
      q2_k_pairs(small, 0, scale_pairs);
    } else if constexpr (kBlock.has_min) {
      six_bit_pairs(line(small), line(small + 2 * kLine), scale_pairs);
    } else if constexpr (kType == TensorType::q4_128) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) scale_pairs[j] = avx512::four_bit_pair(line(small), j);
    }
    __m512i total[kRows];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) total[r] = _mm512_setzero_si512();
      // Not unrolled, else GCC defers every scaling and spills the sums.
#pragma GCC unroll 1
    for (int j = 0; j < kPairs; ++j) {
      __m512i scales;
      if constexpr (kBlock.has_byte_scales())
        scales = byte_pair(small, j);
      else
        scales = scale_pairs[j];
      __m512i sums[2][kRows];
#pragma GCC unroll 2
      for (int second = 0; second < 2; ++second) {
        const int s = 2 * j + second;
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          sums[second][r] =
              kBlock.has_min ? _mm512_setzero_si512() : _mm512_set1_epi32(extras[s * kRows + r]);
        }
        prefetch<kPrefetch>(lines + sub_block_own_begin(kType, s), sub_block_own_bytes(kType, s));
        add_sub_block<kType>(sums[second], lines + sub_block_begin(kType, s), second,
                             words + s * kSubWords);
        if constexpr (kScaling == Scaling::wide) {
          const __m512i scale =
              _mm512_srai_epi32(second == 0 ? _mm512_slli_epi32(scales, 16) : scales, 16);
#pragma GCC unroll 16
          for (int r = 0; r < kRows; ++r) {
            total[r] = _mm512_add_epi32(total[r], _mm512_mullo_epi32(sums[second][r], scale));
          }
        }
      }
      if constexpr (kScaling == Scaling::paired) {
        // A masked vpshufb would do both at once, but on a pipe that multiplies: nothing gained.
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          const __m512i pair =
              _mm512_mask_blend_epi16(0xaaaaaaaa, sums[0][r], _mm512_slli_epi32(sums[1][r], 16));
          total[r] = _mm512_dpwssd_epi32(total[r], pair, scales);
        }
      }
    }
    const __m512 d = avx512::factors<kType>(panel + place.d);
    __m512 terms[kRows];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) terms[r] = _mm512_mul_ps(d, _mm512_cvtepi32_ps(total[r]));
    if constexpr (kBlock.has_min) {
      __m512i mins[kPairs];
      if constexpr (kType == TensorType::q2_k) {
        q2_k_pairs(small, 4, mins);
      } else {
        six_bit_pairs(line(small + kLine), _mm512_srli_epi16(line(small + 2 * kLine), 4), mins);
      }
      const __m512 dmin = halves(panel + place.m);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        __m512i minimum = _mm512_setzero_si512();
#pragma GCC unroll 8
        for (int i = 0; i < kPairs; ++i) {
          minimum = _mm512_dpwssd_epi32(minimum, mins[i], _mm512_set1_epi32(extras[i * kRows + r]));
        }
        terms[r] = _mm512_fnmadd_ps(dmin, _mm512_cvtepi32_ps(minimum), terms[r]);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) acc[r] = _mm512_fmadd_ps(terms[r], broadcast(ds + r), acc[r]);
  }
  store(acc, out, stride);
}

// The largest and the most negative weight of a type with sub-blocks, both without sign.
template <TensorType kType>
constexpr int kUp = (1 << block_shape(kType).q_bits()) - 1 - block_shape(kType).bias;
template <TensorType kType>
constexpr int kDown = block_shape(kType).bias;

// Whether the type has sub-blocks whose sums of w * q fit 16 bits whatever weights and rows are.
template <TensorType kType>
constexpr bool kSumsAlwaysFit = block_shape(kType).sub_blocks > 1 &&
                                static_cast<int>(block_shape(kType).sub_columns()) *
                                        127 * std::max(kUp<kType>, kDown<kType>) <=
                                    32767;

// Whether the sum of w * q over each sub-block of these rows fits 16 bits whatever the weights are.
// With w from -down to up, P the sum of positive q and N of negative ones without sign, the largest
// sum is up * P + down * N and the most negative one, without sign, down * P + up * N; the larger
// of the two, doubled, is (up + down) * (P + N) + |up - down| * |P - N|. Of groups of eight rows in
// Qwen2.5-1.5B all fit for Q4_K, 99.7 % for Q6_K, 98 % for Q5_K.
template <TensorType kType>
[[OUTRIDER_AVX512]] bool sums_fit_16_bits(const InterleavedRows& group) {
  constexpr BlockShape kBlock = block_shape(kType);
  constexpr InterleavedShape kShape = interleaved_shape(kType, ExtraKind::bias_start);
  constexpr int kBoth = kUp<kType> + kDown<kType>;
  constexpr int kApart = std::max(kUp<kType>, kDown<kType>) - std::min(kUp<kType>, kDown<kType>);
  const auto lanes = static_cast<__mmask8>((1 << group.rows) - 1);
  const __m256i ones = _mm256_set1_epi8(1);
  __m256i most = _mm256_setzero_si256();
  const std::int32_t* words = group.words;
  for (std::size_t b = 0; b < group.columns / 256; ++b, words += kShape.words() * group.rows) {
    for (std::size_t s = 0; s < kBlock.sub_blocks; ++s) {
      __m256i sizes = _mm256_setzero_si256(), sums = _mm256_setzero_si256();
      constexpr std::size_t kUnits = kShape.units / kBlock.sub_blocks;
      for (std::size_t u = s * kUnits; u < (s + 1) * kUnits; ++u) {
        const __m256i q = _mm256_maskz_loadu_epi32(lanes, words + u * group.rows);
        sizes = _mm256_dpbusd_epi32(sizes, _mm256_abs_epi8(q), ones);
        sums = _mm256_dpbusd_epi32(sums, ones, q);
      }
      sizes = _mm256_mullo_epi32(sizes, _mm256_set1_epi32(kBoth));
      sums = _mm256_mullo_epi32(_mm256_abs_epi32(sums), _mm256_set1_epi32(kApart));
      most = _mm256_max_epi32(most, _mm256_add_epi32(sizes, sums));
    }
  }
  return _mm256_cmpgt_epi32_mask(most, _mm256_set1_epi32(2 * 32767)) == 0;
}

// One panel of F32, F16 or BF16.
template <TensorType kType, int kRows, PrefetchPattern kPrefetch>
[[OUTRIDER_AVX512]] void panel_of_floats(const std::byte* panel, std::size_t columns,
                                         const std::int32_t* words, float* out,
                                         std::size_t stride) {
  constexpr std::size_t kColumnBytes = kType == TensorType::f32 ? kLine : kLine / 2;
  __m512 acc[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) acc[r] = _mm512_setzero_ps();
#pragma GCC unroll 4
  for (std::size_t k = 0; k < columns; ++k, panel += kColumnBytes, words += kRows) {
    prefetch<kPrefetch>(panel, kColumnBytes);
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

template <TensorType kType, Scaling kScaling, int kRows, PrefetchPattern kPrefetch>
constexpr PanelKernel panel_kernel() {
  constexpr BlockShape kShape = block_shape(kType);
  if constexpr (kShape.elements == 0)
    return panel_of_floats<kType, kRows, kPrefetch>;
  else if constexpr (kShape.elements == 32)
    return panel_of_32<kType, kRows, kPrefetch>;
  else
    return panel_of_blocks<kType, kScaling, kRows, kPrefetch>;
}

// Only few rows are compared on each machine. With more, far requests win wherever it was measured,
// also where near ones are as good with few: on a Zen 5 T(4) takes 0.76 to 0.98 of the time with
// near ones and T(8) 0.80 to 0.86, on a Xeon with AMX both within 2 %.
constexpr PrefetchPattern prefetch_for(int rows, PrefetchPattern of_few_rows) {
  return rows > kFewRows ? PrefetchPattern::far : of_few_rows;
}

template <TensorType kType, Scaling kScaling, PrefetchPattern kOfFewRows>
PanelKernel panel_kernel(std::size_t rows) {
  static constexpr auto kByRows = []<int... kLess>(std::integer_sequence<int, kLess...>) {
    return std::array{
        panel_kernel<kType, kScaling, kLess + 1, prefetch_for(kLess + 1, kOfFewRows)>()...};
  }
  (std::make_integer_sequence<int, kMostRows>());
  return kByRows[rows - 1];
}

template <TensorType kType, PrefetchPattern kOfFewRows>
PanelKernel panel_kernel(const InterleavedRows& group) {
  constexpr BlockShape kShape = block_shape(kType);
  if constexpr (kSumsAlwaysFit<kType>) {
    return panel_kernel<kType, Scaling::paired, kOfFewRows>(group.rows);
  } else if constexpr (kShape.sub_blocks > 1 && kShape.q_bits() < 8) {
    if (group.rows > kFewRows && sums_fit_16_bits<kType>(group)) {
      return panel_kernel<kType, Scaling::paired, kOfFewRows>(group.rows);
    }
  }
  return panel_kernel<kType, Scaling::wide, kOfFewRows>(group.rows);
}

template <PrefetchPattern kOfFewRows>
PanelKernel panel_kernel(TensorType type, const InterleavedRows& group) {
  return kernel_for(type,
                    [&]<TensorType kType>() { return panel_kernel<kType, kOfFewRows>(group); });
}

std::size_t lines(const PackedMatrix& weights, std::size_t n_rows) {
  return interleaved_lines(weights, n_rows, ExtraKind::bias_start);
}

template <PrefetchPattern kOfFewRows>
void arrange(const PackedMatrix& weights, const ProductInput& input, Range rows,
             ArrangedRows& arranged) {
  interleave(weights, input, rows, ExtraKind::bias_start, kMostRows, panel_kernel<kOfFewRows>,
             arranged);
}

// sums16[i] = the sum of q[16 i .. 16 i + 15]; n: a multiple of 16. 64 columns at a time: a whole
// reduction for each 16 took two thirds of quantize()'s time.
[[OUTRIDER_AVX512]] void sum_by_16(const std::int8_t* q, std::size_t n, std::int16_t* sums16) {
  const __m512i ones = _mm512_set1_epi8(1);
  const __m512i firsts = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 8, 4, 0);
  for (std::size_t i = 0; i < n; i += 64) {
    const std::size_t columns = std::min<std::size_t>(64, n - i);
    const __m512i bytes = _mm512_maskz_loadu_epi8(~__mmask64{0} >> (64 - columns), q + i);
    const __m512i fours = _mm512_dpbusd_epi32(_mm512_setzero_si512(), ones, bytes);
    const __m512i eights =
        _mm512_add_epi32(fours, _mm512_shuffle_epi32(fours, _MM_PERM_ENUM(0xb1)));
    const __m512i all = _mm512_add_epi32(eights, _mm512_shuffle_epi32(eights, _MM_PERM_ENUM(0x4e)));
    const __m128i sums = _mm512_castsi512_si128(_mm512_permutexvar_epi32(firsts, all));
    _mm_mask_storeu_epi16(sums16 + i / 16, __mmask8((1u << columns / 16) - 1),
                          _mm_cvtepi32_epi16(sums));
  }
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
    }
  }
  sum_by_16(out.q, x.size(), out.sums16);
}

}  // namespace

const std::array<ProductKernels, kPrefetchPatterns.size()> kProductsAvx512 = {{
    {lines, arrange<PrefetchPattern::processor>, product_of_interleaved, quantize},
    {lines, arrange<PrefetchPattern::near>, product_of_interleaved, quantize},
    {lines, arrange<PrefetchPattern::far>, product_of_interleaved, quantize},
}};

}  // namespace outrider

// A lane a key in scores, a lane a channel in values. Queries share the registers of keys or values
// by sixes: 12 accumulators, 2 registers that they share and one that differs. Ragged ends are
// loaded and stored under a mask.

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "cpu/kernels/attention.h"
#include "cpu/kernels/functions_avx2.h"
#include "cpu/kernels/lanes_avx2.h"
#include "cpu/kernels/query_blocks.h"
#include "numerics/attention.h"
#include "numerics/half.h"

namespace outrider {
namespace {

using namespace avx2;

constexpr std::size_t kMostQueries = 6;
constexpr int kTileVectors = kTile / kWidth;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What comes next, as far into it as what is read now lies in its own.
[[OUTRIDER_AVX2, gnu::always_inline]] inline void prefetch(const void* next, std::size_t bytes) {
  const char* at = static_cast<const char*>(next);
  for (std::size_t line = 0; line < bytes; line += 64) _mm_prefetch(at + line, _MM_HINT_T1);
}

// The vectors of a tile that hold `places`.
Range vectors_of(Places places) {
  return {places.begin / kWidth, (places.end + kWidth - 1) / kWidth};
}

// kVectors * 8 keys, from `first` on.
template <int kQueries, int kVectors, typename Kept>
[[OUTRIDER_AVX2]] void scores_keys(MatrixView<const float> queries, const Kept* keys,
                                   const Kept* next, std::size_t first, MatrixView<float> scores) {
  const float* query[kQueries];
  for (int q = 0; q < kQueries; ++q) query[q] = queries[q].data();
  __m256 sums[kQueries][kVectors] = {};
  const Kept* at = keys + first;
  for (std::size_t d = 0; d < queries.columns(); ++d, at += kTile) {
    if (next != nullptr) prefetch(next + d * kTile, kTile * sizeof(Kept));
    __m256 key[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) key[v] = load(at + v * kWidth);
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) {
      const __m256 channel = _mm256_set1_ps(query[q][d]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[q][v] = _mm256_fmadd_ps(channel, key[v], sums[q][v]);
    }
  }
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) _mm256_storeu_ps(&scores[q][first + v * kWidth], sums[q][v]);
}

template <int kQueries, typename Kept>
void scores_of(MatrixView<const float> queries, const Kept* keys, Places places, const Kept* next,
               MatrixView<float> scores) {
  constexpr int kVectors = kQueries <= 2 ? 4 : 2;
  const Range vectors = vectors_of(places);
  for (std::size_t v = vectors.begin / kVectors * kVectors; v < vectors.end; v += kVectors) {
    scores_keys<kQueries, kVectors>(queries, keys, next, v * kWidth, scores);
    next = nullptr;
  }
}

template <typename Kept>
void scores(MatrixView<const float> queries, const Kept* keys, Places places, const Kept* next,
            MatrixView<float> scores) {
  static constexpr decltype(&scores_of<1, Kept>) kBlocks[kMostQueries] = {
      scores_of<1, Kept>, scores_of<2, Kept>, scores_of<3, Kept>,
      scores_of<4, Kept>, scores_of<5, Kept>, scores_of<6, Kept>};
  for_even_blocks(queries.rows(), kMostQueries, [&](Range block) {
    kBlocks[block.end - block.begin - 1](rows_of(queries, block), keys, places,
                                         block.begin == 0 ? next : nullptr, rows_of(scores, block));
  });
}

// 8 keys, from `first` on. As |q| and |k| are at most 127, two products fit into 16 bits.
template <int kQueries>
[[OUTRIDER_AVX2]] void scores_q8_0_keys(const QuantizedQueries& queries, const KeysQ8& keys,
                                        std::size_t first, MatrixView<float> scores) {
  constexpr std::size_t kUnits = kKeyGroup / 4;
  const __m256i bias = _mm256_set1_epi8(-128), ones = _mm256_set1_epi16(1);
  __m256 scaled[kQueries] = {};
  const std::uint8_t* at = keys.q + first * 4;
  for (std::size_t group = 0; group < queries.d.columns(); ++group) {
    __m256i sums[kQueries] = {};
    for (std::size_t unit = 0; unit < kUnits; ++unit, at += kTile * 4) {
      const __m256i biased = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
      const __m256i key = _mm256_xor_si256(biased, bias);
#pragma GCC unroll 8
      for (int q = 0; q < kQueries; ++q) {
        std::int32_t four;
        std::memcpy(&four, &queries.q[q][group * kKeyGroup + unit * 4], 4);
        const __m256i channels = _mm256_set1_epi32(four);
        const __m256i pairs =
            _mm256_maddubs_epi16(_mm256_abs_epi8(channels), _mm256_sign_epi8(key, channels));
        sums[q] = _mm256_add_epi32(sums[q], _mm256_madd_epi16(pairs, ones));
      }
    }
    const __m256 scale = load(keys.d + group * kTile + first);
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) {
      const __m256 both = _mm256_mul_ps(scale, _mm256_set1_ps(queries.d[q][group]));
      scaled[q] = _mm256_fmadd_ps(both, _mm256_cvtepi32_ps(sums[q]), scaled[q]);
    }
  }
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q) _mm256_storeu_ps(&scores[q][first], scaled[q]);
}

template <int kQueries>
void scores_q8_0_of(const QuantizedQueries& queries, const KeysQ8& keys, Places places,
                    MatrixView<float> scores) {
  const Range vectors = vectors_of(places);
  for (std::size_t v = vectors.begin; v < vectors.end; ++v)
    scores_q8_0_keys<kQueries>(queries, keys, v * kWidth, scores);
}

[[OUTRIDER_AVX2]] void scores_q8_0(const QuantizedQueries& queries, const KeysQ8& keys,
                                   Places places, const KeysQ8* next, MatrixView<float> scores) {
  static constexpr decltype(&scores_q8_0_of<1>) kBlocks[kMostQueries] = {
      scores_q8_0_of<1>, scores_q8_0_of<2>, scores_q8_0_of<3>,
      scores_q8_0_of<4>, scores_q8_0_of<5>, scores_q8_0_of<6>};
  if (next != nullptr) {
    const std::size_t head_dim = queries.q.columns();
    prefetch(next->q, head_dim * kTile);
    prefetch(next->d, head_dim / kKeyGroup * kTile * sizeof(Half));
  }
  for_even_blocks(queries.q.rows(), kMostQueries, [&](Range block) {
    const QuantizedQueries some{rows_of(queries.q, block), rows_of(queries.d, block),
                                rows_of(queries.bias, block)};
    kBlocks[block.end - block.begin - 1](some, keys, places, rows_of(scores, block));
  });
}

// NaN if one is among them.
[[OUTRIDER_AVX2, gnu::always_inline]] inline float largest_of(const __m256 (&x)[kTileVectors]) {
  __m256 max = x[0], nan = _mm256_setzero_ps();
#pragma GCC unroll 8
  for (int v = 0; v < kTileVectors; ++v) {
    max = _mm256_max_ps(max, x[v]);
    nan = _mm256_or_ps(nan, _mm256_cmp_ps(x[v], x[v], _CMP_UNORD_Q));
  }
  alignas(32) float maxima[kWidth];
  _mm256_store_ps(maxima, max);
  return _mm256_movemask_ps(nan) != 0 ? std::numeric_limits<float>::quiet_NaN()
                                      : *std::max_element(maxima, maxima + kWidth);
}

[[OUTRIDER_AVX2]] void softmax(float scale, std::optional<float> softcap,
                               std::span<const Places> present, MatrixView<float> p,
                               const AttentionSums& sums) {
  const __m256 scales = _mm256_set1_ps(scale), caps = _mm256_set1_ps(softcap.value_or(1));
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  for (std::size_t q = 0; q < p.rows(); ++q) {
    float* const weights = p[q].data();
    const Places places = present[q];
    if (places.begin == places.end) {
      std::fill_n(weights, kTile, 0.0f);
      sums.max[q] = -kInfinity;
      sums.sum[q] = 0;
      continue;
    }
    __m256 score[kTileVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kTileVectors; ++v) {
      score[v] = _mm256_mul_ps(scales, load(weights + v * kWidth));
      if (softcap) score[v] = _mm256_mul_ps(caps, tanh_f32(_mm256_div_ps(score[v], caps)));
      const __m256i place = _mm256_add_epi32(lane, _mm256_set1_epi32(v * kWidth));
      const __m256i is_present =
          _mm256_and_si256(_mm256_cmpgt_epi32(place, _mm256_set1_epi32(places.begin - 1)),
                           _mm256_cmpgt_epi32(_mm256_set1_epi32(places.end), place));
      score[v] =
          _mm256_blendv_ps(_mm256_set1_ps(-kInfinity), score[v], _mm256_castsi256_ps(is_present));
    }
    sums.max[q] = largest_of(score);
    __m256 sum[2] = {};
#pragma GCC unroll 8
    for (int v = 0; v < kTileVectors; ++v) {
      const __m256 weight = exp_f32(_mm256_sub_ps(score[v], _mm256_set1_ps(sums.max[q])));
      sum[v % 2] = _mm256_add_ps(sum[v % 2], weight);
      _mm256_storeu_ps(weights + v * kWidth, weight);
    }
    sums.sum[q] = sum_of_lanes(sum[0], sum[1]);
  }
}

// One vector of channels without the keys whose weight is zero, added to `sum`.
template <typename Kept>
[[OUTRIDER_AVX2, gnu::noinline]] __m256 values_present(const float* p, const Kept* values,
                                                       std::size_t stride, std::size_t count,
                                                       const LaneMask& some, __m256 sum) {
  for (std::size_t j = 0; j < count; ++j) {
    if (p[j] == 0) continue;
    sum = _mm256_fmadd_ps(_mm256_set1_ps(p[j]), load(some, values + j * stride), sum);
  }
  return sum;
}

// kVectors * 8 channels of kQueries rows, those of `some` where it is one vector. A key of weight 0
// adds nothing, unless its value is NaN: that is seen in the sums, and they are made again without
// it.
template <int kQueries, int kVectors, typename Kept>
[[OUTRIDER_AVX2]] void values_channels(MatrixView<const float> p, const Kept* values,
                                       std::size_t stride, std::size_t count, const LaneMask& some,
                                       const Kept* next, const MergeFactors* merge,
                                       MatrixView<float> out, std::size_t channel) {
  const float* weights[kQueries];
  float* to[kQueries];
  for (int q = 0; q < kQueries; ++q) {
    weights[q] = p[q].data();
    to[q] = &out[q][channel];
  }
  __m256 sums[kQueries][kVectors] = {};
  if (merge == nullptr) {
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sums[q][v] = load(some, to[q] + v * kWidth);
  }
  const Kept* at = values + channel;
  for (std::size_t j = 0; j < count; ++j, at += stride) {
    if (next != nullptr) prefetch(next + j * stride, stride * sizeof(Kept));
    __m256 value[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) value[v] = load(some, at + v * kWidth);
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) {
      const __m256 weight = _mm256_set1_ps(weights[q][j]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sums[q][v] = _mm256_fmadd_ps(weight, value[v], sums[q][v]);
    }
  }
  __m256 nan = _mm256_setzero_ps();
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      nan = _mm256_or_ps(nan, _mm256_cmp_ps(sums[q][v], sums[q][v], _CMP_UNORD_Q));
  if (_mm256_movemask_ps(nan) != 0) {
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        const __m256 before =
            merge != nullptr ? _mm256_setzero_ps() : load(some, to[q] + v * kWidth);
        sums[q][v] =
            values_present(weights[q], values + channel + v * kWidth, stride, count, some, before);
      }
  }
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      float* const place = to[q] + v * kWidth;
      if (merge != nullptr) {
        const __m256 later = _mm256_mul_ps(sums[q][v], _mm256_set1_ps(merge->of_later[q]));
        sums[q][v] = _mm256_fmadd_ps(load(some, place), _mm256_set1_ps(merge->of_old[q]), later);
      }
      store(some, place, sums[q][v]);
    }
}

template <int kQueries, typename Kept>
[[OUTRIDER_AVX2]] void values_of(MatrixView<const float> p, const Kept* values, std::size_t count,
                                 const Kept* next, const MergeFactors* merge,
                                 MatrixView<float> out) {
  const std::size_t head_dim = out.columns();
  std::size_t channel = 0;
  for (; channel + 2 * kWidth <= head_dim; channel += 2 * kWidth) {
    values_channels<kQueries, 2>(p, values, head_dim, count, lanes(kWidth),
                                 channel == 0 ? next : nullptr, merge, out, channel);
  }
  for (; channel < head_dim; channel += kWidth) {
    values_channels<kQueries, 1>(p, values, head_dim, count, lanes(head_dim - channel),
                                 channel == 0 ? next : nullptr, merge, out, channel);
  }
}

MergeFactors factors_from(const MergeFactors& factors, std::size_t first) {
  return {factors.of_old + first, factors.of_later + first};
}

template <typename Kept>
void values(MatrixView<const float> p, const Kept* values, std::size_t count, const Kept* next,
            const MergeFactors* merge, MatrixView<float> out) {
  static constexpr decltype(&values_of<1, Kept>) kBlocks[kMostQueries] = {
      values_of<1, Kept>, values_of<2, Kept>, values_of<3, Kept>,
      values_of<4, Kept>, values_of<5, Kept>, values_of<6, Kept>};
  for_even_blocks(out.rows(), kMostQueries, [&](Range block) {
    const MergeFactors factors =
        merge != nullptr ? factors_from(*merge, block.begin) : MergeFactors{};
    kBlocks[block.end - block.begin - 1](
        rows_of(p, block), values, count, block.begin == 0 ? next : nullptr,
        merge != nullptr ? &factors : nullptr, rows_of(out, block));
  });
}

[[OUTRIDER_AVX2]] void weigh(MatrixView<const float> p, const Half* d,
                             MatrixView<std::int16_t> weights, float* factors) {
  for (std::size_t q = 0; q < p.rows(); ++q) {
    __m256 r[kTileVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kTileVectors; ++v) {
      const __m256 weight = load(&p[q][v * kWidth]);
      const __m256 has_weight = _mm256_cmp_ps(weight, _mm256_setzero_ps(), _CMP_NEQ_UQ);
      r[v] = _mm256_and_ps(has_weight, _mm256_mul_ps(weight, load(d + v * kWidth)));
    }
    const float largest = largest_of(r);
    if (!(largest >= 0x1p-110f)) {  // a NaN, too
      std::fill_n(weights[q].data(), kTile, std::int16_t{0});
      factors[q] = largest < 0x1p-110f ? 0 : largest;
      continue;
    }
    const __m256 inverse = _mm256_set1_ps(16383 / largest);
#pragma GCC unroll 8
    for (int v = 0; v < kTileVectors; v += 2) {
      const __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(r[v], inverse));
      const __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(r[v + 1], inverse));
      const __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0b11011000);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(&weights[q][v * kWidth]), both);
    }
    factors[q] = largest / 16383;
  }
}

// Where sums of 8-bit values go: added to integers, or merged as floats.
struct Added {
  MatrixView<std::int32_t> sums;
};
struct Merged {
  const float* factors;
  MergeFactors merge;
  MatrixView<float> sums;
};
[[OUTRIDER_AVX2, gnu::always_inline]] inline void put(const Added& to, std::size_t q,
                                                      std::size_t channel, __m256i sum) {
  auto* const place = reinterpret_cast<__m256i*>(&to.sums[q][channel]);
  _mm256_storeu_si256(place, _mm256_add_epi32(sum, _mm256_loadu_si256(place)));
}
[[OUTRIDER_AVX2, gnu::always_inline]] inline void put(const Merged& to, std::size_t q,
                                                      std::size_t channel, __m256i sum) {
  const __m256 later = _mm256_mul_ps(_mm256_set1_ps(to.factors[q]), _mm256_cvtepi32_ps(sum));
  const __m256 scaled = _mm256_mul_ps(later, _mm256_set1_ps(to.merge.of_later[q]));
  float* const place = &to.sums[q][channel];
  _mm256_storeu_ps(place, _mm256_fmadd_ps(load(place), _mm256_set1_ps(to.merge.of_old[q]), scaled));
}
Added from(const Added& to, Range rows) {
  return {rows_of(to.sums, rows)};
}
Merged from(const Merged& to, Range rows) {
  return {to.factors + rows.begin, factors_from(to.merge, rows.begin), rows_of(to.sums, rows)};
}

// 16 channels of kQueries rows; head_dim is a multiple of 32.
template <int kQueries, typename To>
[[OUTRIDER_AVX2]] void values_q8_0_channels(MatrixView<const std::int16_t> weights,
                                            const std::int8_t* values, Range pairs,
                                            const std::int8_t* next, const To& to,
                                            std::size_t channel) {
  constexpr int kVectors = 2;
  const std::size_t stride = 2 * to.sums.columns();
  __m256i sum[kQueries][kVectors] = {};
  for (std::size_t j = pairs.begin; j < pairs.end; ++j) {
    if (next != nullptr) prefetch(next + j * stride, stride);
    const std::int8_t* at = values + j * stride + 2 * channel;
    __m256i value[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      value[v] = _mm256_cvtepi8_epi16(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + v * 2 * kWidth)));
    }
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) {
      std::int32_t two;
      std::memcpy(&two, &weights[q][2 * j], 4);
      const __m256i weight = _mm256_set1_epi32(two);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v)
        sum[q][v] = _mm256_add_epi32(sum[q][v], _mm256_madd_epi16(value[v], weight));
    }
  }
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) put(to, q, channel + v * kWidth, sum[q][v]);
}

template <int kQueries, typename To>
void values_q8_0_of(MatrixView<const std::int16_t> weights, const std::int8_t* values, Range pairs,
                    const std::int8_t* next, const To& to) {
  for (std::size_t channel = 0; channel < to.sums.columns(); channel += 2 * kWidth) {
    values_q8_0_channels<kQueries>(weights, values, pairs, channel == 0 ? next : nullptr, to,
                                   channel);
  }
}

template <typename To>
void values_q8_0_to(MatrixView<const std::int16_t> weights, const std::int8_t* values,
                    Places places, const std::int8_t* next, const To& to) {
  static constexpr decltype(&values_q8_0_of<1, To>) kBlocks[kMostQueries] = {
      values_q8_0_of<1, To>, values_q8_0_of<2, To>, values_q8_0_of<3, To>,
      values_q8_0_of<4, To>, values_q8_0_of<5, To>, values_q8_0_of<6, To>};
  const Range pairs{places.begin / std::size_t{2}, (places.end + std::size_t{1}) / 2};
  for_even_blocks(to.sums.rows(), kMostQueries, [&](Range block) {
    kBlocks[block.end - block.begin - 1](rows_of(weights, block), values, pairs,
                                         block.begin == 0 ? next : nullptr, from(to, block));
  });
}

void values_q8_0(MatrixView<const std::int16_t> weights, const std::int8_t* values, Places places,
                 MatrixView<std::int32_t> sums) {
  values_q8_0_to(weights, values, places, nullptr, Added{sums});
}

void values_q8_0_merged(MatrixView<const std::int16_t> weights, const std::int8_t* values,
                        Places places, const std::int8_t* next, const float* factors,
                        const MergeFactors& merge, MatrixView<float> out) {
  values_q8_0_to(weights, values, places, next, Merged{factors, merge, out});
}

[[OUTRIDER_AVX2]] void widen(const float* factors, MatrixView<const std::int32_t> sums,
                             MatrixView<float> out) {
  for (std::size_t q = 0; q < out.rows(); ++q) {
    for (std::size_t d = 0; d < out.columns(); d += kWidth) {
      const __m256i sum = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(&sums[q][d]));
      _mm256_storeu_ps(&out[q][d],
                       _mm256_mul_ps(_mm256_set1_ps(factors[q]), _mm256_cvtepi32_ps(sum)));
    }
  }
}

[[OUTRIDER_AVX2]] void merge_sums(const AttentionSums& later, const AttentionSums& sums,
                                  const MergeFactors& factors) {
  for (std::size_t q = 0; q < sums.size(); q += kWidth) {
    const LaneMask some = lanes(sums.size() - q);
    const __m256 before = load(some, sums.max + q), after = load(some, later.max + q);
    const __m256 max = _mm256_max_ps(before, after);
    const __m256 a = exp_f32(_mm256_sub_ps(before, max)), b = exp_f32(_mm256_sub_ps(after, max));
    const __m256 scaled = _mm256_mul_ps(load(some, later.sum + q), b);
    store(some, sums.max + q, max);
    store(some, sums.sum + q, _mm256_fmadd_ps(load(some, sums.sum + q), a, scaled));
    store(some, factors.of_old + q, a);
    store(some, factors.of_later + q, b);
  }
}

[[OUTRIDER_AVX2]] void merge(const AttentionSums& later, const AttentionSums& sums) {
  const std::size_t head_dim = sums.out.columns();
  for (std::size_t first = 0; first < sums.size(); first += kWidth) {
    const Range block{first, std::min(sums.size(), first + kWidth)};
    float as[kWidth], bs[kWidth];
    const auto part = [&](const AttentionSums& of) {
      return AttentionSums{of.max + first, of.sum + first, rows_of(of.out, block)};
    };
    merge_sums(part(later), part(sums), {as, bs});
    for (std::size_t q = block.begin; q < block.end; ++q) {
      const __m256 of_old = _mm256_set1_ps(as[q - first]), of_new = _mm256_set1_ps(bs[q - first]);
      const float* from = later.out[q].data();
      float* to = sums.out[q].data();
      for (std::size_t d = 0; d < head_dim; d += kWidth) {
        const LaneMask mask = lanes(head_dim - d);
        const __m256 added = _mm256_mul_ps(load(mask, from + d), of_new);
        store(mask, to + d, _mm256_fmadd_ps(load(mask, to + d), of_old, added));
      }
    }
  }
}

[[OUTRIDER_AVX2]] void divide(const AttentionSums& sums, std::size_t query, std::span<float> out) {
  const __m256 sum = _mm256_set1_ps(sums.sum[query]);
  for (std::size_t d = 0; d < out.size(); d += kWidth) {
    const LaneMask mask = lanes(out.size() - d);
    store(mask, &out[d], _mm256_div_ps(load(mask, &sums.out[query][d]), sum));
  }
}

// Of a NaN, min and max return their second operand.
[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256 clamped(__m256 x) {
  const __m256 below = _mm256_min_ps(_mm256_set1_ps(65504), x);
  return _mm256_max_ps(_mm256_set1_ps(-65504), below);
}

[[OUTRIDER_AVX2]] void clamp_to_half(std::span<const float> x, Half* out) {
  for (std::size_t i = 0; i < x.size(); i += kWidth) {
    const LaneMask some = lanes(x.size() - i);
    alignas(16) Half kept[kWidth];
    _mm_store_si128(
        reinterpret_cast<__m128i*>(kept),
        _mm256_cvtps_ph(clamped(load(some, &x[i])), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    std::copy_n(kept, some.count, out + i);
  }
}

[[OUTRIDER_AVX2]] void clamp_to_float(std::span<const float> x, float* out) {
  for (std::size_t i = 0; i < x.size(); i += kWidth) {
    const LaneMask some = lanes(x.size() - i);
    store(some, out + i, clamped(load(some, &x[i])));
  }
}

[[OUTRIDER_AVX2]] void keep_q8_0(std::span<const float> x, std::size_t group, std::int8_t* q,
                                 Half* d) {
  const __m256i without_sign = _mm256_set1_epi32(0x7fffffff);
  for (std::size_t first = 0; first < x.size(); first += group) {
    __m256i sizes = _mm256_setzero_si256();  // bits without sign: a NaN is the largest
    for (std::size_t i = first; i < first + group; i += kWidth) {
      const __m256i bits = _mm256_and_si256(_mm256_castps_si256(load(&x[i])), without_sign);
      sizes = _mm256_max_epu32(sizes, bits);
    }
    alignas(32) std::uint32_t lane_sizes[kWidth];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lane_sizes), sizes);
    const float largest = std::bit_cast<float>(*std::max_element(lane_sizes, lane_sizes + kWidth));
    d[first / group] =
        float_to_half(largest != largest ? largest : std::min(largest, 65504.0f) / 127);
    const float scale = half_to_float(d[first / group]);
    for (std::size_t i = first; i < first + group; i += kWidth) {
      __m256i rounded = _mm256_setzero_si256();
      if (scale > 0) {
        rounded = _mm256_cvtps_epi32(_mm256_div_ps(clamped(load(&x[i])), _mm256_set1_ps(scale)));
        rounded = _mm256_max_epi32(_mm256_min_epi32(rounded, _mm256_set1_epi32(127)),
                                   _mm256_set1_epi32(-127));
      }
      const __m128i words =
          _mm_packs_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(q + i), _mm_packs_epi16(words, words));
    }
  }
}

}  // namespace

const AttentionKernels kAttentionAvx2 = {
    .scores_f16 = scores<Half>,
    .scores_f32 = scores<float>,
    .scores_q8_0 = scores_q8_0,
    .softmax = softmax,
    .values_f16 = values<Half>,
    .values_f32 = values<float>,
    .weigh = weigh,
    .values_q8_0 = values_q8_0,
    .values_q8_0_merged = values_q8_0_merged,
    .widen = widen,
    .merge = merge,
    .merge_sums = merge_sums,
    .divide = divide,
    .clamp_to_half = clamp_to_half,
    .clamp_to_float = clamp_to_float,
    .keep_q8_0 = keep_q8_0,
};

}  // namespace outrider

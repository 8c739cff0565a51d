// A lane a key in scores, a lane a channel in values. Queries share the registers of keys or values
// by sixes: 24 accumulators, 4 registers that they share and one that differs. (Twelve that share
// two would widen halves half as often, but twelve addresses do not fit into registers: slower.)

#include <algorithm>
#include <bit>
#include <limits>

#include "cpu/kernels/attention.h"
#include "cpu/kernels/functions_avx512.h"
#include "cpu/kernels/lanes_avx512.h"
#include "cpu/kernels/query_blocks.h"
#include "numerics/attention.h"
#include "numerics/half.h"

namespace outrider {
namespace {

using namespace avx512;

constexpr std::size_t kMostQueries = 6;
constexpr int kTileVectors = kTile / kWidth;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The vectors of a tile that hold `places`.
Range vectors_of(Places places) {
  return {places.begin / kWidth, (places.end + kWidth - 1) / kWidth};
}

// The line of the cache that lies as far into what comes next as `at` lies into what is read now.
[[OUTRIDER_AVX512, gnu::always_inline]] inline void prefetch(const void* next, std::size_t bytes) {
  _mm_prefetch(static_cast<const char*>(next) + bytes, _MM_HINT_T1);
}

// kVectors * 16 keys, from `keys` on.
template <int kQueries, int kVectors, typename Kept>
[[OUTRIDER_AVX512]] void scores_block(MatrixView<const float> queries, const Kept* keys,
                                      const Kept* next, MatrixView<float> scores,
                                      std::size_t first) {
  constexpr std::size_t kLine = 64 / sizeof(Kept);
  const float* query[kQueries];
  for (int q = 0; q < kQueries; ++q) query[q] = queries[q].data();
  __m512 sums[kQueries][kVectors] = {};
  const Kept* at = keys + first;
  for (std::size_t d = 0; d < queries.columns(); ++d, at += kTile) {
    if (next != nullptr) {
      for (std::size_t i = 0; i < kTile; i += kLine) prefetch(next + d * kTile + i, 0);
    }
    __m512 key[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) key[v] = load(at + v * kWidth);
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) {
      const __m512 channel = _mm512_set1_ps(query[q][d]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[q][v] = _mm512_fmadd_ps(channel, key[v], sums[q][v]);
    }
  }
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(&scores[q][first + v * kWidth], sums[q][v]);
}

template <int kQueries, typename Kept>
void scores_of(MatrixView<const float> queries, const Kept* keys, Places places, const Kept* next,
               MatrixView<float> scores) {
  const Range vectors = vectors_of(places);
  if (vectors.end - vectors.begin > kTileVectors / 2) {
    scores_block<kQueries, kTileVectors>(queries, keys, next, scores, 0);
    return;
  }
  for (std::size_t v = vectors.begin; v < vectors.end; ++v)
    scores_block<kQueries, 1, Kept>(queries, keys, nullptr, scores, v * kWidth);
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

// kVectors * 16 keys, from `first` on. A group's sums stay integers in registers; its scores join
// those of the groups before.
template <int kQueries, int kVectors>
[[OUTRIDER_AVX512]] void scores_q8_0_block(const QuantizedQueries& queries, const KeysQ8& keys,
                                           std::size_t first, MatrixView<float> scores) {
  constexpr std::size_t kUnits = kKeyGroup / 4;
  const std::int8_t* query[kQueries];
  for (int q = 0; q < kQueries; ++q) query[q] = queries.q[q].data();
  __m512 scaled[kQueries][kVectors] = {};
  const std::uint8_t* at = keys.q + first * 4;
  const Half* d = keys.d + first;
  for (std::size_t group = 0; group < queries.d.columns(); ++group, d += kTile) {
    __m512i sums[kQueries][kVectors];
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[q][v] = _mm512_set1_epi32(queries.bias[q][group]);
    for (std::size_t unit = 0; unit < kUnits; ++unit, at += kTile * 4) {
      __m512i key[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) key[v] = _mm512_loadu_si512(at + v * 64);
#pragma GCC unroll 8
      for (int q = 0; q < kQueries; ++q) {
        std::int32_t four;
        __builtin_memcpy(&four, query[q] + group * kKeyGroup + unit * 4, 4);
        const __m512i channels = _mm512_set1_epi32(four);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v)
          sums[q][v] = _mm512_dpbusd_epi32(sums[q][v], key[v], channels);
      }
    }
    __m512 scale[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) scale[v] = load(d + v * kWidth);
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) {
      const __m512 of_query = _mm512_set1_ps(queries.d[q][group]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        scaled[q][v] = _mm512_fmadd_ps(_mm512_mul_ps(scale[v], of_query),
                                       _mm512_cvtepi32_ps(sums[q][v]), scaled[q][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      _mm512_storeu_ps(&scores[q][first + v * kWidth], scaled[q][v]);
}

template <int kQueries>
void scores_q8_0_of(const QuantizedQueries& queries, const KeysQ8& keys, Places places,
                    MatrixView<float> scores) {
  constexpr std::size_t kAtOnce = 2;
  const Range vectors = vectors_of(places);
  for (std::size_t v = vectors.begin; v < vectors.end;) {
    if (vectors.end - v >= kAtOnce) {
      scores_q8_0_block<kQueries, kAtOnce>(queries, keys, v * kWidth, scores);
      v += kAtOnce;
    } else {
      scores_q8_0_block<kQueries, 1>(queries, keys, v * kWidth, scores);
      ++v;
    }
  }
}

void scores_q8_0(const QuantizedQueries& queries, const KeysQ8& keys, Places places,
                 const KeysQ8* next, MatrixView<float> scores) {
  static constexpr decltype(&scores_q8_0_of<1>) kBlocks[kMostQueries] = {
      scores_q8_0_of<1>, scores_q8_0_of<2>, scores_q8_0_of<3>,
      scores_q8_0_of<4>, scores_q8_0_of<5>, scores_q8_0_of<6>};
  const std::size_t head_dim = queries.q.columns();
  if (next != nullptr) {
    for (std::size_t at = 0; at < head_dim * kTile; at += 64)
      _mm_prefetch(reinterpret_cast<const char*>(next->q) + at, _MM_HINT_T1);
    for (std::size_t at = 0; at < head_dim / kKeyGroup * kTile; at += 32)
      _mm_prefetch(reinterpret_cast<const char*>(next->d + at), _MM_HINT_T1);
  }
  for_even_blocks(queries.q.rows(), kMostQueries, [&](Range block) {
    const QuantizedQueries some{rows_of(queries.q, block), rows_of(queries.d, block),
                                rows_of(queries.bias, block)};
    kBlocks[block.end - block.begin - 1](some, keys, places, rows_of(scores, block));
  });
}

// The largest of all lanes, in all lanes.
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 largest_lane(__m512 x) {
  x = _mm512_max_ps(x, _mm512_shuffle_f32x4(x, x, 0b01001110));
  x = _mm512_max_ps(x, _mm512_shuffle_f32x4(x, x, 0b10110001));
  x = _mm512_max_ps(x, _mm512_permute_ps(x, 0b01001110));
  return _mm512_max_ps(x, _mm512_permute_ps(x, 0b10110001));
}

// Of four vectors; NaN in all lanes if one is among them.
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 largest_of(const __m512 (&x)[kTileVectors]) {
  const __m512 max =
      largest_lane(_mm512_max_ps(_mm512_max_ps(x[0], x[1]), _mm512_max_ps(x[2], x[3])));
  const __mmask16 nan =
      _mm512_cmp_ps_mask(x[0], x[1], _CMP_UNORD_Q) | _mm512_cmp_ps_mask(x[2], x[3], _CMP_UNORD_Q);
  return nan == 0 ? max : _mm512_set1_ps(std::numeric_limits<float>::quiet_NaN());
}

template <bool kSoftcap>
[[OUTRIDER_AVX512]] void softmax_all(float scale, float cap, std::span<const Places> present,
                                     MatrixView<float> p, const AttentionSums& sums) {
  const __m512 scales = _mm512_set1_ps(scale), caps = _mm512_set1_ps(cap);
  const __m512 absent = _mm512_set1_ps(-kInfinity);
  for (std::size_t q = 0; q < p.rows(); ++q) {
    float* const weights = p[q].data();
    const std::size_t begin = present[q].begin, count = present[q].end - begin;
    if (count == 0) {
      std::fill_n(weights, kTile, 0.0f);
      sums.max[q] = -kInfinity;
      sums.sum[q] = 0;
      continue;
    }
    const std::uint64_t places = ~std::uint64_t{0} >> (kTile - count) << begin;
    __m512 score[kTileVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) {
      score[v] = _mm512_mul_ps(scales, load(weights + v * kWidth));
      if (kSoftcap) score[v] = _mm512_mul_ps(caps, tanh_f32(_mm512_div_ps(score[v], caps)));
      score[v] = _mm512_mask_mov_ps(absent, static_cast<__mmask16>(places >> v * kWidth), score[v]);
    }
    const __m512 max = largest_of(score);
    __m512 sum = _mm512_setzero_ps();
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) {
      const __m512 weight = exp_f32(_mm512_sub_ps(score[v], max));
      sum = _mm512_add_ps(sum, weight);
      _mm512_storeu_ps(weights + v * kWidth, weight);
    }
    sums.max[q] = _mm512_cvtss_f32(max);
    sums.sum[q] = sum_of_lanes(sum);
  }
}

void softmax(float scale, std::optional<float> softcap, std::span<const Places> present,
             MatrixView<float> p, const AttentionSums& sums) {
  softcap ? softmax_all<true>(scale, *softcap, present, p, sums)
          : softmax_all<false>(scale, 0, present, p, sums);
}

// One vector of channels without the keys whose weight is zero, added to `sum`.
template <typename Kept>
[[OUTRIDER_AVX512, gnu::noinline]] __m512 values_present(const float* p, const Kept* values,
                                                         std::size_t stride, std::size_t count,
                                                         __mmask16 mask, __m512 sum) {
  for (std::size_t j = 0; j < count; ++j) {
    if (p[j] == 0) continue;
    sum = _mm512_fmadd_ps(_mm512_set1_ps(p[j]), load(mask, values + j * stride), sum);
  }
  return sum;
}

// kVectors * 16 channels of kQueries rows, those of `mask` where it is one vector. A key of weight
// 0 adds nothing, unless its value is NaN: that is seen in the sums, and they are made again
// without it.
template <int kQueries, int kVectors, bool kMerge, typename Kept>
[[OUTRIDER_AVX512]] void values_channels(MatrixView<const float> p, const Kept* values,
                                         std::size_t stride, std::size_t count, __mmask16 mask,
                                         const Kept* next, const MergeFactors& merge,
                                         MatrixView<float> out, std::size_t channel) {
  constexpr std::size_t kLine = 64 / sizeof(Kept);
  const float* weights[kQueries];
  float* to[kQueries];
  for (int q = 0; q < kQueries; ++q) {
    weights[q] = p[q].data();
    to[q] = &out[q][channel];
  }
  const __mmask16 some = kVectors == 1 ? mask : 0xffff;
  __m512 sums[kQueries][kVectors];
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      sums[q][v] = kMerge ? _mm512_setzero_ps() : load(some, to[q] + v * kWidth);
  const Kept* at = values + channel;
  for (std::size_t j = 0; j < count; ++j, at += stride) {
    if (next != nullptr) {
      for (std::size_t i = 0; i < stride; i += kLine) prefetch(next + j * stride + i, 0);
    }
    __m512 value[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) value[v] = load(some, at + v * kWidth);
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) {
      const __m512 weight = _mm512_set1_ps(weights[q][j]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[q][v] = _mm512_fmadd_ps(weight, value[v], sums[q][v]);
    }
  }
  __mmask16 nan = 0;
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; v += 2)
      nan |= _mm512_cmp_ps_mask(sums[q][v], sums[q][v + 1 < kVectors ? v + 1 : v], _CMP_UNORD_Q);
  // What follows passes through memory: were it to use the sums themselves, GCC 12 would keep them
  // there in the loop above, too.
  alignas(64) float done[kQueries][kVectors * kWidth];
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) _mm512_store_ps(&done[q][v * kWidth], sums[q][v]);
  for (int q = 0; q < kQueries; ++q) {
    for (std::size_t i = 0; i < kVectors * kWidth; i += kWidth) {
      float* const place = to[q] + i;
      __m512 sum = _mm512_load_ps(&done[q][i]);
      if (nan != 0) {
        const __m512 before = kMerge ? _mm512_setzero_ps() : load(some, place);
        sum = values_present(weights[q], values + channel + i, stride, count, some, before);
      }
      if (kMerge) {
        const __m512 later = _mm512_mul_ps(sum, _mm512_set1_ps(merge.of_later[q]));
        sum = _mm512_fmadd_ps(load(some, place), _mm512_set1_ps(merge.of_old[q]), later);
      }
      _mm512_mask_storeu_ps(place, some, sum);
    }
  }
}

template <int kQueries, bool kMerge, typename Kept>
[[OUTRIDER_AVX512]] void values_of(MatrixView<const float> p, const Kept* values, std::size_t count,
                                   const Kept* next, const MergeFactors& merge,
                                   MatrixView<float> out) {
  constexpr int kVectors = 4;
  const std::size_t head_dim = out.columns();
  std::size_t channel = 0;
  for (; channel + kVectors * kWidth <= head_dim; channel += kVectors * kWidth) {
    values_channels<kQueries, kVectors, kMerge>(p, values, head_dim, count, 0xffff,
                                                channel == 0 ? next : nullptr, merge, out, channel);
  }
  for (; channel < head_dim; channel += kWidth) {
    values_channels<kQueries, 1, kMerge>(p, values, head_dim, count, lanes(head_dim - channel),
                                         channel == 0 ? next : nullptr, merge, out, channel);
  }
}

MergeFactors factors_from(const MergeFactors& factors, std::size_t first) {
  return {factors.of_old + first, factors.of_later + first};
}

template <bool kMerge, typename Kept>
void values_with(MatrixView<const float> p, const Kept* values, std::size_t count, const Kept* next,
                 const MergeFactors& merge, MatrixView<float> out) {
  static constexpr decltype(&values_of<1, kMerge, Kept>) kBlocks[kMostQueries] = {
      values_of<1, kMerge, Kept>, values_of<2, kMerge, Kept>, values_of<3, kMerge, Kept>,
      values_of<4, kMerge, Kept>, values_of<5, kMerge, Kept>, values_of<6, kMerge, Kept>};
  for_even_blocks(out.rows(), kMostQueries, [&](Range block) {
    kBlocks[block.end - block.begin - 1](
        rows_of(p, block), values, count, block.begin == 0 ? next : nullptr,
        kMerge ? factors_from(merge, block.begin) : merge, rows_of(out, block));
  });
}

template <typename Kept>
void values(MatrixView<const float> p, const Kept* values, std::size_t count, const Kept* next,
            const MergeFactors* merge, MatrixView<float> out) {
  merge != nullptr ? values_with<true>(p, values, count, next, *merge, out)
                   : values_with<false>(p, values, count, next, {}, out);
}

[[OUTRIDER_AVX512]] void weigh(MatrixView<const float> p, const Half* d,
                               MatrixView<std::int16_t> weights, float* factors) {
  __m512 scale[kTileVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kTileVectors; ++v) scale[v] = load(d + v * kWidth);
  for (std::size_t q = 0; q < p.rows(); ++q) {
    __m512 r[kTileVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) {
      const __m512 weight = load(&p[q][v * kWidth]);
      const __mmask16 has_weight = _mm512_cmp_ps_mask(weight, _mm512_setzero_ps(), _CMP_NEQ_UQ);
      r[v] = _mm512_maskz_mul_ps(has_weight, weight, scale[v]);
    }
    const float largest = _mm512_cvtss_f32(largest_of(r));
    if (!(largest >= 0x1p-110f)) {  // a NaN, too
      std::fill_n(weights[q].data(), kTile, std::int16_t{0});
      factors[q] = largest < 0x1p-110f ? 0 : largest;
      continue;
    }
    const __m512 inverse = _mm512_set1_ps(16383 / largest);
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) {
      const __m512i rounded = _mm512_cvtps_epi32(_mm512_mul_ps(r[v], inverse));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(&weights[q][v * kWidth]),
                          _mm512_cvtepi32_epi16(rounded));
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
[[OUTRIDER_AVX512, gnu::always_inline]] inline void put(const Added& to, std::size_t q,
                                                        std::size_t channel, __m512i sum) {
  std::int32_t* const place = &to.sums[q][channel];
  _mm512_storeu_si512(place, _mm512_add_epi32(sum, _mm512_loadu_si512(place)));
}
[[OUTRIDER_AVX512, gnu::always_inline]] inline void put(const Merged& to, std::size_t q,
                                                        std::size_t channel, __m512i sum) {
  const __m512 later = _mm512_mul_ps(_mm512_set1_ps(to.factors[q]), _mm512_cvtepi32_ps(sum));
  const __m512 scaled = _mm512_mul_ps(later, _mm512_set1_ps(to.merge.of_later[q]));
  float* const place = &to.sums[q][channel];
  _mm512_storeu_ps(place, _mm512_fmadd_ps(load(place), _mm512_set1_ps(to.merge.of_old[q]), scaled));
}
Added from(const Added& to, Range rows) {
  return {rows_of(to.sums, rows)};
}
Merged from(const Merged& to, Range rows) {
  return {to.factors + rows.begin, factors_from(to.merge, rows.begin), rows_of(to.sums, rows)};
}

// kVectors * 16 channels of kQueries rows; head_dim is a multiple of 32.
template <int kQueries, int kVectors, typename To>
[[OUTRIDER_AVX512]] void values_q8_0_channels(MatrixView<const std::int16_t> weights,
                                              const std::int8_t* values, Range pairs,
                                              const std::int8_t* next, const To& to,
                                              std::size_t channel) {
  const std::size_t stride = 2 * to.sums.columns();
  const std::int16_t* pair[kQueries];
  __m512i sum[kQueries][kVectors];
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q) {
    pair[q] = weights[q].data();
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[q][v] = _mm512_setzero_si512();
  }
  for (std::size_t j = pairs.begin; j < pairs.end; ++j) {
    const std::int8_t* at = values + j * stride + 2 * channel;
    if (next != nullptr) {
      for (std::size_t i = 0; i < stride; i += 64) prefetch(next + j * stride + i, 0);
    }
    __m512i value[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      value[v] = _mm512_cvtepi8_epi16(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + v * 2 * kWidth)));
    }
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) {
      std::int32_t two;
      __builtin_memcpy(&two, pair[q] + 2 * j, 4);
      const __m512i weight = _mm512_set1_epi32(two);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        sum[q][v] = _mm512_dpwssd_epi32(sum[q][v], value[v], weight);
    }
  }
  alignas(64) std::int32_t done[kQueries][kVectors * kWidth];
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) _mm512_store_si512(&done[q][v * kWidth], sum[q][v]);
  for (int q = 0; q < kQueries; ++q) {
    for (std::size_t i = 0; i < kVectors * kWidth; i += kWidth)
      put(to, q, channel + i, _mm512_load_si512(&done[q][i]));
  }
}

template <int kQueries, typename To>
void values_q8_0_of(MatrixView<const std::int16_t> weights, const std::int8_t* values, Range pairs,
                    const std::int8_t* next, const To& to) {
  constexpr int kVectors = 4;
  const std::size_t head_dim = to.sums.columns();
  std::size_t channel = 0;
  for (; channel + kVectors * kWidth <= head_dim; channel += kVectors * kWidth) {
    values_q8_0_channels<kQueries, kVectors>(weights, values, pairs, channel == 0 ? next : nullptr,
                                             to, channel);
  }
  for (; channel < head_dim; channel += 2 * kWidth) {
    values_q8_0_channels<kQueries, 2>(weights, values, pairs, channel == 0 ? next : nullptr, to,
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

[[OUTRIDER_AVX512]] void widen(const float* factors, MatrixView<const std::int32_t> sums,
                               MatrixView<float> out) {
  for (std::size_t q = 0; q < out.rows(); ++q) {
    const __m512 factor = _mm512_set1_ps(factors[q]);
    for (std::size_t d = 0; d < out.columns(); d += kWidth) {
      const __m512 sum = _mm512_cvtepi32_ps(_mm512_loadu_si512(&sums[q][d]));
      _mm512_storeu_ps(&out[q][d], _mm512_mul_ps(factor, sum));
    }
  }
}

[[OUTRIDER_AVX512]] void merge_sums(const AttentionSums& later, const AttentionSums& sums,
                                    const MergeFactors& factors) {
  for (std::size_t q = 0; q < sums.size(); q += kWidth) {
    const __mmask16 some = lanes(sums.size() - q);
    const __m512 before = load(some, sums.max + q), after = load(some, later.max + q);
    const __m512 max = _mm512_max_ps(before, after);
    const __m512 a = exp_f32(_mm512_sub_ps(before, max)), b = exp_f32(_mm512_sub_ps(after, max));
    const __m512 scaled = _mm512_mul_ps(load(some, later.sum + q), b);
    _mm512_mask_storeu_ps(sums.max + q, some, max);
    _mm512_mask_storeu_ps(sums.sum + q, some, _mm512_fmadd_ps(load(some, sums.sum + q), a, scaled));
    _mm512_mask_storeu_ps(factors.of_old + q, some, a);
    _mm512_mask_storeu_ps(factors.of_later + q, some, b);
  }
}

[[OUTRIDER_AVX512]] void merge(const AttentionSums& later, const AttentionSums& sums) {
  const std::size_t head_dim = sums.out.columns();
  for (std::size_t first = 0; first < sums.size(); first += kWidth) {
    const Range block{first, std::min(sums.size(), first + kWidth)};
    float as[kWidth], bs[kWidth];
    const auto part = [&](const AttentionSums& of) {
      return AttentionSums{of.max + first, of.sum + first, rows_of(of.out, block)};
    };
    merge_sums(part(later), part(sums), {as, bs});
    for (std::size_t q = block.begin; q < block.end; ++q) {
      const __m512 of_old = _mm512_set1_ps(as[q - first]), of_new = _mm512_set1_ps(bs[q - first]);
      const float* from = later.out[q].data();
      float* to = sums.out[q].data();
      for (std::size_t d = 0; d < head_dim; d += kWidth) {
        const __mmask16 mask = lanes(head_dim - d);
        const __m512 added = _mm512_mul_ps(load(mask, from + d), of_new);
        _mm512_mask_storeu_ps(to + d, mask, _mm512_fmadd_ps(load(mask, to + d), of_old, added));
      }
    }
  }
}

[[OUTRIDER_AVX512]] void divide(const AttentionSums& sums, std::size_t query,
                                std::span<float> out) {
  const __m512 sum = _mm512_set1_ps(sums.sum[query]);
  for (std::size_t d = 0; d < out.size(); d += kWidth) {
    const __mmask16 mask = lanes(out.size() - d);
    _mm512_mask_storeu_ps(&out[d], mask, _mm512_div_ps(load(mask, &sums.out[query][d]), sum));
  }
}

// Of a NaN, min and max return their second operand.
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 clamped(__m512 x) {
  const __m512 below = _mm512_min_ps(_mm512_set1_ps(65504), x);
  return _mm512_max_ps(_mm512_set1_ps(-65504), below);
}

[[OUTRIDER_AVX512]] void clamp_to_half(std::span<const float> x, Half* out) {
  for (std::size_t i = 0; i < x.size(); i += kWidth) {
    const __mmask16 mask = lanes(x.size() - i);
    const __m512 kept = clamped(load(mask, &x[i]));
    _mm256_mask_storeu_epi16(out + i, mask,
                             _mm512_cvtps_ph(kept, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
}

[[OUTRIDER_AVX512]] void clamp_to_float(std::span<const float> x, float* out) {
  for (std::size_t i = 0; i < x.size(); i += kWidth) {
    const __mmask16 mask = lanes(x.size() - i);
    _mm512_mask_storeu_ps(out + i, mask, clamped(load(mask, &x[i])));
  }
}

[[OUTRIDER_AVX512]] void keep_q8_0(std::span<const float> x, std::size_t group, std::int8_t* q,
                                   Half* d) {
  for (std::size_t first = 0; first < x.size(); first += group) {
    __m512i sizes = _mm512_setzero_si512();  // bits without sign: a NaN is the largest
    for (std::size_t i = first; i < first + group; i += kWidth) {
      const __m512i bits = _mm512_castps_si512(_mm512_abs_ps(load(&x[i])));
      sizes = _mm512_max_epu32(sizes, bits);
    }
    const float largest = std::bit_cast<float>(_mm512_reduce_max_epu32(sizes));
    d[first / group] =
        float_to_half(largest != largest ? largest : std::min(largest, 65504.0f) / 127);
    const float scale = half_to_float(d[first / group]);
    const __mmask16 has_scale = scale > 0 ? 0xffff : 0;
    for (std::size_t i = first; i < first + group; i += kWidth) {
      const __m512 scaled = _mm512_div_ps(clamped(load(&x[i])), _mm512_set1_ps(scale));
      __m512i rounded = _mm512_maskz_cvtps_epi32(has_scale, scaled);
      rounded = _mm512_max_epi32(_mm512_min_epi32(rounded, _mm512_set1_epi32(127)),
                                 _mm512_set1_epi32(-127));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(q + i), _mm512_cvtepi32_epi8(rounded));
    }
  }
}

}  // namespace

const AttentionKernels kAttentionAvx512 = {
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

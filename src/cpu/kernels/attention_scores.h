// Scores and softmax of attention_kernels.h over a vector type (vector_functions.h), a lane a key.
// Up to six queries share the registers of keys.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "cpu/kernels/attention_kernels.h"
#include "cpu/kernels/query_blocks.h"
#include "cpu/kernels/vector_functions.h"
#include "numerics/attention.h"
#include "numerics/half.h"

namespace outrider {

inline constexpr std::size_t kMostQueries = 6;

// Prefetches the part of what is read next that corresponds to what is read now.
inline void prefetch(const void* next, std::size_t bytes) {
  const char* at = static_cast<const char*>(next);
  for (std::size_t line = 0; line < bytes; line += 64) __builtin_prefetch(at + line, 0, 2);
}

// The 4 bytes there in every lane.
template <class V>
[[gnu::always_inline]] inline typename V::Ints all_unaligned(const void* at) {
  std::int32_t four;
  __builtin_memcpy(&four, at, sizeof four);
  return V::all(four);
}

template <class V>
struct AttentionScores : Functions<V> {
  using typename V::Floats;
  using typename V::Ints;
  using typename V::Mask;
  using V::add, V::subtract, V::multiply, V::divide, V::fused, V::all, V::load, V::store, V::larger;
  using V::select, V::zero_unless, V::unequal, V::either, V::either_nan, V::set_lanes, V::kWidth;

  static constexpr int kTileVectors = kTile / kWidth;
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();

  // Vectors of keys that a block of queries shares: with six queries and 32 registers 24
  // accumulators, 4 registers that they share and one that differs. (Twelve queries that share two
  // would widen halves half as often, but twelve addresses do not fit into registers: slower.)
  static constexpr bool kManyRegisters = V::kRegisters >= 32;
  static constexpr int score_vectors(int queries) { return kManyRegisters || queries <= 2 ? 4 : 2; }
  static constexpr int kScoreVectorsQ8 = kManyRegisters ? 2 : 1;

  // Calls block(v, n), n an integral_constant, for vectors v .. v + n - 1 of a tile that together
  // hold `places`. n is kAtOnce, and v a multiple of it, where more than half of such vectors are
  // needed, else 1.
  template <int kAtOnce, typename Block>
  static void for_vectors_of(Places places, Block block) {
    const std::size_t end = (places.end + kWidth - 1) / kWidth;
    for (std::size_t v = places.begin / kWidth; v < end;) {
      const std::size_t first = v / kAtOnce * kAtOnce;
      if (std::min(end, first + kAtOnce) - v > kAtOnce / 2) {
        block(first, std::integral_constant<int, kAtOnce>());
        v = first + kAtOnce;
      } else {
        block(v++, std::integral_constant<int, 1>());
      }
    }
  }

  // kVectors vectors of keys, from `first` on.
  template <int kQueries, int kVectors, typename Kept>
  static void scores_block(MatrixView<const float> queries, const Kept* keys, const Kept* next,
                           std::size_t first, MatrixView<float> scores) {
    const float* query[kQueries];
    for (int q = 0; q < kQueries; ++q) query[q] = queries[q].data();
    Floats sums[kQueries][kVectors] = {};
    const Kept* at = keys + first;
    for (std::size_t d = 0; d < queries.columns(); ++d, at += kTile) {
      if (next != nullptr) prefetch(next + d * kTile, kTile * sizeof(Kept));
      Floats key[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) key[v] = load(at + v * kWidth);
#pragma GCC unroll 8
      for (int q = 0; q < kQueries; ++q) {
        const Floats channel = all(query[q][d]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) sums[q][v] = fused(channel, key[v], sums[q][v]);
      }
    }
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) store(&scores[q][first + v * kWidth], sums[q][v]);
  }

  template <typename Kept>
  static void scores(MatrixView<const float> queries, const Kept* keys, Places places,
                     const Kept* next, MatrixView<float> scores) {
    for_even_blocks<kMostQueries>(queries.rows(), [&](Range block, auto n) {
      for_vectors_of<score_vectors(n)>(places, [&](std::size_t v, auto vectors) {
        scores_block<n, vectors>(rows_of(queries, block), keys, std::exchange(next, nullptr),
                                 v * kWidth, rows_of(scores, block));
      });
    });
  }

  // kVectors vectors of keys, from `first` on. A group's sums stay integers in registers; its
  // scores join those of the groups before.
  template <int kQueries, int kVectors>
  static void scores_q8_0_block(const QuantizedQueries& queries, const KeysQ8& keys,
                                const KeysQ8* next, std::size_t first, MatrixView<float> scores) {
    constexpr std::size_t kUnits = kKeyGroup / 4;
    const std::int8_t* query[kQueries];
    for (int q = 0; q < kQueries; ++q) query[q] = queries.q[q].data();
    Floats scaled[kQueries][kVectors] = {};
    const std::uint8_t* at = keys.q + first * 4;
    const Half* d = keys.d + first;
    for (std::size_t group = 0; group < queries.d.columns(); ++group, d += kTile) {
      Ints sums[kQueries][kVectors];
#pragma GCC unroll 8
      for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) sums[q][v] = V::biased_sum(queries.bias[q][group]);
      if (next != nullptr) prefetch(next->d + group * kTile, kTile * sizeof(Half));
      for (std::size_t unit = 0; unit < kUnits; ++unit, at += kTile * 4) {
        if (next != nullptr) prefetch(next->q + (group * kUnits + unit) * kTile * 4, kTile * 4);
        Ints key[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) key[v] = V::load_keys(at + v * kWidth * 4);
#pragma GCC unroll 8
        for (int q = 0; q < kQueries; ++q) {
          const Ints channels = all_unaligned<V>(query[q] + group * kKeyGroup + unit * 4);
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v)
            sums[q][v] = V::add_fours(sums[q][v], key[v], channels);
        }
      }
      Floats scale[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) scale[v] = load(d + v * kWidth);
#pragma GCC unroll 8
      for (int q = 0; q < kQueries; ++q) {
        const Floats of_query = all(queries.d[q][group]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v)
          scaled[q][v] =
              fused(multiply(scale[v], of_query), V::to_floats(sums[q][v]), scaled[q][v]);
      }
    }
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) store(&scores[q][first + v * kWidth], scaled[q][v]);
  }

  static void scores_q8_0(const QuantizedQueries& queries, const KeysQ8& keys, Places places,
                          const KeysQ8* next, MatrixView<float> scores) {
    for_even_blocks<kMostQueries>(queries.q.rows(), [&](Range block, auto n) {
      const QuantizedQueries some{rows_of(queries.q, block), rows_of(queries.d, block),
                                  rows_of(queries.bias, block)};
      for_vectors_of<kScoreVectorsQ8>(places, [&](std::size_t v, auto vectors) {
        scores_q8_0_block<n, vectors>(some, keys, std::exchange(next, nullptr), v * kWidth,
                                      rows_of(scores, block));
      });
    });
  }

  // Of a tile, in all lanes; NaN if one is among them.
  [[gnu::always_inline]] static inline Floats largest_of(const Floats (&x)[kTileVectors]) {
    Floats max[2] = {x[0], x[1]};
    Mask nans = either_nan(x[0], x[1]);
#pragma GCC unroll 8
    for (int v = 2; v < kTileVectors; v += 2) {
      max[0] = larger(max[0], x[v]);
      max[1] = larger(max[1], x[v + 1]);
      nans = either(nans, either_nan(x[v], x[v + 1]));
    }
    return set_lanes(nans) != 0 ? all(std::numeric_limits<float>::quiet_NaN())
                                : V::largest_lane(larger(max[0], max[1]));
  }

  // Where weights in 14 bits and their factors go; d: the values' scales (softmax_q8_0).
  struct WholeWeights {
    const Half* d;
    MatrixView<std::int16_t> weights;
    float* factors;
  };

  // p: the weights of query q; of_values: the values' scales.
  [[gnu::always_inline]] static inline void weigh(const Floats (&p)[kTileVectors],
                                                  const Floats (&of_values)[kTileVectors],
                                                  std::size_t q, const WholeWeights& to) {
    Floats r[kTileVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kTileVectors; ++v)
      r[v] = zero_unless(unequal(p[v], all(0.0f)), multiply(p[v], of_values[v]));
    const float largest = V::first_lane(largest_of(r));
    if (!(largest >= 0x1p-110f)) {  // a NaN, too
      std::fill_n(to.weights[q].data(), kTile, std::int16_t{0});
      to.factors[q] = largest < 0x1p-110f ? 0 : largest;
      return;
    }
    const Floats inverse = all(16383 / largest);
#pragma GCC unroll 8
    for (int v = 0; v < kTileVectors; ++v)
      V::store_words(&to.weights[q][v * kWidth], V::to_ints(multiply(r[v], inverse)));
    to.factors[q] = largest / 16383;
  }

  // whole: where weights go if kWhole; else they stay in p, and `whole` is not looked at.
  template <bool kSoftcap, bool kWhole>
  static void softmax_all(float scale, float cap, std::span<const Places> present,
                          MatrixView<float> p, const AttentionSums& sums,
                          const WholeWeights& whole) {
    const Floats scales = all(scale), caps = all(cap), absent = all(-kInfinity);
    Floats of_values[kTileVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kTileVectors; ++v)
      of_values[v] = kWhole ? load(whole.d + v * kWidth) : absent;
    for (std::size_t q = 0; q < p.rows(); ++q) {
      float* const weights = p[q].data();
      const Places places = present[q];
      if (places.begin == places.end) {
        if (kWhole) {
          std::fill_n(whole.weights[q].data(), kTile, std::int16_t{0});
          whole.factors[q] = 0;
        } else {
          std::fill_n(weights, kTile, 0.0f);
        }
        sums.max[q] = AttentionSums::kNoMax;
        sums.sum[q] = 0;
        continue;
      }
      Floats score[kTileVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kTileVectors; ++v) {
        score[v] = multiply(scales, load(weights + v * kWidth));
        if (kSoftcap) score[v] = multiply(caps, Functions<V>::tanh_f32(divide(score[v], caps)));
      }
      if (places.end - places.begin < static_cast<int>(kTile)) {
#pragma GCC unroll 8
        for (int v = 0; v < kTileVectors; ++v) {
          const auto seen = V::lanes_in(places.begin, places.end, v * static_cast<int>(kWidth));
          score[v] = select(seen, score[v], absent);
        }
      }
      const Floats max = largest_of(score);
      Floats sum[16 / kWidth] = {};
#pragma GCC unroll 8
      for (int v = 0; v < kTileVectors; ++v) {
        score[v] = Functions<V>::exp_of_negative(subtract(score[v], max));
        Floats& of_lanes = sum[v % std::size(sum)];
        of_lanes = add(of_lanes, score[v]);
        if (!kWhole) store(weights + v * kWidth, score[v]);
      }
      sums.max[q] = V::first_lane(max);
      sums.sum[q] = V::total(sum);
      if (kWhole) weigh(score, of_values, q, whole);
    }
  }

  static void softmax(float scale, std::optional<float> softcap, std::span<const Places> present,
                      MatrixView<float> p, const AttentionSums& sums) {
    softcap ? softmax_all<true, false>(scale, *softcap, present, p, sums, {})
            : softmax_all<false, false>(scale, 0, present, p, sums, {});
  }

  static void softmax_q8_0(float scale, std::optional<float> softcap,
                           std::span<const Places> present, MatrixView<float> scores, const Half* d,
                           MatrixView<std::int16_t> weights, float* factors,
                           const AttentionSums& sums) {
    const WholeWeights whole{d, weights, factors};
    softcap ? softmax_all<true, true>(scale, *softcap, present, scores, sums, whole)
            : softmax_all<false, true>(scale, 0, present, scores, sums, whole);
  }
};

}  // namespace outrider

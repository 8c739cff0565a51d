// Attention over one tile of 64 keys of one kv head, for many queries at once: its part of the
// table of kernels. Each has a scalar reference in numerics/ and gives the same bits
// (docs/arithmetic.md, "Attention"). cpu/cache_memory.h says how keys and values are stored.
//
// There is a query for each row of a block and each query head that shares the kv head. A key that
// a query may not see is not in `present`, and its p is zero from then on.

#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "base/matrix_view.h"
#include "numerics/half.h"
#include "numerics/softmax.h"

namespace outrider {

// Places of a tile, [begin, end); begin == end: none.
struct Places {
  std::uint8_t begin = 0, end = 0;
};

// Softmax's running state of n queries over the keys seen so far: their largest score, and sum and
// weighted values relative to it. Without keys: kNoMax and zeros.
struct AttentionSums {
  static constexpr float kNoMax = std::numeric_limits<float>::lowest();

  float* max;             // [n]
  float* sum;             // [n]
  MatrixView<float> out;  // [n][value_dim]

  std::size_t size() const { return out.rows(); }
};

// Queries in int8, a scale per 32 channels.
struct QuantizedQueries {
  MatrixView<const std::int8_t> q;      // [n][key_dim]
  MatrixView<const float> d;            // [n][key_dim / 32]
  MatrixView<const std::int32_t> bias;  // [n][key_dim / 32]: -128 * the sum of the group's q
};

// Keys of one kv head of a page.
struct KeysQ8 {
  const std::uint8_t* q;  // [key_dim / 4][64][4], each 128 more than it means
  const Half* d;          // [key_dim / 32][64]
};
// How a state is merged with what comes after it: out = fma(out, of_old[q], later * of_later[q]).
struct MergeFactors {
  float *of_old, *of_later;  // [n]
};

struct AttentionKernels {
  // scores[q][j] = fma chain over d, ascending, of queries[q][d] * keys[d][j], not yet scaled, for
  // the j in `places` at least. keys: [key_dim][64]. next: keys that the next call will read, to
  // be prefetched meanwhile; may be null.
  void (*scores_f16)(MatrixView<const float> queries, const Half* keys, Places places,
                     const Half* next, MatrixView<float> scores);
  void (*scores_f32)(MatrixView<const float> queries, const float* keys, Places places,
                     const float* next, MatrixView<float> scores);
  // scores[q][j] = fma chain over groups of 32 channels, ascending, of (d_k * d_q) * float(sum of
  // products).
  void (*scores_q8_0)(const QuantizedQueries& queries, const KeysQ8& keys, Places places,
                      const KeysQ8* next, MatrixView<float> scores);

  // p: [n][64] scores. s = scale * p, then soft-capped; p_j = exp(s_j - m), m the largest among the
  // present; 0 where absent. sums.max = m, sums.sum = lane sum of the new p; kNoMax and 0 where
  // none is present. A NaN among the present makes all p, sum and max NaN.
  void (*softmax)(float scale, std::optional<float> softcap, std::span<const Places> present,
                  MatrixView<float> p, const AttentionSums& sums);
  // The same, then p as weights of values in 8 bits: r_j = p_j * d_j (0 where p_j is 0), R the
  // largest, weight_j = round-to-even(r_j * (16383 / R)), factor = R / 16383. Weights and factor
  // are 0 if R < 2^-110; weights are 0 and the factor is NaN if an r is NaN. d: [64], of the
  // values; weights: [n][64]. `scores` is unspecified afterwards.
  void (*softmax_q8_0)(float scale, std::optional<float> softcap, std::span<const Places> present,
                       MatrixView<float> scores, const Half* d, MatrixView<std::int16_t> weights,
                       float* factors, const AttentionSums& sums);

  // sum = fma(p[q][j], values[j][d], sum) for j = 0 .. count - 1 ascending. Without `merge` the sum
  // starts from out[q][d] and is stored there; with it, the sum starts from +0 and is merged with
  // out[q][d]. A key whose p is zero is skipped, so that a NaN in the value of an absent key never
  // shows. p: [n][count]; values: [count][value_dim], of one page; next as above.
  void (*values_f16)(MatrixView<const float> p, const Half* values, std::size_t count,
                     const Half* next, const MergeFactors* merge, MatrixView<float> out);
  void (*values_f32)(MatrixView<const float> p, const float* values, std::size_t count,
                     const float* next, const MergeFactors* merge, MatrixView<float> out);

  // sums[q][d] += weights[q][j] * values[j][d], j in `places`; weights outside them are zero.
  // values: [32][value_dim][2], two neighbouring keys side by side.
  void (*values_q8_0)(MatrixView<const std::int16_t> weights, const std::int8_t* values,
                      Places places, MatrixView<std::int32_t> sums);
  // The same from sums of 0, each then factors[q] * float(sum) and merged with out[q][d].
  void (*values_q8_0_merged)(MatrixView<const std::int16_t> weights, const std::int8_t* values,
                             Places places, const std::int8_t* next, const float* factors,
                             const MergeFactors& merge, MatrixView<float> out);
  // out[q][d] = factors[q] * float(sums[q][d])
  void (*widen)(const float* factors, MatrixView<const std::int32_t> sums, MatrixView<float> out);

  // Merges the keys of `later`, which follow all keys of `sums`, into `sums` (docs/arithmetic.md,
  // "Attention", 3): merge_sums max and sum alone, with the factors for out.
  void (*merge)(const AttentionSums& later, const AttentionSums& sums);
  void (*merge_sums)(const AttentionSums& later, const AttentionSums& sums,
                     const MergeFactors& factors);
  // out[q] = sums.out[q] / sums.sum[q]
  void (*divide)(const AttentionSums& sums, std::size_t query, std::span<float> out);

  // To the cache: clamped to +-65504 (NaN passes), rounded to nearest even for halves.
  void (*clamp_to_half)(std::span<const float> x, Half* out);
  void (*clamp_to_float)(std::span<const float> x, float* out);
  // Clamped and quantized by groups: numerics/quantize.h.
  void (*keep_q8_0)(std::span<const float> x, std::size_t group, std::int8_t* q, Half* d);
};

extern const AttentionKernels kAttentionReference;

}  // namespace outrider

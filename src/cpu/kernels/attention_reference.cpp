#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/kernels/attention_kernels.h"
#include "cpu/kernels/query_blocks.h"
#include "model/spec.h"
#include "numerics/attention.h"
#include "numerics/functions.h"
#include "numerics/half.h"
#include "numerics/quantize.h"
#include "numerics/softmax.h"

namespace outrider {
namespace {

using Floats = std::span<const float>;

float widened(Half x) {
  return half_to_float(x);
}
float widened(float x) {
  return x;
}

template <typename Kept>
void scores(MatrixView<const float> queries, const Kept* keys, Places places, const Kept*,
            MatrixView<float> scores) {
  for (std::size_t q = 0; q < queries.rows(); ++q) {
    const Floats query = queries[q];
    for (std::size_t j = places.begin; j < places.end; ++j) {
      float sum = 0;
      for (std::size_t d = 0; d < query.size(); ++d)
        sum = std::fma(query[d], widened(keys[d * kTile + j]), sum);
      scores[q][j] = sum;
    }
  }
}

void scores_q8_0(const QuantizedQueries& queries, const KeysQ8& keys, Places places, const KeysQ8*,
                 MatrixView<float> scores) {
  for (std::size_t q = 0; q < queries.q.rows(); ++q) {
    for (std::size_t j = places.begin; j < places.end; ++j) {
      float score = 0;
      for (std::size_t group = 0; group < queries.d.columns(); ++group) {
        int sum = queries.bias[q][group];
        for (std::size_t d = group * kKeyGroup; d < (group + 1) * kKeyGroup; ++d)
          sum += queries.q[q][d] * keys.q[(d / 4 * kTile + j) * 4 + d % 4];
        const float scale = half_to_float(keys.d[group * kTile + j]) * queries.d[q][group];
        score = std::fma(scale, static_cast<float>(sum), score);
      }
      scores[q][j] = score;
    }
  }
}

void softmax(float scale, std::optional<float> softcap, std::span<const Places> present,
             MatrixView<float> p, const AttentionSums& sums) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (std::size_t q = 0; q < p.rows(); ++q) {
    const Places places = present[q];
    const std::span<float, kTile> weights = p[q].first<kTile>();
    for (std::size_t j = 0; j < kTile; ++j) {
      const bool is_present = j >= places.begin && j < places.end;
      weights[j] = is_present ? scale * weights[j] : -kInfinity;
    }
    if (softcap)
      softcap_reference(*softcap, weights.subspan(places.begin, places.end - places.begin));
    if (places.begin < places.end) {
      const TileSum tile = tile_softmax_reference(weights);
      sums.max[q] = tile.max;
      sums.sum[q] = tile.sum;
    } else {
      std::fill(weights.begin(), weights.end(), 0.0f);
      sums.max[q] = AttentionSums::kNoMax;
      sums.sum[q] = 0;
    }
  }
}

template <typename Kept>
void values(MatrixView<const float> p, const Kept* values, std::size_t count, const Kept*,
            const MergeFactors* merge, MatrixView<float> out) {
  const std::size_t value_dim = out.columns();
  for (std::size_t q = 0; q < out.rows(); ++q) {
    float of_head[kHeadDimMax] = {};
    const std::span<float> sums(of_head, value_dim);
    if (!merge) std::copy(out[q].begin(), out[q].end(), sums.begin());
    for (std::size_t j = 0; j < count; ++j) {
      if (p[q][j] == 0) continue;
      for (std::size_t d = 0; d < value_dim; ++d)
        sums[d] = std::fma(p[q][j], widened(values[j * value_dim + d]), sums[d]);
    }
    if (merge) {
      merge_reference(merge->of_old[q], merge->of_later[q], sums, out[q]);
    } else {
      std::copy(sums.begin(), sums.end(), out[q].begin());
    }
  }
}

void softmax_q8_0(float scale, std::optional<float> softcap, std::span<const Places> present,
                  MatrixView<float> scores, const Half* d, MatrixView<std::int16_t> weights,
                  float* factors, const AttentionSums& sums) {
  softmax(scale, softcap, present, scores, sums);
  for (std::size_t q = 0; q < scores.rows(); ++q) {
    factors[q] = weigh_reference(scores[q].first<kTile>(), std::span<const Half, kTile>(d, kTile),
                                 weights[q].first<kTile>());
  }
}

void values_q8_0(MatrixView<const std::int16_t> weights, const std::int8_t* values, Places places,
                 MatrixView<std::int32_t> sums) {
  const std::size_t value_dim = sums.columns();
  for (std::size_t q = 0; q < sums.rows(); ++q) {
    for (std::size_t j = places.begin; j < places.end; ++j) {
      for (std::size_t d = 0; d < value_dim; ++d)
        sums[q][d] += weights[q][j] * values[(j / 2 * value_dim + d) * 2 + j % 2];
    }
  }
}

void widen(const float* factors, MatrixView<const std::int32_t> sums, MatrixView<float> out) {
  for (std::size_t q = 0; q < out.rows(); ++q) {
    for (std::size_t d = 0; d < out.columns(); ++d)
      out[q][d] = factors[q] * static_cast<float>(sums[q][d]);
  }
}

void values_q8_0_merged(MatrixView<const std::int16_t> weights, const std::int8_t* values,
                        Places places, const std::int8_t*, const float* factors,
                        const MergeFactors& merge, MatrixView<float> out) {
  for (std::size_t q = 0; q < out.rows(); ++q) {
    std::int32_t of_head[kHeadDimMax] = {};
    float widened[kHeadDimMax];
    const MatrixView<std::int32_t> sums(of_head, 1, out.columns());
    const MatrixView<float> later(widened, 1, out.columns());
    values_q8_0(rows_of(weights, {q, q + 1}), values, places, sums);
    widen(factors + q, sums, later);
    merge_reference(merge.of_old[q], merge.of_later[q], later[0], out[q]);
  }
}

void merge_sums(const AttentionSums& later, const AttentionSums& sums,
                const MergeFactors& factors) {
  for (std::size_t q = 0; q < sums.size(); ++q) {
    const float max = std::max(sums.max[q], later.max[q]);
    const float a = exp_f32(sums.max[q] - max), b = exp_f32(later.max[q] - max);
    sums.max[q] = max;
    sums.sum[q] = std::fma(sums.sum[q], a, later.sum[q] * b);
    factors.of_old[q] = a;
    factors.of_later[q] = b;
  }
}

void merge(const AttentionSums& later, const AttentionSums& sums) {
  const auto query = [](const AttentionSums& all, std::size_t q) -> AttentionSums {
    return {all.max + q, all.sum + q, rows_of(all.out, {q, q + 1})};
  };
  for (std::size_t q = 0; q < sums.size(); ++q) {
    float of_old, of_later;
    merge_sums(query(later, q), query(sums, q), {&of_old, &of_later});
    merge_reference(of_old, of_later, later.out[q], sums.out[q]);
  }
}

void divide(const AttentionSums& sums, std::size_t query, std::span<float> out) {
  for (std::size_t d = 0; d < out.size(); ++d) out[d] = sums.out[query][d] / sums.sum[query];
}

void clamp_to_half(Floats x, Half* out) {
  for (const float value : x) *out++ = float_to_half(read_back(value, CacheType::f32));
}

void clamp_to_float(Floats x, float* out) {
  for (const float value : x) *out++ = read_back(value, CacheType::f32);
}

}  // namespace

const AttentionKernels kAttentionReference = {
    .scores_f16 = scores<Half>,
    .scores_f32 = scores<float>,
    .scores_q8_0 = scores_q8_0,
    .softmax = softmax,
    .softmax_q8_0 = softmax_q8_0,
    .values_f16 = values<Half>,
    .values_f32 = values<float>,
    .values_q8_0 = values_q8_0,
    .values_q8_0_merged = values_q8_0_merged,
    .widen = widen,
    .merge = merge,
    .merge_sums = merge_sums,
    .divide = divide,
    .clamp_to_half = clamp_to_half,
    .clamp_to_float = clamp_to_float,
    .keep_q8_0 = keep_q8_0_reference,
};

}  // namespace outrider

// A lane an element, or in attention's scores a lane a key and in its values a lane a channel.

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/kernels/functions_avx512.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/lanes_avx512.h"
#include "cpu/kernels/query_blocks.h"

namespace outrider {
namespace {

using namespace avx512;
using Floats = std::span<const float>;

// Queries that share a pass over a tile: 6 x 4 accumulators, four registers of keys or values.
constexpr std::size_t kMostQueries = 6;

[[OUTRIDER_AVX512]] void rms_norm(Floats x, Floats w, float eps, std::span<float> y) {
  const std::size_t n = x.size();
  __m512 squares = _mm512_setzero_ps();
  for (std::size_t i = 0; i < n; i += kWidth) {
    const __m512 v = load(lanes(n - i), &x[i]);
    squares = _mm512_fmadd_ps(v, v, squares);
  }
  const float mean = sum_of_lanes(squares) / static_cast<float>(n);
  const __m512 r = _mm512_set1_ps(1.0f / std::sqrt(mean + eps));
  for (std::size_t i = 0; i < n; i += kWidth) {
    const __mmask16 mask = lanes(n - i);
    const __m512 scaled = _mm512_mul_ps(load(mask, &x[i]), r);
    _mm512_mask_storeu_ps(&y[i], mask, _mm512_mul_ps(scaled, load(mask, &w[i])));
  }
}

[[OUTRIDER_AVX512]] void silu_times(Floats gate, Floats up, std::span<float> y) {
  for (std::size_t i = 0; i < y.size(); i += kWidth) {
    const __mmask16 mask = lanes(y.size() - i);
    const __m512 active = silu_f32(load(mask, &gate[i]));
    _mm512_mask_storeu_ps(&y[i], mask, _mm512_mul_ps(active, load(mask, &up[i])));
  }
}

[[OUTRIDER_AVX512]] void gelu_tanh_times(Floats gate, Floats up, std::span<float> y) {
  for (std::size_t i = 0; i < y.size(); i += kWidth) {
    const __mmask16 mask = lanes(y.size() - i);
    const __m512 active = gelu_tanh_f32(load(mask, &gate[i]));
    _mm512_mask_storeu_ps(&y[i], mask, _mm512_mul_ps(active, load(mask, &up[i])));
  }
}

[[OUTRIDER_AVX512]] void add(Floats x, std::span<float> y) {
  for (std::size_t i = 0; i < y.size(); i += kWidth) {
    const __mmask16 mask = lanes(y.size() - i);
    _mm512_mask_storeu_ps(&y[i], mask, _mm512_add_ps(load(mask, &y[i]), load(mask, &x[i])));
  }
}

[[OUTRIDER_AVX512]] void scale(float s, std::span<float> y) {
  for (std::size_t i = 0; i < y.size(); i += kWidth) {
    const __mmask16 mask = lanes(y.size() - i);
    _mm512_mask_storeu_ps(&y[i], mask, _mm512_mul_ps(load(mask, &y[i]), _mm512_set1_ps(s)));
  }
}

[[OUTRIDER_AVX512]] void softcap(float c, std::span<float> y) {
  const __m512 cap = _mm512_set1_ps(c);
  for (std::size_t i = 0; i < y.size(); i += kWidth) {
    const __mmask16 mask = lanes(y.size() - i);
    const __m512 soft = tanh_f32(_mm512_div_ps(load(mask, &y[i]), cap));
    _mm512_mask_storeu_ps(&y[i], mask, _mm512_mul_ps(cap, soft));
  }
}

[[OUTRIDER_AVX512]] void rope_halves(Floats cos, Floats sin, std::span<float> head) {
  const std::size_t half = cos.size();
  for (std::size_t i = 0; i < half; i += kWidth) {
    const __mmask16 mask = lanes(half - i);
    const __m512 c = load(mask, &cos[i]), s = load(mask, &sin[i]);
    const __m512 x1 = load(mask, &head[i]), x2 = load(mask, &head[half + i]);
    const __m512 y1 = _mm512_sub_ps(_mm512_mul_ps(x1, c), _mm512_mul_ps(x2, s));
    const __m512 y2 = _mm512_add_ps(_mm512_mul_ps(x2, c), _mm512_mul_ps(x1, s));
    _mm512_mask_storeu_ps(&head[i], mask, y1);
    _mm512_mask_storeu_ps(&head[half + i], mask, y2);
  }
}

[[OUTRIDER_AVX512]] void rope_adjacent(Floats cos, Floats sin, std::span<float> head) {
  constexpr std::size_t kPairs = kWidth / 2;
  const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7,
                                          7);  // an angle for two channels
  const __mmask16 first_of_pair = 0x5555;
  for (std::size_t i = 0; i < cos.size(); i += kPairs) {
    const __mmask16 mask = lanes(2 * (cos.size() - i));
    const __mmask16 pairs = lanes(std::min(cos.size() - i, kPairs));
    const __m512 c = _mm512_permutexvar_ps(twice, load(pairs, &cos[i]));
    const __m512 s = _mm512_permutexvar_ps(twice, load(pairs, &sin[i]));
    const __m512 x = load(mask, &head[2 * i]);
    const __m512 straight = _mm512_mul_ps(x, c);
    const __m512 crossed = _mm512_mul_ps(_mm512_permute_ps(x, 0b10110001), s);
    const __m512 y =
        _mm512_mask_sub_ps(_mm512_add_ps(straight, crossed), first_of_pair, straight, crossed);
    _mm512_mask_storeu_ps(&head[2 * i], mask, y);
  }
}

template <int kQueries, typename Kept>
[[OUTRIDER_AVX512]] void scores_block(MatrixView<const float> queries, const Kept* keys,
                                      MatrixView<float> scores) {
  constexpr int kVectors = kTile / kWidth;
  const float* query[kQueries];
  for (int q = 0; q < kQueries; ++q) query[q] = queries[q].data();
  __m512 sums[kQueries][kVectors] = {};
  for (std::size_t d = 0; d < queries.columns(); ++d, keys += kTile) {
    __m512 key[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) key[v] = load(keys + v * kWidth);
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
    for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(&scores[q][v * kWidth], sums[q][v]);
}

// One channel block without the keys whose weight is zero.
template <typename Kept>
[[OUTRIDER_AVX512]] void values_present(const float* p, const Kept* values, std::size_t stride,
                                        std::size_t count, __mmask16 mask, float* out) {
  __m512 sum = load(mask, out);
  for (std::size_t j = 0; j < count; ++j) {
    if (p[j] == 0) continue;
    sum = _mm512_fmadd_ps(_mm512_set1_ps(p[j]), load(mask, values + j * stride), sum);
  }
  _mm512_mask_storeu_ps(out, mask, sum);
}

// kVectors * 16 channels of kQueries rows. A key of weight 0 adds nothing, unless its value is NaN:
// that is seen in the sums, and they are made again without it. mask: of the last vector.
template <int kQueries, int kVectors, typename Kept>
[[OUTRIDER_AVX512]] void values_channels(MatrixView<const float> p, const Kept* values,
                                         std::size_t stride, std::size_t count, __mmask16 mask,
                                         MatrixView<float> out, std::size_t channel) {
  const float* weights[kQueries];
  float* to[kQueries];
  for (int q = 0; q < kQueries; ++q) {
    weights[q] = p[q].data();
    to[q] = &out[q][channel];
  }
  __mmask16 masks[kVectors];
  for (int v = 0; v < kVectors; ++v) masks[v] = v + 1 < kVectors ? __mmask16(0xffff) : mask;
  __m512 sums[kQueries][kVectors];
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[q][v] = load(masks[v], to[q] + v * kWidth);
  const Kept* at = values + channel;
  for (std::size_t j = 0; j < count; ++j, at += stride) {
    __m512 value[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) value[v] = load(masks[v], at + v * kWidth);
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) {
      const __m512 weight = _mm512_set1_ps(weights[q][j]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[q][v] = _mm512_fmadd_ps(weight, value[v], sums[q][v]);
    }
  }
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      if (_mm512_cmp_ps_mask(sums[q][v], sums[q][v], _CMP_UNORD_Q) != 0) {
        values_present(weights[q], values + channel + v * kWidth, stride, count, masks[v],
                       to[q] + v * kWidth);
      } else {
        _mm512_mask_storeu_ps(to[q] + v * kWidth, masks[v], sums[q][v]);
      }
    }
  }
}

template <int kQueries, typename Kept>
[[OUTRIDER_AVX512]] void values_block(MatrixView<const float> p, const Kept* values,
                                      std::size_t count, MatrixView<float> out) {
  constexpr int kVectors = 4;
  const std::size_t head_dim = out.columns();
  std::size_t channel = 0;
  for (; channel + kVectors * kWidth <= head_dim; channel += kVectors * kWidth)
    values_channels<kQueries, kVectors>(p, values, head_dim, count, 0xffff, out, channel);
  for (; channel < head_dim; channel += kWidth)
    values_channels<kQueries, 1>(p, values, head_dim, count, lanes(head_dim - channel), out,
                                 channel);
}

template <typename Kept>
void scores(MatrixView<const float> queries, const Kept* keys, MatrixView<float> scores) {
  static constexpr decltype(&scores_block<1, Kept>) kBlocks[kMostQueries] = {
      scores_block<1, Kept>, scores_block<2, Kept>, scores_block<3, Kept>,
      scores_block<4, Kept>, scores_block<5, Kept>, scores_block<6, Kept>};
  for_even_blocks(queries.rows(), kMostQueries, [&](Range block) {
    kBlocks[block.end - block.begin - 1](rows_of(queries, block), keys, rows_of(scores, block));
  });
}

template <typename Kept>
void values(MatrixView<const float> p, const Kept* values, std::size_t count,
            MatrixView<float> out) {
  static constexpr decltype(&values_block<1, Kept>) kBlocks[kMostQueries] = {
      values_block<1, Kept>, values_block<2, Kept>, values_block<3, Kept>,
      values_block<4, Kept>, values_block<5, Kept>, values_block<6, Kept>};
  for_even_blocks(out.rows(), kMostQueries, [&](Range block) {
    kBlocks[block.end - block.begin - 1](rows_of(p, block), values, count, rows_of(out, block));
  });
}

[[OUTRIDER_AVX512]] TileSum tile_softmax(std::span<float, kTile> p) {
  constexpr int kVectors = kTile / kWidth;
  __m512 score[kVectors], max = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  __mmask16 nan = 0;
  for (int v = 0; v < kVectors; ++v) {
    score[v] = load(&p[v * kWidth]);
    max = _mm512_max_ps(max, score[v]);
    nan |= _mm512_cmp_ps_mask(score[v], score[v], _CMP_UNORD_Q);
  }
  const float largest =
      nan != 0 ? std::numeric_limits<float>::quiet_NaN() : _mm512_reduce_max_ps(max);
  __m512 sum = _mm512_setzero_ps();
  for (int v = 0; v < kVectors; ++v) {
    const __m512 weight = exp_f32(_mm512_sub_ps(score[v], _mm512_set1_ps(largest)));
    sum = _mm512_add_ps(sum, weight);
    _mm512_storeu_ps(&p[v * kWidth], weight);
  }
  return {largest, sum_of_lanes(sum)};
}

[[OUTRIDER_AVX512]] void merge(float a, float b, Floats o_t, std::span<float> o) {
  for (std::size_t i = 0; i < o.size(); i += kWidth) {
    const __mmask16 mask = lanes(o.size() - i);
    const __m512 scaled = _mm512_mul_ps(load(mask, &o_t[i]), _mm512_set1_ps(b));
    _mm512_mask_storeu_ps(&o[i], mask,
                          _mm512_fmadd_ps(load(mask, &o[i]), _mm512_set1_ps(a), scaled));
  }
}

// Of a NaN, min and max return their second operand.
[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 clamped(__m512 x) {
  const __m512 below = _mm512_min_ps(_mm512_set1_ps(65504), x);
  return _mm512_max_ps(_mm512_set1_ps(-65504), below);
}

[[OUTRIDER_AVX512]] void clamp_to_half(Floats x, Half* out) {
  for (std::size_t i = 0; i < x.size(); i += kWidth) {
    const __mmask16 mask = lanes(x.size() - i);
    const __m512 kept = clamped(load(mask, &x[i]));
    _mm256_mask_storeu_epi16(out + i, mask,
                             _mm512_cvtps_ph(kept, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
}

[[OUTRIDER_AVX512]] void clamp_to_float(Floats x, float* out) {
  for (std::size_t i = 0; i < x.size(); i += kWidth) {
    const __mmask16 mask = lanes(x.size() - i);
    _mm512_mask_storeu_ps(out + i, mask, clamped(load(mask, &x[i])));
  }
}

}  // namespace

const VectorKernels kVectorsAvx512 = {
    .rms_norm = rms_norm,
    .silu_times = silu_times,
    .gelu_tanh_times = gelu_tanh_times,
    .add = add,
    .scale = scale,
    .softcap = softcap,
    .rope_halves = rope_halves,
    .rope_adjacent = rope_adjacent,
    .scores_f16 = scores<Half>,
    .scores_f32 = scores<float>,
    .tile_softmax = tile_softmax,
    .values_f16 = values<Half>,
    .values_f32 = values<float>,
    .merge = merge,
    .clamp_to_half = clamp_to_half,
    .clamp_to_float = clamp_to_float,
};

}  // namespace outrider

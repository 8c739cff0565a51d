// A lane an element, or in attention's scores a lane a key and in its values a lane a channel.
// Ragged ends are loaded and stored under a mask.

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/kernels/functions_avx2.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/lanes_avx2.h"
#include "cpu/kernels/query_blocks.h"

namespace outrider {
namespace {

using namespace avx2;
using Floats = std::span<const float>;

// Queries that share a pass over a tile: 6 x 2 accumulators, two registers of keys or values.
constexpr std::size_t kMostQueries = 6;

[[OUTRIDER_AVX2]] void rms_norm(Floats x, Floats w, float eps, std::span<float> y) {
  const std::size_t n = x.size();
  __m256 squares[2] = {};
  for (std::size_t i = 0, half = 0; i < n; i += kWidth, half ^= 1) {
    const __m256 v = load(lanes(n - i), &x[i]);
    squares[half] = _mm256_fmadd_ps(v, v, squares[half]);
  }
  const float mean = sum_of_lanes(squares[0], squares[1]) / static_cast<float>(n);
  const __m256 r = _mm256_set1_ps(1.0f / std::sqrt(mean + eps));
  for (std::size_t i = 0; i < n; i += kWidth) {
    const LaneMask some = lanes(n - i);
    const __m256 scaled = _mm256_mul_ps(load(some, &x[i]), r);
    store(some, &y[i], _mm256_mul_ps(scaled, load(some, &w[i])));
  }
}

[[OUTRIDER_AVX2]] void silu_times(Floats gate, Floats up, std::span<float> y) {
  for (std::size_t i = 0; i < y.size(); i += kWidth) {
    const LaneMask some = lanes(y.size() - i);
    const __m256 active = silu_f32(load(some, &gate[i]));
    store(some, &y[i], _mm256_mul_ps(active, load(some, &up[i])));
  }
}

[[OUTRIDER_AVX2]] void gelu_tanh_times(Floats gate, Floats up, std::span<float> y) {
  for (std::size_t i = 0; i < y.size(); i += kWidth) {
    const LaneMask some = lanes(y.size() - i);
    const __m256 active = gelu_tanh_f32(load(some, &gate[i]));
    store(some, &y[i], _mm256_mul_ps(active, load(some, &up[i])));
  }
}

[[OUTRIDER_AVX2]] void add(Floats x, std::span<float> y) {
  for (std::size_t i = 0; i < y.size(); i += kWidth) {
    const LaneMask some = lanes(y.size() - i);
    store(some, &y[i], _mm256_add_ps(load(some, &y[i]), load(some, &x[i])));
  }
}

[[OUTRIDER_AVX2]] void scale(float s, std::span<float> y) {
  for (std::size_t i = 0; i < y.size(); i += kWidth) {
    const LaneMask some = lanes(y.size() - i);
    store(some, &y[i], _mm256_mul_ps(load(some, &y[i]), _mm256_set1_ps(s)));
  }
}

[[OUTRIDER_AVX2]] void softcap(float c, std::span<float> y) {
  const __m256 cap = _mm256_set1_ps(c);
  for (std::size_t i = 0; i < y.size(); i += kWidth) {
    const LaneMask some = lanes(y.size() - i);
    const __m256 soft = tanh_f32(_mm256_div_ps(load(some, &y[i]), cap));
    store(some, &y[i], _mm256_mul_ps(cap, soft));
  }
}

[[OUTRIDER_AVX2]] void rope_halves(Floats cos, Floats sin, std::span<float> head) {
  const std::size_t half = cos.size();
  for (std::size_t i = 0; i < half; i += kWidth) {
    const LaneMask some = lanes(half - i);
    const __m256 c = load(some, &cos[i]), s = load(some, &sin[i]);
    const __m256 x1 = load(some, &head[i]), x2 = load(some, &head[half + i]);
    store(some, &head[i], _mm256_sub_ps(_mm256_mul_ps(x1, c), _mm256_mul_ps(x2, s)));
    store(some, &head[half + i], _mm256_add_ps(_mm256_mul_ps(x2, c), _mm256_mul_ps(x1, s)));
  }
}

[[OUTRIDER_AVX2]] void rope_adjacent(Floats cos, Floats sin, std::span<float> head) {
  constexpr std::size_t kPairs = kWidth / 2;
  const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);  // an angle for two channels
  for (std::size_t i = 0; i < cos.size(); i += kPairs) {
    const LaneMask some = lanes(2 * (cos.size() - i));
    const LaneMask pairs = lanes(std::min(cos.size() - i, kPairs));
    const __m256 c = _mm256_permutevar8x32_ps(load(pairs, &cos[i]), twice);
    const __m256 s = _mm256_permutevar8x32_ps(load(pairs, &sin[i]), twice);
    const __m256 x = load(some, &head[2 * i]);
    const __m256 crossed = _mm256_mul_ps(_mm256_permute_ps(x, 0b10110001), s);
    store(some, &head[2 * i], _mm256_addsub_ps(_mm256_mul_ps(x, c), crossed));
  }
}

// kVectors * 8 keys at a time, as many as the registers hold.
template <int kQueries, int kVectors, typename Kept>
[[OUTRIDER_AVX2, gnu::always_inline]] inline void scores_keys(MatrixView<const float> queries,
                                                              const Kept* keys, std::size_t first,
                                                              MatrixView<float> scores) {
  const float* query[kQueries];
  for (int q = 0; q < kQueries; ++q) query[q] = queries[q].data();
  __m256 sums[kQueries][kVectors] = {};
  const Kept* at = keys + first;
  for (std::size_t d = 0; d < queries.columns(); ++d, at += kTile) {
    __m256 key[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) key[v] = load(at + v * kWidth);
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) {
      const __m256 channel = _mm256_set1_ps(query[q][d]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[q][v] = _mm256_fmadd_ps(channel, key[v], sums[q][v]);
    }
  }
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) _mm256_storeu_ps(&scores[q][first + v * kWidth], sums[q][v]);
}

template <int kQueries, typename Kept>
[[OUTRIDER_AVX2]] void scores_block(MatrixView<const float> queries, const Kept* keys,
                                    MatrixView<float> scores) {
  constexpr int kVectors = kQueries <= 2 ? 4 : 2;
  for (std::size_t first = 0; first < kTile; first += kVectors * kWidth)
    scores_keys<kQueries, kVectors>(queries, keys, first, scores);
}

// One channel block without the keys whose weight is zero.
template <typename Kept>
[[OUTRIDER_AVX2]] void values_present(const float* p, const Kept* values, std::size_t stride,
                                      std::size_t count, const LaneMask& some, float* out) {
  __m256 sum = load(some, out);
  for (std::size_t j = 0; j < count; ++j) {
    if (p[j] == 0) continue;
    sum = _mm256_fmadd_ps(_mm256_set1_ps(p[j]), load(some, values + j * stride), sum);
  }
  store(some, out, sum);
}

// kVectors * 8 channels of kQueries rows. A key of weight 0 adds nothing, unless its value is NaN:
// that is seen in the sums, and they are made again without it. last: the lanes of the last vector.
template <int kQueries, int kVectors, typename Kept>
[[OUTRIDER_AVX2, gnu::always_inline]] inline void values_channels(
    MatrixView<const float> p, const Kept* values, std::size_t stride, std::size_t count,
    const LaneMask& last, MatrixView<float> out, std::size_t channel) {
  const float* weights[kQueries];
  float* to[kQueries];
  for (int q = 0; q < kQueries; ++q) {
    weights[q] = p[q].data();
    to[q] = &out[q][channel];
  }
  const LaneMask some[2] = {kVectors == 1 ? last : lanes(kWidth), last};
  __m256 sums[kQueries][kVectors];
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sums[q][v] = load(some[v], to[q] + v * kWidth);
  const Kept* at = values + channel;
  for (std::size_t j = 0; j < count; ++j, at += stride) {
    __m256 value[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) value[v] = load(some[v], at + v * kWidth);
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) {
      const __m256 weight = _mm256_set1_ps(weights[q][j]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sums[q][v] = _mm256_fmadd_ps(weight, value[v], sums[q][v]);
    }
  }
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const __m256 nan = _mm256_cmp_ps(sums[q][v], sums[q][v], _CMP_UNORD_Q);
      if (_mm256_movemask_ps(nan) != 0) {
        values_present(weights[q], values + channel + v * kWidth, stride, count, some[v],
                       to[q] + v * kWidth);
      } else {
        store(some[v], to[q] + v * kWidth, sums[q][v]);
      }
    }
  }
}

template <int kQueries, typename Kept>
[[OUTRIDER_AVX2]] void values_block(MatrixView<const float> p, const Kept* values,
                                    std::size_t count, MatrixView<float> out) {
  const std::size_t head_dim = out.columns();
  std::size_t channel = 0;
  for (; channel + 2 * kWidth <= head_dim; channel += 2 * kWidth)
    values_channels<kQueries, 2>(p, values, head_dim, count, lanes(kWidth), out, channel);
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

[[OUTRIDER_AVX2]] TileSum tile_softmax(std::span<float, kTile> p) {
  constexpr std::size_t kVectors = kTile / kWidth;
  __m256 score[kVectors], max = _mm256_set1_ps(-std::numeric_limits<float>::infinity());
  __m256 nan = _mm256_setzero_ps();
  for (std::size_t v = 0; v < kVectors; ++v) {
    score[v] = load(&p[v * kWidth]);
    max = _mm256_max_ps(max, score[v]);
    nan = _mm256_or_ps(nan, _mm256_cmp_ps(score[v], score[v], _CMP_UNORD_Q));
  }
  alignas(32) float maxima[kWidth];
  _mm256_store_ps(maxima, max);
  const float largest = _mm256_movemask_ps(nan) != 0 ? std::numeric_limits<float>::quiet_NaN()
                                                     : *std::max_element(maxima, maxima + kWidth);
  __m256 sums[2] = {};
  for (std::size_t v = 0; v < kVectors; ++v) {
    const __m256 weight = exp_f32(_mm256_sub_ps(score[v], _mm256_set1_ps(largest)));
    sums[v % 2] = _mm256_add_ps(sums[v % 2], weight);
    _mm256_storeu_ps(&p[v * kWidth], weight);
  }
  return {largest, sum_of_lanes(sums[0], sums[1])};
}

[[OUTRIDER_AVX2]] void merge(float a, float b, Floats o_t, std::span<float> o) {
  for (std::size_t i = 0; i < o.size(); i += kWidth) {
    const LaneMask some = lanes(o.size() - i);
    const __m256 scaled = _mm256_mul_ps(load(some, &o_t[i]), _mm256_set1_ps(b));
    store(some, &o[i], _mm256_fmadd_ps(load(some, &o[i]), _mm256_set1_ps(a), scaled));
  }
}

// Of a NaN, min and max return their second operand.
[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256 clamped(__m256 x) {
  const __m256 below = _mm256_min_ps(_mm256_set1_ps(65504), x);
  return _mm256_max_ps(_mm256_set1_ps(-65504), below);
}

[[OUTRIDER_AVX2]] void clamp_to_half(Floats x, Half* out) {
  for (std::size_t i = 0; i < x.size(); i += kWidth) {
    const LaneMask some = lanes(x.size() - i);
    alignas(16) Half kept[kWidth];
    _mm_store_si128(
        reinterpret_cast<__m128i*>(kept),
        _mm256_cvtps_ph(clamped(load(some, &x[i])), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    std::copy_n(kept, some.count, out + i);
  }
}

[[OUTRIDER_AVX2]] void clamp_to_float(Floats x, float* out) {
  for (std::size_t i = 0; i < x.size(); i += kWidth) {
    const LaneMask some = lanes(x.size() - i);
    store(some, out + i, clamped(load(some, &x[i])));
  }
}

}  // namespace

const VectorKernels kVectorsAvx2 = {
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

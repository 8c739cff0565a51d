#include <cmath>

#include "cpu/kernels/kernels.h"
#include "numerics/attention.h"
#include "numerics/functions.h"
#include "numerics/norm.h"
#include "numerics/rope.h"

namespace outrider {
namespace {

using Floats = std::span<const float>;

void silu_times(Floats gate, Floats up, std::span<float> y) {
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = silu_f32(gate[i]) * up[i];
}

void gelu_tanh_times(Floats gate, Floats up, std::span<float> y) {
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = gelu_tanh_f32(gate[i]) * up[i];
}

void add(Floats x, std::span<float> y) {
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += x[i];
}

void scale(float s, std::span<float> y) {
  for (float& value : y) value *= s;
}

float widen(Half x) {
  return half_to_float(x);
}
float widen(float x) {
  return x;
}

template <typename Kept>
void scores(MatrixView<const float> queries, const Kept* keys, MatrixView<float> scores) {
  for (std::size_t q = 0; q < queries.rows(); ++q) {
    const Floats query = queries[q];
    for (std::size_t j = 0; j < kTile; ++j) {
      float sum = 0;
      for (std::size_t d = 0; d < query.size(); ++d)
        sum = std::fma(query[d], widen(keys[d * kTile + j]), sum);
      scores[q][j] = sum;
    }
  }
}

template <typename Kept>
void values(MatrixView<const float> p, const Kept* values, std::size_t count,
            MatrixView<float> out) {
  const std::size_t head_dim = out.columns();
  for (std::size_t q = 0; q < out.rows(); ++q) {
    const std::span<float> sums = out[q];
    for (std::size_t j = 0; j < count; ++j) {
      if (p[q][j] == 0) continue;
      for (std::size_t d = 0; d < head_dim; ++d)
        sums[d] = std::fma(p[q][j], widen(values[j * head_dim + d]), sums[d]);
    }
  }
}

void clamp_to_half(Floats x, Half* out) {
  for (const float value : x) *out++ = float_to_half(read_back(value, KeptAs::f32));
}

void clamp_to_float(Floats x, float* out) {
  for (const float value : x) *out++ = read_back(value, KeptAs::f32);
}

}  // namespace

const VectorKernels kVectorsReference = {
    .rms_norm = rms_norm_reference,
    .silu_times = silu_times,
    .gelu_tanh_times = gelu_tanh_times,
    .add = add,
    .scale = scale,
    .softcap = softcap_reference,
    .rope_halves = rope_halves_reference,
    .rope_adjacent = rope_adjacent_reference,
    .scores_f16 = scores<Half>,
    .scores_f32 = scores<float>,
    .tile_softmax = tile_softmax_reference,
    .values_f16 = values<Half>,
    .values_f32 = values<float>,
    .merge = merge_reference,
    .clamp_to_half = clamp_to_half,
    .clamp_to_float = clamp_to_float,
};

}  // namespace outrider

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

void sigmoid_times(Floats gate, std::span<float> y) {
  for (std::size_t i = 0; i < y.size(); ++i) y[i] *= sigmoid_f32(gate[i]);
}

void add(Floats x, std::span<float> y) {
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += x[i];
}

void scale(float s, std::span<float> y) {
  for (float& value : y) value *= s;
}

}  // namespace

const VectorKernels kVectorsReference = {
    .rms_norm = rms_norm_reference,
    .layer_norm = layer_norm_reference,
    .silu_times = silu_times,
    .gelu_tanh_times = gelu_tanh_times,
    .sigmoid_times = sigmoid_times,
    .add = add,
    .scale = scale,
    .softcap = softcap_reference,
    .rope_halves = rope_halves_reference,
    .rope_adjacent = rope_adjacent_reference,
};

}  // namespace outrider

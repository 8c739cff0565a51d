// A lane an element.

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/x86/functions_avx512.h"
#include "cpu/kernels/x86/lanes_avx512.h"
#include "cpu/kernels/x86/tables.h"

namespace outrider {
namespace {

using namespace avx512;
using Floats = std::span<const float>;

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
};

}  // namespace outrider

// A lane an element. Ragged ends are loaded and stored under a mask.

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/x86/functions_avx2.h"
#include "cpu/kernels/x86/lanes_avx2.h"
#include "cpu/kernels/x86/tables.h"

namespace outrider {
namespace {

using namespace avx2;
using Floats = std::span<const float>;

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
};

}  // namespace outrider

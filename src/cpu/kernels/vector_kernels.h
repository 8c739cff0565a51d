// VectorKernels of kernels.h over a vector type: see vector_functions.h.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/vector_functions.h"

namespace outrider {

template <class V>
struct VectorKernelsOn : Functions<V> {
  using typename V::Floats;
  using typename V::Lanes;
  using V::add, V::subtract, V::multiply, V::divide, V::fused, V::all, V::lanes, V::kWidth;
  using Row = std::span<const float>;

  static constexpr std::size_t kSums = 16 / kWidth;

  // A block that is not the end of a row.
  struct Whole {};
  [[gnu::always_inline]] static inline Floats load(Whole, const float* at) { return V::load(at); }
  [[gnu::always_inline]] static inline Floats load(const Lanes& some, const float* at) {
    return V::load(some, at);
  }
  [[gnu::always_inline]] static inline void store(Whole, float* at, Floats x) { V::store(at, x); }
  [[gnu::always_inline]] static inline void store(const Lanes& some, float* at, Floats x) {
    V::store(some, at, x);
  }

  // body(some, i) for the blocks of n numbers. Only the last one may have fewer lanes: AVX2's
  // masked stores take 15 times as long as others on Zen 4.
  template <typename Body>
  [[gnu::always_inline]] static inline void for_blocks(std::size_t n, const Body& body) {
    std::size_t i = 0;
    for (; i + kWidth <= n; i += kWidth) body(Whole(), i);
    if (i < n) body(lanes(n - i), i);
  }

  static void rms_norm(Row x, Row w, float eps, std::span<float> y) {
    const float mean = lane_sum<true>(x) / static_cast<float>(x.size());
    const Floats r = all(1.0f / std::sqrt(mean + eps));
    for_blocks(
        x.size(), [&](auto some, std::size_t at) __attribute__((always_inline)) {
          store(some, &y[at], multiply(multiply(load(some, &x[at]), r), load(some, &w[at])));
        });
  }

  static void layer_norm(Row x, Row w, float eps, std::span<float> y) {
    const Floats mean = all(lane_sum<false>(x) / static_cast<float>(x.size()));
    for_blocks(
        x.size(), [&](auto some, std::size_t at) __attribute__((always_inline)) {
          store(some, &y[at], subtract(load(some, &x[at]), mean));
        });
    rms_norm(y, w, eps, y);
  }

  static void silu_times(Row gate, Row up, std::span<float> y) {
    for_blocks(
        y.size(), [&](auto some, std::size_t i) __attribute__((always_inline)) {
          const Floats active = Functions<V>::silu_f32(load(some, &gate[i]));
          store(some, &y[i], multiply(active, load(some, &up[i])));
        });
  }

  static void gelu_tanh_times(Row gate, Row up, std::span<float> y) {
    for_blocks(
        y.size(), [&](auto some, std::size_t i) __attribute__((always_inline)) {
          const Floats active = Functions<V>::gelu_tanh_f32(load(some, &gate[i]));
          store(some, &y[i], multiply(active, load(some, &up[i])));
        });
  }

  static void sigmoid_times(Row gate, std::span<float> y) {
    for_blocks(
        y.size(), [&](auto some, std::size_t i) __attribute__((always_inline)) {
          const Floats share = Functions<V>::sigmoid_f32(load(some, &gate[i]));
          store(some, &y[i], multiply(load(some, &y[i]), share));
        });
  }

  static void add_row(Row x, std::span<float> y) {
    for_blocks(
        y.size(), [&](auto some, std::size_t i) __attribute__((always_inline)) {
          store(some, &y[i], add(load(some, &y[i]), load(some, &x[i])));
        });
  }

  static void scale(float s, std::span<float> y) {
    for_blocks(
        y.size(), [&](auto some, std::size_t i) __attribute__((always_inline)) {
          store(some, &y[i], multiply(load(some, &y[i]), all(s)));
        });
  }

  static void softcap(float c, std::span<float> y) {
    for_blocks(
        y.size(), [&](auto some, std::size_t i) __attribute__((always_inline)) {
          const Floats soft = Functions<V>::tanh_f32(divide(load(some, &y[i]), all(c)));
          store(some, &y[i], multiply(all(c), soft));
        });
  }

  static void rope_halves(Row cos, Row sin, std::span<float> head) {
    const std::size_t half = cos.size();
    for_blocks(
        half, [&](auto some, std::size_t i) __attribute__((always_inline)) {
          const Floats c = load(some, &cos[i]), s = load(some, &sin[i]);
          const Floats x1 = load(some, &head[i]), x2 = load(some, &head[half + i]);
          store(some, &head[i], subtract(multiply(x1, c), multiply(x2, s)));
          store(some, &head[half + i], add(multiply(x2, c), multiply(x1, s)));
        });
  }

  static void rope_adjacent(Row cos, Row sin, std::span<float> head) {
    for_blocks(
        2 * cos.size(), [&](auto some, std::size_t i) __attribute__((always_inline)) {
          const std::size_t pair = i / 2;
          const Lanes pairs = lanes(std::min(cos.size() - pair, kWidth / 2));
          const Floats c = V::each_twice(V::load(pairs, &cos[pair]));
          const Floats s = V::each_twice(V::load(pairs, &sin[pair]));
          const Floats x = load(some, &head[i]), crossed = multiply(V::swap_pairs(x), s);
          store(some, &head[i], V::subtract_add(multiply(x, c), crossed));
        });
  }

  static constexpr VectorKernels table() {
    return {
        .rms_norm = rms_norm,
        .layer_norm = layer_norm,
        .silu_times = silu_times,
        .gelu_tanh_times = gelu_tanh_times,
        .sigmoid_times = sigmoid_times,
        .add = add_row,
        .scale = scale,
        .softcap = softcap,
        .rope_halves = rope_halves,
        .rope_adjacent = rope_adjacent,
    };
  }

 private:
  // The lane sum of a row, or of its squares.
  template <bool of_squares>
  [[gnu::always_inline]] static inline float lane_sum(Row x) {
    Floats sums[kSums] = {};
    std::size_t i = 0;
    for (; i + 16 <= x.size(); i += 16) {
      for (std::size_t s = 0; s < kSums; ++s)
        add_to<of_squares>(V::load(&x[i + s * kWidth]), sums[s]);
    }
    for (std::size_t s = 0; i < x.size(); ++s, i += kWidth)
      add_to<of_squares>(V::load(lanes(x.size() - i), &x[i]), sums[s]);
    return V::total(sums);
  }
  template <bool of_square>
  [[gnu::always_inline]] static inline void add_to(Floats x, Floats& sum) {
    sum = of_square ? fused(x, x, sum) : add(sum, x);
  }
};

}  // namespace outrider

// The functions of a vector type against numerics/functions.h: a test for each instruction set
// includes this in its region.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cpu/kernels/vector_functions.h"
#include "numerics/functions.h"

namespace outrider::testing {

inline constexpr std::size_t kChunk = 4096;

// exp of -|x|
inline float exp_of_minus_size(float x) {
  return exp_f32(-std::fabs(x));
}

template <class V>
struct FunctionsTest : Functions<V> {
  using typename V::Floats;
  using Of = Functions<V>;

  struct Twins {
    const char* name;
    float (*reference)(float);
    void (*apply)(const float* x, float* y);
  };

  template <Floats (*function)(Floats)>
  static void apply(const float* x, float* y) {
    for (std::size_t i = 0; i < kChunk; i += V::kWidth) V::store(y + i, function(V::load(x + i)));
  }
  static Floats exp_of_minus_size_of(Floats x) {
    return Of::exp_of_negative(V::subtract(V::all(0.0f), V::size(x)));
  }

  // Every `stride`-th bit pattern. Zeros are compared without their sign, NaNs as one.
  static void expect_same_bits(std::uint64_t stride) {
    const Twins all_twins[] = {
        {"exp", exp_f32, apply<Of::exp_f32>},
        {"exp_of_negative", exp_of_minus_size, apply<exp_of_minus_size_of>},
        {"log", log_f32, apply<Of::log_f32>},
        {"log1p", log1p_f32, apply<Of::log1p_f32>},
        {"tanh", tanh_f32, apply<Of::tanh_f32>},
        {"sigmoid", sigmoid_f32, apply<Of::sigmoid_f32>},
        {"silu", silu_f32, apply<Of::silu_f32>},
        {"gelu_tanh", gelu_tanh_f32, apply<Of::gelu_tanh_f32>},
    };
    std::vector<float> x(kChunk), expected(kChunk), found(kChunk);
    for (const Twins& twins : all_twins) {
      for (std::uint64_t bits = 0; bits < 1ull << 32;) {
        for (float& value : x) {
          value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
          bits += stride;
        }
        std::transform(x.begin(), x.end(), expected.begin(), twins.reference);
        twins.apply(x.data(), found.data());
        for (std::size_t i = 0; i < kChunk; ++i) {
          if (found[i] == expected[i] || (std::isnan(found[i]) && std::isnan(expected[i])))
            continue;
          FAIL() << twins.name << " of " << std::hexfloat << x[i] << ": " << found[i]
                 << ", expected " << expected[i];
        }
      }
    }
  }
};

}  // namespace outrider::testing

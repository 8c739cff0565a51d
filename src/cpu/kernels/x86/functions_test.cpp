// The vector twins of numerics/functions.h: the reference's bits.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cpu/isa.h"
#include "cpu/kernels/x86/functions_avx2.h"
#include "cpu/kernels/x86/functions_avx512.h"

namespace outrider {
namespace {

constexpr std::size_t kChunk = 4096;

using Apply = void (*)(const float* x, float* y);

template <__m256 (*function)(__m256)>
[[OUTRIDER_AVX2]] void apply_avx2(const float* x, float* y) {
  for (std::size_t i = 0; i < kChunk; i += 8)
    _mm256_storeu_ps(y + i, function(_mm256_loadu_ps(x + i)));
}

template <__m512 (*function)(__m512)>
[[OUTRIDER_AVX512]] void apply_avx512(const float* x, float* y) {
  for (std::size_t i = 0; i < kChunk; i += 16)
    _mm512_storeu_ps(y + i, function(_mm512_loadu_ps(x + i)));
}

// exp of -|x|
float exp_of_minus_size(float x) {
  return exp_f32(-std::fabs(x));
}
[[OUTRIDER_AVX2]] inline __m256 exp_of_minus_size_avx2(__m256 x) {
  return avx2::exp_of_negative(_mm256_or_ps(x, _mm256_set1_ps(-0.0f)));
}
[[OUTRIDER_AVX512]] inline __m512 exp_of_minus_size_avx512(__m512 x) {
  return avx512::exp_of_negative(_mm512_sub_ps(_mm512_setzero_ps(), _mm512_abs_ps(x)));
}

struct Twins {
  const char* name;
  float (*reference)(float);
  Apply avx2, avx512;
};

const Twins kTwins[] = {
    {"exp", exp_f32, apply_avx2<avx2::exp_f32>, apply_avx512<avx512::exp_f32>},
    {"exp_of_negative", exp_of_minus_size, apply_avx2<exp_of_minus_size_avx2>,
     apply_avx512<exp_of_minus_size_avx512>},
    {"log", log_f32, apply_avx2<avx2::log_f32>, apply_avx512<avx512::log_f32>},
    {"log1p", log1p_f32, apply_avx2<avx2::log1p_f32>, apply_avx512<avx512::log1p_f32>},
    {"tanh", tanh_f32, apply_avx2<avx2::tanh_f32>, apply_avx512<avx512::tanh_f32>},
    {"sigmoid", sigmoid_f32, apply_avx2<avx2::sigmoid_f32>, apply_avx512<avx512::sigmoid_f32>},
    {"silu", silu_f32, apply_avx2<avx2::silu_f32>, apply_avx512<avx512::silu_f32>},
    {"gelu_tanh", gelu_tanh_f32, apply_avx2<avx2::gelu_tanh_f32>,
     apply_avx512<avx512::gelu_tanh_f32>},
};

// Every `stride`-th bit pattern. Zeros are compared without their sign, NaNs as one.
void expect_same_bits(std::uint64_t stride) {
  std::vector<float> x(kChunk), expected(kChunk), found(kChunk);
  for (const Twins& twins : kTwins) {
    for (std::uint64_t bits = 0; bits < 1ull << 32;) {
      for (float& value : x) {
        value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
        bits += stride;
      }
      std::transform(x.begin(), x.end(), expected.begin(), twins.reference);
      for (const Isa isa : {Isa::avx2, Isa::avx512}) {
        if (!is_available(isa)) continue;
        (isa == Isa::avx2 ? twins.avx2 : twins.avx512)(x.data(), found.data());
        for (std::size_t i = 0; i < kChunk; ++i) {
          if (found[i] == expected[i] || (std::isnan(found[i]) && std::isnan(expected[i])))
            continue;
          FAIL() << twins.name << " on " << name(isa) << " of " << std::hexfloat << x[i] << ": "
                 << found[i] << ", expected " << expected[i];
        }
      }
    }
  }
}

TEST(FunctionTwins, GiveTheReferencesBits) {
  expect_same_bits(7919);
}

// Soak: some twelve minutes.
TEST(FunctionTwins, DISABLED_GiveTheReferencesBitsEverywhere) {
  expect_same_bits(1);
}

}  // namespace
}  // namespace outrider

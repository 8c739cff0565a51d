#include <algorithm>
#include <limits>

#include "cpu/choice_kernels.h"
#include "cpu/kernels/functions_avx2.h"
#include "cpu/kernels/lanes_avx2.h"

namespace outrider {
namespace {

using namespace avx2;

[[OUTRIDER_AVX2, gnu::always_inline]] inline float largest(__m256 x) {
  const __m128 by4 = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 by2 = _mm_max_ps(by4, _mm_movehl_ps(by4, by4));
  return _mm_cvtss_f32(_mm_max_ss(by2, _mm_movehdup_ps(by2)));
}

[[OUTRIDER_AVX2]] float block_maxima(std::span<const float> x, std::span<float> maxima) {
  const __m256 lowest = _mm256_set1_ps(-std::numeric_limits<float>::infinity());
  __m256 all = lowest, nan = _mm256_setzero_ps();
  for (std::size_t begin = 0, block = 0; begin < x.size(); begin += kChoiceBlock, ++block) {
    __m256 max = lowest;
    const std::size_t end = std::min(x.size(), begin + kChoiceBlock);
    for (std::size_t i = begin; i < end; i += kWidth) {
      const LaneMask some = lanes(end - i);
      const __m256 value = select(_mm256_castsi256_ps(some.mask), load(some, &x[i]), lowest);
      nan = _mm256_or_ps(nan, _mm256_cmp_ps(value, value, _CMP_UNORD_Q));
      max = _mm256_max_ps(max, value);
    }
    maxima[block] = largest(max);
    all = _mm256_max_ps(all, max);
  }
  return _mm256_movemask_ps(nan) != 0 ? std::numeric_limits<float>::quiet_NaN() : largest(all);
}

[[OUTRIDER_AVX2]] float exp_differences(std::span<const float> x, float max, std::span<float> y) {
  __m256 sums[2] = {};
  for (std::size_t i = 0, half = 0; i < x.size(); i += kWidth, half ^= 1) {
    const LaneMask some = lanes(x.size() - i);
    const __m256 e = exp_f32(_mm256_sub_ps(load(some, &x[i]), _mm256_set1_ps(max)));
    const __m256 present = _mm256_and_ps(e, _mm256_castsi256_ps(some.mask));
    sums[half] = _mm256_add_ps(sums[half], present);
    store(some, &y[i], e);
  }
  return sum_of_lanes(sums[0], sums[1]);
}

[[OUTRIDER_AVX2]] void divide(float divisor, std::span<float> y) {
  for (std::size_t i = 0; i < y.size(); i += kWidth) {
    const LaneMask some = lanes(y.size() - i);
    store(some, &y[i], _mm256_div_ps(load(some, &y[i]), _mm256_set1_ps(divisor)));
  }
}

// Both halves of x * factor.
struct Product {
  __m256i high, low;
};

[[OUTRIDER_AVX2, gnu::always_inline]] inline Product multiply(__m256i x, std::uint32_t factor) {
  const __m256i f = _mm256_set1_epi32(static_cast<int>(factor));
  const __m256i even = _mm256_mul_epu32(x, f), odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), f);
  constexpr int kOdd = 0b10101010;
  return {_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, kOdd),
          _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), kOdd)};
}

[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256 gumbel_from_bits(__m256i h) {
  const __m256 high = _mm256_cvtepi32_ps(_mm256_srli_epi32(h, 16));
  const __m256i rest = _mm256_and_si256(h, _mm256_set1_epi32(0xffff));
  const __m256 low = _mm256_add_ps(_mm256_cvtepi32_ps(rest), _mm256_set1_ps(0.5f));
  const __m256 sum =
      _mm256_fmadd_ps(high, _mm256_set1_ps(0x1p-16f), _mm256_mul_ps(low, _mm256_set1_ps(0x1p-32f)));
  const __m256 u = _mm256_min_ps(sum, _mm256_set1_ps(1 - 0x1p-24f));
  const __m256 zero = _mm256_setzero_ps();
  const __m256 exponential = _mm256_sub_ps(zero, log1p_f32(_mm256_sub_ps(zero, u)));
  return _mm256_sub_ps(zero, log_f32(exponential));
}

[[OUTRIDER_AVX2]] void noise(const NoiseKey& key, Token first, std::span<float, kChoiceBlock> out) {
  constexpr std::size_t kCounters = kChoiceBlock / 4;
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  for (std::size_t begin = 0; begin < kCounters; begin += kWidth) {
    const int first_counter = first / 4 + static_cast<int>(begin);
    __m256i counter[4] = {_mm256_add_epi32(_mm256_set1_epi32(first_counter), lane),
                          _mm256_set1_epi32(static_cast<int>(key.position)),
                          _mm256_set1_epi32(static_cast<int>(key.stream)),
                          _mm256_set1_epi32(static_cast<int>(NoiseUse::choice))};
    PhiloxKey round_key(key.seed);
    for (int round = 0; round < kPhiloxRounds; ++round, round_key.advance()) {
      const Product a = multiply(counter[0], kPhiloxFactors[0]);
      const Product b = multiply(counter[2], kPhiloxFactors[1]);
      const __m256i key0 = _mm256_set1_epi32(static_cast<int>(round_key.words[0]));
      const __m256i key1 = _mm256_set1_epi32(static_cast<int>(round_key.words[1]));
      counter[0] = _mm256_xor_si256(_mm256_xor_si256(b.high, counter[1]), key0);
      counter[1] = b.low;
      counter[2] = _mm256_xor_si256(_mm256_xor_si256(a.high, counter[3]), key1);
      counter[3] = a.low;
    }
    for (std::size_t i = 0; i < 4; ++i)
      _mm256_storeu_ps(&out[i * kCounters + begin], gumbel_from_bits(counter[i]));
  }
}

}  // namespace

const ChoiceKernels kChoiceAvx2 = {
    .block_maxima = block_maxima,
    .exp_differences = exp_differences,
    .divide = divide,
    .noise = noise,
};

}  // namespace outrider

#include <algorithm>
#include <limits>

#include "cpu/choice_kernels.h"
#include "cpu/kernels/functions_avx512.h"
#include "cpu/kernels/lanes_avx512.h"

namespace outrider {
namespace {

using namespace avx512;

[[OUTRIDER_AVX512]] float block_maxima(std::span<const float> x, std::span<float> maxima) {
  const __m512 lowest = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  __m512 all = lowest;
  __mmask16 nan = 0;
  for (std::size_t begin = 0, block = 0; begin < x.size(); begin += kChoiceBlock, ++block) {
    __m512 max = lowest;
    const std::size_t end = std::min(x.size(), begin + kChoiceBlock);
    for (std::size_t i = begin; i < end; i += kWidth) {
      const __mmask16 mask = lanes(end - i);
      const __m512 value = _mm512_mask_loadu_ps(lowest, mask, &x[i]);
      nan |= _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
      max = _mm512_max_ps(max, value);
    }
    maxima[block] = _mm512_reduce_max_ps(max);
    all = _mm512_max_ps(all, max);
  }
  return nan != 0 ? std::numeric_limits<float>::quiet_NaN() : _mm512_reduce_max_ps(all);
}

[[OUTRIDER_AVX512]] float exp_differences(std::span<const float> x, float max, std::span<float> y) {
  __m512 sum = _mm512_setzero_ps();
  for (std::size_t i = 0; i < x.size(); i += kWidth) {
    const __mmask16 mask = lanes(x.size() - i);
    const __m512 e = exp_f32(_mm512_sub_ps(load(mask, &x[i]), _mm512_set1_ps(max)));
    sum = _mm512_mask_add_ps(sum, mask, sum, e);
    _mm512_mask_storeu_ps(&y[i], mask, e);
  }
  return sum_of_lanes(sum);
}

[[OUTRIDER_AVX512]] void divide(float divisor, std::span<float> y) {
  for (std::size_t i = 0; i < y.size(); i += kWidth) {
    const __mmask16 mask = lanes(y.size() - i);
    _mm512_mask_storeu_ps(&y[i], mask, _mm512_div_ps(load(mask, &y[i]), _mm512_set1_ps(divisor)));
  }
}

// Both halves of x * factor.
struct Product {
  __m512i high, low;
};

[[OUTRIDER_AVX512, gnu::always_inline]] inline Product multiply(__m512i x, std::uint32_t factor) {
  const __m512i f = _mm512_set1_epi32(static_cast<int>(factor));
  const __m512i even = _mm512_mul_epu32(x, f), odd = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), f);
  constexpr __mmask16 kOdd = 0xaaaa;
  return {_mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), kOdd, odd),
          _mm512_mask_mov_epi32(even, kOdd, _mm512_slli_epi64(odd, 32))};
}

[[OUTRIDER_AVX512, gnu::always_inline]] inline __m512 gumbel_from_bits(__m512i h) {
  const __m512 high = _mm512_cvtepi32_ps(_mm512_srli_epi32(h, 16));
  const __m512i rest = _mm512_and_si512(h, _mm512_set1_epi32(0xffff));
  const __m512 low = _mm512_add_ps(_mm512_cvtepi32_ps(rest), _mm512_set1_ps(0.5f));
  const __m512 sum =
      _mm512_fmadd_ps(high, _mm512_set1_ps(0x1p-16f), _mm512_mul_ps(low, _mm512_set1_ps(0x1p-32f)));
  const __m512 u = _mm512_min_ps(sum, _mm512_set1_ps(1 - 0x1p-24f));
  const __m512 zero = _mm512_setzero_ps();
  const __m512 exponential = _mm512_sub_ps(zero, log1p_f32(_mm512_sub_ps(zero, u)));
  return _mm512_sub_ps(zero, log_f32(exponential));
}

[[OUTRIDER_AVX512]] void noise(const NoiseKey& key, Token first,
                               std::span<float, kChoiceBlock> out) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  __m512i counter[4] = {_mm512_add_epi32(_mm512_set1_epi32(first / 4), lane),
                        _mm512_set1_epi32(static_cast<int>(key.position)),
                        _mm512_set1_epi32(static_cast<int>(key.stream)),
                        _mm512_set1_epi32(static_cast<int>(NoiseUse::choice))};
  PhiloxKey round_key(key.seed);
  for (int round = 0; round < kPhiloxRounds; ++round, round_key.advance()) {
    const Product a = multiply(counter[0], kPhiloxFactors[0]);
    const Product b = multiply(counter[2], kPhiloxFactors[1]);
    const __m512i key0 = _mm512_set1_epi32(static_cast<int>(round_key.words[0]));
    const __m512i key1 = _mm512_set1_epi32(static_cast<int>(round_key.words[1]));
    counter[0] = _mm512_xor_si512(_mm512_xor_si512(b.high, counter[1]), key0);
    counter[1] = b.low;
    counter[2] = _mm512_xor_si512(_mm512_xor_si512(a.high, counter[3]), key1);
    counter[3] = a.low;
  }
  for (std::size_t i = 0; i < 4; ++i)
    _mm512_storeu_ps(&out[i * kWidth], gumbel_from_bits(counter[i]));
}

}  // namespace

const ChoiceKernels kChoiceAvx512 = {
    .block_maxima = block_maxima,
    .exp_differences = exp_differences,
    .divide = divide,
    .noise = noise,
};

}  // namespace outrider

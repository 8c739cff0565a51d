// attention_kernels.h in vectors of 8. Queries share the registers of keys or values by sixes: 12
// accumulators, 2 registers that they share and one that differs.

#include <algorithm>
#include <bit>
#include <limits>

#include "cpu/kernels/attention_kernels.h"
#include "cpu/kernels/query_blocks.h"
#include "cpu/kernels/x86/functions_avx2.h"
#include "cpu/kernels/x86/lanes_avx2.h"
#include "cpu/kernels/x86/tables.h"
#include "numerics/attention.h"
#include "numerics/half.h"

#define OUTRIDER_TARGET OUTRIDER_AVX2
#define OUTRIDER_OP [[OUTRIDER_AVX2, gnu::always_inline]] inline

namespace outrider {
namespace {

using avx2::exp_of_negative;
using avx2::kWidth;
using avx2::lanes;
using avx2::load;
using avx2::store;
using avx2::tanh_f32;

using Floats = __m256;
using Ints = __m256i;
using Mask = avx2::LaneMask;
using Nans = __m256;
using LaneSums = Floats[2];  // 16 accumulators

template <int kQueries>
constexpr int kScoreVectors = kQueries <= 2 ? 4 : 2;
constexpr int kScoreVectorsQ8 = 1;
constexpr int kValueVectors = 2;

OUTRIDER_OP Floats all(float x) {
  return _mm256_set1_ps(x);
}
OUTRIDER_OP Ints all(std::int32_t x) {
  return _mm256_set1_epi32(x);
}
// The 4 bytes there in every lane.
OUTRIDER_OP Ints all_unaligned(const void* at) {
  std::int32_t four;
  __builtin_memcpy(&four, at, sizeof four);
  return all(four);
}
OUTRIDER_OP Ints load(const std::int32_t* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}
OUTRIDER_OP void store(std::int32_t* at, Ints x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), x);
}
template <bool kWhole, typename T>
OUTRIDER_OP Floats load_lanes(const Mask& some, const T* at) {
  return kWhole ? load(at) : load(some, at);
}

OUTRIDER_OP Floats add(Floats a, Floats b) {
  return _mm256_add_ps(a, b);
}
OUTRIDER_OP Floats subtract(Floats a, Floats b) {
  return _mm256_sub_ps(a, b);
}
OUTRIDER_OP Floats multiply(Floats a, Floats b) {
  return _mm256_mul_ps(a, b);
}
OUTRIDER_OP Floats divide(Floats a, Floats b) {
  return _mm256_div_ps(a, b);
}
OUTRIDER_OP Floats fused(Floats a, Floats b, Floats c) {
  return _mm256_fmadd_ps(a, b, c);
}
OUTRIDER_OP Floats larger(Floats a, Floats b) {
  return _mm256_max_ps(a, b);
}
OUTRIDER_OP Floats lesser(Floats a, Floats b) {
  return _mm256_min_ps(a, b);
}
OUTRIDER_OP Nans either_nan(Floats a, Floats b) {
  return _mm256_cmp_ps(a, b, _CMP_UNORD_Q);
}
OUTRIDER_OP Nans either(Nans a, Nans b) {
  return _mm256_or_ps(a, b);
}
OUTRIDER_OP bool any(Nans nans) {
  return _mm256_movemask_ps(nans) != 0;
}
// a * b, 0 where a is.
OUTRIDER_OP Floats product_or_zero(Floats a, Floats b) {
  return _mm256_and_ps(_mm256_cmp_ps(a, _mm256_setzero_ps(), _CMP_NEQ_UQ), _mm256_mul_ps(a, b));
}
// x at `places` of vector v of a tile, which are not none, y beside them.
OUTRIDER_OP Floats select(Places places, int v, Floats x, Floats y) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i place = _mm256_add_epi32(lane, all(static_cast<std::int32_t>(v * kWidth)));
  const __m256i is_in = _mm256_and_si256(_mm256_cmpgt_epi32(place, all(places.begin - 1)),
                                         _mm256_cmpgt_epi32(all(std::int32_t{places.end}), place));
  return _mm256_blendv_ps(y, x, _mm256_castsi256_ps(is_in));
}
// In all lanes.
OUTRIDER_OP Floats largest_lane(Floats x) {
  x = _mm256_max_ps(x, _mm256_permute2f128_ps(x, x, 1));
  x = _mm256_max_ps(x, _mm256_permute_ps(x, 0b01001110));
  return _mm256_max_ps(x, _mm256_permute_ps(x, 0b10110001));
}
OUTRIDER_OP float first_lane(Floats x) {
  return _mm256_cvtss_f32(x);
}
OUTRIDER_OP float total(const LaneSums& x) {
  return avx2::sum_of_lanes(x[0], x[1]);
}

OUTRIDER_OP Ints add(Ints a, Ints b) {
  return _mm256_add_epi32(a, b);
}
OUTRIDER_OP Ints larger(Ints a, Ints b) {
  return _mm256_max_epi32(a, b);
}
OUTRIDER_OP Ints lesser(Ints a, Ints b) {
  return _mm256_min_epi32(a, b);
}
OUTRIDER_OP std::int32_t largest_lane(Ints x) {
  alignas(32) std::int32_t lanes[kWidth];
  store(lanes, x);
  return *std::max_element(lanes, lanes + kWidth);
}
OUTRIDER_OP Ints size_bits(Floats x) {
  return _mm256_and_si256(_mm256_castps_si256(x), all(0x7fffffff));
}
OUTRIDER_OP Floats to_floats(Ints x) {
  return _mm256_cvtepi32_ps(x);
}
OUTRIDER_OP Ints rounded(Floats x) {
  return _mm256_cvtps_epi32(x);
}
OUTRIDER_OP __m128i words(Ints x) {
  return _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
}
OUTRIDER_OP void store_words(std::int16_t* at, Ints x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(at), words(x));
}
OUTRIDER_OP void store_bytes(std::int8_t* at, Ints x) {
  _mm_storel_epi64(reinterpret_cast<__m128i*>(at), _mm_packs_epi16(words(x), words(x)));
}

// Keys get their sign back: as |q| and |k| are at most 127, two products then fit into 16 bits.
OUTRIDER_OP Ints biased_sum(std::int32_t) {
  return all(0);
}
OUTRIDER_OP Ints load_keys(const std::uint8_t* at) {
  return _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)),
                          _mm256_set1_epi8(-128));
}
OUTRIDER_OP Ints add_fours(Ints sum, Ints key, Ints channels) {
  const Ints pairs =
      _mm256_maddubs_epi16(_mm256_abs_epi8(channels), _mm256_sign_epi8(key, channels));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
OUTRIDER_OP Ints widened(const std::int8_t* at) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}
OUTRIDER_OP Ints add_pairs(Ints sum, Ints values, Ints weights) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(values, weights));
}

#include "cpu/kernels/x86/attention_scores_lanes.h"
#include "cpu/kernels/x86/attention_values_lanes.h"

}  // namespace

const AttentionKernels kAttentionAvx2 = kTable;

}  // namespace outrider

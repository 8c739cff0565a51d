// attention_kernels.h in vectors of 16. Queries share the registers of keys or values by sixes: 24
// accumulators, 4 registers that they share and one that differs. (Twelve that share two would
// widen halves half as often, but twelve addresses do not fit into registers: slower.)

#include <algorithm>
#include <bit>
#include <limits>

#include "cpu/kernels/attention_kernels.h"
#include "cpu/kernels/query_blocks.h"
#include "cpu/kernels/x86/functions_avx512.h"
#include "cpu/kernels/x86/lanes_avx512.h"
#include "cpu/kernels/x86/tables.h"
#include "numerics/attention.h"
#include "numerics/half.h"

#define OUTRIDER_TARGET OUTRIDER_AVX512
#define OUTRIDER_OP [[OUTRIDER_AVX512, gnu::always_inline]] inline

namespace outrider {
namespace {

using avx512::add;
using avx512::all;
using avx512::divide;
using avx512::exp_of_negative;
using avx512::fused;
using avx512::kWidth;
using avx512::lanes;
using avx512::larger;
using avx512::lesser;
using avx512::load;
using avx512::multiply;
using avx512::store;
using avx512::subtract;
using avx512::tanh_f32;

using Floats = __m512;
using Ints = __m512i;
using Mask = __mmask16;
using Nans = __mmask16;
using LaneSums = Floats[1];  // 16 accumulators

template <int kQueries>
constexpr int kScoreVectors = 4;
constexpr int kScoreVectorsQ8 = 2;
constexpr int kValueVectors = 4;

// The 4 bytes there in every lane.
OUTRIDER_OP Ints all_unaligned(const void* at) {
  std::int32_t four;
  __builtin_memcpy(&four, at, sizeof four);
  return all(four);
}
template <bool kWhole, typename T>
OUTRIDER_OP Floats load_lanes(Mask some, const T* at) {
  return kWhole ? load(at) : load(some, at);
}

OUTRIDER_OP Nans either_nan(Floats a, Floats b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
}
OUTRIDER_OP Nans either(Nans a, Nans b) {
  return a | b;
}
OUTRIDER_OP bool any(Nans nans) {
  return nans != 0;
}
// a * b, 0 where a is.
OUTRIDER_OP Floats product_or_zero(Floats a, Floats b) {
  return _mm512_maskz_mul_ps(_mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_NEQ_UQ), a, b);
}
// x at `places` of vector v of a tile, which are not none, y beside them.
OUTRIDER_OP Floats select(Places places, int v, Floats x, Floats y) {
  const int count = places.end - places.begin;
  const std::uint64_t bits = ~std::uint64_t{0} >> (kTile - count) << places.begin;
  return _mm512_mask_mov_ps(y, static_cast<__mmask16>(bits >> v * kWidth), x);
}
// In all lanes.
OUTRIDER_OP Floats largest_lane(Floats x) {
  x = _mm512_max_ps(x, _mm512_shuffle_f32x4(x, x, 0b01001110));
  x = _mm512_max_ps(x, _mm512_shuffle_f32x4(x, x, 0b10110001));
  x = _mm512_max_ps(x, _mm512_permute_ps(x, 0b01001110));
  return _mm512_max_ps(x, _mm512_permute_ps(x, 0b10110001));
}
OUTRIDER_OP float first_lane(Floats x) {
  return _mm512_cvtss_f32(x);
}
OUTRIDER_OP float total(const LaneSums& x) {
  return avx512::sum_of_lanes(x[0]);
}

OUTRIDER_OP Ints add(Ints a, Ints b) {
  return _mm512_add_epi32(a, b);
}
OUTRIDER_OP std::int32_t largest_lane(Ints x) {
  return _mm512_reduce_max_epi32(x);
}
OUTRIDER_OP Ints size_bits(Floats x) {
  return _mm512_castps_si512(_mm512_abs_ps(x));
}
OUTRIDER_OP Floats to_floats(Ints x) {
  return _mm512_cvtepi32_ps(x);
}
OUTRIDER_OP Ints rounded(Floats x) {
  return _mm512_cvtps_epi32(x);
}
OUTRIDER_OP void store_words(std::int16_t* at, Ints x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm512_cvtepi32_epi16(x));
}
OUTRIDER_OP void store_bytes(std::int8_t* at, Ints x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm512_cvtepi32_epi8(x));
}

// Keys stay 128 more than they mean, which the bias takes back.
OUTRIDER_OP Ints biased_sum(std::int32_t bias) {
  return all(bias);
}
OUTRIDER_OP Ints load_keys(const std::uint8_t* at) {
  return _mm512_loadu_si512(at);
}
OUTRIDER_OP Ints add_fours(Ints sum, Ints key, Ints channels) {
  return _mm512_dpbusd_epi32(sum, key, channels);
}
OUTRIDER_OP Ints widened(const std::int8_t* at) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}
OUTRIDER_OP Ints add_pairs(Ints sum, Ints values, Ints weights) {
  return _mm512_dpwssd_epi32(sum, values, weights);
}

#include "cpu/kernels/x86/attention_scores_lanes.h"
#include "cpu/kernels/x86/attention_values_lanes.h"

}  // namespace

const AttentionKernels kAttentionAvx512 = kTable;

}  // namespace outrider

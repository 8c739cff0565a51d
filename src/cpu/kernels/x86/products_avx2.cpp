// Products with AVX2.
//
// vpmaddubsw adds two products in 16 bits, and 16 bits hold several of these sums before they must
// be widened, as |q| <= 127:
//   2, 3 bits    8 units:  16 * 7 * 127 = 14,224
//   4 bits       8 units: 16 * 15 * 127 = 30,480
//   5 bits       4 units:  8 * 31 * 127 = 31,496; with the bias taken off,
//                8 units: 16 * 16 * 127 = 32,512
//   6 bits       4 units of w - 32:  8 * 32 * 127 = 32,512
// Where the bias is taken off, sums of w + bias wrap around; starting from the bias they end right.
// One vpmaddwd then multiplies by the scale and widens.
//
// 8 bits, and levels, which have as many, are multiplied as numbers of 16, q too, by two vpmaddwd
// per unit, which sum in 32 bits.
// (By |w| and w's sign given to q it would be vpsignb, vpmaddubsw and vpmaddwd, all three on the
// pipes that multiply: four rows at 0.32 of the limit instead of 0.40.)

#include "cpu/kernels/x86/products_256.h"
#include "cpu/kernels/x86/tables.h"

namespace outrider {
namespace {

using products256::keep_order;

struct Avx2Sums {
  static constexpr int kGroupRows = 4;
  static constexpr ExtraKind bias(TensorType type) {
    return block_shape(type).q_bits() == 8 ? ExtraKind::wide_start : ExtraKind::bias_halves;
  }

  static constexpr int units_per_sum(TensorType type) {
    const BlockShape shape = block_shape(type);
    return shape.bits == 5 && shape.has_min ? 4 : 8;
  }

  [[OUTRIDER_AVX2, gnu::always_inline]] static __m256i one() { return _mm256_set1_epi16(1); }

  template <TensorType kType>
  [[OUTRIDER_AVX2, gnu::always_inline]] static __m256i scale(__m128i bytes) {
    if constexpr (block_shape(kType).q_bits() == 8) return _mm256_cvtepi8_epi32(bytes);
    return _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(bytes, bytes));
  }

  // The byte, widened to 16 bits, in both halves of every lane.
  [[OUTRIDER_AVX2, gnu::always_inline]] static __m256i scale_of(__m256i lanes, int byte) {
    const __m256i both = _mm256_add_epi32(
        _mm256_set1_epi32(byte * 0x10001 | static_cast<int>(0x80008000u)),
        _mm256_setr_epi32(0, 0x40004, 0x80008, 0xc000c, 0, 0x40004, 0x80008, 0xc000c));
    return _mm256_shuffle_epi8(lanes, both);
  }

  // Of 8 bits columns 0 and 2, or 1 and 3.
  template <TensorType kType>
  [[OUTRIDER_AVX2, gnu::always_inline]] static __m256i part(__m256i w, int part) {
    if constexpr (block_shape(kType).q_bits() != 8) return w;
    return part == 0 ? _mm256_and_si256(w, _mm256_set1_epi16(255)) : _mm256_srli_epi16(w, 8);
  }

  template <TensorType kType>
  [[OUTRIDER_AVX2, gnu::always_inline]] static void add_unit(__m256i& sum, __m256i w, __m256i q) {
    if constexpr (block_shape(kType).q_bits() == 8) {
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(w, q));
      keep_order(sum);
    } else {
      sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, q));
      keep_order(sum);
    }
  }

  template <TensorType kType>
  [[OUTRIDER_AVX2, gnu::always_inline]] static void add_scaled(__m256i& total, __m256i sum,
                                                               __m256i scale) {
    constexpr BlockShape kShape = block_shape(kType);
    if constexpr (kShape.q_bits() == 8 && kShape.sub_blocks == 1)
      total = sum;
    else if constexpr (kShape.q_bits() == 8)
      total = _mm256_add_epi32(total, _mm256_mullo_epi32(sum, scale));
    else
      total = _mm256_add_epi32(total, _mm256_madd_epi16(sum, scale));
  }

  [[OUTRIDER_AVX2, gnu::always_inline]] static void add_pairs(__m256i& total, __m256i a,
                                                              __m256i b) {
    total = _mm256_add_epi32(total, _mm256_madd_epi16(a, b));
    keep_order(total);
  }
};

// The lanes' largest.
[[OUTRIDER_AVX2]] std::uint32_t largest_lane(__m256i lanes) {
  alignas(32) std::uint32_t each[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(each), lanes);
  std::uint32_t largest = 0;
  for (const std::uint32_t lane : each) largest = lane > largest ? lane : largest;
  return largest;
}

// Eight floats, times inverse, to the nearest integers.
[[OUTRIDER_AVX2, gnu::always_inline]] inline __m256i round_scaled(const float* x, __m256 inverse) {
  return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));
}

}  // namespace

[[OUTRIDER_AVX2]] void products256::quantize(std::span<const float> x, std::size_t group,
                                             QuantizedRow out) {
  for (std::size_t first = 0; first < x.size(); first += group) {
    __m256i most = _mm256_setzero_si256();
    for (std::size_t i = first; i < first + group; i += 8) {
      const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(&x[i]));
      most = _mm256_max_epi32(most, _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)));
    }
    const GroupScale scale = group_scale(largest_lane(most));
    out.d[first / group] = scale.d;
    const __m256 inverse = _mm256_set1_ps(scale.inverse);
    const __m256i finite = _mm256_set1_epi32(scale.finite ? -1 : 0);
    for (std::size_t i = first; i < first + group; i += 16) {
      const __m256i low = _mm256_and_si256(round_scaled(&x[i], inverse), finite);
      const __m256i high = _mm256_and_si256(round_scaled(&x[i + 8], inverse), finite);
      // Packing works within halves of a register; the permutation puts all in order.
      const __m256i q16 =
          _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), _MM_SHUFFLE(3, 1, 2, 0));
      const __m128i q =
          _mm_packs_epi16(_mm256_castsi256_si128(q16), _mm256_extracti128_si256(q16, 1));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out.q + i), q);
      // Sums of eight numbers without sign: q + 128.
      const __m128i sums = _mm_sad_epu8(_mm_xor_si128(q, _mm_set1_epi8(-128)), _mm_setzero_si128());
      out.sums16[i / 16] = static_cast<std::int16_t>(_mm_cvtsi128_si32(sums) +
                                                     _mm_extract_epi16(sums, 4) - 16 * 128);
    }
  }
}

const ProductKernels kProductsAvx2 = {products256::lines<Avx2Sums>, products256::arrange<Avx2Sums>,
                                      product_of_interleaved, products256::quantize};

}  // namespace outrider

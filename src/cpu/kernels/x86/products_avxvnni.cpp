// Products with AVX-VNNI: vpdpbusd on 256 bits, and 16 registers.
//
// Laptops have its VEX encoding, processors with AVX-512 the EVEX one. Both are written out here
// over the same code and the same registers, so that either machine tests all but the encoding.

#include "cpu/kernels/x86/products_256.h"
#include "cpu/kernels/x86/tables.h"

namespace outrider {
namespace {

template <VnniEncoding kEncoding>
struct VnniSums {
  static constexpr int kGroupRows = 5;
  static constexpr ExtraKind bias(TensorType) { return ExtraKind::bias_start; }

  static constexpr int units_per_sum(TensorType) { return 8; }

  [[OUTRIDER_AVX2, gnu::always_inline]] static __m256i one() { return _mm256_set1_epi32(1); }

  template <TensorType>
  [[OUTRIDER_AVX2, gnu::always_inline]] static __m256i scale(__m128i bytes) {
    return _mm256_cvtepi8_epi32(bytes);
  }

  [[OUTRIDER_AVX2, gnu::always_inline]] static __m256i scale_of(__m256i lanes, int byte) {
    return _mm256_and_si256(_mm256_srli_epi32(lanes, 8 * byte), _mm256_set1_epi32(255));
  }

  template <TensorType kType>
  [[OUTRIDER_AVX2, gnu::always_inline]] static __m256i part(__m256i w, int) {
    return w;
  }

  // In assembly, as no compiler lets one function use either encoding.
  template <TensorType kType>
  [[OUTRIDER_AVX2, gnu::always_inline]] static void add_unit(__m256i& sum, __m256i w, __m256i q) {
    if constexpr (kEncoding == VnniEncoding::vex)
      asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(w), "x"(q));
    else
      asm("%{evex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(w), "x"(q));
  }

  template <TensorType kType>
  [[OUTRIDER_AVX2, gnu::always_inline]] static void add_scaled(__m256i& total, __m256i sum,
                                                               __m256i scale) {
    if constexpr (block_shape(kType).elements == 32)
      total = sum;
    else
      total = _mm256_add_epi32(total, _mm256_mullo_epi32(sum, scale));
  }

  [[OUTRIDER_AVX2, gnu::always_inline]] static void add_pairs(__m256i& total, __m256i a,
                                                              __m256i b) {
    if constexpr (kEncoding == VnniEncoding::vex)
      asm("%{vex%} vpdpwssd %2, %1, %0" : "+x"(total) : "x"(a), "x"(b));
    else
      asm("%{evex%} vpdpwssd %2, %1, %0" : "+x"(total) : "x"(a), "x"(b));
  }
};

}  // namespace

// Quantizing has nothing of VNNI in it.
const ProductKernels kProductsAvxVnniVex = {products256::lines<VnniSums<VnniEncoding::vex>>,
                                            products256::arrange<VnniSums<VnniEncoding::vex>>,
                                            product_of_interleaved, products256::quantize};
const ProductKernels kProductsAvxVnniEvex = {products256::lines<VnniSums<VnniEncoding::evex>>,
                                             products256::arrange<VnniSums<VnniEncoding::evex>>,
                                             product_of_interleaved, products256::quantize};

}  // namespace outrider

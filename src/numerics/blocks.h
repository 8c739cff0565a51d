// A block of quantized weights split into the numbers that docs/arithmetic.md's table of products
// names. Nothing is computed here: weight = d * d_factor * (scale) * (q - bias) + or - m * (min),
// as the type has it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/tensor_type.h"
#include "numerics/half.h"

namespace outrider {

struct Block {
  std::uint8_t q[256];     // w + bias, never negative
  std::int8_t scales[16];  // types with sub-blocks: one each
  std::uint8_t mins[16];   // Q2_K, Q4_K, Q5_K: one per sub-block
  Half d;
  Half m;  // Q4_1, Q5_1: the minimum; Q2_K, Q4_K, Q5_K: dmin
};

// What the four bits of an IQ4 type stand for.
inline constexpr std::int8_t kLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                            1,    13,   25,  38,  53,  69,  89,  113};

struct BlockShape {
  std::size_t elements;    // 32, 128 or 256
  std::size_t sub_blocks;  // that share the block's d; 1 for groups of 32
  int bits;                // of a weight where it is packed (cpu/panel.h)
  int bias;                // w = q - bias
  bool has_min;
  bool has_levels = false;  // packed as the number of a level, which is w
  float d_factor = 1;       // a power of two

  constexpr std::size_t sub_columns() const { return elements / sub_blocks; }
  constexpr int q_bits() const { return has_levels ? 8 : bits; }
  // Whether sub-blocks have scales with a sign, a byte each, and no minimums.
  constexpr bool has_byte_scales() const { return elements == 256 && !has_min; }
};

// The shape of a quantized type as blocks are split; float types have none.
constexpr BlockShape block_shape(TensorType type) {
  switch (type) {
    case TensorType::q4_0: return {32, 1, 4, 8, false};
    case TensorType::q4_1: return {32, 1, 4, 0, true};
    case TensorType::q5_0: return {32, 1, 5, 16, false};
    case TensorType::q5_1: return {32, 1, 5, 0, true};
    case TensorType::q8_0: return {32, 1, 8, 128, false};
    case TensorType::q2_k: return {256, 16, 2, 0, true};
    case TensorType::tq1_0:  // three or four weights of Q3_K's eight, all scales 1
    case TensorType::tq2_0:
    case TensorType::q3_k: return {256, 16, 3, 4, false};
    case TensorType::q4_k: return {256, 8, 4, 0, true};
    case TensorType::q5_k: return {256, 8, 5, 0, true};
    case TensorType::q6_k: return {256, 16, 6, 32, false};
    case TensorType::iq4_nl: return {32, 1, 4, 128, false, true};
    case TensorType::iq4_xs: return {256, 8, 4, 128, false, true};
    // Weights in eighths: their tables hold eighths, quarters and ones.
    case TensorType::iq1_s:
    case TensorType::iq1_m:
    case TensorType::iq2_xxs:
    case TensorType::iq2_xs:
    case TensorType::iq2_s:
    case TensorType::iq3_xxs:
    case TensorType::iq3_s:
    case TensorType::q8_256: return {256, 16, 8, 128, false, false, 0.125f};
    case TensorType::q1_0:  // 1 and -1 of Q4_128's weights, all scales 1
    case TensorType::q4_128: return {128, 8, 4, 8, false};
    default: return {};
  }
}

// Where a block of the file keeps its halves, in bytes. IQ1_M's d is not in one place
// (table_blocks.cpp).
struct HalfPlaces {
  std::size_t d, m;
};
constexpr HalfPlaces half_places(TensorType type) {
  switch (type) {
    case TensorType::q2_k: return {80, 82};
    case TensorType::q3_k: return {108, 0};
    case TensorType::q6_k: return {208, 0};
    case TensorType::tq1_0: return {52, 0};
    case TensorType::tq2_0: return {64, 0};
    default: return {0, 2};
  }
}

// Fields that the type lacks are not written. `raw`: one block as the file has it. Of types that no
// file has: Q4_128 is d, eight scales and 128 weights, both four bits each: a byte's low bits hold
// number i, its high bits that of the second half; Q8_256 is d, 16 scales and 256 weights, a byte
// with sign each.
void decode_block(TensorType type, const std::byte* raw, Block& block);

}  // namespace outrider

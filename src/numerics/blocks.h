// A block of quantized weights split into the numbers that docs/arithmetic.md's table of products
// names. Nothing is computed here: weight = d * (scale) * (q - bias) + or - m * (min), as the type
// has it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/tensor_type.h"
#include "numerics/half.h"

namespace outrider {

struct Block {
  std::uint8_t q[256];     // w + bias, never negative
  std::int8_t scales[16];  // K types, Q4_128: one per sub-block
  std::uint8_t mins[8];    // Q4_K, Q5_K: one per sub-block
  Half d;
  Half m;  // Q4_1, Q5_1: the minimum; Q4_K, Q5_K: dmin
};

struct BlockShape {
  std::size_t elements;    // 32, 128 or 256
  std::size_t sub_blocks;  // that share the block's d; 1 for groups of 32
  int bits;                // of a weight
  int bias;                // w = q - bias
  bool has_min;

  constexpr std::size_t sub_columns() const { return elements / sub_blocks; }
};

// The shape of a quantized type as blocks are split; float types have none.
constexpr BlockShape block_shape(TensorType type) {
  switch (type) {
    case TensorType::q4_0: return {32, 1, 4, 8, false};
    case TensorType::q4_1: return {32, 1, 4, 0, true};
    case TensorType::q5_0: return {32, 1, 5, 16, false};
    case TensorType::q5_1: return {32, 1, 5, 0, true};
    case TensorType::q8_0: return {32, 1, 8, 128, false};
    case TensorType::q4_k: return {256, 8, 4, 0, true};
    case TensorType::q5_k: return {256, 8, 5, 0, true};
    case TensorType::q3_k: return {256, 16, 6, 32, false};  // as Q6_K, of which it is a part
    case TensorType::q6_k: return {256, 16, 6, 32, false};
    case TensorType::iq4_nl: return {32, 1, 8, 128, false};  // as Q8_0
    case TensorType::q4_128: return {128, 8, 4, 8, false};
    default: return {};
  }
}

// Fields that the type lacks are not written. `raw`: one block as the file has it; of Q4_128, which
// no file has, d, eight scales and 128 weights, both four bits each: a byte's low bits hold number
// i, its high bits that of the second half.
void decode_block(TensorType type, const std::byte* raw, Block& block);

}  // namespace outrider

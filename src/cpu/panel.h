// The bytes of a packed panel: 16 outputs of a weight matrix, lane o of a 64-byte line is output
// o's.
//
// Float types: a line (f32) or half a line (f16, bf16) a column.
//
// Quantized types go block by block. A type with minimums begins a block with a line of halves,
// d[16] and m[16]; a type without begins each two blocks with a line that holds the d[16] of both
// (of one, if the last stands alone). A block's body follows. Weights are stored with their bias,
// so never negative, in units of [16 outputs][4 columns] bytes:
//   2 bits   a sub-block of 4 units is a line: bits 2u and 2u + 1 of a byte are unit u's
//   3 bits   two sub-blocks s = 0, 1 are a line that they share and one for each. A byte of their
//            own line has unit 0 in bits 0 to 2, unit 1 in 3 to 5, the two low bits of unit 2 in 6
//            and 7; one of the shared line has unit 3 in 4s to 4s + 2, unit 2's third in 4s + 3
//   4 bits   a sub-block of n units is n / 2 lines: line i has unit i in low nibbles and unit
//            i + n / 2 in high ones; n is 8, 4 for Q4_128. Of IQ4_NL and IQ4_XS the four bits
//            number a level (numerics/blocks.h)
//   5 bits   the same after a line of fifth bits: bit u of a byte is unit u's
//   6 bits   a sub-block of 16 columns is 3 lines: unit i in the six low bits of line i; the two
//            high bits of line i are bits 2i, 2i + 1 of unit 3
//   8 bits   a line a unit
// Before them stand the scales of sub-blocks. Those with a sign (BlockShape::has_byte_scales):
// [sub-blocks][16 outputs] bytes. Q4_128: a line, four bits each; in a lane, bits 4i and on have
// that of sub-block 2i, bits 4i + 16 and on that of 2i + 1. Q2_K: line i has sub-blocks 4i + j, a
// byte of a lane each, scale in low and minimum in high bits; the bytes' order is j = 0, 2, 1, 3,
// so one mask leaves pairs (0, 1) or (2, 3) of 16-bit numbers. Q4_K, Q5_K: three lines of the
// file's six-bit numbers, a byte of a lane for sub-blocks j and j + 4, in the same order:
//   line 0   scale j, and above it the two high bits of scale j + 4
//   line 1   minimum j, and above it the two high bits of minimum j + 4
//   line 2   low nibble: the low bits of scale j + 4; high nibble: those of minimum j + 4

#pragma once

#include <cstddef>

#include "formats/tensor_type.h"
#include "numerics/blocks.h"

namespace outrider {

inline constexpr std::size_t kLine = 64;

// The type whose layout holds the weights of `type`, the same for most. The weights of others are
// unpacked: what is multiplied is equal, and they take more memory than in the file.
constexpr TensorType packed_as(TensorType type) {
  switch (type) {
    case TensorType::tq1_0:
    case TensorType::tq2_0: return TensorType::q3_k;
    case TensorType::q1_0: return TensorType::q4_128;
    case TensorType::iq1_s:
    case TensorType::iq1_m:
    case TensorType::iq2_xxs:
    case TensorType::iq2_xs:
    case TensorType::iq2_s:
    case TensorType::iq3_xxs:
    case TensorType::iq3_s: return TensorType::q8_256;
    default: return type;
  }
}

// Bytes of a block's scales and minimums.
constexpr std::size_t scale_bytes(TensorType type) {
  const BlockShape shape = block_shape(type);
  if (shape.has_byte_scales()) return shape.sub_blocks * 16;
  switch (type) {
    case TensorType::q2_k: return 4 * kLine;
    case TensorType::q4_k:
    case TensorType::q5_k: return 3 * kLine;
    case TensorType::q4_128: return kLine;
    default: return 0;
  }
}

// Bytes of a block without its halves.
constexpr std::size_t body_bytes(TensorType type) {
  const BlockShape shape = block_shape(type);
  return scale_bytes(type) + shape.elements * shape.bits * 2;  // 16 outputs, 8 bits a byte
}

// Where a sub-block's weights begin, in bytes from those of the first; with 3 bits two sub-blocks
// begin at the same place. own: the bytes of them that no earlier sub-block has, too.
constexpr std::size_t sub_block_begin(TensorType type, std::size_t sub_block) {
  const BlockShape shape = block_shape(type);
  if (shape.bits == 3) return sub_block / 2 * 3 * kLine;
  return sub_block * shape.sub_columns() * shape.bits * 2;  // 16 outputs, 8 bits a byte
}
constexpr std::size_t sub_block_own_begin(TensorType type, std::size_t sub_block) {
  const bool follows = block_shape(type).bits == 3 && sub_block % 2 == 1;
  return sub_block_begin(type, sub_block) + (follows ? 2 * kLine : 0);
}
constexpr std::size_t sub_block_own_bytes(TensorType type, std::size_t sub_block) {
  const BlockShape shape = block_shape(type);
  if (shape.bits == 3) return (2 - sub_block % 2) * kLine;
  return shape.sub_columns() * shape.bits * 2;
}

// Where a block's parts begin in its panel.
struct BlockPlace {
  std::size_t d, m, body;
};

constexpr BlockPlace block_place(TensorType type, std::size_t block) {
  const std::size_t body = body_bytes(type);
  if (block_shape(type).has_min) {
    const std::size_t first = block * (kLine + body);
    return {first, first + kLine / 2, first + kLine};
  }
  const std::size_t first = block / 2 * (kLine + 2 * body), odd = block % 2;
  return {first + odd * kLine / 2, 0, first + kLine + odd * body};
}

// Bytes of n consecutive blocks; n is even if two share a line of halves.
constexpr std::size_t bytes_of_blocks(TensorType type, std::size_t n) {
  const std::size_t halves = block_shape(type).has_min ? kLine : kLine / 2;
  return n * (halves + body_bytes(type));
}

// Which byte of its lane is the scale, or the minimum, of sub-block j: kScaleByte[j % 4].
inline constexpr int kScaleByte[4] = {0, 2, 1, 3};

}  // namespace outrider

#include "numerics/blocks.h"

#include <cstring>

#include "base/error.h"
#include "numerics/table_blocks.h"

namespace outrider {
namespace {

Half load_half(const std::uint8_t* raw) {
  Half half;
  std::memcpy(&half, raw, sizeof half);
  return half;
}

// 32 weights: low nibbles are the first half, high nibbles the second.
void nibbles(const std::uint8_t* raw, std::uint8_t* q) {
  for (int i = 0; i < 16; ++i) {
    q[i] = raw[i] & 15;
    q[i + 16] = raw[i] >> 4;
  }
}

// Bit i of 32 becomes bit 4 of q[i]: a byte of bits is copied to eight bytes, each of which keeps
// its own bit; the addition carries it to the top, wherever it is.
void fifth_bits(const std::uint8_t* raw, std::uint8_t* q) {
  constexpr std::uint64_t kEachByte = 0x0101010101010101;
  for (int i = 0; i < 4; ++i) {
    const std::uint64_t own = raw[i] * kEachByte & 0x8040201008040201;
    std::uint64_t eight;
    std::memcpy(&eight, q + 8 * i, sizeof eight);
    eight |= ((own + 0x7f * kEachByte) & 0x80 * kEachByte) >> 3;
    std::memcpy(q + 8 * i, &eight, sizeof eight);
  }
}

// Eight scales and eight minimums of six bits in twelve bytes.
void six_bit_scales(const std::uint8_t* raw, Block& block) {
  for (int i = 0; i < 4; ++i) {
    block.scales[i] = raw[i] & 63;
    block.mins[i] = raw[i + 4] & 63;
    block.scales[i + 4] = (raw[i + 8] & 15) | raw[i] >> 6 << 4;
    block.mins[i + 4] = raw[i + 8] >> 4 | raw[i + 4] >> 6 << 4;
  }
}

// 256 weights in four runs of 64: low nibbles are a run's first half, high nibbles its second.
void long_nibbles(const std::uint8_t* raw, std::uint8_t* q) {
  for (int run = 0; run < 4; ++run) {
    for (int i = 0; i < 32; ++i) {
      q[run * 64 + i] = raw[run * 32 + i] & 15;
      q[run * 64 + 32 + i] = raw[run * 32 + i] >> 4;
    }
  }
}

// 256 weights of two bits in two runs of 128: bits 2i of 32 bytes are 32 neighbours.
void two_bits(const std::uint8_t* raw, std::uint8_t* q) {
  for (int run = 0; run < 8; ++run) {
    for (int i = 0; i < 32; ++i) q[run * 32 + i] = raw[run / 4 * 32 + i] >> (run % 4 * 2) & 3;
  }
}

// Q3_K: sixteen scales of six bits, stored with 32 more: the four low bits in eight bytes, the high
// ones in four.
void three_bit_scales(const std::uint8_t* raw, Block& block) {
  for (int s = 0; s < 16; ++s) {
    const int low = s < 8 ? raw[s] & 15 : raw[s - 8] >> 4;
    const int high = raw[8 + s % 4] >> (s / 4 * 2) & 3;
    block.scales[s] = static_cast<std::int8_t>((low | high << 4) - 32);
  }
}

void levels(std::uint8_t* q, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) q[i] = static_cast<std::uint8_t>(kLevels[q[i]] + 128);
}

// Weights from -1 to 1 with Q3_K's bias; five of them are the digits of a byte to base 3, the first
// the highest, of the fraction byte / 256. n: bytes, of which the i-th digits are neighbours.
std::uint8_t* ternary(const std::uint8_t* raw, int n, int digits, std::uint8_t* q) {
  for (int digit = 0, power = 1; digit < digits; ++digit, power *= 3) {
    for (int i = 0; i < n; ++i) {
      const int rest = raw[i] * power & 255;
      *q++ = static_cast<std::uint8_t>(4 - 1 + (rest * 3 >> 8));
    }
  }
  return q;
}

}  // namespace

void decode_block(TensorType type, const std::byte* bytes, Block& block) {
  const std::uint8_t* raw = reinterpret_cast<const std::uint8_t*>(bytes);
  const HalfPlaces halves = half_places(type);
  block.d = load_half(raw + halves.d);
  if (block_shape(type).has_min) block.m = load_half(raw + halves.m);
  switch (type) {
    case TensorType::q4_0: nibbles(raw + 2, block.q); return;
    case TensorType::q4_1: nibbles(raw + 4, block.q); return;
    case TensorType::q5_0:
      nibbles(raw + 6, block.q);
      fifth_bits(raw + 2, block.q);
      return;
    case TensorType::q5_1:
      nibbles(raw + 8, block.q);
      fifth_bits(raw + 4, block.q);
      return;
    case TensorType::q8_0:
      for (int i = 0; i < 32; ++i) block.q[i] = raw[2 + i] ^ 128;
      return;
    case TensorType::q2_k:
      for (int s = 0; s < 16; ++s) {
        block.scales[s] = raw[s] & 15;
        block.mins[s] = raw[s] >> 4;
      }
      two_bits(raw + 16, block.q);
      return;
    case TensorType::q3_k:
      two_bits(raw + 32, block.q);
      for (int i = 0; i < 256; ++i) block.q[i] |= (raw[i % 32] >> i / 32 & 1) << 2;
      three_bit_scales(raw + 96, block);
      return;
    case TensorType::tq1_0:
      ternary(raw + 48, 4, 4, ternary(raw + 32, 16, 5, ternary(raw, 32, 5, block.q)));
      std::memset(block.scales, 1, 16);
      return;
    case TensorType::tq2_0:
      two_bits(raw, block.q);
      for (std::uint8_t& q : block.q) q += 4 - 1;
      std::memset(block.scales, 1, 16);
      return;
    case TensorType::iq4_nl:
      nibbles(raw + 2, block.q);
      levels(block.q, 32);
      return;
    case TensorType::iq4_xs:
      for (int s = 0; s < 8; ++s) {
        const int low = raw[4 + s / 2] >> s % 2 * 4 & 15, high = raw[2 + s / 4] >> s % 4 * 2 & 3;
        block.scales[s] = static_cast<std::int8_t>((low | high << 4) - 32);
        nibbles(raw + 8 + 16 * s, block.q + 32 * s);
      }
      levels(block.q, 256);
      return;
    case TensorType::q4_k:
      six_bit_scales(raw + 4, block);
      long_nibbles(raw + 16, block.q);
      return;
    case TensorType::q5_k:
      six_bit_scales(raw + 4, block);
      long_nibbles(raw + 48, block.q);
      for (int sub = 0; sub < 8; ++sub) {
        for (int i = 0; i < 32; ++i) block.q[sub * 32 + i] |= (raw[16 + i] >> sub & 1) << 4;
      }
      return;
    case TensorType::q6_k:
      for (int half = 0; half < 2; ++half) {
        const std::uint8_t* low = raw + half * 64;
        const std::uint8_t* high = raw + 128 + half * 32;
        std::uint8_t* q = block.q + half * 128;
        for (int i = 0; i < 32; ++i) {
          q[i] = (low[i] & 15) | (high[i] & 3) << 4;
          q[i + 32] = (low[i + 32] & 15) | (high[i] >> 2 & 3) << 4;
          q[i + 64] = low[i] >> 4 | (high[i] >> 4 & 3) << 4;
          q[i + 96] = low[i + 32] >> 4 | high[i] >> 6 << 4;
        }
      }
      std::memcpy(block.scales, raw + 192, 16);
      return;
    case TensorType::q4_128:
      for (int i = 0; i < 4; ++i) {
        block.scales[i] = raw[2 + i] & 15;
        block.scales[i + 4] = raw[2 + i] >> 4;
      }
      for (int i = 0; i < 64; ++i) {
        block.q[i] = raw[6 + i] & 15;
        block.q[i + 64] = raw[6 + i] >> 4;
      }
      return;
    case TensorType::q1_0:
      for (int i = 0; i < 128; ++i) block.q[i] = raw[2 + i / 8] >> i % 8 & 1 ? 8 + 1 : 8 - 1;
      std::memset(block.scales, 1, 8);
      return;
    case TensorType::q8_256:
      std::memcpy(block.scales, raw + 2, 16);
      for (int i = 0; i < 256; ++i) block.q[i] = raw[18 + i] ^ 128;
      return;
    default: return decode_table_block(type, bytes, block);  // IQ1 to IQ3; CHECKs that it is one
  }
}

}  // namespace outrider

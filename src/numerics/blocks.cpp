#include "numerics/blocks.h"

#include <cstring>

#include "base/error.h"

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

// Q3_K: two bits of each weight, four runs of 32 in the same 32 bytes; a bit that is not set in
// `high` takes 4 away. From -4 to 3, stored with Q6_K's bias.
void three_bit_weights(const std::uint8_t* high, const std::uint8_t* low, std::uint8_t* q) {
  for (int run = 0; run < 8; ++run) {
    for (int i = 0; i < 32; ++i) {
      const int two_bits = low[run / 4 * 32 + i] >> (run % 4 * 2) & 3;
      const int taken = high[i] >> run & 1 ? 0 : 4;
      q[run * 32 + i] = static_cast<std::uint8_t>(32 + two_bits - taken);
    }
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

// What the four bits of IQ4_NL stand for.
constexpr std::int8_t kLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace

void decode_block(TensorType type, const std::byte* bytes, Block& block) {
  const std::uint8_t* raw = reinterpret_cast<const std::uint8_t*>(bytes);
  switch (type) {
    case TensorType::q4_0:
      block.d = load_half(raw);
      nibbles(raw + 2, block.q);
      return;
    case TensorType::q4_1:
      block.d = load_half(raw);
      block.m = load_half(raw + 2);
      nibbles(raw + 4, block.q);
      return;
    case TensorType::q5_0:
      block.d = load_half(raw);
      nibbles(raw + 6, block.q);
      fifth_bits(raw + 2, block.q);
      return;
    case TensorType::q5_1:
      block.d = load_half(raw);
      block.m = load_half(raw + 2);
      nibbles(raw + 8, block.q);
      fifth_bits(raw + 4, block.q);
      return;
    case TensorType::q8_0:
      block.d = load_half(raw);
      for (int i = 0; i < 32; ++i) block.q[i] = raw[2 + i] ^ 128;
      return;
    case TensorType::q3_k:
      three_bit_weights(raw, raw + 32, block.q);
      three_bit_scales(raw + 96, block);
      block.d = load_half(raw + 108);
      return;
    case TensorType::iq4_nl:
      block.d = load_half(raw);
      nibbles(raw + 2, block.q);
      for (int i = 0; i < 32; ++i)
        block.q[i] = static_cast<std::uint8_t>(kLevels[block.q[i]] + 128);
      return;
    case TensorType::q4_k:
      block.d = load_half(raw);
      block.m = load_half(raw + 2);
      six_bit_scales(raw + 4, block);
      long_nibbles(raw + 16, block.q);
      return;
    case TensorType::q5_k:
      block.d = load_half(raw);
      block.m = load_half(raw + 2);
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
      block.d = load_half(raw + 208);
      return;
    case TensorType::q4_128:
      block.d = load_half(raw);
      for (int i = 0; i < 4; ++i) {
        block.scales[i] = raw[2 + i] & 15;
        block.scales[i + 4] = raw[2 + i] >> 4;
      }
      for (int i = 0; i < 64; ++i) {
        block.q[i] = raw[6 + i] & 15;
        block.q[i + 64] = raw[6 + i] >> 4;
      }
      return;
    default: CHECK(!"a quantized type");
  }
}

}  // namespace outrider

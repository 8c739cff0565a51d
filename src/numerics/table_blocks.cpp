#include "numerics/table_blocks.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "numerics/weight_tables.h"

namespace outrider {
namespace {

// Weights by their numbers in an entry, in eighths.
constexpr int kWeightsIq2[4] = {8, 25, 43};
constexpr int kWeightsIq3Xxs[8] = {8, 24, 40, 56, 72, 88, 104, 124};
constexpr int kWeightsIq3S[8] = {8, 24, 40, 56, 72, 88, 104, 120};

template <typename Word>
Word load(const std::uint8_t* raw) {
  Word word;
  std::memcpy(&word, raw, sizeof word);
  return word;
}

// Bit i set: the weight i of eight is negative. Of seven stored bits, the eighth makes their number
// even.
std::uint32_t eight_signs(std::uint32_t seven) {
  return seven | (std::popcount(seven) & 1u) << 7;
}

std::uint8_t biased(int weight) {
  return static_cast<std::uint8_t>(weight + 128);
}

// q[i] = entry's weight i, of 16 / bits, with signs.
void write_entry(std::uint32_t entry, int bits, const int* weights, std::uint32_t signs,
                 std::uint8_t* q) {
  for (int i = 0; i < 16 / bits; ++i) {
    const int weight = weights[entry >> bits * i & ((1u << bits) - 1)];
    q[i] = biased(signs >> i & 1 ? -weight : weight);
  }
}

// Eight of IQ1's weights, from -1 to 1 in the table, all moved by an eighth up or down.
void write_moved_entry(std::uint32_t entry, bool down, std::uint8_t* q) {
  for (int i = 0; i < 8; ++i) {
    const int weight = static_cast<int>(entry >> 2 * i & 3) - 1;
    q[i] = biased(8 * weight + (down ? -1 : 1));
  }
}

// A type that stores s scales a weight by s + 1/2 or its double.
std::int8_t odd(std::uint32_t s) {
  return static_cast<std::int8_t>(2 * s + 1);
}

// The scales of sub-blocks 2g and 2g + 1, which are one.
void set_pair(Block& block, int g, std::uint32_t s) {
  block.scales[2 * g] = block.scales[2 * g + 1] = odd(s);
}

// Sixteen scales of four bits.
void four_bit_scales(const std::uint8_t* raw, Block& block) {
  for (int s = 0; s < 16; ++s) block.scales[s] = odd(raw[s / 2] >> s % 2 * 4 & 15);
}

void decode_iq1_s(const std::uint8_t* raw, Block& block) {
  for (int g = 0; g < 8; ++g) {
    const std::uint32_t high = load<std::uint16_t>(raw + 34 + 2 * g);
    set_pair(block, g, high >> 12 & 7);
    for (int e = 0; e < 4; ++e) {
      const std::uint32_t index = raw[2 + 4 * g + e] | (high >> 3 * e & 7) << 8;
      write_moved_entry(kIq1[index], high >> 15, block.q + 32 * g + 8 * e);
    }
  }
}

// d's four digits to base 16 stand above the scales.
void decode_iq1_m(const std::uint8_t* raw, Block& block) {
  std::uint32_t d = 0;
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t word = load<std::uint16_t>(raw + 48 + 2 * i);
    d |= word >> 12 << 4 * i;
    for (int s = 0; s < 4; ++s) block.scales[4 * i + s] = odd(word >> 3 * s & 7);
  }
  block.d = static_cast<Half>(d);
  for (int e = 0; e < 32; ++e) {
    const std::uint32_t high = raw[32 + e / 2] >> e % 2 * 4;
    write_moved_entry(kIq1[raw[e] | (high & 7) << 8], high & 8, block.q + 8 * e);
  }
}

void decode_iq2_xxs(const std::uint8_t* raw, Block& block) {
  for (int g = 0; g < 8; ++g) {
    const std::uint8_t* group = raw + 2 + 8 * g;
    const std::uint32_t word = load<std::uint32_t>(group + 4);
    set_pair(block, g, word >> 28);
    for (int e = 0; e < 4; ++e) {
      write_entry(kIq2Xxs[group[e]], 2, kWeightsIq2, eight_signs(word >> 7 * e & 127),
                  block.q + 32 * g + 8 * e);
    }
  }
}

void decode_iq2_xs(const std::uint8_t* raw, Block& block) {
  four_bit_scales(raw + 66, block);
  for (int e = 0; e < 32; ++e) {
    const std::uint32_t word = load<std::uint16_t>(raw + 2 + 2 * e);
    write_entry(kIq2Xs[word & 511], 2, kWeightsIq2, eight_signs(word >> 9), block.q + 8 * e);
  }
}

void decode_iq2_s(const std::uint8_t* raw, Block& block) {
  four_bit_scales(raw + 74, block);
  for (int e = 0; e < 32; ++e) {
    const std::uint32_t high = raw[66 + e / 4] >> e % 4 * 2 & 3;
    write_entry(kIq2S[raw[2 + e] | high << 8], 2, kWeightsIq2, raw[34 + e], block.q + 8 * e);
  }
}

void decode_iq3_xxs(const std::uint8_t* raw, Block& block) {
  for (int g = 0; g < 8; ++g) {
    const std::uint32_t word = load<std::uint32_t>(raw + 66 + 4 * g);
    set_pair(block, g, word >> 28);
    for (int e = 0; e < 8; ++e) {
      const std::uint32_t signs = eight_signs(word >> 7 * (e / 2) & 127) >> e % 2 * 4;
      write_entry(kIq3Xxs[raw[2 + 8 * g + e]], 4, kWeightsIq3Xxs, signs, block.q + 32 * g + 4 * e);
    }
  }
}

void decode_iq3_s(const std::uint8_t* raw, Block& block) {
  for (int g = 0; g < 8; ++g) {
    set_pair(block, g, raw[106 + g / 2] >> g % 2 * 4 & 15);
    for (int e = 8 * g; e < 8 * g + 8; ++e) {
      const std::uint32_t high = raw[66 + g] >> e % 8 & 1;
      write_entry(kIq3S[raw[2 + e] | high << 8], 4, kWeightsIq3S, raw[74 + e / 2] >> e % 2 * 4,
                  block.q + 4 * e);
    }
  }
}

}  // namespace

void decode_table_block(TensorType type, const std::byte* bytes, Block& block) {
  const std::uint8_t* raw = reinterpret_cast<const std::uint8_t*>(bytes);
  switch (type) {
    case TensorType::iq1_s: return decode_iq1_s(raw, block);
    case TensorType::iq1_m: return decode_iq1_m(raw, block);
    case TensorType::iq2_xxs: return decode_iq2_xxs(raw, block);
    case TensorType::iq2_xs: return decode_iq2_xs(raw, block);
    case TensorType::iq2_s: return decode_iq2_s(raw, block);
    case TensorType::iq3_xxs: return decode_iq3_xxs(raw, block);
    case TensorType::iq3_s: return decode_iq3_s(raw, block);
    default: CHECK(!"a type with a table");
  }
}

}  // namespace outrider

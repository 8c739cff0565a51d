#include "cpu/pack.h"

#include <array>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "cpu/panel.h"
#include "numerics/blocks.h"

namespace outrider {
namespace {

// Four columns of one output: a lane of a line.
using Lane = std::uint32_t;

Lane unit(const Block& block, std::size_t index) {
  Lane lane;
  std::memcpy(&lane, block.q + 4 * index, sizeof lane);
  return lane;
}

constexpr Lane each_byte(Lane byte) {
  return byte * 0x01010101u;
}

Lane* write_six_bit_scales(const Block (&blocks)[kPanel], Lane* line) {
  for (std::size_t o = 0; o < kPanel; ++o) {
    Lane scales = 0, mins = 0, low = 0;
    for (int j = 0; j < 4; ++j) {
      const Lane scale = blocks[o].scales[j + 4], min = blocks[o].mins[j + 4];
      const int shift = 8 * kScaleByte[j];
      scales |= (Lane(blocks[o].scales[j]) | scale >> 4 << 6) << shift;
      mins |= (Lane(blocks[o].mins[j]) | min >> 4 << 6) << shift;
      low |= ((scale & 15) | (min & 15) << 4) << shift;
    }
    line[o] = scales;
    line[kPanel + o] = mins;
    line[2 * kPanel + o] = low;
  }
  return line + 3 * kPanel;
}

Lane* write_four_bit_scales(const Block (&blocks)[kPanel], Lane* line) {
  for (std::size_t o = 0; o < kPanel; ++o) {
    line[o] = 0;
    for (int s = 0; s < 8; ++s) line[o] |= Lane(blocks[o].scales[s]) << (s / 2 * 4 + s % 2 * 16);
  }
  return line + kPanel;
}

Lane* write_q2_k_scales(const Block (&blocks)[kPanel], Lane* line) {
  for (int first = 0; first < 16; first += 4, line += kPanel) {
    for (std::size_t o = 0; o < kPanel; ++o) {
      line[o] = 0;
      for (int j = 0; j < 4; ++j) {
        const int byte = blocks[o].scales[first + j] | blocks[o].mins[first + j] << 4;
        line[o] |= Lane(byte) << 8 * kScaleByte[j];
      }
    }
  }
  return line;
}

Lane* write_byte_scales(const Block (&blocks)[kPanel], std::size_t sub_blocks, Lane* line) {
  std::int8_t* out = reinterpret_cast<std::int8_t*>(line);
  for (std::size_t s = 0; s < sub_blocks; ++s) {
    for (const Block& block : blocks) *out++ = block.scales[s];
  }
  return line + sub_blocks * kPanel / sizeof(Lane);
}

// Of a sub-block, the two low bits.
Lane* write_two_bits(const Block (&blocks)[kPanel], std::size_t first_unit, Lane* line) {
  for (std::size_t o = 0; o < kPanel; ++o) {
    line[o] = 0;
    for (std::size_t u = 0; u < 4; ++u)
      line[o] |= (unit(blocks[o], first_unit + u) & each_byte(3)) << 2 * u;
  }
  return line + kPanel;
}

// Of two sub-blocks.
Lane* write_three_bits(const Block (&blocks)[kPanel], std::size_t first_unit, Lane* line) {
  for (std::size_t o = 0; o < kPanel; ++o) {
    line[o] = 0;
    for (std::size_t s = 0; s < 2; ++s) {
      const std::size_t first = first_unit + 4 * s;
      const Lane third = unit(blocks[o], first + 2) >> 2 & each_byte(1);
      line[o] |= (unit(blocks[o], first + 3) | third << 3) << 4 * s;
      line[(1 + s) * kPanel + o] = unit(blocks[o], first) | unit(blocks[o], first + 1) << 3 |
                                   (unit(blocks[o], first + 2) & each_byte(3)) << 6;
    }
  }
  return line + 3 * kPanel;
}

Lane* write_fifth_bits(const Block (&blocks)[kPanel], std::size_t first_unit, Lane* line) {
  for (std::size_t o = 0; o < kPanel; ++o) {
    Lane bits = 0;
    for (std::size_t u = 0; u < 8; ++u) {
      bits |= (unit(blocks[o], first_unit + u) >> 4 & each_byte(1)) << u;
    }
    line[o] = bits;
  }
  return line + kPanel;
}

// Of a sub-block of n units.
Lane* write_nibbles(const Block (&blocks)[kPanel], std::size_t first_unit, std::size_t n,
                    Lane* line) {
  for (std::size_t i = 0; i < n / 2; ++i, line += kPanel) {
    for (std::size_t o = 0; o < kPanel; ++o) {
      const Lane low = unit(blocks[o], first_unit + i) & each_byte(15);
      const Lane high = unit(blocks[o], first_unit + i + n / 2) & each_byte(15);
      line[o] = low | high << 4;
    }
  }
  return line;
}

Lane* write_six_bits(const Block (&blocks)[kPanel], std::size_t first_unit, Lane* line) {
  for (std::size_t i = 0; i < 3; ++i, line += kPanel) {
    for (std::size_t o = 0; o < kPanel; ++o) {
      const Lane shared = unit(blocks[o], first_unit + 3) >> 2 * i & each_byte(3);
      line[o] = unit(blocks[o], first_unit + i) | shared << 6;
    }
  }
  return line;
}

Lane* write_bytes(const Block (&blocks)[kPanel], std::size_t units, Lane* line) {
  for (std::size_t u = 0; u < units; ++u, line += kPanel) {
    for (std::size_t o = 0; o < kPanel; ++o) line[o] = unit(blocks[o], u);
  }
  return line;
}

// Weights that are levels, with their bias of 128, become the levels' numbers.
void number_levels(Block (&blocks)[kPanel], std::size_t elements) {
  static constexpr auto kNumbers = [] {
    std::array<std::uint8_t, 256> numbers = {};
    for (std::uint8_t number = 0; number < 16; ++number) numbers[kLevels[number] + 128] = number;
    return numbers;
  }();
  for (Block& block : blocks) {
    for (std::size_t i = 0; i < elements; ++i) block.q[i] = kNumbers[block.q[i]];
  }
}

void write_body(TensorType type, Block (&blocks)[kPanel], Lane* line) {
  const BlockShape shape = block_shape(type);
  const std::size_t units = shape.elements / 4, n = shape.sub_columns() / 4;
  if (shape.has_byte_scales()) line = write_byte_scales(blocks, shape.sub_blocks, line);
  if (type == TensorType::q2_k) line = write_q2_k_scales(blocks, line);
  if (type == TensorType::q4_k || type == TensorType::q5_k)
    line = write_six_bit_scales(blocks, line);
  if (type == TensorType::q4_128) line = write_four_bit_scales(blocks, line);
  if (shape.has_levels) number_levels(blocks, shape.elements);
  switch (shape.bits) {
    case 2:
      for (std::size_t u = 0; u < units; u += n) line = write_two_bits(blocks, u, line);
      break;
    case 3:
      for (std::size_t u = 0; u < units; u += 2 * n) {
        line = write_three_bits(blocks, u, line);
      }
      break;
    case 4:
      for (std::size_t u = 0; u < units; u += n) line = write_nibbles(blocks, u, n, line);
      break;
    case 5:
      for (std::size_t u = 0; u < units; u += n) {
        line = write_fifth_bits(blocks, u, line);
        line = write_nibbles(blocks, u, n, line);
      }
      break;
    case 6:
      for (std::size_t u = 0; u < units; u += n) line = write_six_bits(blocks, u, line);
      break;
    case 8: write_bytes(blocks, units, line); break;
    default: CHECK(!"a width in bits");
  }
}

// raw: the panel's outputs in the file's order and type, row_bytes apart.
void pack_blocks(TensorType file_type, const std::byte* raw, std::size_t row_bytes,
                 std::size_t outputs, std::size_t columns, std::byte* panel) {
  const TensorType type = packed_as(file_type);
  const std::size_t n_blocks = columns / block_shape(type).elements;
  const std::size_t block_bytes = traits(file_type).block_bytes;
  Block blocks[kPanel] = {};  // outputs past the last stay zeros
  for (std::size_t b = 0; b < n_blocks; ++b) {
    for (std::size_t o = 0; o < outputs; ++o) {
      decode_block(file_type, raw + o * row_bytes + b * block_bytes, blocks[o]);
    }
    const BlockPlace place = block_place(type, b);
    for (std::size_t o = 0; o < kPanel; ++o) {
      std::memcpy(panel + place.d + o * sizeof blocks[o].d, &blocks[o].d, sizeof blocks[o].d);
      if (!block_shape(type).has_min) continue;
      std::memcpy(panel + place.m + o * sizeof blocks[o].m, &blocks[o].m, sizeof blocks[o].m);
    }
    write_body(type, blocks, reinterpret_cast<Lane*>(panel + place.body));
  }
}

template <typename Element>
void pack_elements(const std::byte* raw, std::size_t outputs, std::size_t columns,
                   std::byte* panel) {
  Element* out = reinterpret_cast<Element*>(panel);
  for (std::size_t k = 0; k < columns; ++k, out += kPanel) {
    for (std::size_t o = 0; o < outputs; ++o) {
      std::memcpy(out + o, raw + (o * columns + k) * sizeof(Element), sizeof(Element));
    }
  }
}

}  // namespace

std::size_t packed_panel_bytes(TensorType type, std::size_t columns) {
  const TensorTypeTraits& t = traits(type);
  if (t.block_elements == 1) {
    return (columns * t.block_bytes * kPanel + kLine - 1) / kLine * kLine;
  }
  const std::size_t n_blocks = columns / t.block_elements;
  if (n_blocks == 0) return 0;
  const TensorType packed = packed_as(type);
  return block_place(packed, n_blocks - 1).body + body_bytes(packed);
}

std::size_t row_bytes(TensorType type, std::size_t columns) {
  return columns / traits(type).block_elements * traits(type).block_bytes;
}

void pack_panel(TensorType type, std::size_t columns, const std::byte* rows, std::size_t outputs,
                std::byte* panel) {
  std::memset(panel, 0, packed_panel_bytes(type, columns));
  switch (traits(type).block_elements == 1 ? traits(type).block_bytes : 0) {
    case 4: return pack_elements<std::uint32_t>(rows, outputs, columns, panel);
    case 2: return pack_elements<std::uint16_t>(rows, outputs, columns, panel);
    default: return pack_blocks(type, rows, row_bytes(type, columns), outputs, columns, panel);
  }
}

void pack(const TensorView& tensor, Range panels, std::byte* out) {
  const std::size_t columns = tensor.columns(), outputs = tensor.rows();
  const std::size_t panel_bytes = packed_panel_bytes(tensor.type, columns);
  for (std::size_t p = panels.begin; p < panels.end; ++p) {
    const std::size_t first = p * kPanel;
    pack_panel(tensor.type, columns, tensor.bytes.data() + first * row_bytes(tensor.type, columns),
               std::min(kPanel, outputs - first), out + p * panel_bytes);
  }
}

}  // namespace outrider

// The table's reference: plain loops over packed panels.

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "cpu/kernels/kernels.h"
#include "cpu/panel.h"

namespace outrider {
namespace {

// One output of a packed block: its numbers as numerics/blocks.h has them.
class PackedBlock {
 public:
  PackedBlock(TensorType type, const std::byte* panel, std::size_t block)
      : type_(type), shape_(block_shape(type)), place_(block_place(type, block)), panel_(panel) {}

  void read(std::size_t output, Block& out) const {
    std::memcpy(&out.d, panel_ + place_.d + 2 * output, 2);
    if (shape_.has_min) std::memcpy(&out.m, panel_ + place_.m + 2 * output, 2);
    const std::byte* body = panel_ + place_.body;
    if (shape_.has_byte_scales()) {
      for (std::size_t s = 0; s < shape_.sub_blocks; ++s)
        out.scales[s] = static_cast<std::int8_t>(body[16 * s + output]);
    } else if (type_ == TensorType::q2_k) {
      for (int s = 0; s < 16; ++s) {
        const int byte = lane_byte(body, s / 4, output, kScaleByte[s % 4]);
        out.scales[s] = byte & 15;
        out.mins[s] = byte >> 4;
      }
    } else if (shape_.has_min && shape_.sub_blocks == 8) {
      for (int j = 0; j < 4; ++j) {
        const int byte = kScaleByte[j];
        const int scales = lane_byte(body, 0, output, byte),
                  mins = lane_byte(body, 1, output, byte);
        const int low = lane_byte(body, 2, output, byte);
        out.scales[j] = scales & 63;
        out.mins[j] = mins & 63;
        out.scales[j + 4] = (low & 15) | scales >> 6 << 4;
        out.mins[j + 4] = low >> 4 | mins >> 6 << 4;
      }
    } else if (shape_.sub_blocks == 8) {
      for (int s = 0; s < 8; ++s) {
        const int byte = lane_byte(body, 0, output, s / 4 + s % 2 * 2);
        out.scales[s] = byte >> s / 2 % 2 * 4 & 15;
      }
    }
    read_weights(body + scale_bytes(type_), output, out);
  }

 private:
  static int lane_byte(const std::byte* body, std::size_t line, std::size_t output, int byte) {
    return static_cast<int>(body[line * kLine + 4 * output + byte]);
  }

  void read_weights(const std::byte* body, std::size_t output, Block& out) const {
    const auto read_each = [&](const auto& weight) {
      for (std::size_t k = 0; k < shape_.elements; ++k)
        out.q[k] = weight(k, static_cast<int>(k % 4));
    };
    switch (shape_.bits) {
      case 2:
        return read_each([&](std::size_t k, int byte) {
          return lane_byte(body, k / 16, output, byte) >> k % 16 / 4 * 2 & 3;
        });
      case 3:
        return read_each([&](std::size_t k, int byte) {
          const std::byte* pair = body + k / 32 * 3 * kLine;
          const std::size_t s = k % 32 / 16, unit = k % 16 / 4;
          const int shared = lane_byte(pair, 0, output, byte) >> 4 * s & 15;
          const int own = lane_byte(pair, 1 + s, output, byte);
          if (unit == 3) return shared & 7;
          return unit == 2 ? own >> 6 | shared >> 3 << 2 : own >> 3 * unit & 7;
        });
      case 4: return read_nibbles(body, output, out);
      case 5:
        return read_each([&](std::size_t k, int byte) {
          const std::byte* sub_block = body + k / 32 * 5 * kLine;
          const std::size_t unit = k % 32 / 4;
          const int fifth = lane_byte(sub_block, 0, output, byte) >> unit & 1;
          return nibble(sub_block + kLine, output, unit, 4, byte) | fifth << 4;
        });
      case 6:
        return read_each([&](std::size_t k, int byte) {
          const std::byte* sub_block = body + k / 16 * 3 * kLine;
          const std::size_t unit = k % 16 / 4;
          if (unit < 3) return lane_byte(sub_block, unit, output, byte) & 63;
          int w = 0;
          for (int i = 0; i < 3; ++i) w |= lane_byte(sub_block, i, output, byte) >> 6 << 2 * i;
          return w;
        });
      default:
        return read_each(
            [&](std::size_t k, int byte) { return lane_byte(body, k / 4, output, byte); });
    }
  }

  void read_nibbles(const std::byte* body, std::size_t output, Block& out) const {
    const std::size_t sub = shape_.sub_columns(), n_lines = sub / 8;
    for (std::size_t k = 0; k < shape_.elements; k += sub, body += n_lines * kLine) {
      for (std::size_t i = 0; i < sub; ++i) {
        const int q = nibble(body, output, i / 4, n_lines, static_cast<int>(i % 4));
        out.q[k + i] = shape_.has_levels ? kLevels[q] + shape_.bias : q;
      }
    }
  }

  // Of a sub-block's lines: its first units in their low halves, the others in the high ones.
  static int nibble(const std::byte* lines, std::size_t output, std::size_t unit,
                    std::size_t n_lines, int byte) {
    if (unit < n_lines) return lane_byte(lines, unit, output, byte) & 15;
    return lane_byte(lines, unit - n_lines, output, byte) >> 4;
  }

  TensorType type_;
  BlockShape shape_;
  BlockPlace place_;
  const std::byte* panel_;
};

void panel_of_blocks(TensorType type, const std::byte* panel, std::size_t columns,
                     const ProductInput::Quantized& x, Range rows, MatrixView<float> out) {
  const BlockShape shape = block_shape(type);
  for (std::size_t r = rows.begin; r < rows.end; ++r) {
    std::memset(out[r - rows.begin].data(), 0, kPanel * sizeof(float));
  }
  Block block = {};
  for (std::size_t b = 0; b < columns / shape.elements; ++b) {
    const PackedBlock packed(type, panel, b);
    for (std::size_t o = 0; o < kPanel; ++o) {
      packed.read(o, block);
      for (std::size_t r = rows.begin; r < rows.end; ++r) {
        float& acc = out[r - rows.begin].data()[o];
        const std::int8_t* q = x.q + r * x.q_stride + b * shape.elements;
        acc = add_group_reference(type, block, q, x.d[r * x.d_stride + b], acc);
      }
    }
  }
}

template <typename Stored, typename Widen>
void panel_of_floats(const std::byte* panel, std::size_t columns, MatrixView<const float> x,
                     Range rows, MatrixView<float> out, Widen widen) {
  for (std::size_t r = rows.begin; r < rows.end; ++r) {
    for (std::size_t o = 0; o < kPanel; ++o) {
      float acc = 0;
      for (std::size_t k = 0; k < columns; ++k) {
        Stored w;
        std::memcpy(&w, panel + (k * kPanel + o) * sizeof w, sizeof w);
        acc = std::fma(widen(w), x[r][k], acc);
      }
      out[r - rows.begin].data()[o] = acc;
    }
  }
}

std::size_t lines(const PackedMatrix&, std::size_t) {
  return 0;
}

void arrange(const PackedMatrix&, const ProductInput& input, Range rows, ArrangedRows& arranged) {
  arranged.input = input;
  arranged.rows = rows;
}

void product(const PackedMatrix& weights, const ArrangedRows& arranged, Range panels,
             MatrixView<float> out) {
  const ProductInput& input = arranged.input;
  const MatrixView<const float>& x = input.floats;
  const Range rows = arranged.rows;
  for (std::size_t p = panels.begin; p < panels.end; ++p) {
    const std::byte* panel = weights.panel(p);
    const MatrixView<float> to = out.from(0, (p - panels.begin) * kPanel);
    switch (weights.type) {
      case TensorType::f32:
        panel_of_floats<float>(panel, weights.columns, x, rows, to, [](float w) { return w; });
        break;
      case TensorType::f16:
        panel_of_floats<Half>(panel, weights.columns, x, rows, to, half_to_float);
        break;
      case TensorType::bf16:
        panel_of_floats<std::uint16_t>(panel, weights.columns, x, rows, to, bf16_to_float);
        break;
      default:
        panel_of_blocks(weights.type, panel, weights.columns, input.quantized(weights.type), rows,
                        to);
    }
  }
}

}  // namespace

const ProductKernels kProductsReference = {lines, arrange, product, quantize_reference};

}  // namespace outrider

#include "numerics/dequantize.h"

#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "numerics/blocks.h"
#include "numerics/half.h"

namespace outrider {
namespace {

// Every product and sum is rounded once, in the order written here, which gives the same bits as
// gguf.quants.
void values_of_block(TensorType type, const std::byte* raw, std::span<float> values) {
  const BlockShape shape = block_shape(type);
  Block block;
  decode_block(type, raw, block);
  const float d = half_to_float(block.d) * shape.d_factor;
  const float m = shape.has_min ? half_to_float(block.m) : 0.0f;
  if (shape.sub_blocks == 1) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float product = d * static_cast<float>(block.q[i] - shape.bias);
      values[i] = shape.has_min ? product + m : product;  // -0 + 0 would lose the sign
    }
    return;
  }
  const std::size_t sub_block = values.size() / shape.sub_blocks;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t sub = i / sub_block;
    const float scale = d * static_cast<float>(block.scales[sub]);
    const float product = scale * static_cast<float>(block.q[i] - shape.bias);
    values[i] = shape.has_min ? product - m * static_cast<float>(block.mins[sub]) : product;
  }
}

void dequantize_halves(std::span<const std::byte> bytes, float (*to_float)(std::uint16_t),
                       std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t stored;
    std::memcpy(&stored, bytes.data() + i * sizeof stored, sizeof stored);
    values[i] = to_float(stored);
  }
}

}  // namespace

void dequantize(TensorType type, std::span<const std::byte> blocks, std::span<float> values) {
  const TensorTypeTraits& t = traits(type);
  const std::size_t n_blocks = blocks.size() / t.block_bytes;
  CHECK(blocks.size() % t.block_bytes == 0 && values.size() == n_blocks * t.block_elements);
  switch (type) {
    case TensorType::f32:
      if (!blocks.empty()) std::memcpy(values.data(), blocks.data(), blocks.size());
      return;
    case TensorType::f16: return dequantize_halves(blocks, half_to_float, values);
    case TensorType::bf16: return dequantize_halves(blocks, bf16_to_float, values);
    default:
      for (std::size_t i = 0; i < n_blocks; ++i) {
        values_of_block(type, blocks.data() + i * t.block_bytes,
                        values.subspan(i * t.block_elements, t.block_elements));
      }
  }
}

}  // namespace outrider

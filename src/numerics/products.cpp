#include "numerics/products.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "numerics/half.h"

namespace outrider {
namespace {

template <typename Stored, typename Widen>
float float_chain(std::span<const std::byte> weights, std::span<const float> x, Widen widen) {
  float acc = 0;
  for (std::size_t k = 0; k < x.size(); ++k) {
    Stored w;
    std::memcpy(&w, weights.data() + k * sizeof w, sizeof w);
    acc = std::fma(widen(w), x[k], acc);
  }
  return acc;
}

float block_chain(TensorType type, std::span<const std::byte> weights, std::size_t columns,
                  const QuantizedRow& x) {
  const std::size_t group = block_shape(type).elements, block_bytes = traits(type).block_bytes;
  float acc = 0;
  Block block;
  for (std::size_t g = 0; g < columns / group; ++g) {
    decode_block(type, weights.data() + g * block_bytes, block);
    acc = add_group_reference(type, block, x.q + g * group, x.d[g], acc);
  }
  return acc;
}

}  // namespace

InputKind input_kind(TensorType type) {
  switch (block_shape(type).elements) {
    case 32: return InputKind::groups_of_32;
    case 128: return InputKind::groups_of_128;
    case 256: return InputKind::groups_of_256;
    default: return InputKind::floats;
  }
}

float add_group_reference(TensorType type, const Block& block, const std::int8_t* q, float d,
                          float acc) {
  const BlockShape shape = block_shape(type);
  const bool scaled = shape.sub_blocks > 1;
  const std::size_t sub = shape.elements / shape.sub_blocks;
  std::int32_t products = 0, minimums = 0;
  for (std::size_t s = 0; s < shape.sub_blocks; ++s) {
    std::int32_t product = 0, sum = 0;
    for (std::size_t i = s * sub; i < (s + 1) * sub; ++i) {
      product += (block.q[i] - shape.bias) * q[i];
      sum += q[i];
    }
    products += scaled ? block.scales[s] * product : product;
    if (shape.has_min) minimums += scaled ? block.mins[s] * sum : sum;
  }
  const float block_d = half_to_float(block.d) * shape.d_factor;
  float term = block_d * static_cast<float>(products);
  if (shape.has_min) {
    const float m = half_to_float(block.m);
    term = std::fma(scaled ? -m : m, static_cast<float>(minimums), term);
  }
  return std::fma(term, d, acc);
}

float product_reference(TensorType type, std::span<const std::byte> weights,
                        std::span<const float> x, const QuantizedRow& quantized) {
  switch (type) {
    case TensorType::f32: return float_chain<float>(weights, x, [](float w) { return w; });
    case TensorType::f16: return float_chain<std::uint16_t>(weights, x, half_to_float);
    case TensorType::bf16: return float_chain<std::uint16_t>(weights, x, bf16_to_float);
    default: return block_chain(type, weights, x.size(), quantized);
  }
}

}  // namespace outrider

#include "numerics/products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "numerics/blocks.h"
#include "numerics/dequantize.h"
#include "numerics/halves_test.h"

namespace outrider {
namespace {

struct Quantized {
  std::vector<std::int8_t> q;
  std::vector<float> d;
  std::vector<std::int16_t> sums16;

  Quantized(std::span<const float> x, std::size_t group)
      : q(x.size()), d(x.size() / group), sums16(x.size() / 16) {
    quantize_reference(x, group, row());
  }
  QuantizedRow row() { return {q.data(), d.data(), sums16.data()}; }
};

TEST(ProductReference, FloatsAreAChainOfFusedMultiplyAdds) {
  // 1 + 2^-24 is lost if the product is rounded before it is added.
  const std::vector<float> w = {1.0f, 1.0f + 0x1p-12f}, x = {-1.0f, 1.0f + 0x1p-12f};
  const float expected = std::fma(w[1], x[1], -1.0f);
  EXPECT_NE(expected, w[1] * x[1] - 1.0f);
  EXPECT_EQ(product_reference(TensorType::f32, std::as_bytes(std::span(w)), x, {}), expected);
}

// The table, worked out by hand: Q4_1, two groups.
TEST(ProductReference, AGroupsTwoTermsInTheirOrder) {
  std::vector<std::uint8_t> block(40);
  const std::uint16_t halves[] = {float_to_half(0.1f), float_to_half(-0.3f), float_to_half(7.0f),
                                  float_to_half(0.01f)};
  std::memcpy(block.data(), halves, 4);
  std::memcpy(block.data() + 20, halves + 2, 4);
  for (int i = 0; i < 16; ++i) {
    block[4 + i] = 0x21;   // 1 in the first half, 2 in the second
    block[24 + i] = 0xf0;  // 0 and 15
  }
  std::vector<float> x(64);
  for (int i = 0; i < 64; ++i) x[i] = i < 32 ? 127.0f : -254.0f;
  Quantized quantized(x, 32);
  ASSERT_EQ(quantized.d, (std::vector<float>{1.0f, 2.0f}));
  ASSERT_EQ(quantized.q[63], -127);
  const float d0 = half_to_float(halves[0]), m0 = half_to_float(halves[1]);
  const float d1 = half_to_float(halves[2]), m1 = half_to_float(halves[3]);
  const float first = std::fma(m0, 32 * 127.0f, d0 * (16 * 127 * 3.0f));
  const float second = std::fma(m1, 32 * -127.0f, d1 * (16 * -127 * 15.0f));
  const float expected = std::fma(second, 2.0f, std::fma(first, 1.0f, 0.0f));
  EXPECT_EQ(
      product_reference(TensorType::q4_1, std::as_bytes(std::span(block)), x, quantized.row()),
      expected);
}

// Every type, against doubles: sign, bias, scales, minimums and the place of each weight.
TEST(ProductReference, IsTheProductOfTheDequantizedRow) {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal;
  for (const TensorTypeTraits& t : all_tensor_types()) {
    SCOPED_TRACE(t.name);
    const std::size_t columns = 1024, n_blocks = columns / t.block_elements;
    std::vector<std::byte> weights(n_blocks * t.block_bytes);
    for (std::byte& b : weights) b = std::byte(rng());
    for (std::size_t b = 0; b < n_blocks; ++b) {
      std::byte* block = weights.data() + b * t.block_bytes;
      const std::uint16_t half = float_to_half(0.01f * normal(rng));
      const float value = normal(rng);
      if (t.type == TensorType::f32)
        std::memcpy(block, &value, 4);
      else if (t.type == TensorType::f16)
        std::memcpy(block, &half, 2);
      else if (t.type == TensorType::bf16)
        std::memcpy(block, reinterpret_cast<const char*>(&value) + 2, 2);
      else
        set_halves(t.type, half, half, block);
    }
    std::vector<float> values(columns), x(columns);
    dequantize(t.type, weights, values);
    for (float& v : x) v = normal(rng);
    const InputKind kind = input_kind(t.type);
    const std::size_t group = std::max<std::size_t>(32, block_shape(t.type).elements);
    Quantized quantized(x, group);
    double expected = 0, magnitude = 0;
    for (std::size_t i = 0; i < columns; ++i) {
      const double input =
          kind == InputKind::floats ? x[i] : double{quantized.d[i / group]} * quantized.q[i];
      expected += values[i] * input;
      magnitude += std::abs(values[i] * input);
    }
    EXPECT_NEAR(product_reference(t.type, weights, x, quantized.row()), expected, 1e-5 * magnitude);
  }
}

}  // namespace
}  // namespace outrider

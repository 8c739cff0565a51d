// Every instruction set against numerics/products.h, bit for bit.

#include "numerics/products.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/huge_buffer.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/product_variants_test.h"
#include "cpu/panel.h"
#include "numerics/blocks.h"
#include "numerics/halves_test.h"

namespace outrider {
namespace {

using Rng = std::mt19937;

std::vector<ProductVariant> variants() {
  std::vector<ProductVariant> all = variants_without_table();
  for (const Isa isa : available_isas())
    all.push_back({std::string(name(isa)), kernels(isa).products});
  return all;
}

// Bits, but -0 is +0 and all NaNs are one.
std::uint32_t canonical(float x) {
  if (std::isnan(x)) return 0x7fc00000u;
  return x == 0 ? 0 : std::bit_cast<std::uint32_t>(x);
}

enum class Blocks {
  random,   // any integers, halves of ordinary size
  zeros,    // every byte zero
  largest,  // every bit of the integers set, the largest finite halves
  large,    // integers near their largest, odd ones among them; halves of ordinary size
  halves,   // any integers and any halves: subnormal, infinite, NaN
  ends,     // K types: an output's weights all as small or all as large as can be, any scales
};

// Where a block of a K type keeps its weights in the file.
Range weight_bytes(TensorType type) {
  if (type == TensorType::q6_k) return {0, 192};
  return {16, type == TensorType::q4_k ? 144u : 176u};
}

std::vector<std::byte> make_weights(TensorType type, std::size_t outputs, std::size_t columns,
                                    Blocks kind, Rng& rng) {
  const TensorTypeTraits& t = traits(type);
  std::vector<std::byte> bytes(outputs * columns / t.block_elements * t.block_bytes);
  if (kind == Blocks::zeros) return bytes;
  for (std::byte& b : bytes) {
    b = kind == Blocks::largest ? std::byte{255} : std::byte(rng());
    if (kind == Blocks::large) b |= std::byte{0xee};
  }
  if (t.block_elements == 1) {
    if (kind == Blocks::halves) return bytes;
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < outputs * columns; ++i) {
      const float x = kind == Blocks::largest ? 65504 : normal(rng);
      const auto bits = std::bit_cast<std::uint32_t>(x);
      const std::uint16_t half =
          type == TensorType::f16 ? float_to_half(x) : static_cast<std::uint16_t>(bits >> 16);
      if (type == TensorType::f32)
        std::memcpy(&bytes[i * 4], &bits, 4);
      else
        std::memcpy(&bytes[i * 2], &half, 2);
    }
    return bytes;
  }
  if (kind == Blocks::halves) return bytes;
  std::uniform_real_distribution<float> ordinary(-0.05f, 0.05f);
  for (std::size_t block = 0; block < bytes.size(); block += t.block_bytes) {
    const Half d = float_to_half(ordinary(rng)), m = float_to_half(ordinary(rng));
    constexpr Half kLargest = 0x7bff;
    if (kind == Blocks::largest)
      set_halves(type, kLargest, kLargest, &bytes[block]);
    else
      set_halves(type, d, m, &bytes[block]);
    if (kind == Blocks::ends) {
      const std::size_t output = block / (columns / t.block_elements * t.block_bytes);
      const Range weights = weight_bytes(type);
      std::fill(bytes.begin() + block + weights.begin, bytes.begin() + block + weights.end,
                output % 2 == 0 ? std::byte{0} : std::byte{255});
    }
  }
  return bytes;
}

// A tensor packed by this machine's code, and as the file has it.
struct Matrix {
  TensorView tensor;
  std::vector<std::byte> raw;
  HugeBuffer buffer;
  PackedMatrix packed;

  Matrix(TensorType type, std::size_t outputs, std::size_t columns, Blocks kind, Rng& rng)
      : raw(make_weights(type, outputs, columns, kind, rng)) {
    tensor.type = type;
    tensor.shape = {static_cast<std::int64_t>(columns), static_cast<std::int64_t>(outputs)};
    tensor.bytes = raw;
    packed.type = packed_as(type);
    packed.outputs = outputs;
    packed.columns = columns;
    packed.panel_bytes = packed_panel_bytes(type, columns);
    buffer = HugeBuffer(packed.panel_bytes * packed.panels());
    packed.first = buffer.begin();
    pack(tensor, {0, packed.panels()}, buffer.begin());
  }

  std::span<const std::byte> row(std::size_t output) const {
    const std::size_t bytes = raw.size() / packed.outputs;
    return std::span(raw).subspan(output * bytes, bytes);
  }
};

// Rows of activations, quantized by the reference. Rows and their groups lie apart, so that strides
// matter.
struct Activations {
  std::size_t columns, stride;
  std::vector<float> x;
  struct Quantized {
    std::size_t group, d_stride, sums_stride;
    std::vector<std::int8_t> q;
    std::vector<float> d;
    std::vector<std::int16_t> sums16;
  } of_32, of_128, of_256;

  Activations(std::size_t rows, std::size_t n_columns, bool extreme, Rng& rng)
      : columns(n_columns), stride(n_columns + 32), x(rows * stride) {
    std::normal_distribution<float> normal;
    for (float& value : x) value = normal(rng) * std::exp2(static_cast<float>(rng() % 8));
    if (extreme) {
      for (float& value : std::span(x).first(std::min<std::size_t>(columns, 32))) value = 0;
      x[rng() % x.size()] = std::numeric_limits<float>::infinity();
      x[rng() % x.size()] = std::numeric_limits<float>::quiet_NaN();
      x[rng() % x.size()] = 1e38f;
    }
    quantize(32, rows, of_32);
    quantize(128, rows, of_128);
    quantize(256, rows, of_256);
  }

  void quantize(std::size_t group, std::size_t rows, Quantized& out) {
    out.group = group;
    if (columns % group != 0) return;
    out.d_stride = columns / group + 1;
    out.sums_stride = columns / 16 + 2;
    out.q.resize(rows * stride);
    out.d.resize(rows * out.d_stride);
    out.sums16.resize(rows * out.sums_stride);
    for (std::size_t r = 0; r < rows; ++r) {
      quantize_reference(std::span(x).subspan(r * stride, columns), group, row(r, out));
    }
  }

  QuantizedRow row(std::size_t r, Quantized& q) const {
    return {q.q.data() + r * stride, q.d.data() + r * q.d_stride,
            q.sums16.data() + r * q.sums_stride};
  }

  ProductInput::Quantized view(const Quantized& q) const {
    return {q.q.data(), q.d.data(), q.sums16.data(), stride, q.d_stride, q.sums_stride};
  }

  ProductInput input() const {
    return {
        {x.data(), x.size() / stride, columns, stride}, view(of_32), view(of_128), view(of_256)};
  }

  float expected(const Matrix& matrix, std::size_t r, std::size_t output) {
    const TensorType type = matrix.tensor.type;
    Quantized& q = block_shape(type).elements == 256   ? of_256
                   : block_shape(type).elements == 128 ? of_128
                                                       : of_32;
    return product_reference(type, matrix.row(output), std::span(x).subspan(r * stride, columns),
                             row(r, q));
  }
};

// `out` is the whole matrix, from the first row and output on.
void multiply(const ProductKernels& kernels, const PackedMatrix& weights, const ProductInput& input,
              Range rows, Range panels, MatrixView<float> out) {
  std::vector<ArrangedRows::Line> memory(kernels.lines(weights, rows.end - rows.begin));
  ArrangedRows arranged;
  arranged.memory = memory;
  kernels.arrange(weights, input, rows, arranged);
  kernels.product(weights, arranged, panels, out.from(rows.begin, panels.begin * kPanel));
}

struct Case {
  std::size_t rows, outputs,
      columns;  // columns in blocks of the type, or for float types in columns
  Blocks blocks = Blocks::random;
  bool extreme_rows = false;
};

void check(TensorType type, const Case& c) {
  SCOPED_TRACE(fmt::format("{} rows {} outputs {} columns {} blocks {}", traits(type).name, c.rows,
                           c.outputs, c.columns, static_cast<int>(c.blocks)));
  Rng rng(static_cast<unsigned>(c.rows * 1009 + c.outputs * 31 + c.columns));
  const std::size_t columns = c.columns * traits(type).block_elements;
  const Matrix matrix(type, c.outputs, columns, c.blocks, rng);
  Activations x(c.rows, columns, c.extreme_rows, rng);
  std::vector<std::uint32_t> expected(c.rows * c.outputs);
  for (std::size_t r = 0; r < c.rows; ++r) {
    for (std::size_t o = 0; o < c.outputs; ++o) {
      expected[r * c.outputs + o] = canonical(x.expected(matrix, r, o));
    }
  }
  for (const ProductVariant& variant : variants()) {
    SCOPED_TRACE(variant.name);
    // One more line than needed on each side of a row shows writes outside.
    const std::size_t stride = matrix.packed.panels() * kPanel + 16;
    constexpr float kUntouched = 12345;
    std::vector<float> out(c.rows * stride + 16, kUntouched);
    const MatrixView<float> view(out.data() + 16, c.rows, c.outputs, stride);
    // In two halves of panels and two of rows: no part may touch another's.
    const std::size_t cut = matrix.packed.panels() / 2, middle = c.rows / 3;
    for (const Range panels : {Range{0, cut}, Range{cut, matrix.packed.panels()}}) {
      for (const Range rows : {Range{0, middle}, Range{middle, c.rows}}) {
        if (rows.begin == rows.end) continue;
        multiply(variant.kernels, matrix.packed, x.input(), rows, panels, view);
      }
    }
    std::size_t wrong = 0;
    for (std::size_t r = 0; r < c.rows; ++r) {
      for (std::size_t o = 0; o < c.outputs; ++o) {
        wrong += canonical(view[r][o]) != expected[r * c.outputs + o];
      }
      for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(out[r * stride + i], kUntouched);
    }
    EXPECT_EQ(wrong, 0u) << "of " << expected.size();
  }
}

class Products : public ::testing::TestWithParam<TensorTypeTraits> {};

TEST_P(Products, EveryNumberOfRows) {
  for (const std::size_t rows :
       {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 17, 19, 21, 22, 24, 33}) {
    const std::size_t columns = GetParam().block_elements == 1 ? 65 : 3;
    check(GetParam().type, {rows, 32, columns});
  }
}

TEST_P(Products, ManyRows) {
  check(GetParam().type, {512, 16, GetParam().block_elements == 1 ? 40u : 2u});
}

// More rows than one chunk of interleaved activations holds, more panels than one block of them.
TEST_P(Products, ManyRowsOfManyColumns) {
  check(GetParam().type, {80, 48, 6144 / GetParam().block_elements});
}

TEST_P(Products, RaggedShapes) {
  for (const std::size_t outputs : {1, 15, 17, 40, 63}) {
    for (const std::size_t columns : {1, 2, 5, 11}) {
      for (const std::size_t rows : {3, 10}) check(GetParam().type, {rows, outputs, columns});
    }
  }
}

TEST_P(Products, ExtremeBlocksAndRows) {
  for (const Blocks blocks : {Blocks::zeros, Blocks::largest, Blocks::halves, Blocks::random}) {
    for (const bool extreme_rows : {false, true}) {
      for (const std::size_t rows : {1, 8}) {
        check(GetParam().type, {rows, 48, 4, blocks, extreme_rows});
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Products,
                         ::testing::ValuesIn(all_tensor_types().begin(), all_tensor_types().end()),
                         [](const auto& info) { return std::string(info.param.name); });

// Every q of the largest size, so that every sum reaches its bound.
TEST(Products, LargestSums) {
  for (const TensorTypeTraits& t : all_tensor_types()) {
    SCOPED_TRACE(t.name);
    Rng rng(1);
    const std::size_t columns = 2 * 256;
    for (const Blocks blocks : {Blocks::largest, Blocks::large, Blocks::random}) {
      const Matrix matrix(t.type, 16, columns, blocks, rng);
      Activations x(8, columns, false, rng);
      for (std::size_t r = 0; r < 8; ++r) {
        const float value = r % 2 == 0 ? 127.0f : -127.0f;
        for (std::size_t k = 0; k < columns; ++k) {
          // All alike; or alternating; or so that a unit's first two columns and its last two, or
          // a block's halves, are as far apart as they can be. A float holds every integer up to
          // 2^24, so a part of a sum may be lost in it though the sum is not.
          const bool negative = (r / 2 == 1 && k % 2 == 1) || (r / 2 == 2 && k % 4 >= 2) ||
                                (r / 2 == 3 && k % 256 >= 128);
          x.x[r * x.stride + k] = negative ? -value : value;
        }
      }
      x.quantize(32, 8, x.of_32);
      x.quantize(128, 8, x.of_128);
      x.quantize(256, 8, x.of_256);
      for (const ProductVariant& variant : variants()) {
        SCOPED_TRACE(variant.name);
        std::vector<float> out(8 * 16);
        const MatrixView<float> view(out.data(), 8, 16);
        // Few rows and many take different ways.
        for (const std::size_t rows_a_call : {8, 4, 1}) {
          for (std::size_t r = 0; r < 8; r += rows_a_call) {
            multiply(variant.kernels, matrix.packed, x.input(), {r, r + rows_a_call}, {0, 1}, view);
          }
          for (std::size_t r = 0; r < 8; ++r) {
            for (std::size_t o = 0; o < 16; ++o) {
              EXPECT_EQ(canonical(view[r][o]), canonical(x.expected(matrix, r, o)));
            }
          }
        }
      }
    }
  }
}

// Kernels that keep the sum of a sub-block in 16 bits must know the rows whose sums do not fit:
// sums just below 2^15, at it and above, of both signs.
TEST(Products, SumsAtTheEdgeOf16Bits) {
  for (const TensorType type : {TensorType::q4_k, TensorType::q5_k, TensorType::q6_k}) {
    const BlockShape shape = block_shape(type);
    const int largest = std::max((1 << shape.bits) - 1 - shape.bias, shape.bias);  // of |w|
    const std::size_t sub = 256 / shape.sub_blocks;
    for (int size = 32768 / largest - 3; size <= 32768 / largest + 3; ++size) {
      SCOPED_TRACE(fmt::format("{}, sums of {} * {}", traits(type).name, largest, size));
      Rng rng(5);
      constexpr std::size_t kRows = 4, kColumns = 4 * 256;
      const Matrix matrix(type, 16, kColumns, Blocks::ends, rng);
      Activations x(kRows, kColumns, false, rng);
      for (std::size_t k = 0; k < kRows * kColumns; ++k) {
        const std::size_t r = k / kColumns, column = k % kColumns, block = column / 256;
        // One sub-block has the sum, its neighbour the group's largest, so that x is q.
        const std::size_t s = column % 256 / sub, i = column % sub, filled = 5 * block + r;
        float q = 0;
        const std::size_t part = (size + i) / sub;
        if (s == filled % shape.sub_blocks) q = static_cast<float>(part);
        if (s == (filled + 1) % shape.sub_blocks && i == 0) q = 127;
        x.x[r * x.stride + column] = r % 2 == 0 ? q : -q;
      }
      x.quantize(256, kRows, x.of_256);
      for (const Isa isa : available_isas()) {
        SCOPED_TRACE(name(isa));
        std::vector<float> out(kRows * 16);
        const MatrixView<float> view(out.data(), kRows, 16);
        multiply(kernels(isa).products, matrix.packed, x.input(), {0, kRows}, {0, 1}, view);
        for (std::size_t r = 0; r < kRows; ++r) {
          for (std::size_t o = 0; o < 16; ++o) {
            EXPECT_EQ(canonical(view[r][o]), canonical(x.expected(matrix, r, o)));
          }
        }
      }
    }
  }
}

TEST(Quantize, AgreesWithTheReference) {
  Rng rng(3);
  std::vector<std::vector<float>> rows;
  std::normal_distribution<float> normal;
  for (int exponent = -149; exponent < 128; ++exponent) {
    std::vector<float> x(512);
    for (float& value : x) value = std::ldexp(normal(rng), exponent);
    rows.push_back(x);
    for (float& value : x) value = std::ldexp(1.0f, exponent);  // ties and all at the largest
    x[1] = -x[1] / 254;
    x[2] = x[2] / 254 * 3;
    rows.push_back(x);
  }
  for (const float special :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN(), 0x1p-120f, 0x1.fffffep-121f, -0.0f}) {
    std::vector<float> x(512, 0.0f);
    x[300] = special;
    rows.push_back(x);
    for (float& value : x) value = normal(rng);
    x[40] = special;
    rows.push_back(x);
  }
  // Any bits at all.
  for (int i = 0; i < 200; ++i) {
    std::vector<float> x(512);
    const std::uint32_t mask = i % 2 ? 0xffffffffu : 0xbfffffffu;
    for (float& value : x) value = std::bit_cast<float>(static_cast<std::uint32_t>(rng()) & mask);
    rows.push_back(x);
  }
  for (const ProductVariant& variant : variants()) {
    SCOPED_TRACE(variant.name);
    for (const std::size_t group : {32, 128, 256}) {
      for (const std::vector<float>& x : rows) {
        std::vector<std::int8_t> q(512), q_expected(512);
        std::vector<float> d(512 / group), d_expected(512 / group);
        std::vector<std::int16_t> sums(32), sums_expected(32);
        quantize_reference(x, group, {q_expected.data(), d_expected.data(), sums_expected.data()});
        variant.kernels.quantize(x, group, {q.data(), d.data(), sums.data()});
        EXPECT_EQ(q, q_expected);
        EXPECT_EQ(sums, sums_expected);
        for (std::size_t i = 0; i < d.size(); ++i) {
          EXPECT_EQ(canonical(d[i]), canonical(d_expected[i]));
        }
      }
    }
  }
}

}  // namespace
}  // namespace outrider

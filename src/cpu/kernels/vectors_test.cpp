// Every instruction set's vector kernels against the reference table: bits, on ragged sizes and
// extreme values.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "cpu/kernels/kernels.h"
#include "numerics/rope.h"

namespace outrider {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Mostly ordinary numbers; one in `rarity` is an edge, NaN included.
class Numbers {
 public:
  explicit Numbers(std::uint32_t seed) : random_(seed) {}
  float ordinary() { return std::normal_distribution<float>(0, 2)(random_); }
  float any(int rarity = 16) {
    static constexpr float kEdges[] = {0,      -0.0f,    kInfinity, -kInfinity, kNan,  0x1p-149f,
                                       3e38f,  -3e38f,   65504,     65520,      -7e4f, 0x1p-24f,
                                       1e-20f, 0x1p-25f, -88.5f,    20.5f,      -110,  0.55f};
    if (below(rarity) != 0) return ordinary();
    return kEdges[below(std::size(kEdges))];
  }
  std::vector<float> ordinary_row(std::size_t n) {
    return row(n, [this] { return ordinary(); });
  }
  std::vector<float> any_row(std::size_t n) {
    return row(n, [this] { return any(); });
  }
  std::size_t below(std::size_t n) { return random_() % n; }

 private:
  static std::vector<float> row(std::size_t n, const std::function<float()>& next) {
    std::vector<float> x(n);
    for (float& value : x) value = next();
    return x;
  }
  std::mt19937 random_;
};

// Bits but for the sign of zeros; all NaNs are one.
bool same(float a, float b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

void expect_same(std::span<const float> found, std::span<const float> expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_TRUE(same(found[i], expected[i]))
        << "element " << i << ": " << std::hexfloat << found[i] << ", expected " << expected[i];
}

// body(kernels) for every table that can run here.
void for_each_isa(const std::function<void(const VectorKernels&)>& body) {
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(name(isa));
    body(kernels(isa).vectors);
  }
}

constexpr std::size_t kSizes[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 100, 257, 1536};

TEST(VectorKernels, ElementwiseGiveTheReferencesBits) {
  using Out = std::span<float>;
  using In = std::span<const float>;
  struct Case {
    const char* name;
    void (*run)(const VectorKernels&, In a, In b, Out y);
  };
  const Case cases[] = {
      {"silu_times", [](const VectorKernels& k, In a, In b, Out y) { k.silu_times(a, b, y); }},
      {"gelu_tanh_times",
       [](const VectorKernels& k, In a, In b, Out y) { k.gelu_tanh_times(a, b, y); }},
      {"gate in place", [](const VectorKernels& k, In, In b, Out y) { k.silu_times(y, b, y); }},
      {"add", [](const VectorKernels& k, In a, In, Out y) { k.add(a, y); }},
      {"scale", [](const VectorKernels& k, In, In, Out y) { k.scale(0.37f, y); }},
      {"softcap", [](const VectorKernels& k, In, In, Out y) { k.softcap(30, y); }},
      {"merge", [](const VectorKernels& k, In a, In, Out y) { k.merge(0.7f, 0.2f, a, y); }},
      {"clamp_to_float",
       [](const VectorKernels& k, In a, In, Out y) { k.clamp_to_float(a, &y[0]); }},
      {"clamp_to_half",
       [](const VectorKernels& k, In a, In, Out y) {
         std::vector<Half> half(y.size());
         k.clamp_to_half(a, half.data());
         for (std::size_t i = 0; i < y.size(); ++i) y[i] = half_to_float(half[i]);
       }},
  };
  for_each_isa([&](const VectorKernels& kernels) {
    Numbers numbers(1);
    for (const Case& c : cases) {
      SCOPED_TRACE(c.name);
      for (const std::size_t n : kSizes) {
        SCOPED_TRACE(n);
        const std::vector<float> a = numbers.any_row(n), b = numbers.any_row(n);
        std::vector<float> expected = numbers.any_row(n + 1), found = expected;
        c.run(kVectorsReference, a, b, std::span(expected).first(n));
        c.run(kernels, a, b, std::span(found).first(n));
        expect_same(found, expected);  // the element past the end is not touched
      }
    }
  });
}

TEST(VectorKernels, RmsNormGivesTheReferencesBits) {
  for_each_isa([](const VectorKernels& kernels) {
    Numbers numbers(2);
    for (const std::size_t n : kSizes) {
      SCOPED_TRACE(n);
      for (const bool edges : {false, true}) {
        const std::vector<float> x = edges ? numbers.any_row(n) : numbers.ordinary_row(n);
        const std::vector<float> w = numbers.ordinary_row(n);
        std::vector<float> expected(n), found = x;
        kVectorsReference.rms_norm(x, w, 1e-6f, expected);
        kernels.rms_norm(found, w, 1e-6f, found);  // in place
        expect_same(found, expected);
      }
    }
  });
}

TEST(VectorKernels, RopeGivesTheReferencesBits) {
  for_each_isa([](const VectorKernels& kernels) {
    Numbers numbers(3);
    for (const int dims : {2, 6, 14, 16, 18, 32, 34, 64, 80, 128, 256}) {
      SCOPED_TRACE(dims);
      const RopeTable angles(20, dims, 10000);
      for (const auto rope : {&VectorKernels::rope_halves, &VectorKernels::rope_adjacent}) {
        std::vector<float> expected = numbers.any_row(static_cast<std::size_t>(dims) + 5);
        std::vector<float> found = expected;
        (kVectorsReference.*rope)(angles.cos(19), angles.sin(19), expected);
        (kernels.*rope)(angles.cos(19), angles.sin(19), found);
        expect_same(found, expected);
      }
    }
  });
}

// Rows longer than they look, so that strides count.
struct Matrix {
  Matrix(std::size_t rows, std::size_t columns, Numbers& numbers)
      : rows(rows), columns(columns), stride(columns + 3), x(numbers.ordinary_row(rows * stride)) {}
  MatrixView<float> view() { return {x.data(), rows, columns, stride}; }
  std::size_t rows, columns, stride;
  std::vector<float> x;
};

std::vector<Half> to_halves(const std::vector<float>& x) {
  std::vector<Half> halves;
  for (const float value : x) halves.push_back(float_to_half(value));
  return halves;
}

constexpr std::size_t kHeadDims[] = {1, 8, 20, 64, 80, 100, 128, 200, 256};
constexpr std::size_t kQueryCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 13, 24};

TEST(VectorKernels, ScoresGiveTheReferencesBits) {
  for_each_isa([](const VectorKernels& kernels) {
    Numbers numbers(4);
    for (const std::size_t head_dim : kHeadDims) {
      SCOPED_TRACE(head_dim);
      std::vector<float> keys = numbers.ordinary_row(head_dim * kTile);
      keys[numbers.below(keys.size())] = kNan;
      keys[numbers.below(keys.size())] = 65504;
      const std::vector<Half> halves = to_halves(keys);
      for (const std::size_t n : kQueryCounts) {
        SCOPED_TRACE(n);
        Matrix queries(n, head_dim, numbers), found(n, kTile, numbers), expected = found;
        kVectorsReference.scores_f16(queries.view(), halves.data(), expected.view());
        kernels.scores_f16(queries.view(), halves.data(), found.view());
        expect_same(found.x, expected.x);
        kVectorsReference.scores_f32(queries.view(), keys.data(), expected.view());
        kernels.scores_f32(queries.view(), keys.data(), found.view());
        expect_same(found.x, expected.x);
      }
    }
  });
}

TEST(VectorKernels, TileSoftmaxGivesTheReferencesBits) {
  for_each_isa([](const VectorKernels& kernels) {
    Numbers numbers(5);
    for (int round = 0; round < 400; ++round) {
      std::array<float, kTile> expected;
      const std::size_t present = 1 + numbers.below(kTile);
      const float spread = round % 3 == 0 ? 60.0f : 1.0f;
      for (float& score : expected)
        score = numbers.below(kTile) < present ? spread * numbers.ordinary() : -kInfinity;
      expected[numbers.below(kTile)] = round % 50 == 7 ? kNan : round % 50 == 8 ? kInfinity : 0.5f;
      std::array<float, kTile> found = expected;
      const TileSum a = kVectorsReference.tile_softmax(expected), b = kernels.tile_softmax(found);
      ASSERT_TRUE(same(a.max, b.max)) << a.max << " " << b.max;
      ASSERT_TRUE(same(a.sum, b.sum)) << a.sum << " " << b.sum;
      expect_same(found, expected);
    }
  });
}

// Weights of zero stand beside values that are NaN: they must not meet. Where a weight is not zero,
// NaN must show.
TEST(VectorKernels, ValuesGiveTheReferencesBits) {
  for_each_isa([](const VectorKernels& kernels) {
    Numbers numbers(6);
    for (const std::size_t head_dim : kHeadDims) {
      SCOPED_TRACE(head_dim);
      for (const std::size_t n : kQueryCounts) {
        SCOPED_TRACE(n);
        for (const std::size_t count : {std::size_t{1}, 1 + numbers.below(kTile), kTile}) {
          SCOPED_TRACE(count);
          std::vector<float> values = numbers.ordinary_row(head_dim * kTile);
          Matrix p(n, kTile, numbers), found(n, head_dim, numbers);
          for (float& weight : p.x) weight = std::fabs(weight);
          for (const bool hidden : {true, false}) {
            const std::size_t key = numbers.below(count);
            values[key * head_dim + numbers.below(head_dim)] = kNan;
            for (std::size_t q = 0; q < n; ++q)
              if (hidden || q % 3 == 0) p.view()[q][key] = 0;
            const std::vector<Half> halves = to_halves(values);
            Matrix expected = found;
            kVectorsReference.values_f16(p.view(), halves.data(), count, expected.view());
            kernels.values_f16(p.view(), halves.data(), count, found.view());
            expect_same(found.x, expected.x);
            kVectorsReference.values_f32(p.view(), values.data(), count, expected.view());
            kernels.values_f32(p.view(), values.data(), count, found.view());
            expect_same(found.x, expected.x);
            if (hidden) {
              for (const float value : found.x) ASSERT_FALSE(std::isnan(value));
            }
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace outrider

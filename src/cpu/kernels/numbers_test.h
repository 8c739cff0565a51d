// Numbers for tests of kernels, and how their results compare.

#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <span>
#include <vector>

namespace outrider::testing {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

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
inline bool same(float a, float b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

inline void expect_same(std::span<const float> found, std::span<const float> expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_TRUE(same(found[i], expected[i]))
        << "element " << i << ": " << std::hexfloat << found[i] << ", expected " << expected[i];
}

}  // namespace outrider::testing

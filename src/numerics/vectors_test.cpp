// Sums, norm, rope and softmax: the order that the contract fixes, and that the results are right.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <random>
#include <vector>

#include "numerics/functions.h"
#include "numerics/norm.h"
#include "numerics/reduce.h"
#include "numerics/rope.h"
#include "numerics/softmax.h"

namespace outrider {
namespace {

std::vector<float> random_row(std::size_t n, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> x(n);
  for (float& value : x) value = std::normal_distribution<float>(0, 1)(random);
  return x;
}

// 2^24 + 1 rounds to 2^24, so the result of a sum shows its order.
TEST(LaneSum, AddsInItsOrder) {
  std::vector<float> x(33, 0);
  x[0] = 0x1p24f;
  x[16] = 1;  // same lane, swallowed
  x[32] = -0x1p24f;
  EXPECT_EQ(lane_sum(x), 0);
  x[17] = 1;  // lane 1 stays apart from lane 0 until the last step
  EXPECT_EQ(lane_sum(x), 1);
  const Lanes near = {0x1p24f, 0, 0, 0, 0, 0, 0, 0, -0x1p24f, 0, 0, 0, 1};
  EXPECT_EQ(sum_of_lanes(near), 1);  // 8 apart first
  const Lanes far = {0x1p24f, -0x1p24f, 1};
  EXPECT_EQ(sum_of_lanes(far), 0);  // 2 apart before 1 apart
  EXPECT_EQ(lane_sum_of_squares(std::vector<float>{3, 4}), 25);
  EXPECT_EQ(lane_sum({}), 0);
}

TEST(RmsNorm, ScalesToUnitPower) {
  const std::vector<float> x = random_row(577, 1), w(577, 2.0f);
  std::vector<float> y(577);
  rms_norm_reference(x, w, 1e-6f, y);
  const double power = std::inner_product(x.begin(), x.end(), x.begin(), 0.0) / 577;
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_NEAR(y[i], 2 * x[i] / std::sqrt(power + 1e-6), 1e-5);
}

TEST(LayerNorm, ScalesToMeanZeroAndUnitPower) {
  std::vector<float> x = random_row(577, 4);
  for (float& value : x) value += 3;
  const std::vector<float> w(577, 2.0f);
  std::vector<float> y(577);
  layer_norm_reference(x, w, 1e-6f, y);
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) / 577;
  double variance = 0;
  for (const float value : x) variance += (value - mean) * (value - mean) / 577;
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_NEAR(y[i], 2 * (x[i] - mean) / std::sqrt(variance + 1e-6), 1e-5);
}

TEST(Softmax, SumsToOneAndKeepsRatios) {
  std::vector<float> x = random_row(1000, 2), p(1000);
  x[3] = -std::numeric_limits<float>::infinity();
  softmax_reference(x, p);
  EXPECT_NEAR(std::accumulate(p.begin(), p.end(), 0.0), 1, 1e-5);
  EXPECT_EQ(p[3], 0);
  EXPECT_NEAR(p[0] / p[1], std::exp(x[0] - x[1]), 1e-4);
}

TEST(Rope, DoubleFunctionsAreAccurate) {
  std::mt19937_64 random(3);
  std::vector<double> points = {0,
                                1e-300,
                                0x1p20,
                                0x1p20 - 1,
                                0x1.8p20,
                                1.5707963267948966,
                                3.141592653589793,
                                0.78539816339};
  for (int i = 0; i < 20000; ++i)
    points.push_back(std::uniform_real_distribution<>(0, i % 2 == 0 ? 0x1.8p20 : 7.0)(random));
  for (const double x : points) {
    const SinCos found = sin_cos_f64(x);
    ASSERT_NEAR(found.sin, sinl(x), 3e-16) << x;
    ASSERT_NEAR(found.cos, cosl(x), 3e-16) << x;
  }
  for (const double base :
       {1.0, 1.5, 2.0, 100.0, 10000.0, 500000.0, 1e6, 1e7, 1e9, 3580165449.0, 1e12}) {
    for (const double exponent : {0.0, -1.0 / 64, -0.25, -0.5, -62.0 / 64, -1.0}) {
      const double exact = static_cast<double>(powl(base, exponent));
      ASSERT_NEAR(power_f64(base, exponent), exact, 4e-15 * exact) << base << " " << exponent;
    }
  }
}

TEST(Rope, TableHoldsCosinesAndSines) {
  std::vector<double> frequencies = rope_frequencies(64, 10000);
  for (double& frequency : frequencies) frequency *= 0.25;
  const RopeTable table(5000, frequencies, 1.5);
  for (const int position : {0, 1, 4999}) {
    ASSERT_EQ(table.cos(position).size(), 32u);
    for (std::size_t i = 0; i < 32; ++i) {
      const long double angle = position * 0.25L * powl(10000, -2.0L * i / 64);
      EXPECT_NEAR(table.cos(position)[i], 1.5L * cosl(angle), 9e-8) << position << " " << i;
      EXPECT_NEAR(table.sin(position)[i], 1.5L * sinl(angle), 9e-8) << position << " " << i;
    }
  }
}

// Peng et al. 2023, arXiv:2309.00071, with the numbers of Qwen2.5 at four times its length.
TEST(Rope, YarnSlowsDownWhatTurnsSeldom) {
  const std::vector<double> plain = rope_frequencies(128, 1e6);
  const std::vector<double> yarn =
      yarn_frequencies(128, 1e6, {.factor = 4, .trained_length = 32768});
  const auto turns = [&](std::size_t i) { return 32768 * plain[i] / (2 * std::numbers::pi); };
  for (std::size_t i = 0; i < plain.size(); ++i) {
    SCOPED_TRACE(i);
    if (turns(i) > 40) {
      EXPECT_EQ(yarn[i], plain[i]);
    } else if (turns(i) < 0.8) {
      EXPECT_DOUBLE_EQ(yarn[i], plain[i] / 4);
    } else {
      EXPECT_LE(yarn[i], plain[i]);
      EXPECT_GE(yarn[i], plain[i] / 4);
    }
  }
  EXPECT_NEAR(yarn_magnitude(4), 1.1386294361119891, 1e-15);
  EXPECT_EQ(yarn_magnitude(1), 1);
}

// Both pairings rotate vectors without changing their length, and differ only in which channels
// they pair.
TEST(Rope, TurnsPairs) {
  const std::vector<float> cos = {0, 1}, sin = {1, 0};  // a quarter turn for the first pair only
  std::vector<float> halves = {1, 2, 3, 4, 5}, adjacent = halves;
  rope_halves_reference(cos, sin, halves);
  EXPECT_EQ(halves, (std::vector<float>{-3, 2, 1, 4, 5}));
  rope_adjacent_reference(cos, sin, adjacent);
  EXPECT_EQ(adjacent, (std::vector<float>{-2, 1, 3, 4, 5}));
}

TEST(TileSoftmax, AbsentScoresWeighNothing) {
  std::vector<float> p(kTile, -std::numeric_limits<float>::infinity());
  p[5] = 2;
  p[40] = 1;
  const TileSum sum = tile_softmax_reference(std::span<float, kTile>(p));
  EXPECT_EQ(sum.max, 2);
  EXPECT_EQ(p[5], 1);
  EXPECT_EQ(p[40], exp_f32(-1));
  EXPECT_EQ(p[0], 0);
  EXPECT_EQ(sum.sum, 1 + exp_f32(-1));
  p[7] = std::numeric_limits<float>::quiet_NaN();
  const TileSum nan = tile_softmax_reference(std::span<float, kTile>(p));
  EXPECT_TRUE(std::isnan(nan.max) && std::isnan(nan.sum));
  for (const float value : p) EXPECT_TRUE(std::isnan(value));
}

}  // namespace
}  // namespace outrider

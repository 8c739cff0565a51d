#include "numerics/encode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "numerics/dequantize.h"
#include "numerics/half.h"

namespace outrider {
namespace {

constexpr std::size_t kGroup = 32;

std::vector<float> there_and_back(TensorType type, std::span<const float> values) {
  const TensorTypeTraits& t = traits(type);
  std::vector<std::byte> blocks(values.size() / t.block_elements * t.block_bytes);
  encode(type, values, blocks);
  std::vector<float> decoded(values.size());
  dequantize(type, blocks, decoded);
  return decoded;
}

double squared_error(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(double{a[i]} - double{b[i]}, 2);
  return sum;
}

float levels_below_zero(TensorType type) {
  return type == TensorType::q4_0 ? 8 : type == TensorType::q5_0 ? 16 : 128;
}

// The least error of any scale, found by trying very many.
double least_error(std::span<const float> x, float n) {
  float largest = 0;
  for (const float value : x)
    if (std::fabs(value) > std::fabs(largest)) largest = value;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 500; i <= 2500; ++i) {
    for (const float sign : {1.0f, -1.0f}) {
      const float d =
          half_to_float(float_to_half(sign * largest / n * static_cast<float>(i) / 1000));
      double error = 0;
      for (const float value : x) {
        const float q = std::clamp(std::nearbyint(value / d), -n, n - 1);
        error += std::pow(double{value} - double{d * q}, 2);
      }
      least = std::min(least, error);
    }
  }
  return least;
}

// Every value comes back at its own place: a group of one large value and smaller ones that differ.
TEST(Encode, KeepsTheOrderOfValues) {
  for (const TensorType type : encodable_types()) {
    SCOPED_TRACE(traits(type).name);
    const float n = levels_below_zero(type);
    for (std::size_t place = 0; place < kGroup; ++place) {
      std::vector<float> values(2 * kGroup, 0.0f);
      values[kGroup + place] = -n;
      values[kGroup + (place + 1) % kGroup] = n - 1;
      values[kGroup + (place + 5) % kGroup] = 1;
      values[kGroup + (place + 17) % kGroup] = -3;
      EXPECT_EQ(there_and_back(type, values), values) << place;
    }
  }
}

// Encoding what a block holds gives the same values again.
TEST(Encode, LosesNothingOfWhatTheTypeHolds) {
  std::mt19937 random(1);
  for (const TensorType type : encodable_types()) {
    SCOPED_TRACE(traits(type).name);
    const int n = static_cast<int>(levels_below_zero(type));
    for (int round = 0; round < 200; ++round) {
      std::vector<float> values(kGroup);
      const float d = half_to_float(float_to_half(
          std::ldexp(1 + random() % 1024 / 1024.0f, static_cast<int>(random() % 20) - 14)));
      for (float& value : values)
        value = d * static_cast<float>(static_cast<int>(random() % (2 * n)) - n);
      values[random() % kGroup] = d * static_cast<float>(-n);
      EXPECT_EQ(there_and_back(type, values), values);
    }
  }
}

// A better scale would gain little: measured 1 % in four bits, 14 % in eight.
TEST(Encode, IsNearlyAsGoodAsAnyScale) {
  std::mt19937 random(2);
  for (const TensorType type : encodable_types()) {
    SCOPED_TRACE(traits(type).name);
    const float n = levels_below_zero(type);
    std::normal_distribution<float> normal;
    std::student_t_distribution<float> with_outliers(4);
    double error = 0, least = 0;
    for (int round = 0; round < 100; ++round) {
      std::vector<float> values(kGroup);
      for (float& value : values)
        value = 0.02f * (round % 2 ? normal(random) : with_outliers(random));
      const double here = squared_error(values, there_and_back(type, values));
      const double best = least_error(values, n);
      EXPECT_LE(here, 1.7 * best);
      error += here;
      least += best;
    }
    EXPECT_LE(error, (type == TensorType::q8_0 ? 1.2 : 1.05) * least);
    EXPECT_GE(error, 0.999 * least);
  }
}

TEST(Encode, GroupsStandAlone) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> values(5 * kGroup);
  for (float& value : values) value = normal(random);
  for (const TensorType type : encodable_types()) {
    const std::vector<float> all = there_and_back(type, values);
    const std::vector<float> one =
        there_and_back(type, std::span(values).subspan(3 * kGroup, kGroup));
    EXPECT_TRUE(std::equal(one.begin(), one.end(), all.begin() + 3 * kGroup));
  }
}

TEST(Encode, ExtremesStayWithinTheirGroup) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const TensorType type : encodable_types()) {
    SCOPED_TRACE(traits(type).name);
    const float n = levels_below_zero(type);
    for (const float bad :
         {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(), 1e38f, n * 65504}) {
      std::vector<float> values(2 * kGroup, 1.0f);
      values[7] = bad;
      const std::vector<float> decoded = there_and_back(type, values);
      for (std::size_t i = 0; i < kGroup; ++i) {
        EXPECT_TRUE(std::isnan(decoded[i])) << bad;
        EXPECT_NEAR(decoded[kGroup + i], 1.0f, 1e-3f);
      }
    }
    // The largest and the smallest values that have a scale, and one too small for it.
    for (const float value : {n * 65000, n * 0x1p-24f}) {
      std::vector<float> values(kGroup, -value);
      for (const float decoded : there_and_back(type, values))
        EXPECT_NEAR(decoded, -value, value / n / 2);
    }
    for (const float value : {0.0f, -0.0f, 1e-38f, -1e-45f, n * 0x1p-26f}) {
      for (const float decoded : there_and_back(type, std::vector(kGroup, value)))
        EXPECT_EQ(decoded, 0.0f);
    }
  }
}

}  // namespace
}  // namespace outrider

#include "numerics/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace outrider {
namespace {

constexpr std::uint32_t kHalves = 0x10000;
constexpr std::uint16_t kInfinity = 0x7c00;

bool is_nan(std::uint16_t half) {
  return (half & 0x7fff) > kInfinity;
}

// The definition of IEEE 754 binary16, in double arithmetic.
double value_of(std::uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int fraction = half & 1023;
  double magnitude =
      std::ldexp(exponent == 0 ? fraction : 1024 + fraction, exponent == 0 ? -24 : exponent - 25);
  if (exponent == 31) magnitude = std::numeric_limits<double>::infinity();
  return half & 0x8000 ? -magnitude : magnitude;
}

TEST(Half, EveryHalfHasItsValue) {
  for (std::uint32_t h = 0; h < kHalves; ++h) {
    const auto half = static_cast<std::uint16_t>(h);
    const float value = half_to_float(half);
    if (is_nan(half)) {
      EXPECT_TRUE(std::isnan(value)) << h;
    } else {
      EXPECT_EQ(value, value_of(half)) << h;
    }
    EXPECT_EQ(std::signbit(value), (half & 0x8000) != 0) << h;
  }
}

TEST(Half, EveryHalfSurvivesTheRoundTrip) {
  for (std::uint32_t h = 0; h < kHalves; ++h) {
    const auto half = static_cast<std::uint16_t>(h);
    const std::uint16_t expected = is_nan(half) ? half | 0x200 : half;  // NaNs become quiet
    EXPECT_EQ(float_to_half(half_to_float(half)), expected) << h;
  }
}

// Between two neighbours the nearer one wins, and the even one exactly half way between them.
TEST(Half, RoundsToNearestEven) {
  for (std::uint16_t low = 0; low < kInfinity; ++low) {
    const std::uint16_t high = low + 1;
    const double next = high == kInfinity ? 65536.0 : value_of(high);
    const auto middle = static_cast<float>((value_of(low) + next) / 2);
    const std::uint16_t even = low % 2 == 0 ? low : high;
    for (const std::uint16_t sign : {0, 0x8000}) {
      const float s = sign ? -1.0f : 1.0f;
      EXPECT_EQ(float_to_half(s * middle), sign | even) << low;
      EXPECT_EQ(float_to_half(s * std::nextafter(middle, 0.0f)), sign | low) << low;
      EXPECT_EQ(float_to_half(s * std::nextafter(middle, 1e30f)), sign | high) << low;
    }
  }
}

TEST(Half, ExtremeFloats) {
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::max()), kInfinity);
  EXPECT_EQ(float_to_half(-std::numeric_limits<float>::infinity()), 0x8000 | kInfinity);
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(float_to_half(-0.0f), 0x8000);
  EXPECT_TRUE(is_nan(float_to_half(std::numeric_limits<float>::signaling_NaN())));
  EXPECT_TRUE(
      is_nan(float_to_half(std::bit_cast<float>(0x7f800001u))));  // its payload is lost in a half
}

TEST(Bf16, IsTheUpperHalfOfAFloat) {
  EXPECT_EQ(bf16_to_float(0x3f80), 1.0f);
  EXPECT_EQ(bf16_to_float(0xc040), -3.0f);
  EXPECT_EQ(bf16_to_float(0x0001), 0x1p-133f);
  EXPECT_TRUE(std::isnan(bf16_to_float(0x7fc1)));
}

}  // namespace
}  // namespace outrider

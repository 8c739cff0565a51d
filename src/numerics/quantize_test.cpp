#include "numerics/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace outrider {
namespace {

struct Result {
  std::vector<std::int8_t> q;
  std::vector<float> d;
  std::vector<std::int16_t> sums16;
};

Result quantized(const std::vector<float>& x, std::size_t group) {
  Result r{std::vector<std::int8_t>(x.size()), std::vector<float>(x.size() / group),
           std::vector<std::int16_t>(x.size() / 16)};
  quantize_reference(x, group, {r.q.data(), r.d.data(), r.sums16.data()});
  return r;
}

TEST(QuantizeReference, TheLargestMagnitudeBecomes127AndTiesGoToEven) {
  std::vector<float> x(64, 0.0f);
  x[0] = -254;
  x[1] = 1;   // 0.5: to 0
  x[2] = 3;   // 1.5: to 2
  x[3] = -5;  // -2.5: to -2
  x[40] = 0.5f;
  const Result r = quantized(x, 32);
  EXPECT_EQ(r.d, (std::vector<float>{2.0f, 0.5f / 127}));
  EXPECT_EQ(r.q[0], -127);
  EXPECT_EQ(r.q[1], 0);
  EXPECT_EQ(r.q[2], 2);
  EXPECT_EQ(r.q[3], -2);
  EXPECT_EQ(r.q[40], 127);
  EXPECT_EQ(r.sums16, (std::vector<std::int16_t>{-127, 0, 127, 0}));
}

TEST(QuantizeReference, AGroupOf256HasOneScale) {
  std::vector<float> x(512);
  std::iota(x.begin(), x.end(), -256.0f);
  const Result r = quantized(x, 256);
  EXPECT_EQ(r.d, (std::vector<float>{256.0f / 127, 255.0f / 127}));
  EXPECT_EQ(r.q.front(), -127);
  EXPECT_EQ(r.q.back(), 127);
}

TEST(QuantizeReference, TinyGroupsBecomeZeros) {
  const float least = 0x1p-120f;
  std::vector<float> x(64, 0.0f);
  x[3] = std::nextafter(least, 0.0f);
  x[35] = -least;
  const Result r = quantized(x, 32);
  EXPECT_EQ(r.d[0], 0.0f);
  EXPECT_EQ(r.q[3], 0);
  EXPECT_EQ(r.d[1], least / 127);
  EXPECT_EQ(r.q[35], -127);
}

TEST(QuantizeReference, InfinityAndNanMakeTheScaleNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {infinity, -infinity, std::nanf("")}) {
    std::vector<float> x(64, 1.0f);
    x[17] = bad;
    const Result r = quantized(x, 32);
    EXPECT_TRUE(std::isnan(r.d[0]));
    for (int i = 0; i < 32; ++i) EXPECT_EQ(r.q[i], 0);
    EXPECT_EQ(r.d[1], 1.0f / 127);  // the other group is as ever
    EXPECT_EQ(r.q[63], 127);
    EXPECT_EQ(r.sums16[0], 0);
    EXPECT_EQ(r.sums16[2], 16 * 127);
  }
}

}  // namespace
}  // namespace outrider

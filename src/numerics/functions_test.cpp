#include "numerics/functions.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

namespace outrider {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The distance of `result` from `exact` in units in the last place of floats there.
double ulps(float result, long double exact) {
  const float nearest = static_cast<float>(exact);
  if (std::isinf(nearest) || std::isinf(result)) return nearest == result ? 0 : kInfinity;
  int exponent = -126;
  if (exact != 0) exponent = std::max(exponent, std::ilogb(exact));
  return static_cast<double>(std::fabs(result - exact) / std::ldexp(1.0L, exponent - 23));
}

struct Function {
  const char* name;
  float (*ours)(float);
  long double (*exact)(long double);
  float absolute;  // tolerated besides two ulp, times |x|
};

long double sigmoid(long double x) {
  return 1 / (1 + expl(-x));
}
const Function kFunctions[] = {
    {"exp", exp_f32, [](long double x) { return x < -80 ? 0 : expl(x); }, 0},
    {"log", log_f32, [](long double x) { return logl(x); }, 0},
    {"log1p", log1p_f32, [](long double x) { return log1pl(x); }, 0},
    {"tanh", tanh_f32, [](long double x) { return tanhl(x); }, 0},
    {"sigmoid", sigmoid_f32, sigmoid, 0},
    {"silu", silu_f32, [](long double x) { return x < -20000 ? 0 : x * sigmoid(x); }, 0},
    {"gelu_tanh", gelu_tanh_f32,
     [](long double x) {
       const long double z = 2 * sqrtl(2 / acosl(-1)) * (x + 0.044715L * x * x * x);
       return x < -100 ? 0 : x * sigmoid(z);
     },
     0x1p-22f},
};

// Every `stride`-th float from `low` to `high`, the bits of both given.
void expect_accurate(const Function& f, std::uint32_t low, std::uint32_t high,
                     std::uint32_t stride) {
  SCOPED_TRACE(f.name);
  double worst = 0;
  float worst_at = 0;
  for (std::uint64_t bits = low; bits <= high; bits += stride) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    const float ours = f.ours(x);
    const long double exact = f.exact(x);
    if (std::isnan(exact)) {
      if (!std::isnan(ours)) FAIL() << "at " << x << ": " << ours << ", not NaN";
      continue;
    }
    if (std::isnan(ours)) FAIL() << "NaN at " << x;
    if (std::fabs(ours - exact) <= f.absolute * std::fabs(x)) continue;
    if (const double error = ulps(ours, exact); error > worst) {
      worst = error;
      worst_at = x;
    }
  }
  EXPECT_LE(worst, 2) << "at " << std::hexfloat << worst_at;
}

TEST(Functions, AreWithinTwoUlps) {
  for (const Function& f : kFunctions) {
    expect_accurate(f, 0, 0xffffffff, 10007);  // subnormals, infinities and NaNs, too
    // The exponents where errors vary most: 2^-3 to 32, and where 1 + exp(-x) is about to lose
    // its 1.
    for (const std::uint32_t sign : {0u, 0x80000000u}) {
      expect_accurate(f, sign | 0x3e000000, sign | 0x42000000, 199);
      expect_accurate(f, sign | 0x41840000, sign | 0x41870000, 1);
    }
  }
}

// Soak: three quarters of an hour.
TEST(Functions, DISABLED_AreWithinTwoUlpsEverywhere) {
  for (const Function& f : kFunctions) expect_accurate(f, 0, 0xffffffff, 1);
}

TEST(Functions, KeepTheirPromisesAtTheEdges) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(exp_f32(0), 1);
  EXPECT_EQ(exp_f32(-0.0f), 1);
  EXPECT_GT(exp_f32(-80), 0);
  for (const float x : {std::nextafter(-80.0f, -81.0f), -1000.0f, -kInfinity}) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(exp_f32(x)), 0u) << x;
  }
  EXPECT_EQ(exp_f32(89), kInfinity);
  EXPECT_EQ(exp_f32(kInfinity), kInfinity);
  EXPECT_EQ(log_f32(0), -kInfinity);
  EXPECT_EQ(log_f32(-0.0f), -kInfinity);
  EXPECT_EQ(log_f32(1), 0);
  EXPECT_EQ(log_f32(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(log_f32(-1)));
  EXPECT_EQ(log1p_f32(-1), -kInfinity);
  EXPECT_EQ(log1p_f32(0), 0);
  EXPECT_EQ(log1p_f32(0x1p-149f), 0x1p-149f);
  EXPECT_TRUE(std::isnan(log1p_f32(-1.5f)));
  EXPECT_EQ(tanh_f32(kInfinity), 1);
  EXPECT_EQ(tanh_f32(-kInfinity), -1);
  EXPECT_EQ(sigmoid_f32(0), 0.5f);
  EXPECT_EQ(sigmoid_f32(-kInfinity), 0);
  EXPECT_EQ(silu_f32(-kInfinity), 0);
  EXPECT_EQ(silu_f32(kInfinity), kInfinity);
  EXPECT_EQ(silu_f32(1e38f), 1e38f);
  EXPECT_EQ(gelu_tanh_f32(-kInfinity), 0);
  EXPECT_EQ(gelu_tanh_f32(-3e38f), 0);
  EXPECT_EQ(gelu_tanh_f32(3e38f), 3e38f);
  for (const Function& f : kFunctions) EXPECT_TRUE(std::isnan(f.ours(nan))) << f.name;
}

}  // namespace
}  // namespace outrider

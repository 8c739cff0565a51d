#include "numerics/functions.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace outrider {
namespace {

using namespace function_constants;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <int n>
float polynomial(const float (&coefficients)[n], float x) {
  float sum = coefficients[0];
  for (int i = 1; i < n; ++i) sum = std::fma(sum, x, coefficients[i]);
  return sum;
}

// exp(x) = 2^n (1 + t), |t| < 0.42, for |x| up to some hundred. For a NaN, t is NaN and n is
// arbitrary.
struct ExpParts {
  std::int32_t n;
  float t;
};

ExpParts exp_parts(float x) {
  const float rounded = std::fma(x, kLog2e, kRounder);
  const float n = rounded - kRounder;
  float r = std::fma(n, -kLn2High, x);
  r = std::fma(n, -kLn2Low, r);
  const float t = std::fma(r * r, polynomial(kExp, r), r);
  const std::uint32_t bits =
      std::bit_cast<std::uint32_t>(rounded) - std::bit_cast<std::uint32_t>(kRounder);
  return {static_cast<std::int32_t>(bits), t};
}

// 2^n for -126 <= n <= 127.
float power_of_two(std::int32_t n) {
  return std::bit_cast<float>((static_cast<std::uint32_t>(n) + 127) << 23);
}

// x * sigmoid(z). With exp(-z) = 2^n (1 + t) and w = 2^-n it is x w / (1 + w + t), whose sum is
// made with the part of w that 1 + w loses, if any. w goes down to 2^-159, so x is multiplied in
// two steps.
float gate(float x, float z) {
  if (z > kGateHighest) return x;
  if (z < kGateLowest) return 0;
  if (std::isnan(z)) return kNan;
  const ExpParts e = exp_parts(-z);
  const std::int32_t half = e.n >> 1;
  const float w1 = power_of_two(-half), w2 = power_of_two(half - e.n);
  const float w = w1 * w2, sum = 1.0f + w, lost = w - (sum - 1.0f);
  return x * w1 * w2 / (sum + (e.t + lost));
}

// log(2^e m (1 + c)) for m in [2/3, 4/3) and a tiny c, given f = m (1 + c) - 1.
float log_of_parts(std::int32_t e, float f) {
  const float log1p = std::fma(f * f, polynomial(kLog, f), f);
  return std::fma(static_cast<float>(e), kLn2, log1p);
}

struct Exponent {
  std::int32_t e;
  float m;  // x = 2^e m, 2/3 <= m < 4/3
};

// x: positive and normal.
Exponent split(float x) {
  const std::uint32_t above = std::bit_cast<std::uint32_t>(x) - kTwoThirdsBits;
  const std::int32_t e = static_cast<std::int32_t>(above) >> 23;
  return {e, std::bit_cast<float>((above & 0x7fffff) + kTwoThirdsBits)};
}

}  // namespace

float exp_f32(float x) {
  if (x < kExpLowest) return 0;
  if (x > kExpHighest) return kInfinity;
  if (std::isnan(x)) return kNan;
  const ExpParts e = exp_parts(x);
  // n reaches 128, one more than a float's exponent.
  return (1.0f + e.t) * power_of_two(e.n - 1) * 2.0f;
}

float log_f32(float x) {
  if (!(x > 0)) return x == 0 ? -kInfinity : kNan;
  if (x == kInfinity) return kInfinity;
  const bool subnormal = x < std::numeric_limits<float>::min();
  const Exponent s = split(subnormal ? x * 0x1p23f : x);
  return log_of_parts(subnormal ? s.e - 23 : s.e, s.m - 1.0f);
}

float log1p_f32(float x) {
  if (!(x > -1)) return x == -1 ? -kInfinity : kNan;
  if (x == kInfinity) return kInfinity;
  // 1 + x = sum + lost exactly (Knuth's two-sum); what the sum lost enters with f.
  const float sum = 1.0f + x;
  const float x_part = sum - 1.0f;
  const float lost = (1.0f - (sum - x_part)) + (x - x_part);
  const Exponent s = split(sum);
  const float f = std::fma(lost, power_of_two(s.e < 126 ? -s.e : -126), s.m - 1.0f);
  return log_of_parts(s.e, f);
}

float tanh_f32(float x) {
  const float size = std::fabs(x);
  if (size < kTanhSmall) {
    const float square = x * x;
    return std::fma(x * square, polynomial(kTanh, square), x);
  }
  return std::copysign(1.0f - gate(2.0f, -2.0f * size), x);  // a NaN stays one
}

float sigmoid_f32(float x) {
  return gate(1, x);
}

float silu_f32(float x) {
  return gate(x, x);
}

float gelu_tanh_f32(float x) {
  return gate(x, x * std::fma(x * x, kGelu3, kGelu1));
}

}  // namespace outrider

#include "numerics/rope.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/error.h"

namespace outrider {
namespace {

template <std::size_t n>
double polynomial(const double (&coefficients)[n], double x) {
  double sum = coefficients[0];
  for (std::size_t i = 1; i < n; ++i) sum = sum * x + coefficients[i];
  return sum;
}

// Adding and taking away 1.5 * 2^52 rounds to an integer.
constexpr double kRounder = 0x1.8p52;

// x = n * ln 2 + r: Taylor's series of exp(r), |r| <= 0.35, ends where terms fall below 2^-58.
double exp_f64(double x) {
  const double n = (x * 0x1.71547652b82fep0 + kRounder) - kRounder;
  const double r = (x - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;
  double sum = 1;
  for (int i = 14; i > 0; --i) sum = 1 + sum * r / i;
  const auto exponent = static_cast<std::int64_t>(n) + 1023;
  return sum * std::bit_cast<double>(static_cast<std::uint64_t>(exponent) << 52);
}

}  // namespace

// x = 2^e m, m in [2/3, 4/3): log m = 2 (s + s^3 / 3 + s^5 / 5 + ...) with s = (m - 1) / (m + 1),
// |s| <= 1/5.
double log_f64(double x) {
  const std::uint64_t above = std::bit_cast<std::uint64_t>(x) - 0x3fe5555555555555;
  const double e = static_cast<double>(static_cast<std::int64_t>(above) >> 52);
  const double m = std::bit_cast<double>((above & 0xfffffffffffff) + 0x3fe5555555555555);
  const double s = (m - 1) / (m + 1);
  double sum = 0;
  for (int i = 23; i > 1; i -= 2) sum = (sum + 1.0 / i) * s * s;
  return e * 0x1.62e42fee00000p-1 + (e * 0x1.a39ef35793c76p-33 + 2 * (s + s * sum));
}

double power_f64(double base, double exponent) {
  return exp_f64(exponent * log_f64(base));
}

// x = n * pi / 2 + r, with pi / 2 in three parts of which the first two have 33 bits, so that n
// times each is exact for n below 2^20; then Taylor's series on |r| <= pi / 4.
SinCos sin_cos_f64(double x) {
  const double n = (x * 0x1.45f306dc9c883p-1 + kRounder) - kRounder;
  const double r =
      ((x - n * 0x1.921fb54400000p0) - n * 0x1.0b4611a600000p-34) - n * 0x1.3198a2e037073p-69;
  static constexpr double kSin[] = {
      -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880,
      -1.0 / 5040,          1.0 / 120,        -1.0 / 6};
  static constexpr double kCos[] = {
      1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800,
      1.0 / 40320,          -1.0 / 720,         1.0 / 24,        -1.0 / 2};
  const double square = r * r;
  const double sin = r + r * square * polynomial(kSin, square);
  const double cos = 1 + square * polynomial(kCos, square);
  switch (static_cast<std::int64_t>(n) & 3) {
    case 0: return {sin, cos};
    case 1: return {cos, -sin};
    case 2: return {-sin, -cos};
    default: return {-cos, sin};
  }
}

std::vector<double> rope_frequencies(int dims, double base) {
  CHECK(dims >= 0 && dims % 2 == 0);
  std::vector<double> frequencies(static_cast<std::size_t>(dims) / 2);
  for (std::size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = power_f64(base, -2 * static_cast<double>(i) / dims);
  return frequencies;
}

std::vector<double> yarn_frequencies(int dims, double base, const Yarn& yarn) {
  std::vector<double> frequencies = rope_frequencies(dims, base);
  // The pair that turns `turns` times within the trained length, as a real number. Where the base
  // is 1 all pairs turn alike.
  const double log_base = log_f64(base);
  const auto pair_of = [&](double turns) {
    constexpr double kTwoPi = 6.283185307179586;
    const double length = log_f64(yarn.trained_length / (turns * kTwoPi));
    return log_base > 0 ? dims * length / (2 * log_base) : 0;
  };
  const double low = std::max(std::floor(pair_of(yarn.turns_kept)), 0.0);
  double high = std::min(std::ceil(pair_of(yarn.turns_slowed)), dims - 1.0);
  if (high == low) high += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double slowed = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / yarn.factor * slowed + frequencies[i] * (1 - slowed);
  }
  return frequencies;
}

double yarn_magnitude(double factor, double scale) {
  return factor > 1 ? 0.1 * scale * log_f64(factor) + 1 : 1;
}

RopeTable::RopeTable(int positions, std::span<const double> frequencies, double magnitude)
    : half_(frequencies.size()) {
  CHECK(positions >= 0 && positions <= 1 << 20);
  cos_.reserve(static_cast<std::size_t>(positions) * half_);
  sin_.reserve(static_cast<std::size_t>(positions) * half_);
  for (int position = 0; position < positions; ++position) {
    for (const double frequency : frequencies) {
      const SinCos value = sin_cos_f64(position * frequency);
      cos_.push_back(static_cast<float>(value.cos * magnitude));
      sin_.push_back(static_cast<float>(value.sin * magnitude));
    }
  }
}

void rope_halves_reference(std::span<const float> cos, std::span<const float> sin,
                           std::span<float> head) {
  const std::size_t half = cos.size();
  for (std::size_t i = 0; i < half; ++i) {
    const float x1 = head[i], x2 = head[i + half];
    head[i] = x1 * cos[i] - x2 * sin[i];
    head[i + half] = x2 * cos[i] + x1 * sin[i];
  }
}

void rope_adjacent_reference(std::span<const float> cos, std::span<const float> sin,
                             std::span<float> head) {
  for (std::size_t i = 0; i < cos.size(); ++i) {
    const float x1 = head[2 * i], x2 = head[2 * i + 1];
    head[2 * i] = x1 * cos[i] - x2 * sin[i];
    head[2 * i + 1] = x2 * cos[i] + x1 * sin[i];
  }
}

}  // namespace outrider

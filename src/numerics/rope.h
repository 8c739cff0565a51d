// Rotary position embedding: Su et al. 2021, arXiv:2104.09864.

#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace outrider {

// Radians per position of each pair of `dims` channels: base^(-2i / dims), i < dims / 2. dims even,
// base from 1 to 1e12.
std::vector<double> rope_frequencies(int dims, double base);

// YaRN: Peng et al. 2023, arXiv:2309.00071. Pairs that turn often within the length of the training
// keep their frequency, those that turn seldom are slowed down by `factor`, with a ramp between.
struct Yarn {
  double factor = 1;        // at least 1
  int trained_length = 0;   // before the extension, at least 1
  double turns_kept = 32;   // beta_fast: at least so many turns within that length: kept
  double turns_slowed = 1;  // beta_slow: at most so many: slowed down
};
std::vector<double> yarn_frequencies(int dims, double base, const Yarn& yarn);
// 0.1 * scale * ln(factor) + 1: what cos and sin are multiplied by, with a scale of 1.
double yarn_magnitude(double factor, double scale = 1);

// cos and sin of position * frequency, times `magnitude`, computed in double by our own code
// (libm's results differ between machines) and rounded once to float.
class RopeTable {
 public:
  // positions up to 2^20, frequencies [dims / 2] in [0, 1.5].
  RopeTable(int positions, std::span<const double> frequencies, double magnitude = 1);

  // [dims / 2]
  std::span<const float> cos(int position) const { return row(cos_, position); }
  std::span<const float> sin(int position) const { return row(sin_, position); }

 private:
  std::span<const float> row(const std::vector<float>& table, int position) const {
    return {table.data() + static_cast<std::size_t>(position) * half_, half_};
  }
  std::size_t half_;
  std::vector<float> cos_, sin_;  // [positions][dims / 2]
};

// One head in place; cos and sin are [dims / 2] for its position. x1' = x1 c - x2 s, x2' = x2 c +
// x1 s, each product rounded. Channels beyond dims stay as they are.
void rope_halves_reference(std::span<const float> cos, std::span<const float> sin,
                           std::span<float> head);
void rope_adjacent_reference(std::span<const float> cos, std::span<const float> sin,
                             std::span<float> head);

// The double functions behind the tables, and for their test: relative error below 4e-15, of sines
// and cosines absolute and below 3e-16.
struct SinCos {
  double sin, cos;
};
SinCos sin_cos_f64(double x);                    // 0 <= x <= 1.5 * 2^20
double power_f64(double base, double exponent);  // base in [1, 1e12], exponent in [-1, 0]
double log_f64(double x);                        // natural, x positive and normal

}  // namespace outrider

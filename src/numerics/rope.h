// Rotary position embedding: Su et al. 2021, arXiv:2104.09864.

#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace outrider {

// cos and sin of position * position_scale * base^(-2i / dims), i < dims / 2, computed in double by
// our own code (libm's results differ between machines) and rounded once to float.
class RopeTable {
 public:
  // positions up to 2^20, dims even, base from 1 to 1e12, position_scale in (0, 1].
  RopeTable(int positions, int dims, double base, double position_scale = 1);

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

// The double functions behind the table, for its test: relative error below 4e-15, of sines and
// cosines absolute and below 3e-16.
struct SinCos {
  double sin, cos;
};
SinCos sin_cos_f64(double x);                    // 0 <= x <= 2^20
double power_f64(double base, double exponent);  // base in [1, 1e12], exponent in [-1, 0]

}  // namespace outrider

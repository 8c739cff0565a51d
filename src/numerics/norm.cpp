#include "numerics/norm.h"

#include <cmath>

#include "numerics/reduce.h"

namespace outrider {

void rms_norm_reference(std::span<const float> x, std::span<const float> w, float eps,
                        std::span<float> y) {
  const float mean = lane_sum_of_squares(x) / static_cast<float>(x.size());
  const float r = 1.0f / std::sqrt(mean + eps);
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * r * w[i];
}

void layer_norm_reference(std::span<const float> x, std::span<const float> w, float eps,
                          std::span<float> y) {
  const auto n = static_cast<float>(x.size());
  const float mean = lane_sum(x) / n;
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] - mean;
  const float r = 1.0f / std::sqrt(lane_sum_of_squares(y) / n + eps);
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = y[i] * r * w[i];
}

}  // namespace outrider

#include "numerics/reduce.h"

#include <cmath>

namespace outrider {

float lane_sum(std::span<const float> x) {
  Lanes lanes{};
  for (std::size_t i = 0; i < x.size(); ++i) lanes[i % kLanes] += x[i];
  return sum_of_lanes(lanes);
}

float lane_sum_of_squares(std::span<const float> x) {
  Lanes lanes{};
  for (std::size_t i = 0; i < x.size(); ++i)
    lanes[i % kLanes] = std::fma(x[i], x[i], lanes[i % kLanes]);
  return sum_of_lanes(lanes);
}

}  // namespace outrider

#include "numerics/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "numerics/functions.h"
#include "numerics/reduce.h"

namespace outrider {

void softmax_reference(std::span<const float> x, std::span<float> p) {
  const float max = *std::max_element(x.begin(), x.end());
  for (std::size_t i = 0; i < x.size(); ++i) p[i] = exp_f32(x[i] - max);
  const float sum = lane_sum(p);
  for (float& value : p) value /= sum;
}

TileSum tile_softmax_reference(std::span<float, kTile> p) {
  float max = -std::numeric_limits<float>::infinity();
  for (const float score : p) max = score > max || std::isnan(score) ? score : max;
  for (float& score : p) score = exp_f32(score - max);
  return {max, lane_sum(p)};
}

}  // namespace outrider

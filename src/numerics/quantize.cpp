#include "numerics/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "numerics/half.h"

namespace outrider {

GroupScale group_scale(std::uint32_t largest_bits) {
  const float largest = std::bit_cast<float>(largest_bits);
  if (largest_bits >= 0x7f800000u) return {std::numeric_limits<float>::quiet_NaN(), 0, false};
  if (largest < 0x1p-120f) return {0, 0, true};
  return {largest / 127, 127 / largest, true};
}

void quantize_reference(std::span<const float> x, std::size_t group, QuantizedRow out) {
  for (std::size_t first = 0; first < x.size(); first += group) {
    std::uint32_t largest_bits = 0;
    for (std::size_t i = first; i < first + group; ++i) {
      largest_bits = std::max(largest_bits, std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffu);
    }
    const GroupScale scale = group_scale(largest_bits);
    out.d[first / group] = scale.d;
    for (std::size_t i = first; i < first + group; ++i) {
      const float q = scale.finite ? std::nearbyint(x[i] * scale.inverse) : 0;
      out.q[i] = static_cast<std::int8_t>(q);
    }
  }
  for (std::size_t first = 0; first < x.size(); first += 16) {
    int sum = 0;
    for (std::size_t i = first; i < first + 16; ++i) sum += out.q[i];
    out.sums16[first / 16] = static_cast<std::int16_t>(sum);
  }
}

void keep_q8_0_reference(std::span<const float> x, std::size_t group, std::int8_t* q, Half* d) {
  for (std::size_t first = 0; first < x.size(); first += group) {
    float largest = 0;
    for (std::size_t i = first; i < first + group; ++i) {
      const float size = std::fabs(x[i]);
      largest = size > largest || std::isnan(size) ? size : largest;
    }
    d[first / group] =
        float_to_half(std::isnan(largest) ? largest : std::min(largest, 65504.0f) / 127);
    const float scale = half_to_float(d[first / group]);
    for (std::size_t i = first; i < first + group; ++i) {
      const float clamped = std::clamp(x[i], -65504.0f, 65504.0f);
      const bool is_zero = scale == 0 || std::isnan(scale);
      const float rounded = is_zero ? 0 : std::nearbyint(clamped / scale);
      q[i] = static_cast<std::int8_t>(std::clamp(rounded, -127.0f, 127.0f));
    }
  }
}

}  // namespace outrider

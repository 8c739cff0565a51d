// Median and range of repeated measurements.

#pragma once

#include <span>

namespace outrider {

struct Spread {
  double median = 0, min = 0, max = 0;  // all 0 without values
};

Spread spread(std::span<const double> values);

}  // namespace outrider

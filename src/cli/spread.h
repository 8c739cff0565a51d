// What repeated measurements say together.

#pragma once

#include <span>

namespace outrider {

struct Spread {
  double median = 0, min = 0, max = 0;  // 0 of no values
};

Spread spread(std::span<const double> values);

}  // namespace outrider

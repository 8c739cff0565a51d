// Median, range and confidence of repeated measurements.

#pragma once

#include <optional>
#include <span>

namespace outrider {

struct Spread {
  double median = 0, min = 0, max = 0;  // all 0 without values
};

Spread spread(std::span<const double> values);

struct Interval {
  double low = 0, high = 0;
};

// Where the median lies with 95 % confidence: percentiles of the medians of 2000 samples that are
// drawn from the values with replacement, always the same ones (Efron 1979, the bootstrap). Nothing
// for fewer than 3 values.
std::optional<Interval> median_interval(std::span<const double> values);

}  // namespace outrider

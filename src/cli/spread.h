// Median, range and confidence of repeated measurements.

#pragma once

#include <optional>
#include <span>
#include <vector>

namespace outrider {

struct Spread {
  double median = 0, min = 0, max = 0;  // all 0 without values
};

Spread spread(std::span<const double> values);

struct Interval {
  double low = 0, high = 0;
};

// Where the median of all values lies with 95 % confidence, by the bootstrap (Efron 1979) in two
// levels: the 2.5th and 97.5th percentiles of the medians of 2000 samples. A sample draws as many
// subjects as there are, and of each as many of its values, with replacement; always the same ones.
// Of fewer than some six subjects the interval is narrower than it should be, of fewer than three
// there is none.
std::optional<Interval> median_interval(std::span<const std::vector<double>> subjects);

}  // namespace outrider

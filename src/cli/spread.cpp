#include "cli/spread.h"

#include <algorithm>
#include <random>
#include <vector>

namespace outrider {

Spread spread(std::span<const double> values) {
  if (values.empty()) return {};
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  const std::size_t n = sorted.size();
  const double median = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
  return {median, sorted.front(), sorted.back()};
}

std::optional<Interval> median_interval(std::span<const std::vector<double>> subjects) {
  constexpr int kSamples = 2000;
  if (subjects.size() < 3) return {};
  std::mt19937_64 random(1);
  std::vector<double> medians, sample;
  for (int i = 0; i < kSamples; ++i) {
    sample.clear();
    for (std::size_t drawn = 0; drawn < subjects.size(); ++drawn) {
      const std::vector<double>& values = subjects[random() % subjects.size()];
      for (std::size_t n = 0; n < values.size(); ++n)
        sample.push_back(values[random() % values.size()]);
    }
    medians.push_back(spread(sample).median);
  }
  std::ranges::sort(medians);
  return Interval{medians[kSamples * 25 / 1000], medians[kSamples * 975 / 1000 - 1]};
}

}  // namespace outrider

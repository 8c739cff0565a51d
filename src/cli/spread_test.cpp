#include "cli/spread.h"

#include <gtest/gtest.h>

#include <vector>

namespace outrider {
namespace {

TEST(Spread, TakesTheMedian) {
  EXPECT_EQ(spread(std::vector<double>{3, 1, 2}).median, 2);
  EXPECT_EQ(spread(std::vector<double>{4, 1, 2, 3}).median, 2.5);
  EXPECT_EQ(spread(std::vector<double>{}).median, 0);
}

std::vector<std::vector<double>> one_each(const std::vector<double>& values) {
  std::vector<std::vector<double>> subjects;
  for (const double value : values) subjects.push_back({value});
  return subjects;
}

TEST(Spread, IntervalsHoldTheMedian) {
  EXPECT_FALSE(median_interval(one_each({1, 2})));
  const auto same = median_interval(one_each(std::vector<double>(5, 7.0)));
  EXPECT_EQ(same->low, 7);
  EXPECT_EQ(same->high, 7);
  // 0 to 100: by order statistics the 95 % interval of the median is that of the values at ranks
  // 101 / 2 ± 1.96 * sqrt(101) / 2, so 40.6 and 60.3.
  std::vector<double> values;
  for (int i = 0; i <= 100; ++i) values.push_back(i);
  const auto interval = median_interval(one_each(values));
  EXPECT_NEAR(interval->low, 40.6, 2);
  EXPECT_NEAR(interval->high, 60.3, 2);
  EXPECT_EQ(median_interval(one_each(values))->low, interval->low);  // no chance in it
}

// More rounds of the same subjects say nothing about other subjects.
TEST(Spread, RepeatingNarrowsNoInterval) {
  std::vector<std::vector<double>> once, often;
  for (int i = 0; i <= 20; ++i) {
    once.push_back({double(i)});
    often.emplace_back(30, i);
  }
  const auto narrow = median_interval(often), wide = median_interval(once);
  EXPECT_NEAR(narrow->low, wide->low, 1);
  EXPECT_NEAR(narrow->high, wide->high, 1);
  EXPECT_GT(wide->high - wide->low, 5);
}

}  // namespace
}  // namespace outrider

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

TEST(Spread, IntervalsHoldTheMedian) {
  EXPECT_FALSE(median_interval(std::vector<double>{1, 2}));
  const auto same = median_interval(std::vector<double>(5, 7.0));
  EXPECT_EQ(same->low, 7);
  EXPECT_EQ(same->high, 7);
  // 0 to 100: by order statistics the 95 % interval of the median is that of the values at ranks
  // 101 / 2 ± 1.96 * sqrt(101) / 2, so 40.6 and 60.3.
  std::vector<double> values;
  for (int i = 0; i <= 100; ++i) values.push_back(i);
  const auto interval = median_interval(values);
  EXPECT_NEAR(interval->low, 40.6, 2);
  EXPECT_NEAR(interval->high, 60.3, 2);
  EXPECT_EQ(median_interval(values)->low, interval->low);  // no chance in it
}

}  // namespace
}  // namespace outrider

#include "speculation/draft_worth.h"

#include <gtest/gtest.h>

namespace outrider {
namespace {

TEST(BestGain, IsOverAllNumbersOfRows) {
  const std::vector<double> values{0.9, 0.5, 0.4, 0.1};
  EXPECT_EQ(best_gain(values, std::vector<double>{0, 0, 0, 0, 0}).n, 4);
  EXPECT_EQ(best_gain(values, std::vector<double>{0, 0.2, 0.4, 0.6, 0.8}).n, 3);
  // The first rows are dear and the third is free.
  const BestGain best = best_gain(values, std::vector<double>{0, 0.95, 1.45, 1.45, 3});
  EXPECT_EQ(best.n, 3);
  EXPECT_NEAR(best.tokens, 1.8, 1e-9);
  EXPECT_NEAR(best.gain, 0.35, 1e-9);
  EXPECT_EQ(best_gain(values, std::vector<double>{0, 1, 2, 3, 4}).n, 0);
  EXPECT_EQ(best_gain(values, std::vector<double>{0, 0}).n, 1);  // no room for more
  EXPECT_EQ(best_gain({}, std::vector<double>{0, 0}).n, 0);
}

TEST(DraftWorth, ALevelPaysByWhatItAdds) {
  DraftWorth worth{.row_prices = {0, 0.1, 0.2, 0.3, 0.4}, .level_price = 0.3};
  EXPECT_TRUE(worth.level_pays({0.9}, std::vector<double>{0.5}));  // 0.5 - 0.1 > 0.3
  EXPECT_FALSE(worth.level_pays({0.9}, std::vector<double>{0.35}));
  // Two nodes together may be worth what one is not.
  EXPECT_TRUE(worth.level_pays({0.9, 0.5}, std::vector<double>{0.35, 0.3}));
  // Nodes for which there is no row left are worth nothing.
  EXPECT_FALSE(worth.level_pays({0.9, 0.9, 0.9, 0.9}, std::vector<double>{0.9}));
  worth.row_prices.clear();
  EXPECT_TRUE(worth.level_pays({0.9}, std::vector<double>{0.01}));  // time has no price
  EXPECT_FALSE(worth.level_pays({0.9}, {}));
}

}  // namespace
}  // namespace outrider

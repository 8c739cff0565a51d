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

TEST(DraftWorth, ALevelGainsWhatItAdds) {
  DraftWorth worth{.row_prices = {0, 0.1, 0.2, 0.3, 0.4}};
  EXPECT_NEAR(worth.level_gain({0.9}, std::vector<double>{0.5}), 0.4, 1e-9);
  // Two nodes, of which one would be too dear as the third row.
  worth.row_prices = {0, 0.1, 0.2, 0.6};
  EXPECT_NEAR(worth.level_gain({0.9}, std::vector<double>{0.35, 0.3}), 0.25, 1e-9);
  // Nodes for which there is no row left are worth nothing.
  EXPECT_NEAR(worth.level_gain({0.9, 0.9, 0.9}, std::vector<double>{0.9}), 0, 1e-9);
  worth.row_prices.clear();  // time has no price
  EXPECT_GT(worth.level_gain({0.9}, std::vector<double>{0.01}), 0);
  EXPECT_EQ(worth.level_gain({0.9}, {}), 0);
}

// A pass for many texts takes little more than one for few.
TEST(DraftWorth, TextsShareAPassThatTheyGainMoreFrom) {
  const auto price = [](int n) { return n == 0 ? 0 : 0.9 + 0.1 * n; };
  EXPECT_EQ(n_that_share(std::vector<double>{0.5, 0.4, 0.3, 0.05}, price), 0);
  EXPECT_EQ(n_that_share(std::vector<double>{0.7, 0.6, 0.3, 0.05}, price), 3);
  EXPECT_EQ(n_that_share(std::vector<double>{1.5, 0.05}, price), 1);
  EXPECT_EQ(n_that_share({}, price), 0);
}

}  // namespace
}  // namespace outrider

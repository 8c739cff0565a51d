#include "speculation/cost_curve.h"

#include <gtest/gtest.h>

namespace outrider {
namespace {

TEST(CostCurve, IsLinearBetweenWhatWasMeasured) {
  CostCurve curve;
  EXPECT_TRUE(curve.empty());
  curve.measure(4, 40);
  EXPECT_EQ(curve.ms(1), 40);  // one point: flat below, in proportion above
  EXPECT_EQ(curve.ms(8), 80);
  curve.measure(1, 30);
  curve.measure(16, 100);
  curve.measure(16, 120);  // the least stands
  EXPECT_EQ(curve.ms(1), 30);
  EXPECT_NEAR(curve.ms(2), 30 + 10.0 / 3, 1e-9);
  EXPECT_EQ(curve.ms(4), 40);
  EXPECT_EQ(curve.ms(10), 70);
  EXPECT_EQ(curve.ms(16), 100);
  EXPECT_EQ(curve.ms(28), 160);  // as steep as before
}

TEST(CostCurve, NeverFallsBeyondItsEnd) {
  CostCurve curve;
  curve.measure(8, 50);
  curve.measure(16, 40);
  EXPECT_EQ(curve.ms(32), 40);
}

TEST(CostCurve, FollowsWhatItSees) {
  CostCurve curve;
  curve.measure(1, 30);
  curve.measure(8, 40);
  for (int i = 0; i < 100; ++i) curve.refine(8, 80);
  EXPECT_NEAR(curve.ms(8), 80, 1);
  EXPECT_EQ(curve.ms(1), 30);
  for (int i = 0; i < 300; ++i) curve.refine(4, 90);
  EXPECT_NEAR(curve.ms(4), 90, 1);
}

TEST(CostCurve, ShrugsAtAnOutlier) {
  CostCurve curve;
  curve.measure(1, 30);
  curve.measure(8, 40);
  curve.refine(8, 40000);
  EXPECT_LE(curve.ms(8), 42);
  EXPECT_EQ(curve.ms(1), 30);
  curve.refine(8, 0);
  EXPECT_GE(curve.ms(8), 38);
}

TEST(CostCurve, GrowsWhereWorkGoesBeyondIt) {
  CostCurve curve;
  curve.refine(1, 30);
  curve.refine(20, 90);
  EXPECT_EQ(curve.ms(1), 30);
  EXPECT_EQ(curve.ms(20), 90);
}

}  // namespace
}  // namespace outrider

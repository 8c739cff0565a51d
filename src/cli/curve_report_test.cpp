#include "cli/curve_report.h"

#include <gtest/gtest.h>

namespace outrider {
namespace {

// Memory's rate halves between the first and the second time: ratios are of neighbours.
TEST(CurveReport, MarksOneRowThatTakesLongerThanFew) {
  CurveMeasurements measured;
  measured.passes[1] = {30, 60, 31};
  measured.passes[2] = {30, 60, 31};
  measured.passes[3] = {25, 50, 25};
  measured.passes[4] = {29.5, 59, 35};
  EXPECT_EQ(one_row_over(measured, 2), 1);
  EXPECT_EQ(one_row_over(measured, 3), 1.2);
  EXPECT_NE(one_row_remark(measured).find("T(1) is 1.20 times T(3): "), std::string::npos)
      << one_row_remark(measured);
  measured.passes[3] = measured.passes[2];
  EXPECT_EQ(one_row_remark(measured), "");
}

TEST(CurveReport, ReadingIsComparedWithTheLimitJustBefore) {
  const double passes[] = {20, 40, 25};  // ms for 10^9 bytes
  const double gbs[] = {60, 30, 60};
  EXPECT_NEAR(read_share(passes, gbs, 1e9), 50.0 / 60, 1e-9);
  // Of more passes than limits the medians: 25 ms and 45 GB/s.
  EXPECT_NEAR(read_share(passes, std::span(gbs).first(2), 1e9), 40.0 / 45, 1e-9);
}

}  // namespace
}  // namespace outrider

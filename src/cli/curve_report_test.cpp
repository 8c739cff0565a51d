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

}  // namespace
}  // namespace outrider

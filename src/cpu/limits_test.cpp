#include "cpu/limits.h"

#include <gtest/gtest.h>

#include "cpu/isa.h"

namespace outrider {
namespace {

// Wide bounds: any machine of these years reads between 0.1 and 1000 GB/s and multiplies below a
// peta-operation.
TEST(Limits, AreOfTheRightOrder) {
  const double gbs = read_gbs(1, 0.01);
  EXPECT_GT(gbs, 0.1);
  EXPECT_LT(gbs, 1000);
  const double tops = int8_tops(1, 0.01);
  if (available_isas().back() == Isa::avx512) {
    EXPECT_GT(tops, 0.005);
    EXPECT_LT(tops, 10);
  } else {
    EXPECT_EQ(tops, 0);
  }
}

}  // namespace
}  // namespace outrider

#include "training/batch_answers.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "numerics/half.h"

namespace outrider {
namespace {

TEST(FloatToBf16, RoundsToNearestEven) {
  struct Case {
    float value, rounded;
  };
  const Case cases[] = {
      {0, 0},
      {-1.5f, -1.5f},
      {1 + 0x1p-8f, 1},                       // half way: to the even one
      {1 + 3 * 0x1p-8f, 1 + 0x1p-6f},         // the same, upwards
      {1 + 0x1p-8f + 0x1p-20f, 1 + 0x1p-7f},  // more than half way
      {std::numeric_limits<float>::max(), std::numeric_limits<float>::infinity()},
      {-std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()},
  };
  for (const Case& c : cases)
    EXPECT_EQ(bf16_to_float(float_to_bf16(c.value)), c.rounded) << c.value;
  // A NaN whose payload lies in the lower half alone stays one.
  const float nan = std::bit_cast<float>(0x7f800001u);
  EXPECT_NE(bf16_to_float(float_to_bf16(nan)), bf16_to_float(float_to_bf16(nan)));
}

}  // namespace
}  // namespace outrider

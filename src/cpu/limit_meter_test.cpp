#include "cpu/limit_meter.h"

#include <gtest/gtest.h>

#include "cpu/isa.h"
#include "cpu/kernels/kernels.h"

namespace outrider {
namespace {

// Wide bounds: a thread of any of today's machines reads between 0.1 and 1000 GB/s and computes
// less than a hundred tera-operations per second.
void expect_rate(double rate, bool has_instruction) {
  if (has_instruction) {
    EXPECT_GT(rate, 0.001);
    EXPECT_LT(rate, 100);
  } else {
    EXPECT_EQ(rate, 0);
  }
}

TEST(Limits, AreOfTheRightOrder) {
  const Limits limits = make_limit_meter(1)->measure(1);
  ASSERT_FALSE(limits.readings.empty());
  for (const Limits::Reading& reading : limits.readings) {
    SCOPED_TRACE(reading.pattern);
    EXPECT_GT(reading.gbs, 0.1);
    EXPECT_LT(reading.gbs, 1000);
  }
  expect_rate(limits.int8_tops, is_available(Isa::avxvnni));
  expect_rate(limits.avx2_tops, is_available(Isa::avx2));
  expect_rate(limits.amx_tops, is_available(Isa::amx));
  expect_rate(limits.f32_tflops, is_available(Isa::avx2));
}

// Rounds are compared pattern by pattern.
TEST(Limits, PatternsKeepTheirOrder) {
  const auto meter = make_limit_meter(2);
  const Limits first = meter->measure(2), second = meter->measure(1);
  ASSERT_EQ(first.readings.size(), second.readings.size());
  for (std::size_t i = 0; i < first.readings.size(); ++i)
    EXPECT_EQ(first.readings[i].pattern, second.readings[i].pattern);
}

TEST(Limits, ProductsAreTimedInEachWayOfReading) {
  const auto readings = make_limit_meter(2)->measure_products(2);
  ASSERT_EQ(readings.size(), kernels(chosen_isa()).readings.size());
  for (const Limits::Reading& reading : readings) {
    EXPECT_GT(reading.gbs, 0.1) << reading.pattern;
    EXPECT_LT(reading.gbs, 1000) << reading.pattern;
  }
}

}  // namespace
}  // namespace outrider

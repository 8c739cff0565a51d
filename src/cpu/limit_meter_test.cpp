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
  const MachineLimits limits = make_limit_meter(1)->measure(1);
  ASSERT_FALSE(limits.read_rates.empty());
  for (const MachineLimits::ReadRate& rate : limits.read_rates) {
    SCOPED_TRACE(rate.pattern);
    EXPECT_GT(rate.gbs, 0.1);
    EXPECT_LT(rate.gbs, 1000);
  }
  expect_rate(limits.int8_tops, is_available(Isa::avxvnni));
  expect_rate(limits.avx2_tops, is_available(Isa::avx2));
  expect_rate(limits.amx_tops, is_available(Isa::amx));
  expect_rate(limits.f32_tflops, is_available(Isa::avx2));
}

// Rounds are compared pattern by pattern.
TEST(Limits, PatternsKeepTheirOrder) {
  const auto meter = make_limit_meter(2);
  const MachineLimits first = meter->measure(2), second = meter->measure(1);
  ASSERT_EQ(first.read_rates.size(), second.read_rates.size());
  for (std::size_t i = 0; i < first.read_rates.size(); ++i)
    EXPECT_EQ(first.read_rates[i].pattern, second.read_rates[i].pattern);
}

TEST(Limits, ProductsAreTimedWithEachPrefetchPattern) {
  const auto rates = make_limit_meter(2)->measure_products(2);
  ASSERT_EQ(rates.size(), kernels(chosen_isa()).by_prefetch.size());
  for (const MachineLimits::ReadRate& rate : rates) {
    EXPECT_GT(rate.gbs, 0.1) << rate.pattern;
    EXPECT_LT(rate.gbs, 1000) << rate.pattern;
  }
}

}  // namespace
}  // namespace outrider

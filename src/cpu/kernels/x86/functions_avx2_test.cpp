// The functions of kernels/vector_functions.h in vectors of avx2: the reference's bits.

#include <gtest/gtest.h>

#include <vector>

#include "cpu/isa.h"
#include "cpu/kernels/x86/avx2.h"
#include "cpu/kernels/x86/before_region.h"

OUTRIDER_BEGIN(OUTRIDER_AVX2_SET)
#include "cpu/kernels/vector_functions_test.h"
OUTRIDER_END

namespace outrider {
namespace {

TEST(VectorFunctions, Avx2GivesTheReferencesBits) {
  if (!is_available(Isa::avx2)) GTEST_SKIP() << "no avx2";
  testing::FunctionsTest<Avx2>::expect_same_bits(7919);
}

// Soak: some six minutes.
TEST(VectorFunctions, DISABLED_Avx2GivesTheReferencesBitsEverywhere) {
  if (!is_available(Isa::avx2)) GTEST_SKIP() << "no avx2";
  testing::FunctionsTest<Avx2>::expect_same_bits(1);
}

}  // namespace
}  // namespace outrider

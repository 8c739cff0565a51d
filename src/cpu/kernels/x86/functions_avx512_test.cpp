// The functions of kernels/vector_functions.h in vectors of avx512: the reference's bits.

#include <gtest/gtest.h>

#include <vector>

#include "cpu/isa.h"
#include "cpu/kernels/x86/avx512.h"
#include "cpu/kernels/x86/before_region.h"

OUTRIDER_BEGIN(OUTRIDER_AVX512_SET)
#include "cpu/kernels/vector_functions_test.h"
OUTRIDER_END

namespace outrider {
namespace {

TEST(VectorFunctions, Avx512GivesTheReferencesBits) {
  if (!is_available(Isa::avx512)) GTEST_SKIP() << "no avx512";
  testing::FunctionsTest<Avx512>::expect_same_bits(7919);
}

// Soak: some six minutes.
TEST(VectorFunctions, DISABLED_Avx512GivesTheReferencesBitsEverywhere) {
  if (!is_available(Isa::avx512)) GTEST_SKIP() << "no avx512";
  testing::FunctionsTest<Avx512>::expect_same_bits(1);
}

}  // namespace
}  // namespace outrider

#include "base/processor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <fstream>
#include <limits>
#include <string>

namespace outrider {
namespace {

float sum(float a, float b) {
  const volatile float x = a, y = b;
  return x + y;
}

TEST(IeeeFloats, RoundsToNearestAndGivesBackWhatWasSet) {
  constexpr float kLittle = 1e-10f;
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  const float before = sum(1, kLittle);
  float meanwhile;
  {
    const IeeeFloats floats;
    meanwhile = sum(1, kLittle);
  }
  const float after = sum(1, kLittle);
  ASSERT_EQ(std::fesetround(FE_TONEAREST), 0);
  EXPECT_GT(before, 1.0f);
  EXPECT_EQ(meanwhile, 1.0f);
  EXPECT_GT(after, 1.0f);
}

TEST(IeeeFloats, KeepsSubnormals) {
  const IeeeFloats floats;
  const volatile float small = std::numeric_limits<float>::min();
  EXPECT_GT(small / 4, 0.0f);
}

TEST(Ticks, GoForward) {
  const std::uint64_t first = ticks();
  for (int i = 0; i < 1000; ++i) spin_pause();
  EXPECT_GT(ticks(), first);
}

// What kernels rely on: a machine that has one of these has the narrower ones.
TEST(InstructionSets, WiderOnesComeWithNarrowerOnes) {
  const InstructionSets& sets = instruction_sets();
  EXPECT_TRUE(sets.avx2 || !sets.avxvnni_vex);
  EXPECT_TRUE(sets.avx2 || !sets.avx512);
  EXPECT_TRUE(sets.avx512 || !sets.amx);
}

TEST(ProcessorName, IsWhatLinuxSays) {
  const std::string name = processor_name();
  EXPECT_FALSE(name.empty());
#ifdef __x86_64__
  std::string expected;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const std::string value = line.substr(std::min(line.find(": "), line.size() - 2) + 2);
    if (line.starts_with("cpu family\t")) expected = "(family " + value;
    if (line.starts_with("model\t")) expected += ", model " + value + ")";
    if (line.starts_with("model name\t")) expected = value + " " + expected;
  }
  EXPECT_EQ(name, expected);
#endif
}

}  // namespace
}  // namespace outrider

#include "base/progress.h"

#include <gtest/gtest.h>

#include <limits>

namespace outrider {
namespace {

TEST(Progress, HumanBytes) {
  EXPECT_EQ(human_bytes(0), "0 bytes");
  EXPECT_EQ(human_bytes(999), "999 bytes");
  EXPECT_EQ(human_bytes(1000), "1.00 kB");
  EXPECT_EQ(human_bytes(9994), "9.99 kB");
  EXPECT_EQ(human_bytes(9996), "10.0 kB");
  EXPECT_EQ(human_bytes(98362432), "98.4 MB");
  EXPECT_EQ(human_bytes(99960000), "100 MB");
  EXPECT_EQ(human_bytes(999600), "1.00 MB");
  EXPECT_EQ(human_bytes(1117320768), "1.12 GB");
  EXPECT_EQ(human_bytes(std::numeric_limits<std::uint64_t>::max()), "18.4 EB");
}

}  // namespace
}  // namespace outrider

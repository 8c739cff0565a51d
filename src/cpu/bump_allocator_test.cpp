#include "cpu/bump_allocator.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

namespace outrider {
namespace {

TEST(BumpAllocator, HandsOutWhatItCounts) {
  const auto lay_out = [](BumpAllocator& memory) {
    const std::span<char> few = memory.take<char>(3);
    const MatrixView<float> matrix = memory.take<float>(2, 17);
    return std::pair(few, matrix);
  };
  BumpAllocator counter;
  EXPECT_TRUE(lay_out(counter).first.empty());
  EXPECT_EQ(counter.used_bytes(), 64 + 2 * 128);

  alignas(64) std::array<std::byte, 64 + 2 * 128> bytes;
  BumpAllocator memory(bytes);
  const auto [few, matrix] = lay_out(memory);
  EXPECT_EQ(few.size(), 3u);
  EXPECT_EQ(static_cast<void*>(few.data()), bytes.data());
  EXPECT_EQ(matrix.stride(), 32u);
  EXPECT_EQ(static_cast<void*>(matrix[1].data()), bytes.data() + 64 + 128);
  EXPECT_DEATH(memory.take<char>(1), "used_");
}

}  // namespace
}  // namespace outrider

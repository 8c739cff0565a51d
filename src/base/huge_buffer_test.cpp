#include "base/huge_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/machine.h"

namespace outrider {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

TEST(HugeBuffer, IsZeroedAlignedAndWritable) {
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{4096}, kHugePage - 1, kHugePage, 3 * kHugePage + 12345}) {
    SCOPED_TRACE(bytes);
    HugeBuffer buffer(bytes);
    ASSERT_EQ(buffer.size(), bytes);
    EXPECT_EQ(
        reinterpret_cast<std::uintptr_t>(buffer.begin()) % (bytes < kHugePage ? 4096 : kHugePage),
        0u);
    const std::span<std::byte> all = buffer.as<std::byte>();
    EXPECT_TRUE(std::all_of(all.begin(), all.end(), [](std::byte b) { return b == std::byte{0}; }));
    std::fill(all.begin(), all.end(), std::byte{1});
    EXPECT_EQ(buffer.as<float>().size(), bytes / sizeof(float));
  }
}

TEST(HugeBuffer, Moves) {
  HugeBuffer a(kHugePage);
  a.begin()[5] = std::byte{5};
  const std::byte* const first = a.begin();
  HugeBuffer b(std::move(a));
  EXPECT_EQ(b.begin(), first);
  HugeBuffer c(100);
  c = std::move(b);
  EXPECT_EQ(c.begin()[5], std::byte{5});
  EXPECT_EQ(HugeBuffer().size(), 0u);
  EXPECT_EQ(HugeBuffer(0).size(), 0u);
}

TEST(HugeBuffer, MoreThanThereIsIsAnError) {
  for (const std::size_t bytes :
       {available_memory_bytes() + (std::uint64_t{16} << 30), std::uint64_t{1} << 62,
        std::numeric_limits<std::uint64_t>::max()}) {
    SCOPED_TRACE(bytes);
    try {
      HugeBuffer buffer(bytes);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("of memory are needed at once"), std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace outrider

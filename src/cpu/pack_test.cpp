// That packing loses nothing is shown by kernels/products_test.cpp, whose reference never sees a
// panel.

#include "cpu/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "base/huge_buffer.h"
#include "cpu/panel.h"

namespace outrider {
namespace {

std::vector<std::byte> random_bytes(std::size_t n, unsigned seed) {
  std::mt19937 rng(seed);
  std::vector<std::byte> bytes(n);
  for (std::byte& b : bytes) b = std::byte(rng());
  return bytes;
}

TensorView tensor_of(TensorType type, std::size_t columns, std::size_t outputs,
                     std::span<const std::byte> bytes) {
  TensorView tensor;
  tensor.type = type;
  tensor.shape = {static_cast<std::int64_t>(columns), static_cast<std::int64_t>(outputs)};
  tensor.bytes = bytes;
  return tensor;
}

std::size_t file_bytes(TensorType type, std::size_t elements) {
  return elements / traits(type).block_elements * traits(type).block_bytes;
}

// A kernel at the memory's speed pays for every byte. Scales of six bits with a sign take eight,
// which are 3.6 % of Q3_K and 1.5 % of IQ4_XS.
TEST(Pack, PanelsAreAsLargeAsTheFileButForALine) {
  for (const TensorTypeTraits& t : all_tensor_types()) {
    if (packed_as(t.type) != t.type) continue;
    SCOPED_TRACE(t.name);
    for (const std::size_t columns : {256, 512, 1536, 8960}) {
      const std::size_t bytes = packed_panel_bytes(t.type, columns);
      EXPECT_EQ(bytes % kLine, 0u);
      EXPECT_GE(bytes, file_bytes(t.type, kPanel * columns));
      const bool widened = t.type == TensorType::q3_k || t.type == TensorType::iq4_xs;
      const std::size_t sub_blocks = columns / t.block_elements * block_shape(t.type).sub_blocks;
      const std::size_t more = widened ? sub_blocks * kPanel / 4 : 0;
      EXPECT_LE(bytes, file_bytes(t.type, kPanel * columns) + more + kLine);
    }
  }
}

TEST(Pack, BlocksOfAPanelDoNotOverlap) {
  for (const TensorTypeTraits& t : all_tensor_types()) {
    if (t.block_elements == 1 || packed_as(t.type) != t.type) continue;
    SCOPED_TRACE(t.name);
    for (const std::size_t n_blocks : {1, 2, 3, 6, 35}) {
      std::vector<int> used(packed_panel_bytes(t.type, n_blocks * t.block_elements));
      const auto use = [&](std::size_t first, std::size_t bytes) {
        ASSERT_LE(first + bytes, used.size());
        for (std::size_t i = first; i < first + bytes; ++i) ++used[i];
      };
      for (std::size_t b = 0; b < n_blocks; ++b) {
        const BlockPlace place = block_place(t.type, b);
        use(place.d, 2 * kPanel);
        if (block_shape(t.type).has_min) use(place.m, 2 * kPanel);
        use(place.body, body_bytes(t.type));
        EXPECT_EQ(place.body % kLine, 0u);
      }
      EXPECT_EQ(std::ranges::count_if(used, [](int n) { return n > 1; }), 0);
      EXPECT_LT(std::ranges::count(used, 0), static_cast<std::ptrdiff_t>(kLine));
    }
  }
}

TEST(Pack, PanelsAreIndependentAndPaddingIsZeros) {
  constexpr std::size_t kOutputs = 41;  // three panels, the last with nine outputs
  for (const TensorTypeTraits& t : all_tensor_types()) {
    SCOPED_TRACE(t.name);
    const std::size_t columns = 3 * std::max<std::size_t>(t.block_elements, 5);
    const std::vector<std::byte> raw = random_bytes(file_bytes(t.type, columns * kOutputs), 1);
    const TensorView tensor = tensor_of(t.type, columns, kOutputs, raw);
    const std::size_t panel_bytes = packed_panel_bytes(t.type, columns);
    HugeBuffer whole(3 * panel_bytes), parts(3 * panel_bytes);
    pack(tensor, {0, 3}, whole.begin());

    // One at a time, the middle one last, into memory that is not zeroed.
    std::memset(parts.begin(), 255, parts.size());
    pack(tensor, {2, 3}, parts.begin());
    pack(tensor, {0, 1}, parts.begin());
    EXPECT_EQ(
        std::count(parts.begin() + panel_bytes, parts.begin() + 2 * panel_bytes, std::byte{255}),
        static_cast<std::ptrdiff_t>(panel_bytes));
    pack(tensor, {1, 2}, parts.begin());
    EXPECT_EQ(std::memcmp(whole.begin(), parts.begin(), 3 * panel_bytes), 0);

    // The last panel of nine outputs is that of sixteen of which seven are zeros.
    std::vector<std::byte> padded(file_bytes(t.type, columns * kPanel));
    const std::size_t full_panels = file_bytes(t.type, columns * 2 * kPanel);
    std::copy(raw.begin() + full_panels, raw.end(), padded.begin());
    HugeBuffer last(panel_bytes);
    pack(tensor_of(t.type, columns, kPanel, padded), {0, 1}, last.begin());
    // Zeros of the file are not the numbers zero.
    const bool is_bytes = t.type == TensorType::q8_0 || t.type == TensorType::q8_256;
    const bool zeros_differ = block_shape(t.type).has_byte_scales() && t.type != TensorType::q6_k;
    if (is_bytes || zeros_differ || packed_as(t.type) != t.type) continue;
    EXPECT_EQ(std::memcmp(last.begin(), whole.begin() + 2 * panel_bytes, panel_bytes), 0);
  }
}

}  // namespace
}  // namespace outrider

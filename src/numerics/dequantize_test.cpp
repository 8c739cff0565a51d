#include "numerics/dequantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "formats/gguf.h"

namespace outrider {
namespace {

// scripts/golden/dequantize.py made the file.
TEST(Dequantize, GivesTheBitsOfThePythonPackage) {
  const Checkpoint golden = read_gguf(OUTRIDER_SOURCE_DIR "/tests/golden/dequantize.gguf");
  for (const TensorTypeTraits& type : gguf_tensor_types()) {
    SCOPED_TRACE(type.name);
    const TensorView* blocks = golden.find(std::string(type.name) + ".blocks");
    const TensorView* expected_view = golden.find(std::string(type.name) + ".values");
    ASSERT_TRUE(blocks != nullptr && expected_view != nullptr);
    ASSERT_EQ(blocks->type, type.type);
    const auto n = static_cast<std::size_t>(blocks->elements());
    std::vector<float> expected(n), values(n, 12345.0f);
    ASSERT_EQ(expected_view->elements(), blocks->elements());
    std::memcpy(expected.data(), expected_view->bytes.data(), n * sizeof(float));
    dequantize(type.type, blocks->bytes, values);
    std::size_t n_nans = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (std::isnan(expected[i])) {
        ++n_nans;
        EXPECT_TRUE(std::isnan(values[i])) << i;
      } else {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(values[i]),
                  std::bit_cast<std::uint32_t>(expected[i]))
            << i << ": " << values[i] << ", expected " << expected[i];
      }
    }
    EXPECT_GT(n_nans, 0u);
    EXPECT_LT(n_nans, n / 2);
  }
}

TEST(Dequantize, BlocksStandAlone) {
  // One block in the middle gives what the whole gives there.
  const Checkpoint golden = read_gguf(OUTRIDER_SOURCE_DIR "/tests/golden/dequantize.gguf");
  for (const TensorTypeTraits& type : gguf_tensor_types()) {
    SCOPED_TRACE(type.name);
    const TensorView* blocks = golden.find(std::string(type.name) + ".blocks");
    ASSERT_NE(blocks, nullptr);
    std::vector<float> all(static_cast<std::size_t>(blocks->elements())), one(type.block_elements);
    dequantize(type.type, blocks->bytes, all);
    dequantize(type.type, blocks->bytes.subspan(7 * type.block_bytes, type.block_bytes), one);
    EXPECT_EQ(
        std::memcmp(one.data(), all.data() + 7 * type.block_elements, one.size() * sizeof(float)),
        0);
    dequantize(type.type, {}, {});
  }
}

}  // namespace
}  // namespace outrider

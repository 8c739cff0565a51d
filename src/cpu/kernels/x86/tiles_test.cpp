// The processor's tiles, or tiles_emulator_test.h where it has none, against those in plain code.

#include "cpu/kernels/x86/tiles.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <random>
#include <vector>

#include "cpu/isa.h"
#include "cpu/kernels/x86/tiles_emulator_test.h"
#include "cpu/kernels/x86/tiles_software_test.h"

namespace outrider {
namespace {

using Bytes = std::array<std::uint8_t, kTileRows * 80>;  // rows apart

Bytes random_bytes(std::mt19937& rng) {
  Bytes bytes;
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(rng());
  return bytes;
}

struct Shape {
  int rows, a_bytes, b_bytes;
};

TileConfig config_of(const Shape& shape) {
  TileConfig config;
  for (const int sum : {0, 1}) config.shape(sum, shape.rows, shape.b_bytes);
  for (const int a : {4, 5}) config.shape(a, shape.rows, shape.a_bytes);
  for (const int b : {6, 7}) config.shape(b, shape.a_bytes / 4, shape.b_bytes);
  return config;
}

// What tiles hold after each instruction has had its turn.
template <typename Tiles>
std::vector<Bytes> use(const Shape& shape) {
  std::mt19937 rng(7);
  const Bytes sums = random_bytes(rng), a = random_bytes(rng), b = random_bytes(rng),
              b2 = random_bytes(rng);
  std::vector<Bytes> seen(4, random_bytes(rng));
  Tiles tiles(config_of(shape));
  tiles.template load<0>(sums.data(), 80);
  tiles.template zero<1>();
  tiles.template load<5>(a.data(), 80);
  tiles.template load<6>(b.data(), 80);
  tiles.template load<7>(b2.data(), 64);
  tiles.template multiply_by_signed<0, 5, 6>();
  tiles.template multiply_by_unsigned<1, 5, 6>();
  tiles.template store<0>(seen[0].data(), 80);
  tiles.template multiply_by_unsigned<0, 5, 7>();
  tiles.template multiply_by_signed<1, 5, 7>();
  tiles.template store<0>(seen[1].data(), 64);
  tiles.template store<1>(seen[2].data(), 80);
  tiles.template store<7>(seen[3].data(), 72);
  return seen;
}

const Shape kShapes[] = {{16, 64, 64}, {1, 64, 64}, {7, 32, 64}, {16, 32, 64}, {5, 4, 4}};

TEST(Tiles, OfTheProcessorDoWhatThoseInPlainCodeDo) {
  std::optional<TileEmulator> emulator;
  if (!is_available(Isa::amx)) emulator.emplace();
  for (const Shape& shape : kShapes) {
    EXPECT_EQ(use<HardwareTiles>(shape), use<SoftwareTiles>(shape)) << shape.rows;
    EXPECT_FALSE(TileEmulator::has_tiles()) << "the thread would keep them";
  }
}

// The definition, once more and in other words: row r of the sum is the sum over k of a[r][k] times
// what b has for k.
TEST(Tiles, MultiplySignedBySignedAndUnsigned) {
  std::mt19937 rng(1);
  for (const Shape& shape : kShapes) {
    const Bytes a = random_bytes(rng), b = random_bytes(rng);
    SoftwareTiles tiles(config_of(shape));
    tiles.load(4, a.data(), 80);
    tiles.load(6, b.data(), 80);
    tiles.multiply<std::int8_t>(0, 4, 6);
    tiles.multiply<std::uint8_t>(1, 4, 6);
    std::array<std::int32_t, kTileRows * 16> by_signed, by_unsigned;
    tiles.store(0, by_signed.data(), 64);
    tiles.store(1, by_unsigned.data(), 64);
    for (int r = 0; r < shape.rows; ++r) {
      for (int o = 0; o < shape.b_bytes / 4; ++o) {
        int expected_signed = 0, expected_unsigned = 0;
        for (int k = 0; k < shape.a_bytes; ++k) {
          const int x = static_cast<std::int8_t>(a[std::size_t{80} * r + k]);
          const std::uint8_t w = b[std::size_t{80} * (k / 4) + 4 * o + k % 4];
          expected_signed += x * static_cast<std::int8_t>(w);
          expected_unsigned += x * w;
        }
        EXPECT_EQ(by_signed[static_cast<std::size_t>(16 * r + o)], expected_signed);
        EXPECT_EQ(by_unsigned[static_cast<std::size_t>(16 * r + o)], expected_unsigned);
      }
    }
  }
}

TEST(TilesDeathTest, RefuseShapesThatTheProcessorRefuses) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  TileConfig config = config_of({16, 64, 64});
  config.shape(6, 8, 64);  // half the rows that a needs
  EXPECT_DEATH(SoftwareTiles(config).multiply<std::int8_t>(0, 4, 6), "right.rows");
  EXPECT_DEATH(SoftwareTiles(config).zero(3), "rows > 0");
  config.shape(8, 1, 4);
  EXPECT_DEATH(SoftwareTiles{config}, "tile < 8");
}

}  // namespace
}  // namespace outrider

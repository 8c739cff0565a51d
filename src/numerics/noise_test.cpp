#include "numerics/noise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace outrider {
namespace {

// The known answers that come with Random123 1.14 (kat_vectors, philox4x32 10).
TEST(Noise, PhiloxGivesKnownAnswers) {
  struct Case {
    std::array<std::uint32_t, 4> counter;
    std::uint64_t key;
    std::array<std::uint32_t, 4> answer;
  };
  const Case cases[] = {
      {{0, 0, 0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       0xffffffffffffffff,
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       0x299f31d0a4093822,
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const Case& c : cases) EXPECT_EQ(philox4x32(c.counter, c.key), c.answer);
}

TEST(Noise, UniformIsTheNearestFloatInsideTheUnitInterval) {
  for (const std::uint32_t h :
       {0u, 1u, 0xffffu, 0x10000u, 0x7fffffu, 0x800000u, 0xffffffu, 0x1000001u, 0x1000003u,
        0x40000080u, 0x400000c0u, 0x80000080u, 0x80000180u, 0xfffffe7fu}) {
    EXPECT_EQ(uniform_from_bits(h), static_cast<float>((h + 0.5) * 0x1p-32)) << h;
  }
  for (std::uint64_t h = 0; h < 1ull << 32; h += 10007) {
    const double exact = (static_cast<double>(h) + 0.5) * 0x1p-32;
    ASSERT_EQ(uniform_from_bits(static_cast<std::uint32_t>(h)),
              std::min(static_cast<float>(exact), 1 - 0x1p-24f));
  }
  EXPECT_EQ(uniform_from_bits(0), 0x1p-33f);
  EXPECT_EQ(uniform_from_bits(0xffffffff), 1 - 0x1p-24f);
}

// Choices skip tokens by these bounds.
TEST(Noise, StaysWithinItsBounds) {
  const float lowest = gumbel_from_uniform(1 - 0x1p-24f), highest = gumbel_from_uniform(0x1p-33f);
  EXPECT_GE(lowest, kNoiseLowest);
  EXPECT_LE(highest, kNoiseHighest);
  EXPECT_NEAR(lowest, kNoiseLowest, 1e-3);
  EXPECT_NEAR(highest, kNoiseHighest, 1e-3);
  EXPECT_LT(highest, 23);
  for (std::uint64_t h = 0; h < 1ull << 32; h += 10007) {
    const float noise = gumbel_from_uniform(uniform_from_bits(static_cast<std::uint32_t>(h)));
    ASSERT_GE(noise, lowest);
    ASSERT_LE(noise, highest);
  }
}

// The fast choice takes no logarithm of bits above a limit that it derives from this.
TEST(Noise, IsBelowTheLogarithmOfItsBits) {
  const auto expect_below = [](std::uint64_t h) {
    const float noise = gumbel_from_uniform(uniform_from_bits(static_cast<std::uint32_t>(h)));
    ASSERT_LE(noise, std::log(0x1p32 / static_cast<double>(h)) + 1e-5) << h;
  };
  for (std::uint64_t h = 1; h < 1 << 17; ++h) expect_below(h);
  for (std::uint64_t h = 1 << 17; h < 1ull << 32; h += 10007) expect_below(h);
}

TEST(Noise, DependsOnEverythingThatAddressesIt) {
  const NoiseKey key{.seed = 7, .stream = 1, .position = 12};
  const float here = uniform(key, 5);
  EXPECT_EQ(here, uniform(key, 5));
  EXPECT_NE(here, uniform({.seed = 8, .stream = 1, .position = 12}, 5));
  EXPECT_NE(here, uniform({.seed = 7 + (1ull << 32), .stream = 1, .position = 12}, 5));
  EXPECT_NE(here, uniform({.seed = 7, .stream = 2, .position = 12}, 5));
  EXPECT_NE(here, uniform({.seed = 7, .stream = 1, .position = 13}, 5));
  NoiseKey other = key;
  other.use = NoiseUse::draft;
  EXPECT_NE(here, uniform(other, 5));
  other = key;
  other.node = 1;
  EXPECT_NE(here, uniform(other, 5));
  for (const Token token : {4, 6, 7, 9}) EXPECT_NE(here, uniform(key, token));
}

TEST(Noise, IsAddressedAsTheContractSays) {
  NoiseKey key{.seed = 0x123456789abcdef, .stream = 3, .position = 41};
  for (const Token token : {0, 1, 2, 3, 4, 50257}) {
    const auto id = static_cast<std::uint32_t>(token);
    for (const std::uint32_t use : {0u, 1u, 2u, 3u})
      for (const std::uint32_t node : {0u, 1u, 17u, (1u << 28) - 1}) {
        key.use = static_cast<NoiseUse>(use);
        key.node = node;
        const auto outputs = philox4x32({id / 4, 41, 3, use + 16 * node}, key.seed);
        EXPECT_EQ(noise_bits(key, token), outputs[id % 4]);
        EXPECT_EQ(uniform(key, token), uniform_from_bits(outputs[id % 4]));
      }
  }
}

}  // namespace
}  // namespace outrider

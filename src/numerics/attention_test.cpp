#include "numerics/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace outrider {
namespace {

// Channels of a key and of a value.
struct Lengths {
  std::size_t key_dim = 16, value_dim = 16;
};

struct Text {
  Text(int length, std::uint32_t seed, const Lengths& lengths = {}) : k(length), v(length) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 1);
    for (auto* rows : {&k, &v})
      for (auto& row : *rows) {
        row.resize(rows == &k ? lengths.key_dim : lengths.value_dim);
        for (float& x : row) x = normal(random);
      }
    for (int i = 0; i < length; ++i) keys.push_back({i, k[i], v[i]});
  }
  std::vector<std::vector<float>> k, v;
  std::vector<AttentionKey> keys;
};

std::vector<float> attend(const Text& text, int position, const AttentionRule& rule,
                          CacheType type) {
  std::vector<float> out(text.v[0].size());
  attention_reference(text.k[0], position, text.keys, rule, type, out);
  return out;
}

// The textbook's attention, in double.
std::vector<double> plain(const Text& text, int position, const AttentionRule& rule) {
  std::vector<double> out(text.v[0].size());
  double sum = 0;
  for (const AttentionKey& key : text.keys) {
    if (rule.window && position - key.position >= *rule.window) continue;
    double score = 0;
    for (std::size_t d = 0; d < key.k.size(); ++d) score += double{text.k[0][d]} * key.k[d];
    score *= rule.scale;
    if (rule.softcap) score = *rule.softcap * std::tanh(score / *rule.softcap);
    sum += std::exp(score);
    for (std::size_t d = 0; d < out.size(); ++d) out[d] += std::exp(score) * key.v[d];
  }
  for (double& x : out) x /= sum;
  return out;
}

TEST(Attention, IsSoftmaxTimesValues) {
  struct Case {
    const char* name;
    int length;
    AttentionRule rule;
    Lengths lengths = {};
  };
  const Case cases[] = {
      {"one key", 1, {.scale = 0.25f}},
      {"a tile and one", 65, {.scale = 0.25f}},
      {"three spans", 2100, {.scale = 0.25f}},
      {"soft cap", 300, {.scale = 2, .softcap = 3.0f}},
      {"window inside a tile", 200, {.scale = 0.25f, .window = 5}},
      {"window over spans", 2100, {.scale = 0.25f, .window = 1500}},
      {"peaked", 500, {.scale = 20}},
      {"longer keys", 200, {.scale = 0.25f}, {24, 10}},
      {"longer values", 200, {.scale = 0.25f}, {7, 33}},
      {"one channel", 65, {.scale = 0.25f}, {1, 40}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Text text(c.length, 1, c.lengths);
    const std::vector<double> expected = plain(text, c.length - 1, c.rule);
    const std::vector<float> exact = attend(text, c.length - 1, c.rule, CacheType::f32);
    const std::vector<float> halves = attend(text, c.length - 1, c.rule, CacheType::f16);
    ASSERT_EQ(exact.size(), c.lengths.value_dim);
    for (std::size_t d = 0; d < exact.size(); ++d) {
      EXPECT_NEAR(exact[d], expected[d], 2e-5);
      EXPECT_NEAR(halves[d], expected[d], c.rule.scale > 1 ? 5e-2 : 3e-3);
    }
    EXPECT_NE(exact, halves);
  }
}

// Every channel of a value is weighted for itself, and channels of zeros add nothing to a score.
TEST(Attention, OfLongerHeadsThatAreFilledUpWithZerosIsTheSame) {
  const Text text(300, 7, {20, 12});
  Text filled = text;
  for (auto& row : filled.k) row.resize(32);
  for (auto& row : filled.v) row.resize(32);
  for (std::size_t i = 0; i < filled.keys.size(); ++i)
    filled.keys[i] = {filled.keys[i].position, filled.k[i], filled.v[i]};
  for (const CacheType type : {CacheType::f16, CacheType::f32}) {
    std::vector<float> expected = attend(text, 299, {.scale = 0.25f}, type);
    expected.resize(32);
    EXPECT_EQ(attend(filled, 299, {.scale = 0.25f}, type), expected);
  }
}

// Keys of q8_0 are groups of 32 channels, and kernels take its values 32 channels at a time.
TEST(Attention, KeepsHalvesWhereALengthIsNoMultipleOf32) {
  struct Case {
    Lengths lengths;
    bool in_8_bits;
  };
  const Case cases[] = {{{64, 32}, true},  {{32, 96}, true},  {{64, 16}, false},
                        {{48, 64}, false}, {{80, 80}, false}, {{1, 1}, false}};
  for (const Case& c : cases) {
    const auto [key_dim, value_dim] = c.lengths;
    SCOPED_TRACE(::testing::Message() << key_dim << ", " << value_dim);
    EXPECT_EQ(kept_type(CacheType::q8_0, key_dim, value_dim),
              c.in_8_bits ? CacheType::q8_0 : CacheType::f16);
    EXPECT_EQ(kept_type(CacheType::f32, key_dim, value_dim), CacheType::f32);
    EXPECT_EQ(kept_type(CacheType::f16, key_dim, value_dim), CacheType::f16);
    const Text text(100, 8, c.lengths);
    const AttentionRule rule{.scale = 0.25f};
    const std::vector<float> found = attend(text, 99, rule, CacheType::q8_0);
    EXPECT_EQ(found == attend(text, 99, rule, CacheType::f16), !c.in_8_bits);
    const std::vector<double> expected = plain(text, 99, rule);
    for (std::size_t d = 0; d < found.size(); ++d) EXPECT_NEAR(found[d], expected[d], 3e-2);
  }
}

TEST(Attention, DoesNotMindTheOrderOfKeys) {
  Text text(700, 2);
  const std::vector<float> expected = attend(text, 699, {.scale = 1}, CacheType::f16);
  std::shuffle(text.keys.begin(), text.keys.end(), std::mt19937(3));
  EXPECT_EQ(attend(text, 699, {.scale = 1}, CacheType::f16), expected);
}

// Other rows' keys are absent: the result of a branch depends on its own path alone.
TEST(Attention, SkipsPositionsThatAreOffThePath) {
  Text text(200, 4);
  const auto from = text.keys.begin();
  text.keys.erase(from + 60, from + 130);  // a whole tile and parts of two
  const std::vector<float> found = attend(text, 199, {.scale = 1}, CacheType::f32);
  const std::vector<double> expected = plain(text, 199, {.scale = 1});
  for (std::size_t d = 0; d < found.size(); ++d) EXPECT_NEAR(found[d], expected[d], 1e-5);
}

TEST(Attention, ReadsBackWhatTheCacheKeeps) {
  EXPECT_EQ(read_back(1e30f, CacheType::f16), 65504);
  EXPECT_EQ(read_back(-1e30f, CacheType::f32), -65504);
  EXPECT_EQ(read_back(1 + 0x1p-11f, CacheType::f16), 1);  // a tie, to even
  EXPECT_EQ(read_back(1 + 0x1p-11f, CacheType::f32), 1 + 0x1p-11f);
  EXPECT_TRUE(std::isnan(read_back(std::numeric_limits<float>::quiet_NaN(), CacheType::f16)));
}

TEST(Attention, HidesNanOnlyBehindAWeightOfZero) {
  Text text(3, 5);
  text.v[1][2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(attend(text, 2, {.scale = 1}, CacheType::f32)[2]));
  text.k[0].assign(text.k[0].size(), 3.0f);  // the query, too
  text.k[1].assign(text.k[1].size(), -100.0f);
  for (const float x : attend(text, 2, {.scale = 1}, CacheType::f32)) EXPECT_FALSE(std::isnan(x));
}

// A NaN score compares with none; places of its tile without a key do not enter.
TEST(Attention, ANanAmongTheKeysMakesEverythingNan) {
  Text text(3, 6);
  text.k[1][2] = std::numeric_limits<float>::quiet_NaN();
  for (const float x : attend(text, 2, {.scale = 1}, CacheType::f16)) EXPECT_TRUE(std::isnan(x));
}

}  // namespace
}  // namespace outrider

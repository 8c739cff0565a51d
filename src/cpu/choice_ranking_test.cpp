// The walk through a ranking finds the cut that adding up one after another in sorted order finds.

#include "cpu/choice_ranking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "cpu/kernels/kernels.h"

namespace outrider {
namespace {

struct Ranked {
  std::vector<RankKey> keys;
  std::vector<float> weights;  // empty: the keys' values

  std::size_t size() const { return keys.size(); }
  float weight(std::size_t i) const { return weights.empty() ? value_of(keys[i]) : weights[i]; }
};

// Every sum on the way, in float.
struct Sums {
  std::vector<RankKey> keys;
  std::vector<float> sums;
};
Sums one_after_another(const Ranked& tokens) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens.keys[i] != kNoKey) order.push_back(i);
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return tokens.keys[i]; });
  Sums result;
  float sum = 0;
  for (const std::size_t i : order) {
    result.keys.push_back(tokens.keys[i]);
    result.sums.push_back(sum += tokens.weight(i));
  }
  return result;
}

std::optional<RankCut> cut(const Sums& sums, float enough) {
  const auto at = std::ranges::find_if(sums.sums, [&](float sum) { return sum >= enough; });
  if (at == sums.sums.end()) return {};
  const auto i = static_cast<std::size_t>(at - sums.sums.begin());
  std::size_t n_equal = 1;
  while (n_equal <= i && sums.keys[i - n_equal] == sums.keys[i]) ++n_equal;
  return RankCut{sums.keys[i], n_equal};
}

void expect_same_cut(Ranked tokens, float enough, const std::optional<RankCut>& right,
                     std::size_t expected) {
  const std::size_t n_blocks = blocks_of(tokens.size());
  tokens.keys.resize(n_blocks * kChoiceBlock, kNoKey);
  if (!tokens.weights.empty()) tokens.weights.resize(tokens.size());
  std::vector<RankKey> minima;
  for (std::size_t b = 0; b < n_blocks; ++b)
    minima.push_back(*std::min_element(&tokens.keys[b * kChoiceBlock],
                                       &tokens.keys[b * kChoiceBlock] + kChoiceBlock));
  const std::size_t room = tokens.size() + kChoiceSlice;
  std::vector<RankKey> group_keys(room), rest_keys(room);
  std::vector<float> group_weights(room), rest_weights(room);
  for (const Isa isa : available_isas()) {
    const ChoiceKernels* table = kernels(isa).choice;
    if (table == nullptr) continue;
    SCOPED_TRACE(name(isa));
    const auto found = fewest_that_reach(
        *table, {tokens.keys, minima, tokens.weights}, enough, expected,
        {{group_keys.data(), group_weights.data()}, {rest_keys.data(), rest_weights.data()}});
    ASSERT_EQ(found.has_value(), right.has_value());
    if (!right) continue;
    ASSERT_EQ(found->key, right->key);
    ASSERT_EQ(found->n_equal, right->n_equal);
  }
}

// Weights whose low bits are often those of a tie, over a range that makes sums cross many powers
// of two; keys with and without equals, by value and not.
TEST(ChoiceRanking, CutsWhereAddingOneAfterAnotherDoes) {
  std::mt19937 random(21);
  const auto below = [&](std::size_t n) { return random() % n; };
  std::size_t n_cut = 0;
  for (int round = 0; round < 1500; ++round) {
    SCOPED_TRACE(round);
    const std::size_t n = 1 + below(round % 100 == 0 ? 60000 : round % 4 == 0 ? 5000 : 400);
    const float spread = std::array{0.0f, 0.01f, 1.0f, 5.0f, 30.0f}[below(5)];
    const std::uint32_t low_bits = std::array{0u, 0xffu, 0xfffu, 0xffffu, 0x7fffffu}[below(5)];
    const float scale = below(6) == 0 ? 1e-25f : 1e-5f;
    std::vector<float> values(n);
    double total = 0;
    for (float& value : values) {
      value = std::exp(spread * std::normal_distribution<float>()(random)) * scale;
      auto bits = std::bit_cast<std::uint32_t>(value);
      bits &= ~low_bits;
      if (below(2) == 0) bits |= (low_bits + 1) >> 1;  // the middle
      value = std::bit_cast<float>(bits);
      if (spread > 5 && below(5) == 0) value = 0;
      total += value;
    }
    Ranked tokens;
    for (const float value : values) tokens.keys.push_back(key_of(value));
    if (below(2) == 0) {
      tokens.weights = values;
      const std::size_t n_keys = std::array<std::size_t, 3>{3, 1000, 1u << 30}[below(3)];
      for (RankKey& key : tokens.keys) key = static_cast<RankKey>(below(n_keys)) - 500;
    }
    if (below(3) == 0)
      for (RankKey& key : tokens.keys)
        if (below(3) == 0) key = kNoKey;
    // Mostly exactly a sum on the way, which the last bit of the walk's sum decides.
    const Sums sums = one_after_another(tokens);
    const float enough = below(8) == 0 || sums.sums.empty()
                             ? static_cast<float>(total * (below(2) == 0 ? 0.0 : 1.1))
                             : sums.sums[below(sums.sums.size())];
    const auto right = cut(sums, enough);
    n_cut += right.has_value();
    expect_same_cut(tokens, enough, right, std::array<std::size_t, 4>{1, 40, 64, 5000}[below(4)]);
    if (HasFailure()) return;
  }
  EXPECT_GT(n_cut, 1200u);
}

// Counting is adding ones.
TEST(ChoiceRanking, CountsToTheFirstK) {
  std::mt19937 random(22);
  for (const std::size_t n : {1u, 63u, 64u, 65u, 3000u, 20000u}) {
    for (const std::size_t k : {1u, 2u, 40u, 64u, 2000u, 19999u, 20001u}) {
      Ranked tokens{std::vector<RankKey>(n), std::vector<float>(n, 1.0f)};
      for (RankKey& key : tokens.keys) key = static_cast<RankKey>(random() % 5000) - 2500;
      const auto right = cut(one_after_another(tokens), static_cast<float>(k));
      EXPECT_EQ(right.has_value(), k <= n);
      expect_same_cut(tokens, static_cast<float>(k), right, k);
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace outrider

// What choices through choice.h would show only by luck: tokens exactly at the bar.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "cpu/kernels/choice_kernels.h"
#include "cpu/kernels/kernels.h"

namespace outrider {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Bits of noise are compared with a limit before any logarithm is taken, so the limit must not shut
// out a token whose score is the bar itself. Equal logits make every limit tight.
TEST(ChoiceKernels, FindsEveryTokenThatReachesTheBar) {
  std::mt19937 random(31);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    const std::size_t n = 1 + random() % 2000;
    const float spread = std::array{0.0f, 0.0f, 0.5f, 5.0f}[random() % 4];
    const float offset = std::array{0.0f, -3.0f, 17.5f, 1e4f, -3e6f}[random() % 5];
    const float temperature = std::array{1.0f, 0.8f, 30.0f, kInfinity}[random() % 4];
    std::vector<float> logits(n);
    for (float& logit : logits) {
      logit = offset + spread * std::normal_distribution<float>()(random);
      if (random() % 16 == 0) logit = -kInfinity;
    }
    const NoiseKey key = {.seed = random(),
                          .stream = 2,
                          .position = static_cast<unsigned>(round),
                          .use = static_cast<NoiseUse>(round % 4),
                          .node = static_cast<unsigned>(round % 3)};
    // Slices with gaps between them.
    std::vector<std::uint32_t> slices((blocks_of(n) + kScoredBlocks) * 4);
    for (std::size_t i = 0; i < slices.size(); ++i)
      slices[i] = static_cast<std::uint32_t>(i == 0 ? 0 : slices[i - 1] + 1 + random() % 2);
    std::vector<float> scores(n);
    for (std::size_t i = 0; i < n; ++i) {
      const auto token =
          static_cast<Token>(slices[i / kChoiceSlice] * kChoiceSlice + i % kChoiceSlice);
      const float scaled = logits[i] > -kInfinity ? logits[i] / temperature : -kInfinity;
      scores[i] = scaled + gumbel(key, token);
    }
    std::vector<float> sorted = scores;
    std::ranges::sort(sorted, std::greater<>());
    const std::size_t rank = std::array<std::size_t, 4>{0, 1, 5, 50}[random() % 4];
    const float bar = rank < n ? sorted[rank] : -kInfinity;
    std::vector<std::uint32_t> expected;
    for (std::uint32_t i = 0; i < n; ++i)
      if (scores[i] >= bar && logits[i] > -kInfinity) expected.push_back(i);

    for (const Isa isa : available_isas()) {
      const ChoiceKernels* table = kernels(isa).choice;
      if (table == nullptr) continue;
      SCOPED_TRACE(name(isa));
      std::vector<float> maxima(blocks_of(blocks_of(n)) * kChoiceBlock);
      table->block_maxima(logits, maxima);
      const RaceView race = {logits, std::span(slices).first(slices_of(n))};
      std::vector<std::uint32_t> found;
      std::vector<RaceEntry> out(kScoredBlocks * kChoiceBlock);
      for (std::size_t block = 0; block < blocks_of(n); block += kScoredBlocks) {
        const std::size_t n_found = table->scores_at_least(
            race, std::span(maxima).first(blocks_of(n)), temperature, key, block, bar, out);
        for (const RaceEntry& entry : std::span(out).first(n_found)) {
          ASSERT_EQ(entry.score, scores[entry.place]);
          found.push_back(entry.place);
        }
      }
      std::ranges::sort(found);
      ASSERT_EQ(found, expected);
    }
  }
}

}  // namespace
}  // namespace outrider

// The reference of choices: each filter by hand, frequencies, and the noise that drafts share.

#include "numerics/choice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace outrider {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

constexpr Filters kNoFilters = {.top_k = 0, .top_p = 1, .min_p = 0, .temperature = 1};

std::vector<float> logs(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

// Tokens with a chance.
std::vector<Token> survivors(std::span<const float> logits, const Filters& filters) {
  const Choice choice = choose_reference(logits, {.filters = filters, .wants_probabilities = true});
  std::vector<Token> tokens;
  for (const TokenProbability& p : choice.probabilities) tokens.push_back(p.token);
  return tokens;
}

// [n], 0 for tokens that are not listed.
std::vector<float> of_all_tokens(std::span<const TokenProbability> listed, std::size_t n) {
  std::vector<float> probabilities(n);
  for (const TokenProbability& p : listed)
    probabilities[static_cast<std::size_t>(p.token)] = p.probability;
  return probabilities;
}

TEST(ChoiceFilters, KeepWhatTheyPromise) {
  const std::vector<float> skewed = logs({.1, .4, .05, .25, .2}), ties = {1, 2, 2, 2, 1};
  struct Case {
    const char* name;
    Filters filters;
    std::vector<float> logits;
    std::vector<Token> kept;
  };
  const auto with = [](auto change) {
    Filters f = kNoFilters;
    change(f);
    return f;
  };
  const Case cases[] = {
      {"off", kNoFilters, skewed, {0, 1, 2, 3, 4}},
      {"top-k", with([](Filters& f) { f.top_k = 2; }), skewed, {1, 3}},
      {"top-k, ties to the lowest id", with([](Filters& f) { f.top_k = 2; }), ties, {1, 2}},
      {"top-k beyond the vocabulary",
       with([](Filters& f) { f.top_k = 9; }),
       skewed,
       {0, 1, 2, 3, 4}},
      {"top-p between two sums", with([](Filters& f) { f.top_p = 0.6f; }), skewed, {1, 3}},
      {"top-p, at least one", with([](Filters& f) { f.top_p = 0; }), skewed, {1}},
      {"top-p, ties to the lowest id",
       with([](Filters& f) { f.top_p = 0.5f; }),
       {0, 0, 0, 0},
       {0, 1}},
      {"top-p of what top-k left",
       with([](Filters& f) { f.top_k = 2, f.top_p = 0.6f; }),
       skewed,
       {1}},
      {"min-p", with([](Filters& f) { f.min_p = 0.3f; }), skewed, {1, 3, 4}},
      {"min-p above 1 keeps the largest", with([](Filters& f) { f.min_p = 2; }), ties, {1, 2, 3}},
      // Entropy 1.21; the surprises 2.12, 1.08, 2.30, 0.82 differ from it by 0.91, 0.13, 1.09,
      // 0.39.
      {"typical prefers the ordinary to the likely",
       with([](Filters& f) { f.typical_p = 0.3f; }),
       logs({.12, .34, .1, .44}),
       {1}},
      {"nothing of -inf", kNoFilters, {1, -kInfinity, 1}, {0, 2}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(survivors(c.logits, c.filters), c.kept);
  }
}

TEST(Choice, GreedyTakesTheBestProcessedLogit) {
  const std::vector<float> logits = {1, 3, -2, 3, 2};
  const Filters greedy = {.temperature = 0};
  EXPECT_EQ(choose_reference(logits, {.filters = greedy}).token, 1);

  const TokenBias bias[] = {{1, -kInfinity}, {3, -0.5f}, {3, -1.0f}, {99, 1e9f}};
  EXPECT_EQ(choose_reference(logits, {.filters = greedy, .bias = bias}).token, 4);

  const std::uint64_t allowed[] = {0b00101};
  EXPECT_EQ(choose_reference(logits, {.filters = greedy, .allowed = allowed}).token, 0);

  // Filters could only remove tokens that are not the best, so they are skipped, typical too.
  EXPECT_EQ(choose_reference(
                logits, {.filters = {.top_k = 1, .typical_p = 0, .temperature = 0}, .n_best = 9})
                .best.size(),
            5u);
}

TEST(Choice, PenaltiesFollowTheirCounts) {
  const std::vector<float> logits = {3, -1, 2, 1};
  const TokenCount counts[] = {{0, 2}, {1, 1}, {2, 0}, {50, 3}};
  const ChoiceRequest request = {
      .filters = {.repeat_penalty = 2, .frequency_penalty = 0.25f, .presence_penalty = 0.5f},
      .counts = counts};
  EXPECT_EQ(processed_logits(logits, request), (std::vector<float>{1.5f - 1, -2 - 0.75f, 2, 1}));
}

TEST(Choice, ReportsTheBestWithTheirProbabilities) {
  const std::vector<float> logits = logs({.1, .4, .2, .3});
  for (const float temperature : {0.0f, 1.0f}) {
    Filters filters = kNoFilters;
    filters.temperature = temperature;
    const Choice choice = choose_reference(logits, {.filters = filters,
                                                    .noise = {.seed = 5},
                                                    .n_best = 3,
                                                    .wants_probabilities = true,
                                                    .wants_logits = true});
    ASSERT_EQ(choice.best.size(), 3u);
    EXPECT_EQ(choice.best[0].token, choice.token);
    for (std::size_t i = 0; i < 3; ++i) {
      const Candidate& c = choice.best[i];
      EXPECT_LE(c.score, choice.best[i > 0 ? i - 1 : 0].score);
      const float noise = temperature > 0 ? gumbel({.seed = 5}, c.token) : 0;
      EXPECT_EQ(c.score, logits[static_cast<std::size_t>(c.token)] + noise);
      EXPECT_EQ(choice.probabilities[static_cast<std::size_t>(c.token)],
                (TokenProbability{c.token, c.probability}));
      EXPECT_NEAR(c.probability, std::exp(logits[static_cast<std::size_t>(c.token)]), 1e-6);
    }
    EXPECT_EQ(choice.logits, logits);
  }
}

TEST(Choice, RefusesRowsThatMeanNothing) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const TokenBias overflowing[] = {{0, kInfinity}},
                  forbidding[] = {{0, -kInfinity}, {1, -kInfinity}};
  const std::uint64_t none[] = {0}, second[] = {2};
  struct Case {
    const char* name;
    std::vector<float> logits;
    ChoiceRequest request;
    bool usable;
  };
  const Case cases[] = {
      {"fine", {1, 2}, {}, true},
      {"NaN", {1, nan}, {}, false},
      {"NaN where it is not allowed", {nan, 1}, {.allowed = second}, false},
      {"infinite", {kInfinity, 1}, {}, false},
      {"all -inf", {-kInfinity, -kInfinity}, {}, false},
      {"one -inf", {-kInfinity, 1}, {}, true},
      {"infinite bias", {1, 1}, {.bias = overflowing}, false},
      {"infinite bias where it is not allowed",
       {1, 1},
       {.bias = overflowing, .allowed = second},
       true},
      {"everything biased away", {1, 1}, {.bias = forbidding}, false},
      {"nothing allowed", {1, 1}, {.allowed = none}, false},
      {"too cold", {3e38f, 1}, {.filters = {.temperature = 0.1f}}, false},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    for (const bool greedy : {false, true}) {
      if (greedy && c.request.filters.temperature == 0.1f) continue;
      ChoiceRequest request = c.request;
      if (greedy) request.filters.temperature = 0;
      request.n_best = 1;
      const Choice choice = choose_reference(c.logits, request);
      EXPECT_EQ(choice.token.has_value(), c.usable);
      EXPECT_EQ(choice.best.size(), c.usable ? 1u : 0u);
    }
  }
}

// Pearson's statistic for `draws` choices at consecutive positions against their probabilities.
double chi_square(std::span<const float> logits, const Filters& filters, int draws, int* degrees) {
  const Choice one = choose_reference(logits, {.filters = filters, .wants_probabilities = true});
  const std::vector<float> probabilities = of_all_tokens(one.probabilities, logits.size());
  std::vector<int> found(logits.size());
  for (int position = 0; position < draws; ++position) {
    const NoiseKey key = {
        .seed = 2024, .stream = 1, .position = static_cast<std::uint32_t>(position)};
    ++found[static_cast<std::size_t>(
        *choose_reference(logits, {.filters = filters, .noise = key}).token)];
  }
  double sum = 0;
  *degrees = -1;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const double expected = double{probabilities[id]} * draws;
    if (expected == 0) {
      EXPECT_EQ(found[id], 0);
      continue;
    }
    sum += (found[id] - expected) * (found[id] - expected) / expected;
    ++*degrees;
  }
  return sum;
}

TEST(ChoiceDistribution, FollowsTheSoftmax) {
  std::mt19937 random(11);
  std::vector<float> logits(24);
  for (float& logit : logits) logit = std::normal_distribution<float>(0, 1)(random);
  Filters hot = kNoFilters;
  hot.temperature = 1.7f;
  const Filters cut = {.top_k = 12, .top_p = 0.9f, .min_p = 0.05f, .temperature = 0.8f};
  for (const Filters& filters : {kNoFilters, hot, cut}) {
    int degrees = 0;
    const double statistic = chi_square(logits, filters, 40000, &degrees);
    // Five standard deviations above the mean.
    EXPECT_LT(statistic, degrees + 5 * std::sqrt(2.0 * degrees))
        << degrees << " degrees of freedom";
    EXPECT_GT(statistic, degrees - 3 * std::sqrt(2.0 * degrees));  // too good to be noise
  }
}

// Daliri, Musco and Suresh 2025: with shared noise two models agree at least with probability (1 -
// TV) / (1 + TV).
TEST(ChoiceDistribution, SharedNoiseMakesCloseModelsAgree) {
  std::mt19937 random(12);
  std::vector<float> target(200), draft(200);
  for (std::size_t id = 0; id < target.size(); ++id) {
    target[id] = std::normal_distribution<float>(0, 3)(random);
    draft[id] = target[id] + std::normal_distribution<float>(0, 0.3f)(random);
  }
  const auto probabilities = [](std::span<const float> logits) {
    return of_all_tokens(
        choose_reference(logits, {.filters = kNoFilters, .wants_probabilities = true})
            .probabilities,
        logits.size());
  };
  const std::vector<float> p = probabilities(target), q = probabilities(draft);
  double distance = 0;
  for (std::size_t id = 0; id < p.size(); ++id) distance += std::fabs(p[id] - q[id]) / 2;
  int same = 0, same_with_other_noise = 0;
  constexpr int kDraws = 4000;
  for (std::uint32_t position = 0; position < kDraws; ++position) {
    const auto draw = [&](std::span<const float> logits, std::uint64_t seed) {
      return choose_reference(
                 logits, {.filters = kNoFilters, .noise = {.seed = seed, .position = position}})
          .token;
    };
    same += draw(target, 1) == draw(draft, 1);
    same_with_other_noise += draw(target, 1) == draw(draft, 2);
  }
  const double agreement = static_cast<double>(same) / kDraws;
  EXPECT_GT(distance, 0.02);
  EXPECT_GT(agreement, (1 - distance) / (1 + distance) - 0.02);
  EXPECT_LT(agreement, 1 - distance + 0.02);  // no coupling does better
  EXPECT_LT(same_with_other_noise, same / 2);
}

}  // namespace
}  // namespace outrider

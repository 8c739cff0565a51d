#include "sampling/logprobs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace outrider {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

TEST(Logprobs, AreThoseOfTheSoftmax) {
  struct Case {
    const char* name;
    std::vector<float> logits;
    std::vector<double> probabilities;
    std::vector<Token> order;
  };
  const Case cases[] = {
      {"different", {0, std::log(2.0f), std::log(5.0f)}, {.125, .25, .625}, {2, 1, 0}},
      {"equal", {3, 3, 3, 3}, {.25, .25, .25, .25}, {0, 1, 2, 3}},
      {"far from 0", {-1000, -1000 + std::log(3.0f)}, {.25, .75}, {1, 0}},
      {"one impossible", {kNever, 7, 7}, {0, .5, .5}, {1, 2, 0}},
      {"alone", {5}, {1}, {0}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const int n = static_cast<int>(c.logits.size());
    for (Token token = 0; token < n; ++token)
      for (int n_best = 0; n_best <= n + 1; ++n_best) {
        const ScoredToken scored = score(c.logits, token, n_best);
        const auto expected = [&](Token of) {
          return c.probabilities[of] > 0 ? std::log(c.probabilities[of]) : -9999;
        };
        EXPECT_NEAR(scored.logprob, expected(token), 1e-4);
        ASSERT_EQ(scored.best.size(), static_cast<std::size_t>(std::min(n_best, n)));
        for (std::size_t i = 0; i < scored.best.size(); ++i) {
          EXPECT_EQ(scored.best[i].token, c.order[i]);
          EXPECT_NEAR(scored.best[i].logprob, expected(c.order[i]), 1e-4);
        }
      }
  }
}

}  // namespace
}  // namespace outrider

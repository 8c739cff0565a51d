#include "cli/divergence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace outrider {
namespace {

std::vector<float> logits_of(std::vector<double> probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p) + 3));
  return logits;
}

TEST(Divergence, IsThatOfTheDistributions) {
  const std::vector<float> q = logits_of({.5, .25, .25}), p = logits_of({.25, .5, .25});
  const PredictionScore score = score_prediction(q, p, 1);
  EXPECT_NEAR(score.nll, std::log(4), 1e-6);
  EXPECT_NEAR(score.other_nll, std::log(2), 1e-6);
  EXPECT_NEAR(score.kl, .25 * std::log(.5) + .5 * std::log(2), 1e-6);
  EXPECT_FALSE(score.agrees);
  const PredictionScore same = score_prediction(q, q, 0);
  EXPECT_NEAR(same.kl, 0, 1e-12);
  EXPECT_TRUE(same.agrees);
  EXPECT_EQ(score_prediction(q, {}, 0).kl, 0);
}

TEST(Divergence, TokensThatOneForbidsCountNothing) {
  std::vector<float> p = logits_of({.5, .5, .1});
  p[2] = -std::numeric_limits<float>::infinity();
  EXPECT_NEAR(score_prediction(logits_of({.25, .25, .5}), p, 0).kl, std::log(2), 1e-6);
}

TEST(Divergence, WantsDistributions) {
  std::vector<float> q = logits_of({.5, .5});
  q[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(score_prediction(q, {}, 0), Error);
}

TEST(Divergence, SummarisesPositions) {
  const std::vector<double> values = {1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(estimate(values).mean, 2.5);
  EXPECT_NEAR(estimate(values).error, std::sqrt(5.0 / 3 / 4), 1e-12);
  EXPECT_EQ(estimate(std::vector<double>{7}).error, 0);
  EXPECT_DOUBLE_EQ(quantile(values, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile(values, 1), 4);
  EXPECT_DOUBLE_EQ(quantile({9}, 0.99), 9);
}

}  // namespace
}  // namespace outrider

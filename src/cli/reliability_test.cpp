#include "cli/reliability.h"

#include <gtest/gtest.h>

namespace outrider {
namespace {

TEST(ReliabilityReport, ShowsPredictionsBesideOutcomes) {
  Reliability reliability;
  reliability.ranges[3] = {.n = 4, .predicted = 1.4, .accepted = 1};
  reliability.ranges[9] = {.n = 10, .predicted = 9.5, .accepted = 9};
  EXPECT_EQ(reliability_text(reliability),
            "drafts came true as expected within 6.4%\n"
            "expected  came true  drafted tokens\n"
            "     35%        25%               4\n"
            "     95%        90%              10\n");

  const Json json = reliability_json(reliability);
  EXPECT_EQ(json["guesses"], 14);
  EXPECT_NEAR(json["expected_error"].get<double>(), 0.9 / 14, 1e-9);
  ASSERT_EQ(json["ranges"].size(), 10u);
  EXPECT_EQ(json["ranges"][3]["guesses"], 4);
  EXPECT_NEAR(json["ranges"][3]["expected"].get<double>(), 0.35, 1e-9);
  EXPECT_EQ(json["ranges"][3]["came_true"], 0.25);
  EXPECT_EQ(json["ranges"][0]["guesses"], 0);
}

}  // namespace
}  // namespace outrider

#include "speculation/calibration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

namespace outrider {
namespace {

// A chain of one drafter's proposals with tokens 1, 2, 3, ...
DraftTree chain_of(int length, float confidence, int drafter = 0) {
  DraftTree tree(0);
  int node = 0;
  for (int i = 1; i <= length; ++i) node = tree.propose(node, i, {drafter, confidence});
  return tree;
}

TEST(Calibration, BelievesTheStatedConfidenceAtFirst) {
  const Calibration calibration(2);
  const Calibration::Sequence text = calibration.begin();
  double last = 0;
  for (float confidence : {0.0f, 0.03f, 0.3f, 0.5f, 0.8f, 0.99f, 1.0f}) {
    const double acceptance = calibration.acceptance(text, {1, confidence}, 1);
    // With doubt, so nearer to even.
    EXPECT_LE(std::abs(acceptance - 0.5), std::abs(confidence - 0.5) + 1e-9);
    EXPECT_NEAR(acceptance, confidence, 0.15);
    EXPECT_GT(acceptance, last);
    last = acceptance;
    EXPECT_EQ(acceptance, calibration.acceptance(text, {1, confidence}, 40));
  }
}

TEST(Calibration, ATextMovesFastAndLeavesOthersAlone) {
  Calibration calibration(2);
  Calibration::Sequence text = calibration.begin(), other = calibration.begin();
  const DraftTree tree = chain_of(1, 0.8f);
  for (int i = 0; i < 3; ++i) calibration.observe(text, tree, std::vector<Token>{9});
  EXPECT_LT(calibration.acceptance(text, {0, 0.8f}, 1), 0.45);
  EXPECT_LT(calibration.best_guess_acceptance(text, 0, 1), 0.35);
  EXPECT_GT(calibration.acceptance(other, {0, 0.8f}, 1), 0.53);
  EXPECT_EQ(calibration.acceptance(text, {1, 0.8f}, 1),
            calibration.acceptance(other, {1, 0.8f}, 1));  // another drafter
  // And back, when the text changes.
  for (int i = 0; i < 200; ++i) calibration.observe(text, tree, std::vector<Token>{9});
  EXPECT_LT(calibration.acceptance(text, {0, 0.8f}, 1), 0.05);
  for (int i = 0; i < 12; ++i) calibration.observe(text, tree, std::vector<Token>{1});
  EXPECT_GT(calibration.acceptance(text, {0, 0.8f}, 1), 0.5);
}

// A drafter that knows the end of a text only is expected to be right less often, and what it gets
// wrong then tells little about what it would have guessed after the whole text.
TEST(Calibration, TheEndOfATextTellsLessThanTheWhole) {
  EXPECT_GT(Calibration::handicap(8), Calibration::handicap(64));
  EXPECT_EQ(Calibration::handicap(1 << 20), 0);
  Calibration calibration(1);
  const Calibration::Sequence begun = calibration.begin();
  const double handicap = Calibration::handicap(16);
  EXPECT_LT(calibration.best_guess_acceptance(begun, 0, 1, handicap),
            calibration.best_guess_acceptance(begun, 0, 1) - 0.2);

  Calibration::Sequence after_whole = begun, after_end = begun;
  after_end.handicaps[0] = handicap;
  EXPECT_LT(calibration.acceptance(after_end, {0, 0.8f}, 1),
            calibration.acceptance(after_whole, {0, 0.8f}, 1));
  Calibration another(1);
  for (int i = 0; i < 4; ++i) {
    calibration.observe(after_whole, {0, 0.8f}, false, 0);
    another.observe(after_end, {0, 0.8f}, false, handicap);
  }
  EXPECT_LT(calibration.best_guess_acceptance(after_whole, 0, 1, 0),
            another.best_guess_acceptance(after_end, 0, 1, 0) - 0.2);
}

// What texts have in common becomes the prior of the next.
TEST(Calibration, LearnsFromTextToText) {
  Calibration calibration(1);
  const DraftTree tree = chain_of(1, 0.5f);
  for (int i = 0; i < 40; ++i) {
    Calibration::Sequence text = calibration.begin();
    for (int j = 0; j < 20; ++j) calibration.observe(text, tree, std::vector<Token>{1});
  }
  EXPECT_GT(calibration.acceptance(calibration.begin(), {0, 0.5f}, 1), 0.85);
  EXPECT_GT(calibration.best_guess_acceptance(calibration.begin(), 0, 1), 0.8);
}

TEST(Calibration, TellsDepthsApart) {
  Calibration calibration(1);
  const DraftTree tree = chain_of(3, 0.5f);
  Calibration::Sequence text = calibration.begin();
  for (int i = 0; i < 200; ++i) calibration.observe(text, tree, std::vector<Token>{1, 2, 9});
  EXPECT_GT(calibration.acceptance(text, {0, 0.5f}, 1), 0.8);
  EXPECT_GT(calibration.acceptance(text, {0, 0.5f}, 2), 0.8);
  EXPECT_LT(calibration.acceptance(text, {0, 0.5f}, 3), 0.3);
}

// A proposal counts where its parent lies on the text, and only there; the text cut short decides
// nothing about what would have come later.
TEST(Calibration, CountsProposalsWhoseParentWasAccepted) {
  Calibration calibration(1);
  Calibration::Sequence text = calibration.begin();
  const DraftTree tree = chain_of(3, 0.5f);
  calibration.observe(text, tree, std::vector<Token>{1});
  EXPECT_EQ(calibration.reliability().n(), 1);
  calibration.observe(text, tree, std::vector<Token>{9, 2, 3});
  EXPECT_EQ(calibration.reliability().n(), 2);
  calibration.observe(text, tree, std::vector<Token>{1, 2, 3, 4});
  EXPECT_EQ(calibration.reliability().n(), 5);
  calibration.observe(text, tree, {});
  EXPECT_EQ(calibration.reliability().n(), 5);
}

TEST(Calibration, TakesTheMostHopefulProposal) {
  const Calibration calibration(2);
  const Calibration::Sequence text = calibration.begin();
  DraftTree tree(0);
  tree.propose(0, 1, {0, 0.25f});
  tree.propose(0, 1, {1, 0.75f});
  EXPECT_EQ(calibration.acceptances(text, tree)[1], calibration.acceptance(text, {1, 0.75f}, 1));
}

// Only one sibling can be accepted: the likeliest keeps its probability, and the others share what
// it leaves.
TEST(Calibration, SiblingsShareWhatTheFirstLeaves) {
  const Calibration calibration(1);
  const Calibration::Sequence text = calibration.begin();
  DraftTree tree(0);
  tree.propose(0, 1, {0, 0.4f});
  tree.propose(0, 2, {0, 0.9f});
  tree.propose(0, 3, {0, 0.4f});
  const std::vector<double> given = calibration.acceptances(text, tree);
  EXPECT_EQ(given[2], calibration.acceptance(text, {0, 0.9f}, 1));
  EXPECT_NEAR(given[1] + given[3], 1 - given[2], 1e-9);
  EXPECT_NEAR(given[1], given[3], 1e-9);
  DraftTree few(0);  // together less than 1
  few.propose(0, 1, {0, 0.1f});
  few.propose(0, 2, {0, 0.1f});
  EXPECT_EQ(calibration.acceptances(text, few)[1], calibration.acceptance(text, {0, 0.1f}, 1));
}

// Over texts that differ, with confidences that are off by a logistic function that differs by
// depth: after 2,000 tokens what is predicted comes true as often.
TEST(Calibration, WhatIsPredictedComesTrueAsOften) {
  for (int seed = 0; seed < 5; ++seed) {
    Calibration calibration(1);
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform;
    for (int i = 0; i < 20; ++i) {
      Calibration::Sequence text = calibration.begin();
      const double shift = 1.5 * normal(random);
      for (int token = 0; token < 100;) {
        DraftTree tree(0);
        std::vector<Token> taken;
        int node = 0;
        bool is_right = true;
        for (int depth = 1; depth <= 4; ++depth) {
          const double x = 2 * normal(random);
          node = tree.propose(node, depth, {0, static_cast<float>(1 / (1 + std::exp(-x)))});
          is_right &= uniform(random) < 1 / (1 + std::exp(-(0.5 * x + 0.3 * depth - 1 + shift)));
          if (is_right) taken.push_back(depth);
        }
        taken.push_back(99);
        calibration.observe(text, tree, taken);
        token += static_cast<int>(taken.size());
      }
    }
    EXPECT_GT(calibration.reliability().n(), 1000);
    EXPECT_LE(calibration.reliability().expected_error(), 0.05) << seed;
  }
}

// The table says what it is given.
TEST(Reliability, MeasuresTheDistance) {
  Reliability reliability;
  EXPECT_EQ(reliability.expected_error(), 0);
  reliability.ranges[7] = {.n = 30, .predicted = 22.5, .accepted = 15};
  reliability.ranges[1] = {.n = 10, .predicted = 1.5, .accepted = 2.5};
  EXPECT_EQ(reliability.n(), 40);
  EXPECT_NEAR(reliability.expected_error(), (7.5 + 1) / 40, 1e-12);
}

// A sequence begins as recent ones were: beyond the fits, which move slowly, and by as much as is
// known of each. One of which nothing is known does not count.
TEST(Calibration, ASequenceBeginsAsRecentOnesWere) {
  Calibration calibration(2);
  const auto begun_with = [&](bool is_right, int n_outcomes) {
    Calibration::Sequence sequence = calibration.begin();
    const double begun = sequence.best_guesses[1].mean;
    for (int i = 0; i < n_outcomes; ++i) calibration.observe(sequence, {1, 0.6f}, is_right, 0);
    calibration.end(sequence);
    return begun;
  };
  EXPECT_EQ(begun_with(true, 30), 0);
  const double after_one = begun_with(true, 30);
  EXPECT_GT(after_one, 0.5);
  EXPECT_EQ(calibration.begin().best_guesses[0].mean, 0);  // another drafter's
  const double before = calibration.begin().best_guesses[1].mean;
  begun_with(false, 0);
  EXPECT_EQ(calibration.begin().best_guesses[1].mean, before);
  for (int i = 0; i < 20; ++i) begun_with(false, 30);
  EXPECT_LT(calibration.begin().best_guesses[1].mean, 0);

  Calibration other(2);
  other.restore(1, calibration.of_drafter(1));
  EXPECT_EQ(other.begin().best_guesses[1].mean, calibration.begin().best_guesses[1].mean);
}

}  // namespace
}  // namespace outrider

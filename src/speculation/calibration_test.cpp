#include "speculation/calibration.h"

#include <gtest/gtest.h>

#include <random>

namespace outrider {
namespace {

// A chain of one drafter's proposals with tokens 1, 2, 3, ...
DraftTree chain(int length, float confidence, int drafter = 0) {
  DraftTree tree(0);
  int node = 0;
  for (int i = 1; i <= length; ++i) node = tree.propose(node, i, {drafter, confidence});
  return tree;
}

// Of a node `depth` edges from node 0 that one drafter proposed.
double acceptance(const Calibration& calibration, Proposal proposal, int depth) {
  return calibration.acceptance({.token = 1, .parent = 0, .depth = depth, .proposals = {proposal}});
}

TEST(Calibration, BelievesTheStatedConfidenceFirst) {
  const Calibration calibration(2);
  for (float confidence : {0.0f, 0.03f, 0.5f, 0.99f, 1.0f})
    for (int depth : {1, 2, 7, 40})
      EXPECT_NEAR(acceptance(calibration, {1, confidence}, depth), confidence, 1e-6);
}

TEST(Calibration, LearnsWhatItSaw) {
  Calibration calibration(2);
  std::mt19937 random(4);
  const DraftTree tree = chain(1, 0.9f);
  for (int i = 0; i < 2000; ++i) {
    const std::vector<Token> taken{random() % 10 < 3 ? 1 : 7};
    calibration.observe(tree, taken);
  }
  EXPECT_NEAR(acceptance(calibration, {0, 0.9f}, 1), 0.3, 0.15);
  EXPECT_NEAR(acceptance(calibration, {0, 0.92f}, 1), 0.3, 0.15);  // the same bin
  EXPECT_NEAR(acceptance(calibration, {0, 0.9f}, 2), 0.3, 0.15);   // depths lean on each other
  EXPECT_NEAR(acceptance(calibration, {0, 0.5f}, 1), 0.5, 1e-6);   // another confidence
  EXPECT_NEAR(acceptance(calibration, {1, 0.9f}, 1), 0.9, 1e-6);   // another drafter
}

TEST(Calibration, TellsDepthsApart) {
  Calibration calibration(1);
  const DraftTree tree = chain(3, 0.5f);
  for (int i = 0; i < 200; ++i) calibration.observe(tree, std::vector<Token>{1, 2, 9});
  EXPECT_GT(acceptance(calibration, {0, 0.5f}, 1), 0.9);
  EXPECT_GT(acceptance(calibration, {0, 0.5f}, 2), 0.9);
  EXPECT_LT(acceptance(calibration, {0, 0.5f}, 3), 0.2);
}

// A proposal counts where its parent lies on the text, and only there; the text cut short decides
// nothing about what would have come later.
TEST(Calibration, CountsProposalsWhoseParentWasAccepted) {
  Calibration calibration(1);
  const DraftTree tree = chain(3, 0.5f);
  for (int i = 0; i < 50; ++i) calibration.observe(tree, std::vector<Token>{1});
  EXPECT_GT(acceptance(calibration, {0, 0.5f}, 1), 0.9);
  Calibration other(1);
  for (int i = 0; i < 50; ++i) other.observe(tree, std::vector<Token>{9, 2, 3});
  EXPECT_LT(acceptance(other, {0, 0.5f}, 1), 0.1);
  // Depths 2 and 3 were not seen: they know only what all depths together tell.
  EXPECT_NEAR(acceptance(other, {0, 0.5f}, 2), acceptance(other, {0, 0.5f}, 3), 1e-9);
  other.observe(tree, {});
}

TEST(Calibration, ForgetsAnOldText) {
  Calibration calibration(1);
  const DraftTree tree = chain(1, 0.5f);
  for (int i = 0; i < 1000; ++i) calibration.observe(tree, std::vector<Token>{9});
  EXPECT_LT(acceptance(calibration, {0, 0.5f}, 1), 0.05);
  for (int i = 0; i < 200; ++i) calibration.observe(tree, std::vector<Token>{1});
  EXPECT_GT(acceptance(calibration, {0, 0.5f}, 1), 0.9);
}

TEST(Calibration, TakesTheMostHopefulProposal) {
  const Calibration calibration(2);
  DraftTree tree(0);
  tree.propose(0, 1, {0, 0.25f});
  tree.propose(0, 1, {1, 0.75f});
  EXPECT_NEAR(calibration.acceptance(tree[1]), 0.75, 1e-6);
}

}  // namespace
}  // namespace outrider

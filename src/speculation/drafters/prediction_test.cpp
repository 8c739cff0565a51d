#include "speculation/drafters/prediction.h"

#include <gtest/gtest.h>

#include <random>

#include "speculation/drafters/drafter_test.h"

namespace outrider {
namespace {

DraftTree propose(PredictionDrafter& drafter, int sequence, DraftLimits limits = {}) {
  DraftTree tree(0);
  const DraftRequest request{{sequence}, &tree, 0, limits, &kGreedy, &kState};
  drafter.propose({&request, 1});
  tree.check_integrity();
  return tree;
}

// The path of first children.
std::vector<Token> first_path(const DraftTree& tree) {
  std::vector<Token> path;
  for (int node = 0; !tree.children(node).empty();) {
    node = tree.children(node)[0];
    path.push_back(tree[node].token);
  }
  return path;
}

using Tokens = std::vector<Token>;

TEST(Prediction, ProposesHowItGoesOn) {
  PredictionDrafter drafter;
  drafter.begin({1});
  drafter.observe({1}, Tokens{50, 51, 52});
  EXPECT_EQ(propose(drafter, 1).size(), 1);  // nothing is expected
  drafter.expect({1}, Tokens{1, 2, 3, 4, 5, 6});
  EXPECT_EQ(first_path(propose(drafter, 1)), (Tokens{1, 2, 3, 4, 5, 6}));
  drafter.observe({1}, Tokens{1, 2});
  EXPECT_EQ(first_path(propose(drafter, 1, {.depth = 3})), (Tokens{3, 4, 5}));
  drafter.observe({1}, Tokens{3, 4, 5, 6});
  EXPECT_EQ(propose(drafter, 1).size(), 1);
  drafter.truncate({1}, 7);
  EXPECT_EQ(first_path(propose(drafter, 1)), (Tokens{5, 6}));
  // Another turn: what was expected of the last answer is not expected any more.
  drafter.truncate({1}, 2);
  EXPECT_EQ(propose(drafter, 1).size(), 1);
  drafter.observe({1}, Tokens{60});
  drafter.expect({1}, Tokens{7, 8});
  EXPECT_EQ(first_path(propose(drafter, 1)), (Tokens{7, 8}));
  drafter.expect({1}, {});
  EXPECT_EQ(propose(drafter, 1).size(), 1);
  drafter.end({1});
}

TEST(Prediction, BranchesWhereItIsUnsure) {
  PredictionDrafter drafter;
  drafter.begin({1});
  drafter.expect({1}, Tokens{1, 2, 3, 4, 5, 6, 7, 8});
  drafter.observe({1}, Tokens{1, 2, 3, 4, 99});
  const DraftTree tree = propose(drafter, 1, {.nodes = 6});
  ASSERT_EQ(tree.size(), 7);
  EXPECT_TRUE(tree.child(0, 6));  // 99 in the place of 5
  EXPECT_TRUE(tree.child(0, 5));  // 99 inserted
  EXPECT_EQ(propose(drafter, 1, {.width = 1}).children(0).size(), 1u);
}

TEST(Prediction, KeepsItsLimits) {
  std::mt19937 random(6);
  for (int round = 0; round < 300; ++round) {
    Tokens prediction(random() % 30), answer(random() % 30);
    for (Tokens* tokens : {&prediction, &answer})
      for (Token& token : *tokens) token = static_cast<Token>(random() % 4);
    const DraftLimits limits{static_cast<int>(random() % 20), static_cast<int>(random() % 6),
                             static_cast<int>(random() % 4)};
    PredictionDrafter drafter;
    drafter.begin({0});
    drafter.expect({0}, prediction);
    drafter.observe({0}, answer);
    const DraftTree tree = propose(drafter, 0, limits);
    EXPECT_LE(tree.size() - 1, limits.nodes);
    for (int node = 0; node < tree.size(); ++node) {
      EXPECT_LE(tree[node].depth, limits.depth);
      EXPECT_LE(static_cast<int>(tree.children(node).size()), limits.width);
    }
  }
}

}  // namespace
}  // namespace outrider

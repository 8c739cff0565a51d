#include "speculation/tree.h"

#include <gtest/gtest.h>

#include <random>

namespace outrider {
namespace {

TEST(DraftTree, EqualChildrenShareANode) {
  DraftTree tree(7);
  const int a = tree.propose(0, 1, {0, 0.5f});
  const int b = tree.propose(a, 2, {0, 0.5f});
  EXPECT_EQ(tree.propose(0, 1, {1, 0.25f}), a);
  EXPECT_EQ(tree.propose(0, 1, {1, 0.75f}), a);  // the second of the same drafter is dropped
  EXPECT_NE(tree.propose(0, 2, {0, 0.5f}), b);   // the same token under another parent
  tree.check_integrity();
  ASSERT_EQ(tree.size(), 4);
  ASSERT_EQ(tree[a].proposals.size(), 2u);
  EXPECT_EQ(tree[a].proposals[1].drafter, 1);
  EXPECT_EQ(tree[a].proposals[1].confidence, 0.25f);
  EXPECT_EQ(tree.child(0, 1), a);
  EXPECT_EQ(tree.child(0, 9), std::nullopt);
  EXPECT_EQ(tree.path(b), (std::vector<Token>{1, 2}));
  EXPECT_EQ(tree.path(0), (std::vector<Token>{}));
  EXPECT_EQ(tree[b].depth, 2);
}

// Random trees, pruned at random: what is left has the paths and proposals that it had.
TEST(DraftTree, KeepsPathsWhenPruned) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    DraftTree tree(0);
    for (int i = 0; i < 30; ++i)
      tree.propose(static_cast<int>(random() % tree.size()), static_cast<Token>(random() % 5),
                   {static_cast<int>(random() % 3), 0.5f});
    tree.check_integrity();
    std::vector<bool> kept(tree.size(), true);
    std::vector<std::vector<Token>> paths;
    std::vector<std::size_t> n_proposals;
    for (int node = 0; node < tree.size(); ++node) {
      kept[node] = node == 0 || (kept[tree[node].parent] && random() % 4 != 0);
      if (!kept[node]) continue;
      paths.push_back(tree.path(node));
      n_proposals.push_back(tree[node].proposals.size());
    }
    tree.keep(kept);
    tree.check_integrity();
    ASSERT_EQ(tree.size(), static_cast<int>(paths.size()));
    for (int node = 0; node < tree.size(); ++node) {
      EXPECT_EQ(tree.path(node), paths[node]);
      EXPECT_EQ(tree[node].proposals.size(), n_proposals[node]);
    }
  }
}

TEST(DraftTreeDeathTest, RefusesOrphans) {
  DraftTree tree(0);
  const int a = tree.propose(0, 1, {});
  tree.propose(a, 2, {});
  EXPECT_DEATH(tree.keep({true, false, true}), "internal error");
  EXPECT_DEATH(tree.propose(9, 1, {}), "internal error");
}

}  // namespace
}  // namespace outrider

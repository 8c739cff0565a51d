#include "speculation/verify.h"

#include <gtest/gtest.h>

namespace outrider {
namespace {

constexpr Token kTokens = 3;

// What plain decoding would say, token by token, if the model's choice after each path is as given:
// the judge. Returns the tokens that the tree lets one step emit.
std::vector<Token> plain(const DraftTree& tree, std::span<const std::optional<Token>> choices) {
  std::vector<Token> text;
  for (;;) {
    // The row of the text so far, if the tree has it.
    std::optional<int> row;
    for (int node = 0; node < tree.size(); ++node)
      if (tree.path(node) == text) row = node;
    if (!row || !choices[*row]) return text;
    text.push_back(*choices[*row]);
  }
}

void check_every_choice(const DraftTree& tree) {
  const int n = tree.size();
  std::vector<std::optional<Token>> choices(n);
  int n_outcomes = 1;
  for (int i = 0; i < n; ++i) n_outcomes *= kTokens + 1;
  for (int outcome = 0; outcome < n_outcomes; ++outcome) {
    int rest = outcome;
    for (int i = 0; i < n; ++i, rest /= kTokens + 1) {
      choices[i].reset();
      if (const int choice = rest % (kTokens + 1); choice < kTokens) choices[i] = choice;
    }
    const Verdict verdict = verify_coupled(tree, choices);
    std::vector<Token> emitted;
    int parent = 0;
    for (int node : verdict.accepted) {
      ASSERT_EQ(tree[node].parent, parent);
      emitted.push_back(tree[node].token);
      parent = node;
    }
    if (verdict.next) emitted.push_back(*verdict.next);
    ASSERT_EQ(emitted, plain(tree, choices));
    ASSERT_EQ(verdict.next, choices[parent]);
  }
}

// Every tree of up to four drafted nodes over three tokens, with every outcome of every row,
// unusable ones among them: enumerated, not sampled.
TEST(VerifyCoupled, FollowsPlainDecodingOnEverySmallTree) {
  int n_trees = 0;
  const auto extend = [&](auto& self, const DraftTree& tree) -> void {
    check_every_choice(tree);
    ++n_trees;
    if (tree.size() == 5) return;
    for (int parent = 0; parent < tree.size(); ++parent)
      for (Token token = 0; token < kTokens; ++token) {
        if (tree.child(parent, token)) continue;
        DraftTree larger = tree;
        larger.propose(parent, token, {0, 0.5f});
        self(self, larger);
      }
  };
  extend(extend, DraftTree(0));
  EXPECT_GT(n_trees, 500);
}

}  // namespace
}  // namespace outrider

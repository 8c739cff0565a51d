#include "speculation/drafters/lookup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

namespace outrider {
namespace {

const SamplingParams kGreedy;
const ProcessorState kState(kGreedy);

DraftTree propose(LookupDrafter& drafter, DraftSequence sequence, std::span<const Token> text,
                  DraftLimits limits = {}) {
  DraftTree tree(text.back());
  const DraftRequest request{sequence, &tree, 0, limits, &kGreedy, &kState};
  drafter.propose({&request, 1});
  tree.check_integrity();
  return tree;
}

DraftTree propose(std::span<const Token> text, DraftLimits limits = {}) {
  LookupDrafter drafter({});
  drafter.begin({1});
  drafter.observe({1}, text);
  return propose(drafter, {1}, text, limits);
}

struct Proposed {
  std::vector<Token> path;
  float confidence;
  bool operator==(const Proposed&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Proposed& proposed) {
    for (Token token : proposed.path) out << token << ' ';
    return out << '(' << proposed.confidence << ')';
  }
};

std::vector<Proposed> content(const DraftTree& tree) {
  std::vector<Proposed> content;
  for (int node = 1; node < tree.size(); ++node)
    content.push_back({tree.path(node), tree[node].proposals[0].confidence});
  return content;
}

std::vector<std::vector<Token>> paths(const DraftTree& tree) {
  std::vector<std::vector<Token>> paths;
  for (const Proposed& proposed : content(tree)) paths.push_back(proposed.path);
  return paths;
}

using Paths = std::vector<std::vector<Token>>;

TEST(Lookup, ContinuesTheLongestMatch) {
  // "1 2 3" stood at the start, "2 3" later, with another continuation.
  const std::vector<Token> text{1, 2, 3, 4, 5, 9, 2, 3, 6, 1, 2, 3};
  const DraftTree tree = propose(text, {.nodes = 3, .depth = 2, .width = 1});
  EXPECT_EQ(paths(tree), (Paths{{4}, {4, 5}}));
  EXPECT_FLOAT_EQ(tree[1].proposals[0].confidence, 3.0f / 5);  // 3 tokens matched
  EXPECT_FLOAT_EQ(tree[2].proposals[0].confidence, 4.0f / 6);  // and then 4
}

TEST(Lookup, BranchesWhereContinuationsDiffer) {
  const std::vector<Token> text{1, 2, 3, 1, 2, 4, 1, 2};
  const DraftTree tree = propose(text, {.nodes = 4, .depth = 1, .width = 4});
  // The most recent first.
  EXPECT_EQ(paths(tree), (Paths{{4}, {3}}));
  EXPECT_GT(tree[1].proposals[0].confidence, tree[2].proposals[0].confidence);
}

TEST(Lookup, HasNothingToSayAboutWhatIsNew) {
  EXPECT_EQ(propose(std::vector<Token>{1}).size(), 1);
  EXPECT_EQ(propose(std::vector<Token>{1, 2, 3}).size(), 1);
}

TEST(Lookup, ConfidenceGrowsWithTheMatch) {
  float last = 0;
  for (int n : {1, 2, 3, 4, 6, 8, 12, 16}) {
    std::vector<Token> text;
    for (int i = 0; i < n; ++i) text.push_back(i);
    text.insert(text.end(), {100, 101});
    for (int i = 0; i < n; ++i) text.push_back(i);
    const DraftTree tree = propose(text);
    ASSERT_GT(tree.size(), 1);
    EXPECT_GT(tree[1].proposals[0].confidence, last);
    last = tree[1].proposals[0].confidence;
  }
}

TEST(Lookup, KeepsItsLimits) {
  std::mt19937 random(6);
  for (int round = 0; round < 300; ++round) {
    std::vector<Token> text(1 + random() % 60);
    for (Token& token : text) token = static_cast<Token>(random() % 3);
    const DraftLimits limits{static_cast<int>(random() % 20), static_cast<int>(random() % 6),
                             static_cast<int>(random() % 4)};
    const DraftTree tree = propose(text, limits);
    EXPECT_LE(tree.size() - 1, limits.nodes);
    for (int node = 0; node < tree.size(); ++node) {
      EXPECT_LE(tree[node].depth, limits.depth);
      EXPECT_LE(static_cast<int>(tree.children(node).size()), limits.width);
    }
  }
}

// Matches found by looking at every position: the judge of the index.
std::vector<std::size_t> find_plainly(std::span<const Token> text, std::size_t n,
                                      std::size_t most) {
  std::vector<std::size_t> found;
  for (std::size_t p = text.size(); p-- > n && found.size() < most;)
    if (std::equal(text.end() - n, text.end(), text.begin() + p - n)) found.push_back(p);
  return found;
}

TEST(NgramIndex, FindsWhatLookingEverywhereFinds) {
  std::mt19937 random(7);
  for (int alphabet : {1, 2, 3, 50}) {
    NgramIndex index(1 << 20);
    std::vector<Token> text;
    for (int round = 0; round < 400; ++round) {
      if (random() % 8 == 0) {
        const std::size_t length = random() % (text.size() + 1);
        text.resize(length);
        index.truncate(length);
      }
      std::vector<Token> more(random() % 12);
      for (Token& token : more) token = static_cast<Token>(random() % alphabet);
      text.insert(text.end(), more.begin(), more.end());
      index.append(more);
      for (std::size_t i = 0; i < NgramIndex::kClasses; ++i)
        for (std::size_t most : {1, 5, 1000})
          ASSERT_EQ(index.find(i, most),
                    text.size() > static_cast<std::size_t>(NgramIndex::kLengths[i])
                        ? find_plainly(text, NgramIndex::kLengths[i], most)
                        : std::vector<std::size_t>{});
    }
  }
}

// State equals that of a fresh drafter shown the same text, whatever happened on the way.
TEST(Lookup, StateIsAFunctionOfTheText) {
  std::mt19937 random(8);
  for (const std::size_t memory : {std::size_t{1} << 20, NgramIndex::bytes(100)}) {
    LookupDrafter drafter({memory});
    std::map<int, std::vector<Token>> texts;
    int next = 0;
    for (int round = 0; round < 1500; ++round) {
      const int action = static_cast<int>(random() % 10);
      if (texts.empty() || (action == 0 && texts.size() < 4)) {
        drafter.begin({next});
        texts[next++];
        continue;
      }
      auto at = std::next(texts.begin(), random() % texts.size());
      auto& [number, text] = *at;
      if (action == 1 && texts.size() > 1) {
        drafter.end({number});
        texts.erase(at);
      } else if (action == 2) {
        text.resize(random() % (text.size() + 1));
        drafter.truncate({number}, static_cast<int>(text.size()));
      } else {
        std::vector<Token> more(random() % 20);
        for (Token& token : more) token = static_cast<Token>(random() % 4);
        text.insert(text.end(), more.begin(), more.end());
        drafter.observe({number}, more);
      }
      for (const auto& [number, text] : texts) {
        if (text.empty()) continue;
        LookupDrafter fresh({memory});
        fresh.begin({0});
        fresh.observe({0}, text);
        ASSERT_EQ(content(propose(drafter, {number}, text)), content(propose(fresh, {0}, text)));
      }
    }
  }
}

TEST(Lookup, StaysWithinItsMemory) {
  for (std::size_t n : {1, 63, 64, 65, 1000, 1024, 100000})
    EXPECT_LE(NgramIndex::bytes(n), NgramIndex::bytes(n + 1));
  // A text that outgrows it still finds what stood in its first part, and nothing later.
  LookupDrafter drafter({NgramIndex::bytes(200)});
  drafter.begin({0});
  std::vector<Token> text{1000, 1001, 1002};
  for (Token token = 0; token < 600; ++token) text.push_back(token);
  text.insert(text.end(), {2000, 2001, 2002, 2000});
  drafter.observe({0}, text);
  EXPECT_EQ(propose(drafter, {0}, text).size(), 1);
  const std::vector<Token> more{1000, 1001};
  drafter.observe({0}, more);
  text.insert(text.end(), more.begin(), more.end());
  const DraftTree tree = propose(drafter, {0}, text);
  ASSERT_GT(tree.size(), 1);
  EXPECT_EQ(tree[1].token, 1002);
}

}  // namespace
}  // namespace outrider

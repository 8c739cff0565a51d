#include "speculation/drafters/lookup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "speculation/drafters/drafter_test.h"

namespace outrider {
namespace {

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

TEST(Lookup, ProposesThePathsWithTheBestProductsOfProbabilities) {
  // "1 2" went on with "3 4 5", "3 4 6" and "7 8": 3 twice as often as 7.
  const std::vector<Token> text{1, 2, 3, 4, 5, 9, 1, 2, 7, 8, 0, 1, 2, 3, 4, 6, 10, 1, 2};
  EXPECT_EQ(paths(propose(text, {.nodes = 1})), (Paths{{3}}));
  EXPECT_EQ(paths(propose(text, {.nodes = 2})), (Paths{{3}, {3, 4}}));
  EXPECT_EQ(paths(propose(text, {.nodes = 16, .depth = 3, .width = 1})),
            (Paths{{3}, {3, 4}, {3, 4, 6}}));
  const Paths all = paths(propose(text, {.nodes = 7, .depth = 3}));
  for (const std::vector<Token>& path : Paths{{3, 4, 5}, {3, 4, 6}, {7, 8}})
    EXPECT_TRUE(std::ranges::count(all, path)) << path[0] << ' ' << path[1];
  const DraftTree tree = propose(text, {.nodes = 16, .depth = 4});
  std::vector<double> values(tree.size(), 1);
  for (int node = 1; node < tree.size(); ++node) {
    values[node] = values[tree[node].parent] * tree[node].proposals[0].confidence;
    if (node > 1) {
      EXPECT_LE(values[node], values[node - 1] * 1.00001);
    }
  }
}

TEST(Lookup, HasNothingToSayAboutWhatIsNew) {
  EXPECT_EQ(propose(std::vector<Token>{1}).size(), 1);
  EXPECT_EQ(propose(std::vector<Token>{1, 2, 3}).size(), 1);
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

std::shared_ptr<EarlierAnswers> earlier_answers(std::vector<EarlierAnswers::Answer> answers) {
  return std::make_shared<EarlierAnswers>(EarlierAnswers::Options{
      .memory_bytes = std::size_t{1} << 20,
      .load = [=](std::size_t) { return answers; },
  });
}

TEST(Lookup, DraftsFromEarlierAnswersToo) {
  const auto earlier = earlier_answers({{1, 2, 3, 4, 5, 6, 7, 8, 9}});
  LookupDrafter drafter({.earlier = earlier});
  drafter.begin({1});
  std::vector<Token> text{20, 3, 30, 2, 3};
  drafter.observe({1}, text);
  drafter.expect({1}, {});
  earlier->wait();
  // "2 3" is the longer string, so what followed it comes before what followed "3".
  EXPECT_EQ(paths(propose(drafter, {1}, text, {.nodes = 3, .depth = 2})),
            (Paths{{4}, {4, 5}, {30}}));
  drafter.observe({1}, std::vector<Token>{4});
  text.push_back(4);
  EXPECT_EQ(paths(propose(drafter, {1}, text, {.nodes = 2})), (Paths{{5}, {5, 6}}));
  drafter.truncate({1}, 4);
  text.resize(4);
  EXPECT_EQ(paths(propose(drafter, {1}, text, {.nodes = 1})), (Paths{{3}}));
}

// An answer is one from where it was expected to where it ends, by a new prompt or for good.
TEST(Lookup, AnswersBecomeEarlierOnes) {
  std::vector<EarlierAnswers::Answer> kept;
  LookupDrafter drafter(
      {.earlier = std::make_shared<EarlierAnswers>(EarlierAnswers::Options{
           .memory_bytes = std::size_t{1} << 20,
           .keep = [&](const EarlierAnswers::Answer& answer) { kept.push_back(answer); }})});
  const std::vector<Token> prompt{90, 91, 92}, first{1, 2, 3, 4, 5, 6, 7, 8, 9},
      second{11, 12, 13, 14, 15, 16, 17, 18};
  drafter.begin({1});
  drafter.observe({1}, prompt);
  drafter.expect({1}, {});
  drafter.observe({1}, first);
  EXPECT_TRUE(kept.empty());
  drafter.truncate({1}, 2);
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0], first);
  drafter.observe({1}, std::vector<Token>{93, 1});
  drafter.expect({1}, {});
  EXPECT_EQ(paths(propose(drafter, {1}, std::vector<Token>{1}, {.nodes = 2})),
            (Paths{{2}, {2, 3}}));
  drafter.observe({1}, second);
  drafter.end({1});
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[1], second);
  drafter.begin({2});
  drafter.observe({2}, std::vector<Token>{11, 12});
  EXPECT_GT(propose(drafter, {2}, std::vector<Token>{12}).size(), 1);
  drafter.forget();
  EXPECT_EQ(propose(drafter, {2}, std::vector<Token>{12}).size(), 1);
}

// State equals that of a fresh drafter shown the same text, whatever happened on the way.
TEST(Lookup, StateIsAFunctionOfTheText) {
  std::mt19937 random(8);
  const std::vector<EarlierAnswers::Answer> answers{{0, 1, 2, 3, 3, 2, 1, 0, 0, 1}};
  for (const std::size_t memory : {std::size_t{1} << 20, 100 * SuffixAutomaton::kBytesPerToken}) {
    const auto earlier = earlier_answers(answers);
    earlier->load();
    earlier->wait();
    LookupDrafter drafter({memory, earlier});
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
        LookupDrafter fresh({memory, earlier});
        fresh.begin({0});
        fresh.observe({0}, text);
        ASSERT_EQ(content(propose(drafter, {number}, text)), content(propose(fresh, {0}, text)));
      }
    }
  }
}

// What one user's answers taught is no draft for another.
TEST(Lookup, EarlierAnswersStayInTheirScope) {
  LookupDrafter drafter({.earlier = std::make_shared<EarlierAnswers>(
                             EarlierAnswers::Options{.memory_bytes = std::size_t{1} << 20})});
  const std::vector<Token> answer{5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
  const auto scope = [](std::uint64_t number) { return CacheScope{{number, 0}}; };
  const auto drafts = [&](std::uint64_t number) {
    drafter.begin({1}, scope(number));
    drafter.observe({1}, std::vector<Token>{1});
    drafter.expect({1}, {});
    drafter.observe({1}, std::vector<Token>{5, 6, 7});
    DraftTree tree(7);
    const SamplingParams sampling;
    const ChoiceState state(sampling);
    const DraftRequest request{.sequence = {1},
                               .tree = &tree,
                               .drafter = 0,
                               .limits = {},
                               .sampling = &sampling,
                               .state = &state};
    drafter.propose({&request, 1});
    drafter.truncate({1}, 1);
    drafter.end({1});
    return tree.size() > 1;
  };
  const auto teach = [&](std::uint64_t number) {
    drafter.begin({0}, scope(number));
    drafter.observe({0}, std::vector<Token>{1, 2});
    drafter.expect({0}, {});
    drafter.observe({0}, answer);
    drafter.end({0});
  };
  for (const std::uint64_t taught : {0, 3}) {
    teach(taught);
    EXPECT_TRUE(drafts(taught));
  }
  for (const std::uint64_t other : {1, 2}) EXPECT_FALSE(drafts(other));
  for (std::uint64_t other = 10; other < 20; ++other) teach(other);
  EXPECT_FALSE(drafts(3));  // too many others since
  EXPECT_TRUE(drafts(19));
  EXPECT_TRUE(drafts(0));
}

}  // namespace
}  // namespace outrider

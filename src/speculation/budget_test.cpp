#include "speculation/budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace outrider {
namespace {

CostCurve curve(const std::vector<std::pair<int, double>>& points) {
  CostCurve curve;
  for (const auto& [rows, ms] : points) curve.measure(rows, ms);
  return curve;
}

Budget budget(CostCurve costs, BudgetOptions options = {}, int n_drafters = 1) {
  Budget budget(options, n_drafters);
  budget.curve() = std::move(costs);
  return budget;
}

DraftTree chain(const std::vector<float>& confidences, int drafter = 0) {
  DraftTree tree(0);
  int node = 0;
  for (float confidence : confidences) node = tree.propose(node, 1, {drafter, confidence});
  return tree;
}

std::vector<int> plan(const Budget& budget, std::vector<DraftTree> trees, PassLoad load,
                      double draft_ms = 0) {
  std::vector<DraftTree*> pointers;
  for (DraftTree& tree : trees) pointers.push_back(&tree);
  budget.plan(pointers, load, draft_ms);
  std::vector<int> kept;
  for (const DraftTree& tree : trees) {
    tree.check_integrity();
    kept.push_back(tree.size() - 1);
  }
  return kept;
}

// The first n nodes of a chain of confidence c are worth the sum of c^i.
TEST(Budget, KeepsTheCountThatPays) {
  const CostCurve flat = curve({{1, 30}, {64, 30}});
  const CostCurve steep = curve({{1, 30}, {64, 30 * 64}});
  const CostCurve knee = curve({{1, 30}, {5, 31}, {64, 300}});
  const std::vector<float> half(10, 0.5f), sure(10, 0.999f);
  const PassLoad one{.rows = 1, .rows_max = 512};
  EXPECT_EQ(plan(budget(flat), {chain(half)}, one)[0], 10);  // rows cost nothing
  EXPECT_EQ(plan(budget(steep), {chain(half)}, one)[0], 0);  // a row costs a token's time
  EXPECT_EQ(plan(budget(steep), {chain(sure)}, one)[0], 0);
  EXPECT_EQ(plan(budget(knee), {chain(half)}, one)[0], 4);
  // What drafting took is spent; it makes checking a further row the smaller loss.
  EXPECT_GT(plan(budget(steep), {chain(sure)}, one, 100)[0], 2);
}

// Four siblings cannot each be taken with probability 0.9: together they are worth at most 1.
TEST(Budget, SiblingsExcludeEachOther) {
  DraftTree siblings(0);
  for (Token token = 0; token < 4; ++token) siblings.propose(0, token, {0, 0.9f});
  const PassLoad one{.rows = 1, .rows_max = 512};
  // Each row adds half a pass: worth it at 0.9, not at 0.25.
  const CostCurve costs = curve({{1, 30}, {5, 90}});
  EXPECT_EQ(plan(budget(costs), {siblings}, one)[0], 0);
  EXPECT_EQ(plan(budget(costs), {chain({0.9f})}, one)[0], 1);
}

// As a batch fills, rows become dear and speculation fades.
TEST(Budget, FadesAsTheBatchFills) {
  const Budget full = budget(curve({{1, 30}, {8, 31}, {64, 250}}), {}, 1);
  const std::vector<float> confidences(6, 0.6f);
  int last = 100;
  for (int n : {1, 2, 4, 8, 16}) {
    const std::vector<DraftTree> trees(n, chain(confidences));
    const std::vector<int> kept = plan(full, trees, {.rows = n, .rows_max = 512});
    int sum = 0;
    for (int k : kept) sum += k;
    EXPECT_LE(sum / n, last);
    last = sum / n;
  }
  EXPECT_EQ(last, 0);
}

// The chosen count is the best of all counts of nodes in order of value, over random trees and
// curves: recomputed in plain loops.
TEST(Budget, ChoosesTheBestOfAllCounts) {
  std::mt19937 random(5);
  const auto uniform = [&] { return static_cast<double>(random()) / std::mt19937::max(); };
  for (int round = 0; round < 300; ++round) {
    CostCurve costs;
    double ms = 20;
    for (int rows = 1; rows <= 65; rows += 4) costs.measure(rows, ms += 30 * uniform() * uniform());
    std::vector<DraftTree> trees;
    const int n_trees = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < n_trees; ++i) {
      DraftTree tree(0);
      for (int node = 0; node < 12; ++node)
        tree.propose(static_cast<int>(random() % tree.size()), static_cast<Token>(random() % 40),
                     {0, static_cast<float>(uniform() / 4)});
      trees.push_back(tree);
    }
    std::vector<double> values;
    for (const DraftTree& tree : trees) {
      std::vector<double> value(tree.size(), 1);
      for (int node = 1; node < tree.size(); ++node) {
        double siblings = 0;
        for (int child : tree.children(tree[node].parent))
          siblings += tree[child].proposals[0].confidence;
        value[node] =
            value[tree[node].parent] * tree[node].proposals[0].confidence / std::max(1.0, siblings);
        values.push_back(value[node]);
      }
    }
    std::ranges::sort(values, std::greater<>{});
    double best = 0, tokens = n_trees;
    int best_count = 0;
    for (int count = 0; count <= static_cast<int>(values.size()); ++count) {
      if (count > 0) tokens += values[count - 1];
      const double speed = tokens / (costs.ms(n_trees + count) + 3);
      if (speed > best) best = speed, best_count = count;
    }
    int kept = 0;
    for (int k : plan(budget(costs), trees, {.rows = n_trees, .rows_max = 512}, 3)) kept += k;
    EXPECT_EQ(kept, best_count) << "round " << round;
  }
}

TEST(Budget, KeepsLimitsAndRoom) {
  const CostCurve flat = curve({{1, 30}, {512, 30}});
  const std::vector<float> confidences(20, 0.9f);
  const BudgetOptions six{.automatic = true, .rows = 6};
  const BudgetOptions fixed{.automatic = false, .rows = 6};
  for (const BudgetOptions& options : {six, fixed}) {
    const Budget limited = budget(flat, options);
    EXPECT_EQ(plan(limited, {chain(confidences)}, {1, 512})[0], 6);
    EXPECT_EQ(plan(limited, {chain(confidences)}, {1, 4})[0], 3);
    EXPECT_EQ(plan(limited, {chain(confidences)}, {4, 4})[0], 0);
    EXPECT_EQ(plan(limited, {chain(confidences), chain(confidences)}, {2, 512}),
              (std::vector<int>{6, 6}));
  }
}

TEST(Budget, FixedLooksAtNoClock) {
  Budget fixed({.automatic = false, .rows = 8}, 1);
  const DraftTree tree = chain(std::vector<float>(8, 0.01f));
  for (int i = 0; i < 50; ++i) {
    const auto limits = fixed.limits(0, {1000, 1000}, {}, {1, 512});
    ASSERT_TRUE(limits);
    EXPECT_EQ(limits->nodes, 8);
    EXPECT_EQ(limits->min_value, 0);
    EXPECT_EQ(plan(fixed, {tree}, {1, 512}, 1e6)[0], 8);
    const std::vector<Token> taken{9};
    const DraftOutcome outcome{&tree, &tree, taken};
    fixed.observe({&outcome, 1}, {.rows = 9, .forward_ms = 1e6, .draft_ms = {1e6}});
  }
  EXPECT_TRUE(fixed.curve().empty());
}

TEST(Budget, RowsOrDepthOfNothingAskNobody) {
  for (const BudgetOptions& options : {BudgetOptions{.rows = 0}, BudgetOptions{.depth = 0}}) {
    Budget none(options, 1);
    EXPECT_FALSE(none.limits(0, {}, {}, {1, 512}));
  }
}

// One step of a sequence whose drafter, if asked, is right `right` times at a draft cost of `ms`.
bool step(Budget& budget, int right, double ms) {
  const DraftTree empty(0);
  const DraftTree* const trees[] = {&empty};
  const bool asked = budget.limits(0, {ms, 0}, trees, {1, 512}).has_value();
  DraftTree drafted = asked ? chain(std::vector<float>(4, 0.5f)) : empty;
  DraftTree checked = drafted;
  DraftTree* const planned[] = {&checked};
  budget.plan(planned, {1, 512}, asked ? ms : 0);
  std::vector<Token> taken((asked ? right : 0) + 1, 1);  // undrafted, a step brings one token
  taken.back() = 9;
  const DraftOutcome outcome{&drafted, &checked, taken};
  budget.observe({&outcome, 1},
                 {.rows = checked.size(),
                  .forward_ms = budget.curve().ms(checked.size()),
                  .draft_ms = {asked ? std::optional(ms) : std::nullopt, std::nullopt}});
  return asked;
}

TEST(Budget, StopsAskingADrafterThatMissesAndTriesAgainEverLater) {
  Budget missing = budget(curve({{1, 30}, {64, 60}}));
  std::vector<int> asked;
  for (int i = 0; i < 400; ++i)
    if (step(missing, 0, 10)) asked.push_back(i);
  ASSERT_GE(asked.size(), 5u);
  EXPECT_LT(asked.size(), 30u);
  std::vector<int> gaps;
  for (std::size_t i = 1; i < asked.size(); ++i) gaps.push_back(asked[i] - asked[i - 1]);
  EXPECT_TRUE(std::ranges::is_sorted(gaps));
  EXPECT_EQ(gaps.front(), 1);
  EXPECT_EQ(gaps.back(), 64);
  // The text turns: once it is tried it is asked again and again.
  int n_asked = 0;
  for (int i = 0; i < 400; ++i) n_asked += step(missing, 4, 10);
  EXPECT_GT(n_asked, 250);
}

TEST(Budget, GoesOnAskingADrafterThatPaysOrCostsNothing) {
  Budget paying = budget(curve({{1, 30}, {64, 60}}));
  Budget cheap = budget(curve({{1, 30}, {64, 60}}));
  for (int i = 0; i < 200; ++i) {
    EXPECT_TRUE(step(paying, 3, 10));
    EXPECT_TRUE(step(cheap, 0, 0.01));
  }
}

// As deep as it went it does not pay, but half as deep it would.
TEST(Budget, AsksADrafterThatWouldPayIfItStoppedEarlier) {
  const DraftCost cost{.fixed_ms = 10, .per_depth_ms = 10};
  Budget deep = budget(curve({{1, 30}, {64, 60}}));
  const DraftTree empty(0), drafted = chain(std::vector<float>(12, 0.5f));
  const DraftTree* const trees[] = {&empty};
  const auto steps = [&](const std::vector<Token>& taken) {
    int n_asked = 0;
    for (int i = 0; i < 50; ++i) {
      const bool asked = deep.limits(0, cost, trees, {1, 512}).has_value();
      n_asked += asked;
      const DraftOutcome outcome{asked ? &drafted : &empty, asked ? &drafted : &empty, taken};
      deep.observe({&outcome, 1},
                   {.rows = asked ? 13 : 1,
                    .forward_ms = asked ? 36.0 : 30.0,
                    .draft_ms = {asked ? std::optional(cost.ms(12)) : std::nullopt}});
    }
    return n_asked;
  };
  EXPECT_EQ(steps({1, 1, 1, 9}), 50);
  EXPECT_LT(steps({9}), 25);  // no depth pays
}

// What the trees hold already may leave nothing for a costly drafter to add; that is no fault of
// its own, so it is asked as soon as they hold less.
TEST(Budget, LeavesOutACostlyDrafterWhereACheapOneSuffices) {
  Budget both = budget(curve({{1, 30}, {64, 40}}), {}, 2);
  const DraftTree empty(0), hopeful = chain(std::vector<float>(12, 0.97f));
  const DraftTree* const nothing[] = {&empty};
  const DraftTree* const much[] = {&hopeful};
  const DraftTree own = chain(std::vector<float>(3, 0.6f), 1);
  const std::vector<Token> taken{1, 1, 9};
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(both.limits(1, {15, 0}, nothing, {1, 512}));
    const DraftOutcome outcome{&own, &own, taken};
    both.observe({&outcome, 1}, {.rows = 4, .forward_ms = 31, .draft_ms = {std::nullopt, 15}});
  }
  EXPECT_FALSE(both.limits(1, {15, 0}, much, {1, 512}));
  EXPECT_TRUE(both.limits(1, {15, 0}, nothing, {1, 512}));
}

TEST(Budget, TellsDraftersWhatALevelMustBeWorth) {
  Budget timed = budget(curve({{1, 30}, {64, 60}}));
  for (int i = 0; i < 30; ++i) step(timed, 1, 2);
  const DraftTree empty(0);
  const DraftTree* const trees[] = {&empty};
  const auto limits = timed.limits(0, {3, 3}, trees, {1, 512});
  ASSERT_TRUE(limits);
  // About 2 tokens in some 34 ms, so 3 ms of drafting and half a millisecond for the row buy 0.2.
  EXPECT_NEAR(limits->min_value, 0.2, 0.04);
  EXPECT_EQ(limits->depth, 16);
  // Before anything is known, plain decoding is what drafting competes with.
  Budget fresh = budget(curve({{1, 30}, {65, 94}}));
  const auto first = fresh.limits(0, {0, 9}, trees, {1, 512});
  ASSERT_TRUE(first);
  EXPECT_EQ(first->depth, 16);
  EXPECT_NEAR(first->min_value, 10.0 / 30, 1e-6);
}

// A long text is read where the answer may be long enough to make up for it.
TEST(Budget, ReadsATextWhereTheAnswerMayMakeUpForIt) {
  const DraftCost cost{.fixed_ms = 8, .per_depth_ms = 8, .per_unread_ms = 2};
  Budget fresh = budget(curve({{1, 30}, {64, 60}}));
  EXPECT_TRUE(fresh.worth_reading(0, cost, 0, 0, 1));
  EXPECT_TRUE(fresh.worth_reading(0, cost, 50, 0, {}));
  EXPECT_FALSE(fresh.worth_reading(0, cost, 2000, 0, {}));
  EXPECT_TRUE(fresh.worth_reading(0, cost, 2000, 1000, {}));  // long answers go on
  EXPECT_FALSE(fresh.worth_reading(0, cost, 2000, 1000, 100));
  EXPECT_FALSE(fresh.worth_reading(0, cost, 50, 0, 2));

  // One that never came true reads no more than a fiftieth of the time that passes.
  Budget missing = budget(curve({{1, 30}, {64, 60}}));
  for (int i = 0; i < 10; ++i) step(missing, 0, 10);
  EXPECT_FALSE(missing.worth_reading(0, cost, 50, 1000, {}));
  for (int i = 0; i < 200; ++i) step(missing, 0, 10);
  EXPECT_TRUE(missing.worth_reading(0, cost, 50, 1000, {}));
  EXPECT_FALSE(missing.worth_reading(0, cost, 50, 1000, {}));

  // One that paid reads again, and does not where another does its work.
  Budget paying = budget(curve({{1, 30}, {64, 60}}), {}, 2);
  for (int i = 0; i < 100; ++i) step(paying, 3, 10);
  EXPECT_TRUE(paying.worth_reading(0, cost, 200, 0, {}));
  const DraftTree hopeful = chain(std::vector<float>(12, 0.97f), 1);
  const DraftTree* const much[] = {&hopeful};
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(paying.limits(0, cost, much, {1, 512}));
  EXPECT_FALSE(paying.worth_reading(0, cost, 200, 0, {}));
}

// A drafter that missed in one text alone is asked again in the next; one that always misses is
// not.
TEST(Budget, ATextThatBeginsJudgesByWhatIsUsual) {
  Budget good = budget(curve({{1, 30}, {64, 60}}));
  for (int i = 0; i < 100; ++i) step(good, 4, 10);
  for (int i = 0; i < 30; ++i) step(good, 0, 10);
  EXPECT_FALSE(step(good, 0, 10));
  good.begin_text();
  EXPECT_TRUE(step(good, 0, 10));

  Budget bad = budget(curve({{1, 30}, {64, 60}}));
  for (int i = 0; i < 2000; ++i) step(bad, 0, 10);
  int n_asked = 0;
  for (int i = 0; i < 20; ++i) {
    bad.begin_text();
    n_asked += step(bad, 0, 10);
  }
  EXPECT_LE(n_asked, 1);
}

TEST(Budget, FixedReadsWhateverItCosts) {
  Budget fixed({.automatic = false}, 1);
  EXPECT_TRUE(fixed.worth_reading(0, {.per_unread_ms = 1000}, 100000, 0, 1));
}

}  // namespace
}  // namespace outrider

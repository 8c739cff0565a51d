#include "speculation/budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

namespace outrider {
namespace {

using Points = std::vector<std::pair<int, double>>;

CostCurve curve(const Points& points) {
  CostCurve curve;
  for (const auto& [rows, ms] : points) curve.measure(rows, ms);
  return curve;
}

// Says what it costs and proposes nothing itself.
class PricedDrafter final : public Drafter {
 public:
  explicit PricedDrafter(DraftCost cost, int n_unread = 0) : cost_(cost), n_unread_(n_unread) {}
  std::string_view name() const override { return "priced"; }
  void begin(DraftSequence, CacheScope) override {}
  void observe(DraftSequence, std::span<const Token>) override {}
  void propose(std::span<const DraftRequest>) override {}
  void truncate(DraftSequence, int) override {}
  void end(DraftSequence) override {}
  int unread(DraftSequence, int n_context) const override {
    return std::min(n_unread_, std::max(0, n_context - 8));
  }
  DraftCost cost(int, int) const override { return cost_; }

 private:
  DraftCost cost_;
  int n_unread_;
};

DraftTree chain(const std::vector<float>& confidences, int drafter = 0) {
  DraftTree tree(0);
  int node = 0;
  for (float confidence : confidences) node = tree.propose(node, 1, {drafter, confidence});
  return tree;
}

// A budget with texts that have just begun, past its first plain steps.
struct Setting {
  explicit Setting(const Points& points, BudgetOptions options = {}, int n_drafters = 1,
                   int n_texts = 1)
      : budget(options, n_drafters) {
    budget.curve() = curve(points);
    for (int i = 0; i < n_texts; ++i) texts.push_back(budget.begin_text(0, {}));
  }

  PassLoad load(int rows_max = 512) const {
    return {.rows = static_cast<int>(texts.size()),
            .rows_max = rows_max,
            .texts = static_cast<int>(texts.size())};
  }
  DraftTurn turn(int text, DraftTree& tree) {
    return {.budget = &texts[text],
            .sequence = {text},
            .tree = &tree,
            .length = 300,
            .n_answered = 200,
            .n_left = {},
            .rows_max = 64,
            .depth_max = 100};
  }

  // How many nodes of each tree are kept.
  std::vector<int> plan(std::vector<DraftTree> trees, const PassLoad& load) {
    std::vector<DraftTurn> turns;
    for (std::size_t i = 0; i < trees.size(); ++i)
      turns.push_back(turn(static_cast<int>(i), trees[i]));
    budget.plan(turns, load);
    std::vector<int> kept;
    for (const DraftTree& tree : trees) {
      tree.check_integrity();
      kept.push_back(tree.size() - 1);
    }
    return kept;
  }

  // One step of one text, in which a drafter, if it is asked, proposes a chain of which the first
  // `right` nodes are right. Whether it was asked.
  bool step(const PricedDrafter& drafter, int right, float confidence = 0.6f) {
    DraftTree tree(0);
    DraftTurn turns[] = {turn(0, tree)};
    const auto asks = budget.ask(0, drafter, turns, load());
    const bool asked = asks[0].limits.has_value();
    has_read_all = asked && asks[0].n_context > 1000000;
    if (asked) tree = chain(std::vector<float>(std::min(4, asks[0].limits->depth), confidence));
    DraftTree checked = tree;
    turns[0].tree = &checked;
    budget.plan(turns, load());
    std::vector<Token> taken(std::min(right, checked.size() - 1), 1);
    taken.push_back(9);
    const DraftOutcome outcome{&texts[0], &tree, &checked, taken};
    budget.observe({&outcome, 1}, load(), budget.curve().ms(checked.size()));
    return asked;
  }

  // What four drafted rows would cost in this step.
  double price() {
    DraftTree tree(0);
    const DraftTurn turns[] = {turn(0, tree)};
    return budget.ask(0, PricedDrafter({}), turns, load())[0].worth.row_prices[4];
  }

  Budget budget;
  std::vector<TextBudget> texts;
  bool has_read_all = false;  // the drafter, in the last step
};

const Points kLikeReal = {{1, 30}, {4, 32}, {8, 40}, {16, 78}, {32, 150}};

TEST(Budget, KeepsTheCountThatPays) {
  const std::vector<float> half(10, 0.5f), sure(10, 0.999f);
  EXPECT_EQ(Setting({{1, 30}, {64, 30}}).plan({chain(std::vector<float>(10, 0.9f))}, {1, 512})[0],
            10);
  EXPECT_EQ(Setting({{1, 30}, {64, 30 * 64}}).plan({chain(half)}, {1, 512})[0], 0);
  EXPECT_EQ(Setting({{1, 30}, {64, 30 * 64}}).plan({chain(sure)}, {1, 512})[0], 0);
  EXPECT_EQ(Setting({{1, 30}, {5, 31}, {64, 700}}).plan({chain(half)}, {1, 512})[0], 4);
}

// Each of the first rows is judged by its own price, not by the mean over all.
TEST(Budget, TheFirstRowsMayBeNearlyFree) {
  Setting knee({{1, 30}, {3, 30.2}, {17, 300}});
  EXPECT_EQ(knee.plan({chain(std::vector<float>(16, 0.3f))}, {1, 512})[0], 2);
  DraftTree tree(0);
  const DraftTurn turns[] = {knee.turn(0, tree)};
  const auto asks = knee.budget.ask(0, PricedDrafter({1, 1}), turns, {1, 512});
  ASSERT_TRUE(asks[0].limits);
  const std::vector<double>& prices = asks[0].worth.row_prices;
  ASSERT_EQ(prices.size(), 17u);
  EXPECT_LT(prices[2], 0.06);
  EXPECT_GT(prices[4] - prices[3], 0.4);
}

// Four siblings cannot each be taken with probability 0.9.
TEST(Budget, SiblingsExcludeEachOther) {
  DraftTree siblings(0);
  for (Token token = 0; token < 4; ++token) siblings.propose(0, token, {0, 0.9f});
  EXPECT_EQ(Setting({{1, 30}, {5, 60}}).plan({siblings}, {1, 512})[0], 1);
}

// As a batch fills, rows become dear and speculation fades: every text waits for them.
TEST(Budget, FadesAsTheBatchFills) {
  int last = 100;
  for (int n : {1, 2, 4, 8, 16}) {
    Setting full({{1, 30}, {8, 31}, {64, 250}}, {}, 1, n);
    const std::vector<int> kept =
        full.plan(std::vector<DraftTree>(n, chain(std::vector<float>(6, 0.6f))), full.load());
    int sum = 0;
    for (int k : kept) sum += k;
    EXPECT_LE(sum / n, last);
    last = sum / n;
  }
  EXPECT_EQ(last, 0);
}

TEST(Budget, KeepsLimitsAndRoom) {
  const std::vector<float> confidences(20, 0.9f);
  for (const bool automatic : {true, false}) {
    Setting limited({{1, 30}, {512, 30}}, {.automatic = automatic, .rows = 6}, 1, 2);
    EXPECT_EQ(limited.plan({chain(confidences)}, {1, 512})[0], 6);
    EXPECT_EQ(limited.plan({chain(confidences)}, {1, 4})[0], 3);
    EXPECT_EQ(limited.plan({chain(confidences)}, {4, 4})[0], 0);
    EXPECT_EQ(limited.plan({chain(confidences), chain(confidences)}, {2, 512, 2}),
              (std::vector<int>{6, 6}));
  }
}

TEST(Budget, FixedLooksAtNoClock) {
  Setting fixed({}, {.automatic = false, .rows = 8});
  for (int i = 0; i < 50; ++i) {
    DraftTree tree = chain(std::vector<float>(8, 0.01f));
    const DraftTurn turns[] = {fixed.turn(0, tree)};
    const auto asks =
        fixed.budget.ask(0, PricedDrafter({1000, 1000, 1000}, 100000), turns, {1, 512});
    ASSERT_TRUE(asks[0].limits);
    EXPECT_EQ(asks[0].limits->nodes, 8);
    EXPECT_GT(asks[0].n_context, 1000000);
    EXPECT_TRUE(asks[0].worth.row_prices.empty());
    EXPECT_FALSE(fixed.budget.plain_step_is_due({1, 512}));
    EXPECT_EQ(fixed.plan({tree}, {1, 512})[0], 8);
    const std::vector<Token> taken{9};
    const DraftOutcome outcome{&fixed.texts[0], &tree, &tree, taken};
    fixed.budget.observe({&outcome, 1}, {1, 512}, 1e6);
  }
  EXPECT_TRUE(fixed.budget.curve().empty());
}

TEST(Budget, RowsOrDepthOfNothingAskNobody) {
  for (const BudgetOptions& options : {BudgetOptions{.rows = 0}, BudgetOptions{.depth = 0}}) {
    Setting none(kLikeReal, options);
    DraftTree tree(0);
    const DraftTurn turns[] = {none.turn(0, tree)};
    EXPECT_FALSE(none.budget.ask(0, PricedDrafter({}), turns, {1, 512})[0].limits);
  }
}

TEST(Budget, StopsAskingADrafterThatMissesAndTriesAgainEverLater) {
  Setting missing(kLikeReal);
  const PricedDrafter drafter({10, 10});
  std::vector<int> asked;
  for (int i = 0; i < 600; ++i)
    if (missing.step(drafter, 0)) asked.push_back(i);
  ASSERT_GE(asked.size(), 5u);
  EXPECT_LT(asked.size(), 16u);
  EXPECT_LE(asked.back() - asked[asked.size() - 2], 100);
  EXPECT_GE(asked.back() - asked[asked.size() - 2], 64);
  // The text turns: once it is tried it is asked again and again.
  int n_asked = 0;
  for (int i = 0; i < 400; ++i) n_asked += missing.step(drafter, 4);
  EXPECT_GT(n_asked, 250);
}

TEST(Budget, GoesOnAskingADrafterThatPaysOrCostsNothing) {
  Setting paying(kLikeReal), cheap(kLikeReal);
  for (int i = 0; i < 200; ++i) {
    EXPECT_TRUE(paying.step(PricedDrafter({10, 2}), 3));
    EXPECT_TRUE(cheap.step(PricedDrafter({0.01, 0}), 0));
  }
}

// What the trees hold already may leave nothing for a costly drafter to add; that is no fault of
// its own, so it is asked as soon as they hold less, and not tried in between.
TEST(Budget, LeavesOutACostlyDrafterWhereACheapOneSuffices) {
  Setting both(kLikeReal, {}, 2);
  const PricedDrafter cheap({0.01, 0}), costly({15, 15});
  for (int i = 0; i < 100; ++i) {
    DraftTree tree(0);
    DraftTurn turns[] = {both.turn(0, tree)};
    both.budget.ask(0, cheap, turns, both.load());
    tree = chain(std::vector<float>(7, 0.98f));
    const bool asked = both.budget.ask(1, costly, turns, both.load())[0].limits.has_value();
    EXPECT_TRUE(i <= 20 || !asked) << i;
    std::vector<Token> taken(7, 1);
    taken.push_back(9);
    const DraftOutcome outcome{&both.texts[0], &tree, &tree, taken};
    both.budget.plan(turns, both.load());
    both.budget.observe({&outcome, 1}, both.load(), 38);
  }
  // In a text where it finds nothing.
  both.texts[0] = both.budget.begin_text(0, {});
  DraftTree tree(0);
  const DraftTurn turns[] = {both.turn(0, tree)};
  EXPECT_TRUE(both.budget.ask(1, costly, turns, both.load())[0].limits);
}

// A text may invest little; a long prompt is read once drafts have saved the time for it.
TEST(Budget, ReadsALongTextWhenDraftsHaveSavedTheTime) {
  const PricedDrafter unread({8, 8, 0.5}, 400), read({8, 8, 0.5}, 0);
  Setting setting(kLikeReal);
  const auto n_context = [&](int n_left) {
    DraftTree tree(0);
    DraftTurn turns[] = {setting.turn(0, tree)};
    turns[0].n_answered = 200;
    turns[0].n_left = n_left;
    const auto asks = setting.budget.ask(0, unread, turns, setting.load());
    return asks[0].limits ? asks[0].n_context : -1;
  };
  EXPECT_LE(n_context(200), 64);  // 200 ms for an answer of 6 s
  for (int i = 0; i < 30; ++i) setting.step(read, 2, 0.9f);
  EXPECT_GT(n_context(200), 400);
  EXPECT_LE(n_context(8), 64);  // not for a few tokens more

  // A short one is read at once.
  Setting fresh(kLikeReal);
  DraftTree tree(0);
  const DraftTurn turns[] = {fresh.turn(0, tree)};
  const auto asks = fresh.budget.ask(0, PricedDrafter({8, 8, 2}, 4), turns, fresh.load());
  ASSERT_TRUE(asks[0].limits);
  EXPECT_GT(asks[0].n_context, 400);
}

// Each time is paid from what drafts have saved. It is not what time costs from then on.
TEST(Budget, ReadingIsCharged) {
  const PricedDrafter unread({8, 8, 0.5}, 400), read({8, 8, 0.5}, 0);
  Setting setting(kLikeReal), other(kLikeReal);
  for (int i = 0; i < 30; ++i)
    for (Setting* both : {&setting, &other}) both->step(read, 2, 0.9f);
  setting.step(unread, 2, 0.9f);
  other.step(read, 2, 0.9f);
  EXPECT_TRUE(setting.has_read_all);
  EXPECT_DOUBLE_EQ(setting.price(), other.price());
  int n_read = 1;
  for (int i = 0; i < 40; ++i) {
    setting.step(unread, 2, 0.9f);
    n_read += setting.has_read_all;
  }
  EXPECT_LE(n_read, 8);
}

TEST(Budget, WhatWasNotCheckedBroughtNothing) {
  Setting setting(kLikeReal);
  DraftTree tree(0);
  DraftTurn turns[] = {setting.turn(0, tree)};
  ASSERT_TRUE(setting.budget.ask(0, PricedDrafter({8, 8}), turns, setting.load())[0].limits);
  setting.budget.plan(turns, setting.load());
  const DraftTree drafted = chain({0.9f, 0.9f, 0.9f}), checked = chain({0.9f});
  const std::vector<Token> taken{1, 1};
  const DraftOutcome outcome{&setting.texts[0], &drafted, &checked, taken};
  setting.budget.observe({&outcome, 1}, setting.load(), 31);
  EXPECT_EQ(setting.budget.learned().drafters[0].yield.tokens, 1);
}

// Rows for one text make all texts of the pass wait, and its account pays for all.
TEST(Budget, AnAccountPaysForTheTextsThatWait) {
  const auto n_kept = [](int n_texts) {
    Setting setting(kLikeReal);
    PassLoad load = setting.load();
    load.texts = n_texts;
    const DraftTree none(0), checked = chain({0.9f, 0.9f, 0.9f, 0.9f, 0.9f, 0.9f, 0.9f});
    const std::vector<Token> taken{9};
    const DraftOutcome outcome{&setting.texts[0], &none, &checked, taken};
    for (int i = 0; i < 3; ++i)
      setting.budget.observe({&outcome, 1}, load, setting.budget.curve().ms(checked.size()));
    return setting.plan({chain({0.9f, 0.9f})}, setting.load())[0];
  };
  EXPECT_GT(n_kept(1), 0);
  EXPECT_EQ(n_kept(8), 0);
}

// One text gains from all of its drafts; of the other's six one is always right, but which one is
// not known, so that they are not checked. What they would have brought makes up for nothing.
struct OneGains {
  // How many nodes of the first are kept.
  int step() {
    DraftTree good = chain({0.95f, 0.95f, 0.95f}), poor(0);
    for (Token token = 2; token < 8; ++token) poor.propose(0, token, {0, 0.3f});
    DraftTree checked[] = {good, poor};
    const DraftTurn turns[] = {setting.turn(0, checked[0]), setting.turn(1, checked[1])};
    setting.budget.plan(turns, setting.load());
    const int kept = checked[0].size() - 1;
    const std::vector<Token> right{1, 1, 1, 9}, one_of_six{2 + n_steps++ % 6};
    const DraftOutcome outcomes[] = {
        {&setting.texts[0], &good, &checked[0], std::span(right).last(1 + kept)},
        {&setting.texts[1], &poor, &checked[1], one_of_six}};
    setting.budget.observe(outcomes, setting.load(), setting.budget.curve().ms(2 + kept));
    return kept;
  }

  // Whether a drafter that takes a third of a pass is asked for either text.
  bool asks() {
    DraftTree trees[] = {DraftTree(0), DraftTree(0)};
    const DraftTurn turns[] = {setting.turn(0, trees[0]), setting.turn(1, trees[1])};
    const auto asks = setting.budget.ask(1, PricedDrafter({10, 10}), turns, setting.load());
    return asks[0].limits || asks[1].limits;
  }

  Setting setting{{{1, 30}, {17, 190}}, {}, 2, 2};
  int n_steps = 0;
};

TEST(Budget, ATextWaitsForAnotherOnlySoLong) {
  OneGains texts;
  std::vector<int> kept;
  for (int step = 0; step < 60; ++step) kept.push_back(texts.step());
  EXPECT_EQ(kept.front(), 3);
  EXPECT_EQ(kept.back(), 0);
  // It may lose 2.56 passes of 40 ms, 1.2 % of 200 tokens, 0.6 % of those that it gets, and a step
  // more.
  EXPECT_LE(std::accumulate(kept.begin(), kept.end(), 0) * 10, (2.56 + 2.4 + 0.36 + 1) * 40);
}

// Nor does it wait for trials that the other's account could pay.
TEST(Budget, ATrialWaitsForTheOthersPatience) {
  const auto n_asked = [](int n_before) {
    OneGains texts;
    for (int step = 0; step < n_before; ++step) texts.step();
    int n = 0;
    for (int step = 0; step < 60; ++step) n += texts.asks();
    return n;
  };
  EXPECT_GT(n_asked(0), 0);
  EXPECT_EQ(n_asked(60), 0);
}

// A row that does not pay alone does not pay beside a prompt either, which only makes the step
// longer: what it costs is what a row adds.
TEST(Budget, APromptMakesDraftsNoCheaper) {
  const auto n_kept = [](int n_prompt, double confidence) {
    Setting setting({{1, 30}, {1001, 10030}});
    setting.budget.curve().measure_one_logit_row(1001, 9030);
    PassLoad load = setting.load(2000);
    load.rows += n_prompt;
    load.prompt_rows = n_prompt;
    load.prompt_attended = load.attended = n_prompt * n_prompt / 2.0;
    return setting.plan({chain(std::vector<float>(3, confidence))}, load)[0];
  };
  for (const int n_prompt : {0, 8, 900}) {
    EXPECT_EQ(n_kept(n_prompt, 0.1f), 0) << n_prompt;
    EXPECT_EQ(n_kept(n_prompt, 0.95f), 3) << n_prompt;
  }
}

TEST(Budget, PassesWithoutDraftsStayKnown) {
  Setting setting(kLikeReal);
  EXPECT_TRUE(setting.budget.plain_step_is_due(setting.load()));  // the first are
  PassLoad reading = setting.load();
  reading.rows += 8;
  reading.prompt_rows = 8;
  EXPECT_FALSE(setting.budget.plain_step_is_due(reading));  // its time would tell nothing
  int n_plain = 0;
  for (int i = 0; i < 1000; ++i) {
    const bool is_plain = setting.budget.plain_step_is_due(setting.load());
    n_plain += is_plain;
    const DraftTree none(0), tree = chain({0.9f, 0.9f, 0.9f});
    const DraftTree& drafted = is_plain ? none : tree;
    const std::vector<Token> taken{1, 9};
    const DraftOutcome outcome{&setting.texts[0], &drafted, &drafted, taken};
    setting.budget.observe({&outcome, 1}, setting.load(), is_plain ? 30 : 32);
  }
  EXPECT_GE(n_plain, 8);
  EXPECT_LE(n_plain, 20);
}

// Rows that do not seem to pay are checked now and then, since their price may be wrong.
TEST(Budget, APriceThatSeemsTooHighIsTriedAgain) {
  Setting setting({{1, 30}, {2, 62}, {17, 62}});
  int n_checked = 0;
  for (int i = 0; i < 400; ++i) {
    DraftTree tree = chain({0.9f, 0.9f});
    DraftTree checked = tree;
    DraftTurn turns[] = {setting.turn(0, checked)};
    setting.budget.plan(turns, setting.load());
    n_checked += checked.size() > 1;
    std::vector<Token> taken(checked.size() - 1, 1);
    taken.push_back(9);
    const DraftOutcome outcome{&setting.texts[0], &tree, &checked, taken};
    setting.budget.observe({&outcome, 1}, setting.load(), 30);
  }
  EXPECT_GT(n_checked, 200);
}

// In a text that is fast by its drafts a millisecond is dear: what pays in a slow text does not
// there. Another text begins at the speed of plain decoding.
TEST(Budget, TheSpeedOfATextPricesItsTimeAlone) {
  Setting setting({{1, 30}, {4, 31}, {5, 41}, {17, 161}}, {}, 1, 1);
  const std::vector<float> chances = {0.97f, 0.97f, 0.97f, 0.55f};
  EXPECT_EQ(setting.plan({chain(chances)}, {1, 512})[0], 4);
  for (int i = 0; i < 100; ++i) setting.step(PricedDrafter({0.01, 0}), 3, 0.97f);
  EXPECT_EQ(setting.plan({chain(chances)}, {1, 512})[0], 3);
}

}  // namespace
}  // namespace outrider

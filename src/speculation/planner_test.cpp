#include "speculation/planner.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

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
  explicit PricedDrafter(DraftCost cost, int n_to_prefill = 0)
      : cost_(cost), n_to_prefill_(n_to_prefill) {}
  std::string_view name() const override { return "priced"; }
  void begin(DraftSequence, CacheScope) override {}
  void observe(DraftSequence, std::span<const Token>) override {}
  void propose(std::span<const DraftRequest>) override {}
  void truncate(DraftSequence, int) override {}
  void end(DraftSequence) override {}
  int n_to_prefill(DraftSequence, int n_context) const override {
    return std::min(n_to_prefill_, std::max(0, n_context - 8));
  }
  DraftCost cost(int, int) const override { return cost_; }
  int riders_max() const override { return n_riders; }
  bool can_draw() const override { return draws; }

  int n_riders = 0;
  bool draws = false;

 private:
  DraftCost cost_;
  int n_to_prefill_;
};

DraftTree chain(const std::vector<float>& confidences, int drafter = 0) {
  DraftTree tree(0);
  int node = 0;
  for (float confidence : confidences) node = tree.propose(node, 1, {drafter, confidence});
  return tree;
}

// A planner with sequences that have just begun, past its first plain steps.
struct Setting {
  explicit Setting(const Points& points, PlannerOptions options = {}, int n_drafters = 1,
                   int n_sequences = 1)
      : passes(curve(points)), planner(options, passes, n_drafters), n_sequences(n_sequences) {
    for (int i = 0; i < n_sequences; ++i) planner.begin({i}, 0);
  }

  PassLoad load(int rows_max = 512) const {
    return {.rows = n_sequences, .rows_max = rows_max, .sequences = n_sequences};
  }
  static PlannedSequence planned(int sequence, DraftTree& tree) {
    return {.sequence = {sequence},
            .tree = &tree,
            .length = 300,
            .n_answered = 200,
            .n_left = {},
            .rows_max = 64,
            .depth_max = 100};
  }

  // How many nodes of each tree are kept.
  std::vector<int> prune(std::vector<DraftTree> trees, const PassLoad& load) {
    std::vector<PlannedSequence> planned;
    for (std::size_t i = 0; i < trees.size(); ++i)
      planned.push_back(Setting::planned(static_cast<int>(i), trees[i]));
    planner.prune(planned, load);
    std::vector<int> kept;
    for (const DraftTree& tree : trees) {
      tree.check_integrity();
      kept.push_back(tree.size() - 1);
    }
    return kept;
  }

  // One step of one sequence, in which a drafter, if it is asked, proposes a chain of which the
  // first `right` nodes are right. Whether it was asked.
  bool step(const PricedDrafter& drafter, int right, float confidence = 0.6f) {
    DraftTree tree(0);
    PlannedSequence planned[] = {Setting::planned(0, tree)};
    const auto asks = planner.ask(0, drafter, planned, load());
    const bool asked = asks[0].limits.has_value();
    has_read_all = asked && asks[0].n_context > 1000000;
    if (asked) tree = chain(std::vector<float>(std::min(4, asks[0].limits->depth), confidence));
    planner.learn(0, {0}, tree.depth(), {});
    DraftTree checked = tree;
    planned[0].tree = &checked;
    planner.prune(planned, load());
    std::vector<Token> taken(std::min(right, checked.size() - 1), 1);
    taken.push_back(9);
    const DraftOutcome outcome{{0}, &tree, &checked, taken};
    planner.observe({&outcome, 1}, load(), passes.ms(checked.size()));
    return asked;
  }

  void plain_steps(int n) {
    for (int i = 0; i < n; ++i) {
      const DraftTree none(0);
      const std::vector<Token> taken{9};
      const DraftOutcome outcome{{0}, &none, &none, taken};
      planner.observe({&outcome, 1}, load(), passes.ms(1));
    }
  }

  CostCurve passes;
  Planner planner;
  int n_sequences;
  bool has_read_all = false;  // the drafter, in the last step
};

const Points kLikeReal = {{1, 30}, {4, 32}, {8, 40}, {16, 78}, {32, 150}};

TEST(Planner, KeepsTheCountThatPays) {
  const std::vector<float> half(10, 0.5f), sure(10, 0.999f);
  EXPECT_EQ(Setting({{1, 30}, {64, 30}}).prune({chain(std::vector<float>(10, 0.9f))}, {1, 512})[0],
            10);
  EXPECT_EQ(Setting({{1, 30}, {64, 30 * 64}}).prune({chain(half)}, {1, 512})[0], 0);
  EXPECT_EQ(Setting({{1, 30}, {64, 30 * 64}}).prune({chain(sure)}, {1, 512})[0], 0);
  EXPECT_EQ(Setting({{1, 30}, {5, 31}, {64, 700}}).prune({chain(half)}, {1, 512})[0], 4);
}

// Each of the first rows is judged by its own price, not by the mean over all; and none is free:
// in a text that is as fast as may be, rows that seem to cost nothing are not checked for a chance
// of one in a hundred.
TEST(Planner, TheFirstRowsMayBeNearlyFree) {
  Setting knee({{1, 30}, {3, 30.2}, {17, 300}});
  EXPECT_EQ(knee.prune({chain(std::vector<float>(16, 0.3f))}, {1, 512})[0], 2);
  DraftTree tree(0);
  const PlannedSequence planned[] = {Setting::planned(0, tree)};
  const auto asks = knee.planner.ask(0, PricedDrafter({0.1, 0}), planned, {1, 512});
  ASSERT_TRUE(asks[0].limits);
  const std::vector<double>& prices = asks[0].worth.row_prices;
  ASSERT_EQ(prices.size(), 17u);
  EXPECT_LT(prices[2], 0.06);
  EXPECT_GT(prices[4] - prices[3], 0.4);
  EXPECT_EQ(Setting({{1, 30}, {64, 30}}).prune({chain({0.0001f})}, {1, 512})[0], 0);
}

// Four siblings cannot each be taken with probability 0.9.
TEST(Planner, SiblingsExcludeEachOther) {
  DraftTree siblings(0);
  for (Token token = 0; token < 4; ++token) siblings.propose(0, token, {0, 0.9f});
  EXPECT_EQ(Setting({{1, 30}, {5, 60}}).prune({siblings}, {1, 512})[0], 1);
}

// As a batch fills, rows become dear and speculation fades: every sequence waits for them.
TEST(Planner, FadesAsTheBatchFills) {
  int last = 100;
  for (int n : {1, 2, 4, 8, 16}) {
    Setting full({{1, 30}, {8, 31}, {64, 250}}, {}, 1, n);
    const std::vector<int> kept =
        full.prune(std::vector<DraftTree>(n, chain(std::vector<float>(6, 0.6f))), full.load());
    int sum = 0;
    for (int k : kept) sum += k;
    EXPECT_LE(sum / n, last);
    last = sum / n;
  }
  EXPECT_EQ(last, 0);
}

TEST(Planner, KeepsLimitsAndRoom) {
  const std::vector<float> confidences(20, 0.9f);
  for (const bool automatic : {true, false}) {
    CostCurve passes = curve({{1, 30}, {512, 30}});
    Planner planner({.automatic = automatic, .rows = 6}, passes, 1);
    for (const int sequence : {0, 1}) planner.begin({sequence}, 0);
    const auto kept = [&](int n_trees, const PassLoad& load) {
      std::vector<DraftTree> trees(n_trees, chain(confidences));
      std::vector<PlannedSequence> planned;
      for (int i = 0; i < n_trees; ++i) planned.push_back(Setting::planned(i, trees[i]));
      planner.prune(planned, load);
      std::vector<int> kept;
      for (const DraftTree& tree : trees) kept.push_back(tree.size() - 1);
      return kept;
    };
    EXPECT_EQ(kept(1, {1, 512}), (std::vector<int>{6}));
    EXPECT_EQ(kept(1, {1, 4}), (std::vector<int>{3}));
    EXPECT_EQ(kept(1, {4, 4}), (std::vector<int>{0}));
    EXPECT_EQ(kept(2, {.rows = 2, .rows_max = 512, .sequences = 2}), (std::vector<int>{6, 6}));
  }
}

// If it is not automatic, or as long as no pass was timed.
TEST(Planner, FixedLooksAtNoClock) {
  for (const bool automatic : {true, false}) {
    CostCurve passes;
    Planner planner({.automatic = automatic, .rows = 8}, passes, 1);
    planner.begin({0}, 100);
    for (int i = 0; i < 50; ++i) {
      DraftTree tree = chain(std::vector<float>(8, 0.01f));
      const PlannedSequence planned[] = {Setting::planned(0, tree)};
      const auto asks =
          planner.ask(0, PricedDrafter({1000, 1000, 1000}, 100000), planned, {1, 512});
      ASSERT_TRUE(asks[0].limits);
      EXPECT_EQ(asks[0].limits->nodes, 8);
      EXPECT_GT(asks[0].n_context, 1000000);
      EXPECT_TRUE(asks[0].worth.row_prices.empty());
      EXPECT_FALSE(planner.plain_step_is_due({1, 512}));
      planner.prune(planned, {1, 512});
      EXPECT_EQ(tree.size(), 9);
      if (automatic) continue;  // it would learn what a pass takes
      const std::vector<Token> taken{9};
      const DraftOutcome outcome{{0}, &tree, &tree, taken};
      planner.observe({&outcome, 1}, {1, 512}, 1e6);
    }
    EXPECT_TRUE(passes.empty());
  }
}

TEST(Planner, RowsOrDepthOfNothingAskNobody) {
  for (const PlannerOptions& options : {PlannerOptions{.rows = 0}, PlannerOptions{.depth = 0}}) {
    Setting none(kLikeReal, options);
    DraftTree tree(0);
    const PlannedSequence planned[] = {Setting::planned(0, tree)};
    EXPECT_FALSE(none.planner.ask(0, PricedDrafter({}), planned, {1, 512})[0].limits);
  }
}

// Also where it shares a drafter's levels with a sequence that has more room.
TEST(Planner, ASequenceIsAskedForNoMoreLevelsThanItHasRoomFor) {
  Setting two({{1, 30}, {64, 31}}, {}, 1, 2);
  DraftTree trees[] = {DraftTree(0), DraftTree(0)};
  PlannedSequence planned[] = {Setting::planned(0, trees[0]), Setting::planned(1, trees[1])};
  planned[0].depth_max = 2;
  const auto asks = two.planner.ask(0, PricedDrafter({1, 1}), planned, two.load());
  ASSERT_TRUE(asks[0].limits && asks[1].limits);
  EXPECT_EQ(asks[0].limits->depth, 2);
  EXPECT_GT(asks[1].limits->depth, 2);
}

TEST(Planner, StopsAskingADrafterThatMissesAndProbesItEverLater) {
  Setting missing(kLikeReal);
  const PricedDrafter drafter({10, 10});
  std::vector<int> asked;
  for (int i = 0; i < 600; ++i)
    if (missing.step(drafter, 0)) asked.push_back(i);
  ASSERT_GE(asked.size(), 8u);
  EXPECT_LT(asked.size(), 18u);
  EXPECT_LE(asked.back() - asked[asked.size() - 2], 65);  // kGapMax
  EXPECT_GE(asked.back() - asked[asked.size() - 2], 63);
  EXPECT_GE(missing.planner.report().probes, 8);
  // The text turns: once it is tried it is asked again and again.
  int n_asked = 0;
  for (int i = 0; i < 400; ++i) n_asked += missing.step(drafter, 4);
  EXPECT_GT(n_asked, 250);
}

// The first probe comes early: 8 steps after the last draft.
TEST(Planner, TheFirstProbeComesEarly) {
  Setting missing(kLikeReal);
  const PricedDrafter drafter({10, 10});
  int n_asked = 0, last = 0, first_probe = 0;
  for (int i = 0; i < 100 && first_probe == 0; ++i) {
    if (!missing.step(drafter, 0)) continue;
    if (missing.planner.report().probes > 0) first_probe = i;
    if (first_probe == 0) last = i;
    ++n_asked;
  }
  EXPECT_EQ(first_probe - last, 9);  // kGapMin, counted from the first step without
}

TEST(Planner, GoesOnAskingADrafterThatPaysOrCostsNothing) {
  Setting paying(kLikeReal), cheap(kLikeReal);
  for (int i = 0; i < 200; ++i) {
    EXPECT_TRUE(paying.step(PricedDrafter({10, 2}), 3));
    EXPECT_TRUE(cheap.step(PricedDrafter({0.01, 0}), 0));
  }
}

// What the trees hold already may leave nothing for a costly drafter to add; that is no fault of
// its own, so it is asked as soon as they hold less, and not probed in between.
TEST(Planner, LeavesOutACostlyDrafterWhereACheapOneSuffices) {
  Setting both(kLikeReal, {}, 2);
  const PricedDrafter cheap({0.01, 0}), costly({15, 15});
  for (int i = 0; i < 100; ++i) {
    DraftTree tree(0);
    PlannedSequence planned[] = {Setting::planned(0, tree)};
    both.planner.ask(0, cheap, planned, both.load());
    tree = chain(std::vector<float>(7, 0.98f));
    const bool asked = both.planner.ask(1, costly, planned, both.load())[0].limits.has_value();
    EXPECT_TRUE(i <= 20 || !asked) << i;
    std::vector<Token> taken(7, 1);
    taken.push_back(9);
    const DraftOutcome outcome{{0}, &tree, &tree, taken};
    both.planner.prune(planned, both.load());
    both.planner.observe({&outcome, 1}, both.load(), 38);
  }
  // In a text where it finds nothing, as soon as that shows.
  both.planner.begin({0}, 0);
  for (int i = 0; i < 8; ++i) both.step(cheap, 0);
  DraftTree tree(0);
  const PlannedSequence planned[] = {Setting::planned(0, tree)};
  EXPECT_TRUE(both.planner.ask(1, costly, planned, both.load())[0].limits);
}

// A prompt is prefilled if the rest of the answer is expected to bring in what that takes, and the
// guard allows it with a few drafts after it.
TEST(Planner, PrefillsALongTextIfThatIsExpectedToPay) {
  const PricedDrafter with_prompt({8, 8, 0.5}, 400), prefilled({8, 8, 0.5}, 0);
  const auto prefills = [&](Setting& setting, const PricedDrafter& drafter, int n_answered,
                            int n_left) {
    DraftTree tree(0);
    PlannedSequence planned[] = {Setting::planned(0, tree)};
    planned[0].n_answered = n_answered;
    planned[0].n_left = n_left;
    const auto asks = setting.planner.ask(0, drafter, planned, setting.load());
    return asks[0].limits && asks[0].n_context > 400;
  };
  Setting setting(kLikeReal);
  EXPECT_FALSE(prefills(setting, with_prompt, 200, 200));  // 200 ms: the guard allows less
  for (int i = 0; i < 30; ++i) setting.step(prefilled, 2, 0.9f);
  EXPECT_TRUE(prefills(setting, with_prompt, 200, 200));  // drafts have saved the time
  EXPECT_FALSE(prefills(setting, with_prompt, 200, 8));   // not for a few tokens more
  // Answers are 48 tokens long, as far as is known.
  const PricedDrafter dear({8, 8, 0.9}, 400);
  EXPECT_TRUE(prefills(setting, dear, 200, 400));
  EXPECT_FALSE(prefills(setting, dear, 2, 400));
  // Not of 8, either.
  const PricedDrafter costly({16, 16, 1}, 30);
  Setting first(kLikeReal), second(kLikeReal);
  EXPECT_TRUE(prefills(first, costly, 2, 400));
  EXPECT_FALSE(prefills(second, costly, 2, 8));

  Setting fresh(kLikeReal);
  EXPECT_TRUE(prefills(fresh, PricedDrafter({8, 8, 2}, 4), 200, 200));  // a short one
  // 70 ms would be allowed, but not with three drafts and their rows after it.
  EXPECT_FALSE(prefills(fresh, PricedDrafter({8, 8, 0.5}, 140), 200, 200));
  EXPECT_TRUE(prefills(fresh, PricedDrafter({8, 8, 0.5}, 80), 200, 200));
}

// What its prompt took lets an answer lose more, so that a draft model may prefill it.
TEST(Planner, ALongPromptAllowsMore) {
  for (const int n_prompt : {0, 60}) {
    Setting setting(kLikeReal);
    setting.planner.begin({0}, n_prompt);
    setting.plain_steps(20);
    setting.step(PricedDrafter({8, 8, 0.5}, 250), 0);
    EXPECT_EQ(setting.has_read_all, n_prompt > 0);
  }
}

TEST(Planner, PrefillIsNotWhatTimeCostsFromThenOn) {
  const PricedDrafter with_prompt({8, 8, 0.5}, 60), prefilled({8, 8, 0.5}, 0);
  Setting setting(kLikeReal), other(kLikeReal);
  for (int i = 0; i < 30; ++i)
    for (Setting* both : {&setting, &other}) both->step(prefilled, 2, 0.9f);
  setting.step(with_prompt, 2, 0.9f);
  other.step(prefilled, 2, 0.9f);
  EXPECT_TRUE(setting.has_read_all);
  EXPECT_GT(setting.planner.account({0}).loss, other.planner.account({0}).loss + 0.9);
  EXPECT_DOUBLE_EQ(setting.planner.learned().speed, other.planner.learned().speed);
}

// A drafter that stops early, since its guesses do not please it, takes no more than that.
TEST(Planner, DraftsTakeWhatTheyTookAsDeepAsTheyGot) {
  for (const int levels : {0, 1, 3}) {
    Setting setting(kLikeReal);
    DraftTree tree(0);
    const PlannedSequence planned[] = {Setting::planned(0, tree)};
    const auto asks = setting.planner.ask(0, PricedDrafter({6, 3}), planned, setting.load());
    ASSERT_TRUE(asks[0].limits);
    EXPECT_GT(asks[0].limits->depth, 3);
    setting.planner.learn(0, {0}, levels, {});
    setting.plain_steps(1);
    EXPECT_DOUBLE_EQ(setting.planner.account({0}).loss, levels == 3 ? 12 / 30.0 : 6 / 30.0);
    setting.plain_steps(1);
    EXPECT_DOUBLE_EQ(setting.planner.account({0}).loss, levels == 3 ? 12 / 30.0 : 6 / 30.0);
  }
}

// A row that does not pay alone does not pay beside a prompt either, which only makes the step
// longer: what it costs is what a row adds.
TEST(Planner, APromptMakesDraftsNoCheaper) {
  const auto n_kept = [](int n_prompt, double confidence) {
    Setting setting({{1, 30}, {1001, 10030}});
    setting.passes.measure_one_logit_row(1001, 9030);
    PassLoad load = setting.load(2000);
    load.rows += n_prompt;
    load.prompt_rows = n_prompt;
    load.prompt_attended = load.attended = n_prompt * n_prompt / 2.0;
    return setting.prune({chain(std::vector<float>(3, confidence))}, load)[0];
  };
  for (const int n_prompt : {0, 8, 900}) {
    EXPECT_EQ(n_kept(n_prompt, 0.1f), 0) << n_prompt;
    EXPECT_EQ(n_kept(n_prompt, 0.95f), 3) << n_prompt;
  }
}

TEST(Planner, PassesWithoutDraftsStayKnown) {
  Setting setting(kLikeReal);
  PassLoad reading = setting.load();
  reading.rows += 8;
  reading.prompt_rows = 8;
  EXPECT_FALSE(setting.planner.plain_step_is_due(reading));  // its time would tell nothing
  std::vector<int> plain;
  for (int i = 0; i < 1000; ++i) {
    const bool is_plain = setting.planner.plain_step_is_due(setting.load());
    if (is_plain) plain.push_back(i);
    const DraftTree none(0), tree = chain({0.9f, 0.9f, 0.9f});
    const DraftTree& drafted = is_plain ? none : tree;
    const std::vector<Token> taken{1, 9};
    const DraftOutcome outcome{{0}, &drafted, &drafted, taken};
    setting.planner.observe({&outcome, 1}, setting.load(), is_plain ? 30 : 32);
  }
  ASSERT_GE(plain.size(), 8u);
  EXPECT_LE(plain.size(), 20u);
  EXPECT_EQ(plain[0], 0);  // kPlainAtFirst
  EXPECT_EQ(plain[1], 1);
  EXPECT_GT(plain[2], 10);
}

// One suffices where passes are known from before.
TEST(Planner, ARestoredPlannerBeginsWithOnePlainStep) {
  Setting first(kLikeReal), next(kLikeReal);
  for (int i = 0; i < 50; ++i) first.step(PricedDrafter({8, 8}), 2);
  next.planner.restore(first.planner.learned());
  next.planner.begin({0}, 0);
  EXPECT_TRUE(next.planner.plain_step_is_due(next.load()));
  next.plain_steps(1);
  EXPECT_FALSE(next.planner.plain_step_is_due(next.load()));
  EXPECT_EQ(next.planner.report().bank, first.planner.report().bank);
}

// Rows that do not seem to pay are checked now and then, since their price may be wrong; three of
// them, since the first may be all that costs.
TEST(Planner, APriceThatSeemsTooHighIsTriedAgain) {
  Setting setting({{1, 30}, {2, 80}, {17, 80}});
  int n_checked = 0, first = 0;
  for (int i = 0; i < 400; ++i) {
    DraftTree tree = chain({0.6f, 0.6f, 0.6f, 0.6f});
    DraftTree checked = tree;
    PlannedSequence planned[] = {Setting::planned(0, checked)};
    setting.planner.prune(planned, setting.load());
    if (first == 0) first = checked.size() - 1;
    n_checked += checked.size() > 1;
    std::vector<Token> taken(checked.size() - 1, 1);
    taken.push_back(9);
    const DraftOutcome outcome{{0}, &tree, &checked, taken};
    setting.planner.observe({&outcome, 1}, setting.load(), 30);
  }
  EXPECT_EQ(first, 3);
  EXPECT_GT(n_checked, 200);
}

// In a text that is fast by its drafts a millisecond is dear: what pays in a slow text does not
// there. A new text begins at the speed of recent ones, which counts like one step.
TEST(Planner, TheSpeedOfATextPricesItsTime) {
  Setting setting({{1, 30}, {4, 31}, {5, 41}, {17, 161}}, {.depth = 3});
  const std::vector<float> chances = {0.97f, 0.97f, 0.97f, 0.55f};
  EXPECT_EQ(setting.prune({chain(chances)}, {1, 512})[0], 4);
  for (int i = 0; i < 100; ++i) setting.step(PricedDrafter({0.01, 0}), 3, 0.97f);
  EXPECT_EQ(setting.prune({chain(chances)}, {1, 512})[0], 3);
  setting.planner.begin({0}, 0);
  EXPECT_EQ(setting.prune({chain(chances)}, {1, 512})[0], 3);
  setting.plain_steps(20);
  EXPECT_EQ(setting.prune({chain(chances)}, {1, 512})[0], 4);
}

// A drafter that takes more than even a right guess brings is left alone, but once more is asked
// where that was measured in an earlier run.
TEST(Planner, TriesWhatWasDearInAnEarlierRun) {
  for (const bool is_old : {false, true}) {
    Setting setting(kLikeReal);
    setting.plain_steps(3);
    const PricedDrafter dear({.fixed_ms = 60, .per_depth_ms = 60, .is_old = is_old});
    int n_asked = 0;
    for (int i = 0; i < 100; ++i) n_asked += setting.step(dear, 0) ? 1 : 0;
    if (is_old)
      EXPECT_GE(n_asked, 1);
    else
      EXPECT_EQ(n_asked, 0);
  }
}

TEST(Planner, RidersRideWhereTheyPay) {
  PricedDrafter drafter({});
  drafter.n_riders = 60;
  int n_of_others = 0;
  const auto riders = [&](Setting& setting, DraftTree tree = chain({})) {
    PlannedSequence planned[] = {Setting::planned(0, tree)};
    planned[0].n_riders = n_of_others;
    return setting.planner.riders(0, drafter, planned, setting.load())[0];
  };
  Setting flat({{1, 30}, {64, 30.1}}), steep({{1, 30}, {64, 30 * 64}}), real(kLikeReal);
  for (Setting* setting : {&flat, &steep, &real}) setting->plain_steps(3);
  const int n_flat = riders(flat);
  EXPECT_GE(n_flat, 4);
  EXPECT_LE(n_flat, 16);
  EXPECT_LE(riders(flat, chain(std::vector<float>(13, 0.9f))), 3);  // 16 rows are all that it has
  EXPECT_EQ(riders(flat, chain(std::vector<float>(16, 0.9f))), 0);
  n_of_others = 15;
  EXPECT_EQ(riders(flat), 1);
  n_of_others = 0;
  EXPECT_EQ(riders(steep), 0);
  EXPECT_GE(riders(real), 2);
  EXPECT_LE(riders(real), 8);
  drafter.n_riders = 0;
  EXPECT_EQ(riders(flat), 0);
  drafter.n_riders = 60;

  // What they bring is learned: nothing, then a token in each step.
  const auto observe = [&](const DraftTree& tree, const std::vector<Token>& taken) {
    const int n_riders = riders(real, tree);
    const DraftOutcome outcome{{0}, &tree, &tree, taken, {n_riders}};
    real.planner.observe({&outcome, 1}, real.load(), real.passes.ms(n_riders + tree.size()));
  };
  int n_steps = 0, n_with = 0;
  for (; n_steps < 600; ++n_steps) {
    n_with += riders(real) > 0 ? 1 : 0;
    observe(chain({}), {9});
  }
  EXPECT_LT(n_with, 100);  // at first, and now and then to see whether it has changed
  EXPECT_GT(n_with, 2);
  const double before = real.planner.learned().drafters[0].riders.expected(3);
  for (int i = 0; i < 200; ++i) observe(chain({0.5f}), {1, 9});
  EXPECT_GT(real.planner.learned().drafters[0].riders.expected(3), before + 0.3);
  EXPECT_GE(riders(real), 3);
  // What another drafter proposed too does not count.
  DraftTree both = chain({0.5f});
  both.propose(0, 1, {1, 0.5f});
  Setting two(kLikeReal, {}, 2);
  two.plain_steps(3);
  const double at_first = two.planner.learned().drafters[0].riders.tokens;
  const std::vector<Token> taken{1, 9};
  const DraftOutcome outcome{{0}, &both, &both, taken};
  two.planner.observe({&outcome, 1}, two.load(), 30);
  EXPECT_EQ(two.planner.learned().drafters[0].riders.tokens, at_first);
}

// Random proposals within what was asked for.
void propose_something(DraftTree& tree, int drafter, const DraftLimits& limits, bool draws) {
  const int n_nodes = *rc::gen::inRange(0, limits.nodes + 1);
  const auto q = std::make_shared<const Distribution>(Distribution{{0, 0.5f}, {1, 0.5f}});
  for (int n = 0; n < n_nodes; ++n) {
    const int parent = *rc::gen::inRange(0, tree.size());
    if (tree[parent].depth >= limits.depth) continue;
    const float confidence = static_cast<float>(*rc::gen::inRange(1, 100)) / 100;
    tree.propose(parent, *rc::gen::inRange<Token>(0, 2),
                 {drafter, confidence, draws ? q : std::shared_ptr<const Distribution>()});
  }
}

// Whatever costs, trees and requests are: what is asked for, kept and rides along has room in the
// pass, in the flags and in the requests, and what was drawn is kept.
RC_GTEST_PROP(PlannerProperties, WhatIsAskedForAndKeptHasRoom, ()) {
  const PlannerOptions options{.automatic = *rc::gen::arbitrary<bool>(),
                               .rows = *rc::gen::inRange(0, 20),
                               .depth = *rc::gen::inRange(0, 8),
                               .width = *rc::gen::inRange(1, 4)};
  CostCurve passes;
  if (*rc::gen::arbitrary<bool>())
    for (const int rows : {1, 8, 64}) passes.measure(rows, *rc::gen::inRange(10, 20) + rows / 8);
  Planner planner(options, passes, 2);
  const int n = *rc::gen::inRange(1, 4);
  for (int i = 0; i < n; ++i) planner.begin({i}, *rc::gen::inRange(0, 300));
  for (int step = *rc::gen::inRange(1, 12); step > 0; --step) {
    const PassLoad load{.rows = n, .rows_max = n + *rc::gen::inRange(0, 40), .sequences = n};
    std::vector<DraftTree> drafted(n, DraftTree(0)), checked;
    std::vector<PlannedSequence> planned;
    for (int i = 0; i < n; ++i) {
      planned.push_back(Setting::planned(i, drafted[i]));
      planned.back().rows_max = *rc::gen::inRange(0, 24);
      planned.back().depth_max = *rc::gen::inRange(0, 10);
    }
    const auto rows_of = [&](int i) { return std::min(options.rows, planned[i].rows_max); };
    // The first drafter's proposals are chosen, the second draws for some sequences.
    PricedDrafter chosen({}), drawing({*rc::gen::inRange(0, 9) * 1.0, 1, 0.5});
    drawing.draws = true;
    chosen.n_riders = *rc::gen::inRange(0, 30);
    for (int drafter = 0; drafter < 2; ++drafter) {
      if (drafter == 1) {
        planner.prune(planned, load);
        for (PlannedSequence& each : planned) each.drawers = *rc::gen::inRange(0, 2);
      }
      const auto asks = planner.ask(drafter, drafter == 0 ? chosen : drawing, planned, load);
      int levels = 0;
      for (int i = 0; i < n; ++i) {
        if (!asks[i].limits) continue;
        RC_ASSERT(asks[i].limits->nodes <= rows_of(i));
        RC_ASSERT(asks[i].limits->depth <= std::min(options.depth, planned[i].depth_max));
        RC_ASSERT(asks[i].limits->width <= options.width);
        propose_something(drafted[i], drafter, *asks[i].limits, planned[i].drawers > 0);
        levels = std::max(levels, drafted[i].depth(drafter));
      }
      for (int i = 0; i < n; ++i) planner.learn(drafter, {i}, levels, {});
    }
    checked = drafted;
    for (int i = 0; i < n; ++i) planned[i].tree = &checked[i];
    planner.prune(planned, load);
    int n_rows = n;
    for (int i = 0; i < n; ++i) {
      checked[i].check_integrity();
      if (planned[i].drawers > 0) RC_ASSERT(checked[i].size() == drafted[i].size());
      RC_ASSERT(checked[i].size() - 1 <= rows_of(i));
      n_rows += checked[i].size() - 1;
    }
    RC_ASSERT(n_rows <= load.rows_max);
    const std::vector<int> riders = planner.riders(0, chosen, planned, load);
    std::vector<DraftOutcome> outcomes;
    std::vector<std::vector<Token>> taken(n);
    for (int i = 0; i < n; ++i) {
      RC_ASSERT(riders[i] >= 0 && riders[i] <= chosen.n_riders);
      RC_ASSERT(checked[i].size() - 1 + riders[i] <= rows_of(i));
      n_rows += riders[i];
      for (int node = 0; !checked[i].children(node).empty() && *rc::gen::arbitrary<bool>();)
        taken[i].push_back(checked[i][node = checked[i].children(node)[0]].token);
      taken[i].push_back(2);
      outcomes.push_back({{i}, &drafted[i], &checked[i], taken[i], {riders[i], 0}});
    }
    RC_ASSERT(n_rows <= load.rows_max);
    planner.observe(outcomes, load, *rc::gen::inRange(5, 40));
  }
}

}  // namespace
}  // namespace outrider

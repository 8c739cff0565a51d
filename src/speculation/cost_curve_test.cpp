#include "speculation/cost_curve.h"

#include <gtest/gtest.h>

#include <random>

namespace outrider {
namespace {

TEST(CostCurve, IsLinearBetweenWhatWasMeasured) {
  CostCurve curve;
  EXPECT_TRUE(curve.empty());
  curve.measure(4, 40);
  EXPECT_EQ(curve.ms(1), 40);  // one point: flat below, in proportion above
  EXPECT_EQ(curve.ms(8), 80);
  curve.measure(1, 30);
  curve.measure(16, 120);
  curve.measure(16, 100);  // the last stands
  EXPECT_EQ(curve.ms(1), 30);
  EXPECT_NEAR(curve.ms(2), 30 + 10.0 / 3, 1e-9);
  EXPECT_EQ(curve.ms(4), 40);
  EXPECT_EQ(curve.ms(10), 70);
  EXPECT_EQ(curve.ms(16), 100);
  EXPECT_EQ(curve.ms(28), 160);  // as steep as before
  EXPECT_EQ(curve.points().size(), 3u);
}

TEST(CostCurve, RowsWithoutLogitsTakeLess) {
  CostCurve curve;
  curve.measure(1, 30);
  curve.measure(17, 110);
  EXPECT_EQ(curve.ms({.rows = 17, .without_logits = 16}), 110);
  curve.measure_one_logit_row(17, 94);
  CostCurve later;
  later.restore(curve.points(), curve.logits_ms());
  for (const CostCurve& known : {curve, later}) {
    EXPECT_EQ(known.ms({.rows = 17, .without_logits = 16}), 94);
    EXPECT_EQ(known.ms({.rows = 33, .without_logits = 16}), 174);
  }
  later.refine({.rows = 1}, 500);  // the first pass of a process
  later.refine({.rows = 1}, 60);   // the machine is half as fast
  EXPECT_EQ(later.ms({.rows = 17, .without_logits = 16}), 188);
  curve.measure_one_logit_row(17, 14);
  EXPECT_EQ(curve.ms({.rows = 17, .without_logits = 16}), 30);  // weights are read for one row, too
}

// More rows are never taken to be faster: where they were measured so, the times take their mean.
TEST(CostCurve, NeverFalls) {
  CostCurve curve;
  curve.measure(1, 33);
  curve.measure(2, 30);
  curve.measure(3, 27);
  curve.measure(8, 50);
  curve.measure(16, 40);
  for (int rows = 1; rows <= 3; ++rows) EXPECT_NEAR(curve.ms(rows), 30, 1e-9);
  EXPECT_NEAR(curve.ms(8), 45, 1e-9);
  EXPECT_NEAR(curve.ms(32), 45, 1e-9);
}

TEST(CostCurve, FollowsWhatItSees) {
  CostCurve curve;
  curve.measure(1, 30);
  curve.measure(8, 40);
  for (int i = 0; i < 300; ++i) {
    curve.refine({.rows = 1}, 30);
    curve.refine({.rows = 8}, 80);
  }
  EXPECT_NEAR(curve.ms(8), 80, 1);
  EXPECT_NEAR(curve.ms(1), 30, 0.5);
}

// Times of the 1.5B on a Zen 4. When its memory became faster, passes of one row told what passes
// of more would take.
TEST(CostCurve, AFasterMemoryHelpsOnlyPassesThatWaitForIt) {
  CostCurve curve;
  for (const auto& [rows, ms] : std::vector<std::pair<int, double>>{
           {1, 31.4}, {2, 31.9}, {4, 33.1}, {6, 33.0}, {8, 39.9}, {12, 58.8}, {16, 74.2}})
    curve.measure(rows, ms);
  const std::vector<CostCurve::Point> slow = curve.points();
  for (int i = 0; i < 50; ++i)
    for (const CostCurve::Point& point : slow) curve.refine({.rows = point.rows}, point.ms);
  for (int i = 0; i < 50; ++i) curve.refine({.rows = 1}, 19.2);
  EXPECT_NEAR(curve.ms(1), 19.2, 0.5);
  EXPECT_NEAR(curve.ms(4), 22.4, 2.5);
  EXPECT_NEAR(curve.ms(6), 28.7, 2.5);
  EXPECT_NEAR(curve.ms(8), 37.7, 1.5);
  EXPECT_NEAR(curve.ms(16), 71.7, 3);
}

// One wrong measurement is outvoted by the first few passes.
TEST(CostCurve, AWrongMeasurementIsSoonCorrected) {
  for (const double factor : {0.6, 1.6}) {
    CostCurve curve;
    for (int rows : {2, 4, 8}) curve.measure(rows, 30 + rows);
    curve.measure(1, 30 * factor);
    for (int i = 0; i < 2; ++i) curve.refine({.rows = 1}, 30);
    EXPECT_NEAR(curve.ms(1), 30, 3) << factor;
    EXPECT_NEAR(curve.ms(8), 38, 3) << factor;
  }
}

// Kept from an earlier run: the ratios stand, and the first pass tells how fast the machine is now.
TEST(CostCurve, RestoresRatios) {
  CostCurve before;
  before.measure(1, 30);
  before.measure(8, 40);
  before.measure(16, 75);
  CostCurve curve;
  curve.restore(before.points());
  EXPECT_EQ(curve.ms(8), 40);
  // The first pass of a process touches memory for the first time.
  EXPECT_TRUE(curve.is_old());
  curve.refine({.rows = 64, .without_logits = 63}, 1000);
  EXPECT_TRUE(curve.is_old());
  EXPECT_EQ(curve.ms(8), 40);
  curve.refine({.rows = 1}, 60);
  EXPECT_FALSE(curve.is_old());
  EXPECT_NEAR(curve.ms(1), 60, 1e-9);
  EXPECT_NEAR(curve.ms(16), 150, 1e-9);
  curve.refine({.rows = 16}, 200);
  EXPECT_LT(curve.ms(1), 65);
  CostCurve none;
  none.restore({});
  EXPECT_TRUE(none.empty());
  EXPECT_FALSE(none.is_old());
  // What one slow moment says of a machine is believed up to twice the time.
  CostCurve slow;
  slow.restore(before.points());
  slow.refine({.rows = 1}, 30);
  slow.refine({.rows = 1}, 900);
  EXPECT_NEAR(slow.ms(1), 60, 1e-9);
}

// A time that was measured once, at a bad moment, gives way to those next to it that stand for
// many.
TEST(CostCurve, RestoresHowSureItWas) {
  CostCurve before;
  before.measure(1, 40);
  before.measure(2, 63);
  before.measure(4, 40);
  for (int i = 0; i < 20; ++i) {
    before.refine({.rows = 1}, 40);
    before.refine({.rows = 4}, 41);
  }
  CostCurve curve;
  curve.restore(before.points());
  EXPECT_LT(curve.ms(2), 44);
  for (int i = 0; i < 5; ++i) curve.refine({.rows = 2}, 41);
  EXPECT_NEAR(curve.points()[1].ms, 41, 2);
}

// Cores that become half as fast show in passes that wait for them, and change all times.
TEST(CostCurve, SlowerCoresSlowAllPasses) {
  CostCurve curve;
  curve.measure(1, 30);
  curve.measure(8, 40);
  curve.measure(16, 80);
  for (int i = 0; i < 100; ++i)
    for (const auto& [rows, ms] : {std::pair{1, 30}, {8, 40}, {16, 80}})
      curve.refine({.rows = rows}, ms);
  for (int i = 0; i < 20; ++i) curve.refine({.rows = 16}, 160);
  EXPECT_GT(curve.ms(16), 145);
  EXPECT_NEAR(curve.ms(8) / curve.ms(1), 40.0 / 30, 0.1);
  EXPECT_GT(curve.ms(1), 45);
}

TEST(CostCurve, AveragesNoise) {
  std::mt19937 random(3);
  std::normal_distribution<double> noise(1, 0.2);
  CostCurve curve;
  curve.measure(1, 30);
  curve.measure(8, 40);
  for (int i = 0; i < 500; ++i) {
    curve.refine({.rows = 1}, 30 * noise(random));
    curve.refine({.rows = 8}, 40 * noise(random));
  }
  EXPECT_NEAR(curve.ms(8) / curve.ms(1), 40.0 / 30, 0.1);
}

TEST(CostCurve, AnOutlierCountsLittle) {
  CostCurve curve;
  curve.measure(1, 30);
  curve.measure(8, 40);
  for (int i = 0; i < 20; ++i) curve.refine({.rows = 8}, 40);
  curve.refine({.rows = 8}, 40000);
  EXPECT_LE(curve.ms(8), 43);
  curve.refine({.rows = 8}, 0);
  EXPECT_GE(curve.ms(8), 37);
}

double true_ms(const PassWork& work) {
  return 30 + 1.5 * work.rows - 0.2 * work.without_logits + work.attended * 0.001;
}

CostCurve measured_on_short_texts() {
  CostCurve curve;
  for (const int rows : {1, 2, 4, 8, 16, 32, 65}) curve.measure(rows, true_ms({.rows = rows}));
  curve.measure_one_logit_row(65, true_ms({.rows = 65, .without_logits = 64}));
  return curve;
}

// Passes after long texts tell what attention takes, and how long passes after short ones take
// stays as it was.
TEST(CostCurve, LearnsAttention) {
  std::mt19937 random(5);
  std::normal_distribution<double> noise(1, 0.05);
  std::uniform_int_distribution rows(1, 40), length(100, 4000);
  for (const double guess : {0.3, 1.0, 3.0}) {
    CostCurve curve = measured_on_short_texts();
    const double truth = curve.attention_ms() / guess;
    for (int i = 0; i < 200; ++i) {
      const int n = rows(random);
      const PassWork work{.rows = n, .attended = (n + 1.5) * length(random)};
      curve.refine(work, (true_ms({.rows = n}) + work.attended * truth) * noise(random));
    }
    EXPECT_NEAR(curve.attention_ms() / truth, 1, 0.15) << guess;
    EXPECT_NEAR(curve.ms(8) / true_ms({.rows = 8}), 1, 0.1) << guess;
    EXPECT_NEAR(curve.ms(32) / true_ms({.rows = 32}), 1, 0.1) << guess;
  }
}

// A prompt's rows beside others' tell as much; passes over more rows than were measured do not.
TEST(CostCurve, LearnsFromPrompts) {
  CostCurve curve = measured_on_short_texts();
  for (int i = 0; i < 40; ++i) {
    const PassWork work{.rows = 16, .without_logits = 12, .attended = 25'000};
    curve.refine(work, true_ms(work));
    curve.refine({.rows = 512, .without_logits = 511, .attended = 500'000}, 1e6);
  }
  EXPECT_NEAR(curve.attention_ms(), 0.001, 0.0001);
  EXPECT_EQ(curve.points().back().rows, 65);
  EXPECT_NEAR(curve.ms(8), true_ms({.rows = 8}), 2);
}

// A text that goes on a little after a short one teaches next to nothing of attention.
TEST(CostCurve, ShortTextsTellNothingOfAttention) {
  CostCurve curve = measured_on_short_texts();
  const double guessed = curve.attention_ms();
  for (int i = 0; i < 100; ++i) curve.refine({.rows = 1, .attended = 50}, 40);
  EXPECT_NEAR(curve.attention_ms() / guessed, 40 / 31.5, 0.3);
}

// Of the layers with a window counts what the window shows.
TEST(CostCurve, WindowsLimitWhatIsAttended) {
  ModelSpec spec;
  EXPECT_EQ(attended(spec, 1000, 4), 0);
  spec.layers.resize(3);
  Attention attention;
  spec.layers[0].operations = {{.pre_norm = {}, .body = attention, .post_norm = {}}};
  EXPECT_EQ(attended(spec, 1000, 4), 1.5 * 1000 + 4 * 1002);
  attention.window = 100;
  spec.layers[1].operations = {{.pre_norm = {}, .body = attention, .post_norm = {}}};
  EXPECT_EQ(attended(spec, 1000, 4), (5508 + 5.5 * 100) / 2);
}

TEST(CostCurve, GrowsWhereWorkGoesBeyondIt) {
  CostCurve curve;
  curve.refine({.rows = 1}, 30);
  curve.refine({.rows = 20}, 90);
  EXPECT_EQ(curve.ms(1), 30);
  EXPECT_EQ(curve.ms(20), 90);
  curve.refine({.rows = 40, .without_logits = 20}, 150);  // drafts beside a prompt
  EXPECT_EQ(curve.ms(40), 150);
  curve.refine({.rows = 41, .without_logits = 21}, 500);
  EXPECT_EQ(curve.points().back().rows, 40);
}

}  // namespace
}  // namespace outrider

#include "cli/generate_report.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace outrider {
namespace {

AnswerTotals totals(double prompt_ms, double generation_ms) {
  AnswerTotals totals{
      .prompt_ms = prompt_ms, .generation_ms = generation_ms, .timed_tokens = 10, .counters = {}};
  totals.counters.emitted = 11;
  return totals;
}

// Two prompts of two groups, plain and drafted. The first answer of `drafting` took 100 ms less to
// generate, and 50 ms more to read.
GenerateMeasurements measurements() {
  AnswerTotals drafted = totals(150, 100);
  drafted.counters = {.steps = 6,
                      .generating = 5,
                      .rows = 30,
                      .drafted = 20,
                      .accepted = 6,
                      .emitted = 11,
                      .drafts = 5,
                      .draft_depth = 20,
                      .tested = 8,
                      .draft_passes = 22,
                      .draft_levels = 20,
                      .draft_ms = 40,
                      .drafters = {}};
  GenerateMeasurements measured;
  measured.drafts = {"off", "drafting"};
  measured.prompts = {{"1", "a, \"b\"", 0, 1, {{totals(100, 200), true}, {drafted, true}}},
                      {"2", "c", 1, 1, {{totals(100, 200), true}, {totals(100, 400), false}}}};
  measured.passes = {{1, {20, 21, 19}}, {4, {25, 24, 90}}, {8, {50, 50, 50}}};
  return measured;
}

TEST(GenerateReport, GivesWholeTimesAndWhatDraftsWereLike) {
  const Json report = generate_json(measurements());
  EXPECT_EQ(report["identical"], false);
  EXPECT_EQ(report["learned"], "forgotten");
  EXPECT_EQ(report["profile"], "none");
  ASSERT_EQ(report["groups"].size(), 6u);
  const Json& drafting = report["groups"][1];
  EXPECT_EQ(drafting["draft"], "drafting");
  EXPECT_EQ(drafting["ratio"], 2.0);
  EXPECT_EQ(drafting["whole_ms"], 250.0);
  EXPECT_EQ(drafting["whole_ratio"], 1.2);
  EXPECT_TRUE(drafting["whole_ratio_95"].is_null());
  EXPECT_EQ(drafting["target_passes"], 6);
  EXPECT_EQ(drafting["rows"], 30);
  EXPECT_EQ(drafting["draft_passes"], 22);
  EXPECT_EQ(drafting["draft_levels"], 20);
  EXPECT_EQ(drafting["acceptance"], 0.3);
  EXPECT_EQ(drafting["accepted_length"], 1.2);
  EXPECT_EQ(drafting["drafting_share"], 0.16);
  EXPECT_EQ(drafting["tokens_per_pass"], 2.2);
  EXPECT_EQ(report["groups"][3]["different"], 1);
  const Json& together = report["groups"][5];
  EXPECT_EQ(together["group"], "together");
  EXPECT_EQ(together["answers"], 2);
  EXPECT_EQ(together["ratio"], (2.0 + 0.5) / 2);
  EXPECT_EQ(together["whole_ratio"], (1.2 + 0.6) / 2);

  // 6 of 8 tests accepted; chains of 4 that take 2 ms each, a tenth of T(1).
  const Json& model = drafting["chain_model"];
  EXPECT_EQ(model["alpha"], 0.75);
  EXPECT_EQ(model["depth"], 4.0);
  EXPECT_EQ(model["cost_ratio"], 0.1);
  const double tokens = 1 + 0.75 + 0.75 * 0.75 + 0.75 * 0.75 * 0.75 + 0.75 * 0.75 * 0.75 * 0.75;
  EXPECT_DOUBLE_EQ(model["tokens_per_pass"].get<double>(), tokens);
  EXPECT_DOUBLE_EQ(model["ratio"].get<double>(), tokens / 1.4);

  EXPECT_EQ(report["ceiling"]["rows"], 4);  // 4 * 20 / 25, and 8 * 20 / 50
  EXPECT_EQ(report["ceiling"]["ratio"], 3.2);
}

TEST(GenerateReport, IsCsvThatProgramsRead) {
  const std::string csv = generate_csv(measurements());
  EXPECT_EQ(csv.substr(0, csv.find("\r\n")),
            "id,group,round,draft,tokens,prompt_ms,generation_ms,whole_ms,tokens_per_second,"
            "target_passes,rows,generating_passes,drafts,draft_depth,drafted,tested,accepted,"
            "draft_passes,draft_levels,draft_ms,identical");
  EXPECT_NE(
      csv.find("\r\n1,\"a, "
               "\"\"b\"\"\",1,off,11,100.0,200.0,300.0,50.0,0,0,0,0,0,0,0,0,0,0,0.0,true\r\n"),
      std::string::npos)
      << csv;
  EXPECT_NE(csv.find("\r\n2,c,1,drafting,11,100.0,400.0,500.0,25.0,"), std::string::npos) << csv;
  EXPECT_EQ(std::ranges::count(csv, '\n'), 5);
}

TEST(GenerateReport, ShowsIntervalsOfSeveralPrompts) {
  GenerateMeasurements measured = measurements();
  measured.prompts.resize(1);
  for (std::size_t prompt = 1; prompt < 5; ++prompt) {
    measured.prompts.push_back(measured.prompts[0]);
    measured.prompts.back().prompt = prompt;
  }
  const std::string text = generate_text(measured, true, 100);
  EXPECT_NE(text.find("2.00x  2.00..2.00  1.20x  1.20..1.20"), std::string::npos) << text;
  EXPECT_NE(text.find("at most 3.20x"), std::string::npos) << text;
  EXPECT_NE(text.find("0.75    4.0  0.100         3.05  2.18x"), std::string::npos) << text;
}

}  // namespace
}  // namespace outrider

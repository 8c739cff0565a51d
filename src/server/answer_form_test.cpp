#include "server/answer_form.h"

#include <gtest/gtest.h>

namespace outrider {
namespace {

AnswerFigures figures() {
  AnswerFigures figures{.prompt_tokens = 30,
                        .cached_tokens = 10,
                        .completion_tokens = 9,
                        .queued_ms = 1,
                        .prompt_ms = 40,
                        .generation_ms = 100,
                        .first_tokens = 1,
                        .verifier = "rejection"};
  figures.counters.drafted = 6;
  figures.counters.accepted = 4;
  figures.counters.accepted_lengths = {1, 0, 2};
  figures.counters.not_drafted = {.off = 0, .limit = 1, .no_match = 2, .does_not_pay = 3};
  figures.prediction_accepted = 3;
  figures.prediction_rejected = 2;
  return figures;
}

TEST(AnswerForm, Usage) {
  EXPECT_EQ(openai_usage_json(figures()).dump(),
            R"({"prompt_tokens":30,"completion_tokens":9,"total_tokens":39,)"
            R"("prompt_tokens_details":{"cached_tokens":10},"completion_tokens_details":)"
            R"({"accepted_prediction_tokens":3,"rejected_prediction_tokens":2}})");
}

TEST(AnswerForm, Timings) {
  EXPECT_EQ(
      timings_json(figures()).dump(),
      R"({"queued_ms":1.0,"cache_n":10,"prompt_n":20,"prompt_ms":40.0,)"
      R"("prompt_per_token_ms":2.0,"prompt_per_second":500.0,"predicted_n":9,)"
      R"("predicted_ms":100.0,"predicted_per_token_ms":12.5,"predicted_per_second":80.0,)"
      R"("preempted_n":0,"verify":"rejection","draft_n":6,"draft_n_accepted":4,"accepted_lengths":[1,0,2],)"
      R"("not_drafted":{"off":0,"limit":1,"no_match":2,"does_not_pay":3,"measured":0}})");
  EXPECT_EQ(timings_json({.verifier = "typical", .is_lossy = true})["lossy"], true);
  // No time, no division by it.
  EXPECT_EQ(timings_json({})["predicted_per_second"], 0);
  EXPECT_EQ(timings_json({})["prompt_per_second"], 0);
}

TEST(AnswerForm, SaysWhyNothingWasDrafted) {
  struct Case {
    NotDrafted steps;
    Json reason;
  };
  const Case cases[] = {
      {{}, nullptr},
      {{.off = 3}, "off"},
      {{.limit = 3, .no_match = 2}, "limit"},
      {{.limit = 1, .no_match = 2}, "no_match"},
      {{.no_match = 2, .does_not_pay = 9, .measured = 1}, "does_not_pay"},
      {{.measured = 1}, "measured"},
  };
  for (const Case& c : cases) {
    AnswerFigures figures;
    figures.counters.not_drafted = c.steps;
    EXPECT_EQ(timings_json(figures).value("no_draft_reason", Json()), c.reason);
    figures.counters.drafted = 1;
    EXPECT_FALSE(timings_json(figures).contains("no_draft_reason"));
  }
}

TEST(AnswerForm, AddsTheFiguresOfParallelAnswers) {
  AnswerFigures sum;
  add_figures(sum, figures(), true);
  AnswerFigures second = figures();
  second.generation_ms = 300;
  add_figures(sum, second, false);
  EXPECT_EQ(sum.prompt_tokens, 30);
  EXPECT_EQ(sum.cached_tokens, 10);
  EXPECT_EQ(sum.completion_tokens, 18);
  EXPECT_EQ(sum.first_tokens, 2);
  EXPECT_EQ(sum.prompt_ms, 40);
  EXPECT_EQ(sum.generation_ms, 300);
  EXPECT_EQ(sum.counters.drafted, 12);
  EXPECT_EQ(sum.counters.accepted_lengths, (std::vector<long>{2, 0, 4}));
  EXPECT_EQ(sum.prediction_accepted, 6);
}

TEST(AnswerForm, Failures) {
  EXPECT_FALSE(failure({.reason = FinishReason::stop}));
  EXPECT_EQ(failure({.error = Error("NaN")})->status, 500);
  EXPECT_EQ(failure({})->status, 503);
}

TEST(AnswerForm, TextIsAlwaysWellFormed) {
  EXPECT_EQ(document_text("a\xff"), "\"a\xef\xbf\xbd\"");
  EXPECT_EQ(event_text({{"a", "\n\n"}}), "data: {\"a\":\"\\n\\n\"}\n\n");
  EXPECT_EQ(event_text("ping", {{"a", 1}}), "event: ping\ndata: {\"a\":1}\n\n");
}

}  // namespace
}  // namespace outrider

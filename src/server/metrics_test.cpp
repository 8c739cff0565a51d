#include "server/metrics.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <sstream>
#include <thread>

#include "http/server.h"

namespace outrider {
namespace {

using std::chrono::milliseconds;

struct Exposition {
  std::map<std::string, std::string> types;  // by family
  std::map<std::string, double> samples;     // by name and labels, as written

  double operator[](const std::string& sample) const {
    const auto found = samples.find(sample);
    EXPECT_NE(found, samples.end()) << sample;
    return found == samples.end() ? std::numeric_limits<double>::quiet_NaN() : found->second;
  }
};

// Fails unless every family has help and a type of its own before its samples, and no series is
// there twice.
Exposition exposition_of(const std::string& text) {
  Exposition result;
  std::string family, line;
  bool has_help = false;
  EXPECT_TRUE(text.ends_with('\n'));
  for (std::istringstream lines(text); std::getline(lines, line);) {
    SCOPED_TRACE(line);
    std::istringstream words(line);
    std::string mark, what, name, type;
    if (line.starts_with("# ")) {
      words >> mark >> what >> name;
      if (what == "HELP") {
        has_help = true;
        family = name;
        continue;
      }
      EXPECT_EQ(what, "TYPE");
      EXPECT_TRUE(has_help);
      EXPECT_EQ(name, family);
      has_help = false;
      words >> type;
      EXPECT_TRUE(result.types.emplace(name, type).second);
      continue;
    }
    EXPECT_TRUE(line.starts_with(family));
    EXPECT_TRUE(result.types.contains(family));
    const std::size_t space = line.rfind(' ');
    EXPECT_TRUE(
        result.samples.emplace(line.substr(0, space), std::stod(line.substr(space))).second);
  }
  return result;
}

SchedulerStatus busy_status() {
  using enum SchedulerStatus::State;
  SchedulerStatus status;
  for (const auto state :
       {generating, generating, prefilling, suspended, waiting, waiting, waiting})
    status.answers.push_back({.id = {1},
                              .state = state,
                              .prompt_tokens = 10,
                              .cached_tokens = 0,
                              .read_tokens = 0,
                              .completion_tokens = 0,
                              .n_predict = -1});
  status.pages = 80;
  status.free_pages = 60;
  status.cached_pages = 50;
  status.steps = 100;
  status.stopped = 11;
  status.reached_length = 12;
  status.failed = 13;
  status.cancelled = 14;
  status.ended = {{"coupled", 48}, {"typical", 2}};
  status.preemptions = 5;
  status.prompt_tokens = 1000;
  status.cached_tokens = 640;
  status.completion_tokens = 300;
  Counters& counters = status.counters;
  counters.steps = 210;
  counters.rows = 900;
  counters.generating = 200;
  counters.drafted = 90;
  counters.accepted = 45;
  counters.drafts = 30;
  counters.draft_depth = 60;
  counters.tested = 70;
  status.draft_work = {.passes = 6, .levels = 8, .ms = 1500};
  status.planner = {.reliability = {}, .bank = 17.5, .vetoes = 3, .probes = 12};
  counters.not_drafted = {.off = 1, .limit = 2, .no_match = 3, .does_not_pay = 4, .measured = 5};
  counters.accepted_lengths = {10, 6, 4, 7, 0, 2};
  status.drafters = {
      {"lookup", {50, 20, 40, 10}}, {"model", {60, 30, 50, 35}}, {"model", {5, 1, 5, 1}}};
  return status;
}

TEST(Metrics, ShowTheStatus) {
  const Metrics metrics("smollm2", "0.1.0");
  const Exposition shown = exposition_of(metrics.text(busy_status()));
  struct Case {
    const char *name, *labels, *type;
    double value;
    const char* vllm_name = nullptr;
  };
  const Case cases[] = {
      {"outrider_build_info", R"(model_name="smollm2",version="0.1.0")", "gauge", 1},
      {"outrider_answers", R"(state="waiting")", "gauge", 3},
      {"outrider_answers", R"(state="reading")", "gauge", 1},
      {"outrider_answers", R"(state="generating")", "gauge", 2},
      {"outrider_answers", R"(state="suspended")", "gauge", 1},
      {"outrider_answers_running", "", "gauge", 3, "vllm:num_requests_running"},
      {"outrider_answers_waiting", "", "gauge", 4, "vllm:num_requests_waiting"},
      {"outrider_answers_ended_total", R"(finished_reason="stop")", "counter", 11,
       "vllm:request_success_total"},
      {"outrider_answers_ended_total", R"(finished_reason="length")", "counter", 12,
       "vllm:request_success_total"},
      {"outrider_answers_ended_total", R"(finished_reason="error")", "counter", 13,
       "vllm:request_success_total"},
      {"outrider_answers_ended_total", R"(finished_reason="abort")", "counter", 14,
       "vllm:request_success_total"},
      {"outrider_answers_verified_total", R"(verifier="coupled")", "counter", 48},
      {"outrider_answers_verified_total", R"(verifier="rejection")", "counter", 0},
      {"outrider_answers_verified_total", R"(verifier="typical")", "counter", 2},
      {"outrider_preemptions_total", "", "counter", 5, "vllm:num_preemptions_total"},
      {"outrider_pages", "", "gauge", 80},
      {"outrider_pages_free", "", "gauge", 60},
      {"outrider_pages_cached", "", "gauge", 50},
      {"outrider_pages_used", "", "gauge", 20},
      {"outrider_pages_used_ratio", "", "gauge", .25, "vllm:kv_cache_usage_perc"},
      {"outrider_steps_total", "", "counter", 100},
      {"outrider_rows_total", "", "counter", 900},
      {"outrider_prompt_tokens_total", "", "counter", 1000, "vllm:prompt_tokens_total"},
      {"outrider_prompt_tokens_looked_up_total", "", "counter", 1000,
       "vllm:prefix_cache_queries_total"},
      {"outrider_prompt_tokens_cached_total", "", "counter", 640, "vllm:prefix_cache_hits_total"},
      {"outrider_generated_tokens_total", "", "counter", 300, "vllm:generation_tokens_total"},
      {"outrider_answer_steps_total", "", "counter", 210},
      {"outrider_generating_steps_total", "", "counter", 200},
      {"outrider_drafts_total", "", "counter", 30, "vllm:spec_decode_num_drafts_total"},
      {"outrider_checked_tokens_total", "", "counter", 90,
       "vllm:spec_decode_num_draft_tokens_total"},
      {"outrider_accepted_tokens_total", "", "counter", 45,
       "vllm:spec_decode_num_accepted_tokens_total"},
      // Lengths 1, 2, 3 and 5 occurred 6, 4, 7 and 2 times.
      {"outrider_accepted_tokens_per_position_total", R"(position="0")", "counter", 19,
       "vllm:spec_decode_num_accepted_tokens_per_pos_total"},
      {"outrider_accepted_tokens_per_position_total", R"(position="1")", "counter", 13,
       "vllm:spec_decode_num_accepted_tokens_per_pos_total"},
      {"outrider_accepted_tokens_per_position_total", R"(position="2")", "counter", 9,
       "vllm:spec_decode_num_accepted_tokens_per_pos_total"},
      {"outrider_accepted_tokens_per_position_total", R"(position="3")", "counter", 2,
       "vllm:spec_decode_num_accepted_tokens_per_pos_total"},
      {"outrider_accepted_tokens_per_position_total", R"(position="4")", "counter", 2,
       "vllm:spec_decode_num_accepted_tokens_per_pos_total"},
      {"outrider_accepted_tokens_per_position_total", R"(position="7")", "counter", 0,
       "vllm:spec_decode_num_accepted_tokens_per_pos_total"},
      {"outrider_tested_places_total", "", "counter", 70},
      {"outrider_draft_depth_total", "", "counter", 60},
      {"outrider_draft_seconds_total", "", "counter", 1.5},
      {"outrider_draft_passes_total", "", "counter", 6},
      {"outrider_draft_levels_total", "", "counter", 8},
      {"outrider_draft_bank_passes", "", "gauge", 17.5},
      {"outrider_draft_vetoes_total", "", "counter", 3},
      {"outrider_draft_probes_total", "", "counter", 12},
      {"outrider_draft_tokens_total", R"(drafter="lookup")", "counter", 50},
      {"outrider_draft_tokens_total", R"(drafter="model")", "counter", 65},
      {"outrider_draft_tokens_accepted_total", R"(drafter="lookup")", "counter", 20},
      {"outrider_draft_tokens_accepted_total", R"(drafter="model")", "counter", 31},
      {"outrider_not_drafted_total", R"(reason="off")", "counter", 1},
      {"outrider_not_drafted_total", R"(reason="limit")", "counter", 2},
      {"outrider_not_drafted_total", R"(reason="no_match")", "counter", 3},
      {"outrider_not_drafted_total", R"(reason="does_not_pay")", "counter", 4},
      {"outrider_not_drafted_total", R"(reason="measured")", "counter", 5},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.name) + " " + c.labels);
    const std::string labels = c.labels;
    EXPECT_EQ(shown.types.at(c.name), c.type);
    EXPECT_EQ(shown[c.name + (labels.empty() ? "" : "{" + labels + "}")], c.value);
    if (!c.vllm_name) continue;
    EXPECT_EQ(shown.types.at(c.vllm_name), c.type);
    EXPECT_EQ(shown[c.vllm_name + std::string(R"({model_name="smollm2")") +
                    (labels.empty() ? "" : ",") + labels + "}"],
              c.value);
  }
}

// A rate needs a series that was there before its first event.
TEST(Metrics, ANewServerHasEverySeries) {
  const Metrics metrics("m", "v");
  const Exposition before = exposition_of(metrics.text({})),
                   later = exposition_of(metrics.text(busy_status()));
  for (const auto& [sample, value] : before.samples) {
    if (!sample.starts_with("outrider_build_info")) {
      EXPECT_EQ(value, 0) << sample;
    }
    EXPECT_TRUE(later.samples.contains(sample)) << sample;
  }
  for (const auto& [sample, value] : later.samples)
    if (sample.find("drafter=") == std::string::npos) {
      EXPECT_TRUE(before.samples.contains(sample)) << sample;
    }
}

// Dashboards for vLLM add up its series.
TEST(Metrics, SeriesOfVllmAreNotSplitByDrafter) {
  const Metrics metrics("m", "v");
  int n_series = 0;
  for (const auto& [sample, value] : exposition_of(metrics.text(busy_status())).samples) {
    if (!sample.starts_with("vllm:")) continue;
    ++n_series;
    EXPECT_EQ(sample.find("drafter"), std::string::npos) << sample;
  }
  EXPECT_GT(n_series, 0);
}

TEST(Metrics, DeepDraftsAddPositions) {
  const Metrics metrics("m", "v");
  SchedulerStatus status;
  status.counters.accepted_lengths.assign(12, 1);
  const Exposition shown = exposition_of(metrics.text(status));
  const std::string name = "outrider_accepted_tokens_per_position_total";
  EXPECT_EQ(shown[name + R"({position="0"})"], 11);
  EXPECT_EQ(shown[name + R"({position="10"})"], 1);
  EXPECT_FALSE(shown.samples.contains(name + R"({position="11"})"));
}

class WatchedMetrics : public testing::Test {
 protected:
  static AnswerEvent tokens(int n) {
    AnswerEvent event;
    event.tokens.assign(static_cast<std::size_t>(n), {.token = 1, .text = "secret text"});
    return event;
  }
  static AnswerEvent end(AnswerFigures figures, int n_tokens = 0) {
    AnswerEvent event = tokens(n_tokens);
    event.held_text = "secret text";
    event.end = AnswerEnd{.reason = FinishReason::stop,
                          .stop_text = "secret text",
                          .error = std::nullopt,
                          .figures = std::move(figures)};
    return event;
  }

  Exposition shown() const { return exposition_of(metrics_.text({})); }
  // Under both names.
  void expect_observed(const std::string& name, const std::string& vllm_name, int count,
                       double sum) const {
    SCOPED_TRACE(name);
    const Exposition exposition = shown();
    EXPECT_EQ(exposition.types.at(name), "histogram");
    EXPECT_EQ(exposition[name + "_count"], count);
    EXPECT_NEAR(exposition[name + "_sum"], sum, 1e-9);
    EXPECT_EQ(exposition[name + R"(_bucket{le="+Inf"})"], count);
    const std::string labels = R"({model_name="m"})";
    EXPECT_EQ(exposition.types.at(vllm_name), "histogram");
    EXPECT_EQ(exposition[vllm_name + "_count" + labels], count);
    EXPECT_NEAR(exposition[vllm_name + "_sum" + labels], sum, 1e-9);
  }

  std::chrono::steady_clock::time_point now_ = {};
  Metrics metrics_{"m", "v", [this] { return now_; }};
};

TEST_F(WatchedMetrics, ObserveAnAnswer) {
  int n_heard = 0;
  AnswerListener listener = metrics_.watch([&](const AnswerEvent&) { ++n_heard; });
  now_ += milliseconds(300);
  listener(tokens(2));
  expect_observed("outrider_time_to_first_token_seconds", "vllm:time_to_first_token_seconds", 1,
                  .3);
  expect_observed("outrider_step_interval_seconds", "vllm:inter_token_latency_seconds", 0, 0);
  now_ += milliseconds(40);
  listener(tokens(1));
  now_ += milliseconds(90);
  listener(tokens(3));
  now_ += milliseconds(70);
  listener(end({.prompt_tokens = 20,
                .cached_tokens = 0,
                .completion_tokens = 7,
                .queued_ms = 100,
                .prompt_ms = 200,
                .generation_ms = 200,
                .counters = {}},
               1));
  EXPECT_EQ(n_heard, 4);
  expect_observed("outrider_time_to_first_token_seconds", "vllm:time_to_first_token_seconds", 1,
                  .3);
  expect_observed("outrider_step_interval_seconds", "vllm:inter_token_latency_seconds", 3, .2);
  expect_observed("outrider_token_interval_seconds", "vllm:time_per_output_token_seconds", 5, .2);
  expect_observed("outrider_answer_seconds", "vllm:e2e_request_latency_seconds", 1, .5);
  expect_observed("outrider_queue_seconds", "vllm:request_queue_time_seconds", 1, .1);
  expect_observed("outrider_prompt_seconds", "vllm:request_prefill_time_seconds", 1, .2);
  expect_observed("outrider_generation_seconds", "vllm:request_decode_time_seconds", 1, .2);
  expect_observed("outrider_answer_prompt_tokens", "vllm:request_prompt_tokens", 1, 20);
  expect_observed("outrider_answer_tokens", "vllm:request_generation_tokens", 1, 7);
  // Three tokens took 30 ms each, one 40, one 70.
  const Exposition exposition = shown();
  EXPECT_EQ(exposition[R"(outrider_token_interval_seconds_bucket{le="0.03"})"], 3);
  EXPECT_EQ(exposition[R"(outrider_token_interval_seconds_bucket{le="0.04"})"], 4);
  EXPECT_EQ(exposition[R"(outrider_token_interval_seconds_bucket{le="0.075"})"], 5);
}

TEST_F(WatchedMetrics, AnAnswerThatNeverBeganOnlyWaited) {
  const AnswerListener listener = metrics_.watch([](const AnswerEvent&) {});
  now_ += milliseconds(250);
  listener(end({.queued_ms = 250, .counters = {}}));
  expect_observed("outrider_answer_seconds", "vllm:e2e_request_latency_seconds", 1, .25);
  expect_observed("outrider_queue_seconds", "vllm:request_queue_time_seconds", 1, .25);
  expect_observed("outrider_prompt_seconds", "vllm:request_prefill_time_seconds", 0, 0);
  expect_observed("outrider_answer_tokens", "vllm:request_generation_tokens", 0, 0);
  expect_observed("outrider_time_to_first_token_seconds", "vllm:time_to_first_token_seconds", 0, 0);
}

TEST_F(WatchedMetrics, AnswersAtOnceHaveTimesOfTheirOwn) {
  const AnswerListener a = metrics_.watch([](const AnswerEvent&) {});
  now_ += milliseconds(100);
  const AnswerListener b = metrics_.watch([](const AnswerEvent&) {});
  now_ += milliseconds(100);
  a(tokens(1));
  b(tokens(1));
  now_ += milliseconds(50);
  b(tokens(1));
  expect_observed("outrider_time_to_first_token_seconds", "vllm:time_to_first_token_seconds", 2,
                  .3);
  expect_observed("outrider_step_interval_seconds", "vllm:inter_token_latency_seconds", 1, .05);
}

TEST_F(WatchedMetrics, CountersAndHistogramsNeverFall) {
  const AnswerListener listener = metrics_.watch([](const AnswerEvent&) {});
  const SchedulerStatus busy = busy_status();
  Exposition before = exposition_of(metrics_.text(busy));
  for (int round = 0; round < 20; ++round) {
    now_ += milliseconds(round * round);
    listener(tokens(1 + round % 3));
    const Exposition after = exposition_of(metrics_.text(busy));
    for (const auto& [sample, value] : before.samples)
      EXPECT_GE(after[sample], value) << sample << " in round " << round;
    before = after;
  }
}

TEST_F(WatchedMetrics, ThreadsMayUseThemAtOnce) {
  constexpr int kThreads = 4, kRounds = 200;
  const auto count = metrics_.count_requests({{"GET", "/x", {}}});
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        metrics_.watch([](const AnswerEvent&) {})(tokens(1));
        count({.method = "GET", .path = "/x", .status = 200, .bytes = 0, .ms = 0});
        if (round % 50 == 0) exposition_of(metrics_.text({}));
      }
    });
  for (std::thread& thread : threads) thread.join();
  const Exposition exposition = shown();
  EXPECT_EQ(exposition["outrider_time_to_first_token_seconds_count"], kThreads * kRounds);
  EXPECT_EQ(exposition[R"(outrider_http_requests_total{route="/x",status="200"})"],
            kThreads * kRounds);
}

TEST_F(WatchedMetrics, NothingOfATextGetsIn) {
  const AnswerListener listener = metrics_.watch([](const AnswerEvent&) {});
  listener(tokens(3));
  AnswerEvent failed = end({.prompt_tokens = 1, .counters = {}});
  failed.end->reason = std::nullopt;
  failed.end->error = Error("secret text");
  listener(failed);
  EXPECT_EQ(metrics_.text(busy_status()).find("secret"), std::string::npos);
}

TEST(Metrics, IgnoredFieldsAreCountedWithoutNames) {
  Metrics metrics("m", "v");
  EXPECT_EQ(exposition_of(metrics.text({}))["outrider_ignored_fields_total"], 0);
  for (int i = 0; i < 3; ++i) metrics.count_ignored_field();
  const Exposition shown = exposition_of(metrics.text({}));
  EXPECT_EQ(shown["outrider_ignored_fields_total"], 3);
  EXPECT_EQ(shown.types.at("outrider_ignored_fields_total"), "counter");
}

TEST(Metrics, NamesAreEscaped) {
  struct Case {
    const char *name, *model, *written;
  };
  const Case cases[] = {
      {"plain", "smollm2:135m", "smollm2:135m"},   {"quote", "a\"} 1\n", "a\\\"} 1\\n"},
      {"backslash", "C:\\models", "C:\\\\models"}, {"characters", "modèle", "modèle"},
      {"not UTF-8", "a\xff", "a\xEF\xBF\xBD"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Metrics metrics(c.model, "v");
    const Exposition shown = exposition_of(metrics.text({}));
    EXPECT_EQ(shown[std::string("vllm:num_requests_running{model_name=\"") + c.written + "\"}"], 0);
  }
}

TEST(Metrics, RequestsAreCountedByRoute) {
  Metrics metrics("m", "v");
  const auto count = metrics.count_requests({{"POST", "/v1/chat/completions", {}},
                                             {"GET", "/v1/models/*", {}},
                                             {"GET", "/v1/models/x", {}},
                                             {"GET", "/v1/models/long/*", {}}});
  struct Case {
    const char* path;
    int status;
    const char* route;
  };
  const Case cases[] = {
      {"/v1/chat/completions", 200, "/v1/chat/completions"},
      {"/v1/chat/completions", 503, "/v1/chat/completions"},
      {"/v1/chat/completions/", 404, "other"},
      {"/v1/models/a", 200, "/v1/models/*"},
      {"/v1/models/x", 201, "/v1/models/x"},
      {"/v1/models/long/x", 202, "/v1/models/long/*"},
      {"/v1/models", 405, "other"},
      {"/secret", 401, "other"},
      {"", 400, "other"},
  };
  for (const Case& c : cases)
    count({.method = "GET", .path = c.path, .status = c.status, .bytes = 9, .ms = 1});
  count({.method = "GET", .path = "/v1/models/b", .status = 200, .bytes = 9, .ms = 1});
  const std::string text = metrics.text({});
  EXPECT_EQ(text.find("secret"), std::string::npos);
  const Exposition shown = exposition_of(text);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.path);
    EXPECT_EQ(shown[std::string("outrider_http_requests_total{route=\"") + c.route +
                    "\",status=\"" + std::to_string(c.status) + "\"}"],
              std::string(c.route) == "/v1/models/*" ? 2 : 1);
  }
}

}  // namespace
}  // namespace outrider

// Writes the metrics of a server in the middle of its work, for a test that has no server.

#include <cstdio>

#include "server/http_server.h"
#include "server/metrics.h"

using namespace outrider;

int main() {
  SchedulerStatus status;
  using enum SchedulerStatus::State;
  for (const auto state : {generating, generating, reading, waiting})
    status.answers.push_back({{1}, state, 100, 64, 100, 10, -1});
  status.pages = 64;
  status.free_pages = 40;
  status.steps = 900;
  status.stopped = 30;
  status.reached_length = 6;
  status.failed = 1;
  status.cancelled = 2;
  status.preemptions = 3;
  status.prompt_tokens = 2000;
  status.cached_tokens = 700;
  status.completion_tokens = 2100;
  Counters& counters = status.counters;
  counters.steps = 1400;
  counters.rows = 4000;
  counters.generating = 1350;
  counters.drafted = 1500;
  counters.accepted = 750;
  counters.drafts = 500;
  counters.draft_depth = 1000;
  counters.tested = 1100;
  counters.draft_passes = 200;
  counters.draft_levels = 300;
  counters.draft_ms = 400;
  counters.not_drafted = {
      .off = 100, .limit = 50, .no_match = 300, .does_not_pay = 400, .measured = 20};
  counters.accepted_lengths = {150, 100, 150, 70, 30};
  status.drafters = {{"lookup", {700, 300}}, {"model", {900, 450}}};

  auto now = std::chrono::steady_clock::time_point();
  Metrics metrics("example", "0.0.0", [&now] { return now; });
  for (int i = 0; i < 39; ++i) {
    const AnswerListener listener = metrics.watch([](const AnswerEvent&) {});
    AnswerEvent event;
    event.tokens.resize(2);
    for (int step = 0; step < 20; ++step) {
      now += std::chrono::milliseconds(20 + i + step);
      listener(event);
    }
    event.end = AnswerEnd{.reason = FinishReason::stop,
                          .error = std::nullopt,
                          .figures = {.prompt_tokens = 50,
                                      .completion_tokens = 42,
                                      .queued_ms = 5,
                                      .prompt_ms = 15.0 + i,
                                      .generation_ms = 600,
                                      .counters = {}}};
    listener(event);
  }
  const auto count = metrics.count_requests({{"POST", "/v1/chat/completions", {}}});
  for (const int http_status : {200, 200, 503})
    count({.method = "POST", .path = "/v1/chat/completions", .status = http_status});
  std::fputs(metrics.text(status).c_str(), stdout);
}

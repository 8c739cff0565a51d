// What Prometheus reads of a server: text exposition format 0.0.4.
//
// Everything is there under a name of ours (outrider_*); what vLLM 0.11 counts in the same way is
// there under its name, too (vllm:*, with the label model_name), so that its dashboards work.
// Labels hold the names of model and drafters, and words and routes from fixed lists: nothing that
// a request said.

#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "http/http.h"

namespace outrider {

struct HttpAccess;

// Thread-safe.
class Metrics {
 public:
  using Now = std::function<std::chrono::steady_clock::time_point()>;

  // `now` is for tests.
  Metrics(const std::string& model_name, const std::string& version,
          Now now = std::chrono::steady_clock::now);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Listens to an answer that is submitted now, and passes everything on to `listener`. Takes less
  // than a microsecond for each token. The metrics must outlive the result.
  AnswerListener watch(AnswerListener listener);

  // Counts requests by route and status, for HttpServerOptions::access_log. A path that no route
  // has counts as "other". The metrics must outlive the result.
  std::function<void(const HttpAccess&)> count_requests(const std::vector<HttpRoute>& routes);

  // A field of a request that nobody knows was ignored.
  void count_ignored_field();

  // The exposition: the counts of `status`, and what was observed. Statuses must come from one
  // scheduler, in their order, so that no counter falls.
  std::string text(const SchedulerStatus& status) const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace outrider

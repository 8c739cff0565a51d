#include "server/metrics.h"

#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "base/utf8.h"
#include "http/server.h"
#include "speculation/verifier.h"

namespace outrider {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Buckets = prometheus::Histogram::BucketBoundaries;
using Clock = std::chrono::steady_clock;
using Labels = std::vector<ClientMetric::Label>;

// A processor takes a millisecond for a token of the smallest models, and minutes for a long prompt
// to a large one.
const Buckets kTokenSeconds = {.001, .002, .003, .005, .0075, .01, .015, .02, .03, .04, .05,
                               .075, .1,   .15,  .2,   .3,    .5,  .75,  1,   2.5, 5,   10};
const Buckets kAnswerSeconds = {.01, .025, .05, .1, .25, .5,  1,   2.5, 5,    10,
                                20,  40,   60,  90, 120, 240, 480, 960, 1920, 3840};
const Buckets kTokens = {1,    2,    5,    10,    20,    50,    100,    200,   500,
                         1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};

// Positions of drafts that are shown from the start; deeper ones appear with the first acceptance.
constexpr std::size_t kPositions = 8;

struct Value {
  double value;
  Labels labels = {};
};

// Families in the order in which they were added. Those with a name of vLLM's are there twice; ""
// stands for none.
class Exposition {
 public:
  explicit Exposition(std::string model_name) : model_name_(std::move(model_name)) {}

  void counter(const char* name, const char* vllm_name, const char* help,
               const std::vector<Value>& values) {
    add(MetricType::Counter, name, vllm_name, help, values, &ClientMetric::counter);
  }
  void gauge(const char* name, const char* vllm_name, const char* help,
             const std::vector<Value>& values) {
    add(MetricType::Gauge, name, vllm_name, help, values, &ClientMetric::gauge);
  }
  void counter(const char* name, const char* vllm_name, const char* help, double value) {
    counter(name, vllm_name, help, std::vector<Value>{{value}});
  }
  void gauge(const char* name, const char* vllm_name, const char* help, double value) {
    gauge(name, vllm_name, help, std::vector<Value>{{value}});
  }
  void histogram(const char* name, const char* vllm_name, const char* help,
                 const ClientMetric& metric) {
    add(MetricType::Histogram, name, vllm_name, help, {metric});
  }

  std::string text() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  template <class Field>
  void add(MetricType type, const char* name, const char* vllm_name, const char* help,
           const std::vector<Value>& values, Field ClientMetric::*field) {
    std::vector<ClientMetric> metrics;
    for (const Value& value : values) {
      ClientMetric& metric = metrics.emplace_back();
      metric.label = value.labels;
      (metric.*field).value = value.value;
    }
    add(type, name, vllm_name, help, std::move(metrics));
  }

  void add(MetricType type, std::string name, std::string vllm_name, const char* help,
           std::vector<ClientMetric> metrics) {
    families_.push_back({std::move(name), help, type, metrics});
    if (vllm_name.empty()) return;
    for (ClientMetric& metric : metrics)
      metric.label.insert(metric.label.begin(), {"model_name", model_name_});
    families_.push_back({std::move(vllm_name), help, type, std::move(metrics)});
  }

  const std::string model_name_;
  std::vector<MetricFamily> families_;
};

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

void add_answers(Exposition& out, const SchedulerStatus& status) {
  using enum SchedulerStatus::State;
  const auto count = [&](SchedulerStatus::State state) {
    return static_cast<double>(status.count(state));
  };
  out.gauge("outrider_answers", "", "Answers in progress, by what they do.",
            {{count(waiting), {{"state", "waiting"}}},
             {count(prefilling), {{"state", "reading"}}},
             {count(generating), {{"state", "generating"}}},
             {count(suspended), {{"state", "suspended"}}}});
  out.gauge("outrider_answers_running", "vllm:num_requests_running",
            "Answers that are read or generated.", count(prefilling) + count(generating));
  out.gauge("outrider_answers_waiting", "vllm:num_requests_waiting",
            "Answers that wait for their turn, or were preempted.",
            count(waiting) + count(suspended));
  const auto ended = [](long n, const char* reason) {
    return Value{static_cast<double>(n), {{"finished_reason", reason}}};
  };
  out.counter("outrider_answers_ended_total", "vllm:request_success_total",
              "Answers that have ended, by the reason; abort: cancelled, or the client went away.",
              {ended(status.stopped, "stop"), ended(status.reached_length, "length"),
               ended(status.cancelled, "abort"), ended(status.failed, "error")});
  std::vector<Value> by_verifier;
  for (const std::string_view name : kVerifierNames) {
    const auto found = status.ended.find(name);
    by_verifier.push_back({found == status.ended.end() ? 0.0 : static_cast<double>(found->second),
                           {{"verifier", std::string(name)}}});
  }
  out.counter("outrider_answers_verified_total", "",
              "Answers that have ended, by the verifier of their drafts.", by_verifier);
  out.counter("outrider_preemptions_total", "vllm:num_preemptions_total",
              "How often an answer was preempted: its pages went to others, to be computed again.",
              status.preemptions);
}

void add_work(Exposition& out, const SchedulerStatus& status) {
  const int used = status.pages - status.free_pages;
  out.gauge("outrider_pages", "", "Pages of the cache of keys and values.", status.pages);
  out.gauge(
      "outrider_pages_free", "",
      "Pages that can be taken, those with texts that a later prompt may begin with among them.",
      status.free_pages);
  out.gauge("outrider_pages_cached", "",
            "Of the free pages, those with texts that a later prompt may begin with.",
            status.cached_pages);
  out.gauge("outrider_pages_used", "", "Pages that hold answers in progress.", used);
  out.gauge("outrider_pages_used_ratio", "vllm:kv_cache_usage_perc",
            "Pages that hold answers in progress; 1: all.",
            status.pages > 0 ? static_cast<double>(used) / status.pages : 0);
  out.counter("outrider_steps_total", "", "Steps of the engine.", status.steps);
  out.counter("outrider_rows_total", "", "Rows of the model's passes, those of prompts among them.",
              status.counters.rows);
  out.counter("outrider_prompt_tokens_total", "vllm:prompt_tokens_total",
              "Tokens of prompts of answers that have begun.", status.prompt_tokens);
  out.counter("outrider_prompt_tokens_looked_up_total", "vllm:prefix_cache_queries_total",
              "Tokens of prompts that were looked up in the cache.", status.prompt_tokens);
  out.counter("outrider_prompt_tokens_cached_total", "vllm:prefix_cache_hits_total",
              "Tokens of prompts that the cache had already.", status.cached_tokens);
  out.counter("outrider_generated_tokens_total", "vllm:generation_tokens_total",
              "Tokens of answers.", status.completion_tokens);
}

// Drafters of one name count together, as a series may appear once.
std::map<std::string, DrafterCounts> counts_by_drafter(const SchedulerStatus& status) {
  std::map<std::string, DrafterCounts> result;
  for (const SchedulerStatus::OfDrafter& drafter : status.drafters)
    result[drafter.name] += drafter.counts;
  return result;
}

// How often the token at each position of a draft was accepted: a step with n accepted tokens
// counts for positions 0 to n - 1.
std::vector<Value> accepted_by_position(const std::vector<long>& accepted_lengths) {
  const std::size_t longest = std::max<std::size_t>(accepted_lengths.size(), 1) - 1;
  std::vector<Value> result(std::max(kPositions, longest));
  double n = 0;
  for (std::size_t position = result.size(); position-- > 0;) {
    if (position < longest) n += static_cast<double>(accepted_lengths[position + 1]);
    result[position] = {n, {{"position", std::to_string(position)}}};
  }
  return result;
}

void add_drafts(Exposition& out, const SchedulerStatus& status) {
  const Counters& counters = status.counters;
  out.counter("outrider_answer_steps_total", "", "Steps, counted for each answer that took part.",
              counters.steps);
  out.counter("outrider_generating_steps_total", "", "Of these, those that brought tokens.",
              counters.generating);
  out.counter("outrider_drafts_total", "vllm:spec_decode_num_drafts_total",
              "Of these, those that checked drafted tokens.", counters.drafts);
  out.counter("outrider_checked_tokens_total", "vllm:spec_decode_num_draft_tokens_total",
              "Drafted tokens that were checked, each once.", counters.drafted);
  out.counter("outrider_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens_total",
              "Drafted tokens that became text.", counters.accepted);
  out.counter("outrider_accepted_tokens_per_position_total",
              "vllm:spec_decode_num_accepted_tokens_per_pos_total",
              "Drafted tokens that became text, by their position in the draft.",
              accepted_by_position(counters.accepted_lengths));
  out.counter("outrider_tested_places_total", "",
              "Places of texts where a drafted token could have been accepted.", counters.tested);
  out.counter("outrider_draft_depth_total", "", "Sum of the lengths of drafts.",
              counters.draft_depth);
  out.counter("outrider_draft_seconds_total", "", "Time that drafters took to propose.",
              status.draft_work.ms / 1000);
  out.counter("outrider_draft_passes_total", "", "Passes of draft models.",
              status.draft_work.passes);
  out.counter("outrider_draft_levels_total", "", "Levels of drafts that these decided.",
              status.draft_work.levels);
  out.gauge("outrider_draft_bank_passes", "",
            "Passes of the model that drafts may still lose, of all answers together.",
            status.planner.bank);
  out.counter("outrider_draft_vetoes_total", "",
              "Steps that drafted less because an answer had waited too long for others' drafts.",
              status.planner.vetoes);
  out.counter("outrider_draft_probes_total", "",
              "Drafts of drafters that were not expected to pay, made to see whether they do.",
              status.planner.probes);

  std::vector<Value> proposed, accepted, first, first_right;
  for (const auto& [name, counts] : counts_by_drafter(status)) {
    first.push_back({static_cast<double>(counts.first), {{"drafter", name}}});
    first_right.push_back({static_cast<double>(counts.first_right), {{"drafter", name}}});
    proposed.push_back({static_cast<double>(counts.proposed), {{"drafter", name}}});
    accepted.push_back({static_cast<double>(counts.accepted), {{"drafter", name}}});
  }
  out.counter("outrider_draft_tokens_total", "",
              "Checked tokens that a drafter had proposed; several may propose the same one.",
              proposed);
  out.counter("outrider_draft_tokens_accepted_total", "", "Of these, those that became text.",
              accepted);
  out.counter("outrider_draft_first_total", "", "Steps in which a drafter guessed the next token.",
              first);
  out.counter(
      "outrider_draft_first_right_total", "",
      "Of these, those in which it was right. Below 0.4 of them a draft model is misaligned.",
      first_right);
  const NotDrafted& not_drafted = counters.not_drafted;
  const auto reason = [](long n, const char* name) {
    return Value{static_cast<double>(n), {{"reason", name}}};
  };
  out.counter(
      "outrider_not_drafted_total", "",
      "Steps that could have checked drafts and checked none, by the reason.",
      {reason(not_drafted.off, "off"), reason(not_drafted.limit, "limit"),
       reason(not_drafted.no_match, "no_match"), reason(not_drafted.does_not_pay, "does_not_pay"),
       reason(not_drafted.measured, "measured")});
}

}  // namespace

struct Metrics::State {
  struct Observed {
    const char *name, *vllm_name, *help;
    prometheus::Histogram histogram;
  };

  const std::string model_name, version;
  const Now now;
  Observed first_token = {"outrider_time_to_first_token_seconds",
                          "vllm:time_to_first_token_seconds",
                          "From submitting an answer to its first tokens.", kAnswerSeconds};
  Observed step = {"outrider_step_interval_seconds", "vllm:inter_token_latency_seconds",
                   "Between two steps that brought tokens to an answer.", kTokenSeconds};
  Observed token = {"outrider_token_interval_seconds", "vllm:time_per_output_token_seconds",
                    "The same, by token: of n that came together each took an n-th.",
                    kTokenSeconds};
  Observed answer = {"outrider_answer_seconds", "vllm:e2e_request_latency_seconds",
                     "From submitting an answer to its end.", kAnswerSeconds};
  Observed queue = {"outrider_queue_seconds", "vllm:request_queue_time_seconds",
                    "How long an answer waited for its first step.", kAnswerSeconds};
  Observed prompt = {"outrider_prompt_seconds", "vllm:request_prefill_time_seconds",
                     "From an answer's first step to its first tokens.", kAnswerSeconds};
  Observed generation = {"outrider_generation_seconds", "vllm:request_decode_time_seconds",
                         "From an answer's first tokens to its end.", kAnswerSeconds};
  Observed prompt_tokens = {"outrider_answer_prompt_tokens", "vllm:request_prompt_tokens",
                            "Tokens of an answer's prompt.", kTokens};
  Observed answer_tokens = {"outrider_answer_tokens", "vllm:request_generation_tokens",
                            "Tokens of an answer.", kTokens};

  std::atomic<long> ignored_fields = 0;

  std::mutex mutex = {};                                      // of what follows
  std::map<std::pair<std::string, int>, long> requests = {};  // by route and status
};

Metrics::Metrics(const std::string& model_name, const std::string& version, Now now)
    : state_(new State{well_formed(model_name), well_formed(version), std::move(now)}) {}

Metrics::~Metrics() = default;

AnswerListener Metrics::watch(AnswerListener listener) {
  return [state = state_.get(), listener = std::move(listener), submitted = state_->now(),
          last = std::optional<Clock::time_point>()](const AnswerEvent& event) mutable {
    const Clock::time_point now = state->now();
    if (!event.tokens.empty() && !last) {
      state->first_token.histogram.Observe(seconds_between(submitted, now));
    } else if (!event.tokens.empty()) {
      const double seconds = seconds_between(*last, now);
      const auto n = event.tokens.size();
      state->step.histogram.Observe(seconds);
      for (std::size_t i = 0; i < n; ++i)
        state->token.histogram.Observe(seconds / static_cast<double>(n));
    }
    if (!event.tokens.empty()) last = now;
    if (event.end) {
      const AnswerFigures& figures = event.end->figures;
      state->answer.histogram.Observe(seconds_between(submitted, now));
      state->queue.histogram.Observe(figures.queued_ms / 1000);
      if (figures.prompt_tokens > 0) {  // it has begun
        state->prompt.histogram.Observe(figures.prompt_ms / 1000);
        state->generation.histogram.Observe(figures.generation_ms / 1000);
        state->prompt_tokens.histogram.Observe(figures.prompt_tokens);
        state->answer_tokens.histogram.Observe(figures.completion_tokens);
      }
    }
    listener(event);
  };
}

std::function<void(const HttpAccess&)> Metrics::count_requests(
    const std::vector<HttpRoute>& routes) {
  // As the router looks for them: whole paths first, then the longest that fits.
  std::vector<std::string> paths;
  for (const HttpRoute& route : routes) paths.push_back(route.path);
  std::ranges::sort(paths, std::greater(), [](const std::string& path) {
    return std::pair(!path.ends_with("/*"), path.size());
  });
  return [state = state_.get(), paths](const HttpAccess& access) {
    const auto fits = [&](std::string_view path) {
      if (!path.ends_with("/*")) return access.path == path;
      return access.path.starts_with(path.substr(0, path.size() - 1));
    };
    const auto found = std::ranges::find_if(paths, fits);
    const std::string route = found == paths.end() ? "other" : *found;
    const std::lock_guard lock(state->mutex);
    ++state->requests[{route, access.status}];
  };
}

void Metrics::count_ignored_field() {
  ++state_->ignored_fields;
}

std::string Metrics::text(const SchedulerStatus& status) const {
  Exposition out(state_->model_name);
  out.gauge("outrider_build_info", "", "1; the version that runs, and its model.",
            {{1, {{"model_name", state_->model_name}, {"version", state_->version}}}});
  add_answers(out, status);
  add_work(out, status);
  add_drafts(out, status);
  for (const State::Observed* observed :
       {&state_->first_token, &state_->step, &state_->token, &state_->answer, &state_->queue,
        &state_->prompt, &state_->generation, &state_->prompt_tokens, &state_->answer_tokens})
    out.histogram(observed->name, observed->vllm_name, observed->help,
                  observed->histogram.Collect());
  std::vector<Value> requests;
  {
    const std::lock_guard lock(state_->mutex);
    for (const auto& [key, n] : state_->requests)
      requests.push_back(
          {static_cast<double>(n), {{"route", key.first}, {"status", std::to_string(key.second)}}});
  }
  out.counter("outrider_http_requests_total", "", "Requests that were answered.", requests);
  out.counter("outrider_ignored_fields_total", "",
              "Fields of requests that are not known and were ignored.",
              static_cast<double>(state_->ignored_fields));
  return out.text();
}

}  // namespace outrider

#include "server/answer_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "http/error_body.h"

namespace outrider {
namespace {

double ratio(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

// Why most steps without drafts had none.
std::string_view main_reason(const NotDrafted& steps) {
  const std::pair<long, std::string_view> reasons[] = {{steps.off, "off"},
                                                       {steps.does_not_pay, "does_not_pay"},
                                                       {steps.no_match, "no_match"},
                                                       {steps.limit, "limit"},
                                                       {steps.measured, "measured"}};
  return std::ranges::max_element(reasons, {}, &std::pair<long, std::string_view>::first)->second;
}

}  // namespace

Json head_json(const AnswerHead& head, std::string_view object) {
  Json json = {
      {"id", head.id}, {"object", object}, {"created", head.created}, {"model", head.model}};
  if (!head.version.empty()) json["system_fingerprint"] = head.version;
  json["seed"] = head.seed;
  return json;
}

std::string openai_error_event(const RequestError& error) {
  return fmt::format("data: {}\n\n{}",
                     openai_error_body(error.status, error.what(), error.code, error.param),
                     kOpenAiDone);
}

std::string document_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string event_text(const Json& json) {
  return fmt::format("data: {}\n\n", document_text(json));
}

std::string event_text(std::string_view name, const Json& json) {
  return fmt::format("event: {}\ndata: {}\n\n", name, document_text(json));
}

void add_figures(AnswerFigures& sum, const AnswerFigures& figures, bool with_prompt) {
  if (with_prompt) {
    sum.prompt_tokens += figures.prompt_tokens;
    sum.cached_tokens += figures.cached_tokens;
  }
  sum.completion_tokens += figures.completion_tokens;
  sum.first_tokens += figures.first_tokens;
  sum.queued_ms = std::max(sum.queued_ms, figures.queued_ms);
  sum.prompt_ms = std::max(sum.prompt_ms, figures.prompt_ms);
  sum.generation_ms = std::max(sum.generation_ms, figures.generation_ms);
  sum.n_preempted += figures.n_preempted;
  sum.verifier = figures.verifier;
  sum.is_lossy = figures.is_lossy;
  sum.counters += figures.counters;
  sum.prediction_accepted += figures.prediction_accepted;
  sum.prediction_rejected += figures.prediction_rejected;
}

Json openai_usage_json(const AnswerFigures& figures, std::optional<int> n_reasoning) {
  Json json = {{"prompt_tokens", figures.prompt_tokens},
               {"completion_tokens", figures.completion_tokens},
               {"total_tokens", figures.prompt_tokens + figures.completion_tokens},
               {"prompt_tokens_details", {{"cached_tokens", figures.cached_tokens}}},
               {"completion_tokens_details",
                {{"accepted_prediction_tokens", figures.prediction_accepted},
                 {"rejected_prediction_tokens", figures.prediction_rejected}}}};
  if (n_reasoning) json["completion_tokens_details"]["reasoning_tokens"] = *n_reasoning;
  return json;
}

Json timings_json(const AnswerFigures& figures) {
  const Counters& counters = figures.counters;
  const NotDrafted& steps = counters.not_drafted;
  const int prompt_n = figures.prompt_tokens - figures.cached_tokens;
  // Those that came with the prompt's last pass took none of the generation's time.
  const int timed = figures.completion_tokens - figures.first_tokens;
  Json json = {{"queued_ms", figures.queued_ms},
               {"cache_n", figures.cached_tokens},
               {"prompt_n", prompt_n},
               {"prompt_ms", figures.prompt_ms},
               {"prompt_per_token_ms", ratio(figures.prompt_ms, prompt_n)},
               {"prompt_per_second", ratio(1000.0 * prompt_n, figures.prompt_ms)},
               {"predicted_n", figures.completion_tokens},
               {"predicted_ms", figures.generation_ms},
               {"predicted_per_token_ms", ratio(figures.generation_ms, timed)},
               {"predicted_per_second", ratio(1000.0 * timed, figures.generation_ms)},
               {"preempted_n", figures.n_preempted},
               {"verify", figures.verifier},
               {"draft_n", counters.drafted},
               {"draft_n_accepted", counters.accepted},
               {"accepted_lengths", counters.accepted_lengths},
               {"not_drafted",
                {{"off", steps.off},
                 {"limit", steps.limit},
                 {"no_match", steps.no_match},
                 {"does_not_pay", steps.does_not_pay},
                 {"measured", steps.measured}}}};
  if (figures.is_lossy) json["lossy"] = true;
  if (counters.drafted == 0 && steps.sum() > 0) json["no_draft_reason"] = main_reason(steps);
  return json;
}

std::optional<RequestError> failure(const AnswerEnd& end) {
  if (end.error) return RequestError(500, "", "", end.error->what());
  if (!end.reason)
    return RequestError(503, "", "",
                        "the server is stopping, or has too much to do; ask again later");
  return std::nullopt;
}

}  // namespace outrider

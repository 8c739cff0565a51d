#include "server/status_routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "http/error_body.h"
#include "server/fields.h"

namespace outrider {
namespace {

using Reply = std::shared_ptr<HttpReply>;

void send(HttpReply& reply, const Json& json) {
  reply.send({.body = json.dump(-1, ' ', false, Json::error_handler_t::replace)});
}

Json properties_json(const ServerProperties& properties, const std::string& version) {
  const Filters& filters = properties.filters;
  return {{"default_generation_settings",
           {{"n_ctx", properties.context},
            {"speculative", properties.drafts},
            {"params",
             {{"n_predict", -1},
              {"temperature", filters.temperature},
              {"top_k", filters.top_k},
              {"top_p", filters.top_p},
              {"min_p", filters.min_p},
              {"typical_p", filters.typical_p},
              {"repeat_penalty", filters.repeat_penalty},
              {"presence_penalty", filters.presence_penalty},
              {"frequency_penalty", filters.frequency_penalty},
              {"verify", properties.verifier}}}}},
          {"total_slots", properties.n_running},
          {"model_alias", properties.model_name},
          {"model_path", properties.model_path},
          {"modalities", {{"vision", false}, {"audio", false}}},
          {"endpoint_slots", true},
          {"endpoint_props", false},  // nothing can be changed
          {"endpoint_metrics", true},
          {"chat_template", properties.chat_template},
          {"bos_token", properties.bos_token},
          {"eos_token", properties.eos_token},
          {"build_info", "outrider " + version}};
}

std::string_view state_name(SchedulerStatus::State state) {
  switch (state) {
    case SchedulerStatus::State::waiting: return "waiting";
    case SchedulerStatus::State::prefilling: return "reading";
    case SchedulerStatus::State::generating: return "generating";
    case SchedulerStatus::State::suspended: return "suspended";
  }
  return "";
}

// Answers that have begun, then idle places. Places have no number of their own: an answer moves up
// when one before it ends, and is told apart by id_task.
Json slots_json(const SchedulerStatus& status, const ServerProperties& properties) {
  Json slots = Json::array();
  const auto add = [&](bool is_processing) -> Json& {
    return slots.emplace_back(Json{{"id", slots.size()},
                                   {"n_ctx", properties.context},
                                   {"speculative", properties.drafts},
                                   {"is_processing", is_processing}});
  };
  for (const SchedulerStatus::Answer& answer : status.answers) {
    if (answer.state == SchedulerStatus::State::waiting) continue;
    const int n_remain =
        answer.n_predict < 0 ? -1 : std::max(0, answer.n_predict - answer.completion_tokens);
    Json& slot = add(true);
    slot["id_task"] = answer.id.value;
    slot["state"] = state_name(answer.state);
    slot["n_prompt_tokens"] = answer.prompt_tokens;
    slot["n_prompt_tokens_cached"] = answer.cached_tokens;
    slot["n_prompt_tokens_read"] = answer.read_tokens;
    slot["next_token"] = {
        {"has_next_token", true}, {"n_remain", n_remain}, {"n_decoded", answer.completion_tokens}};
  }
  while (slots.size() < static_cast<std::size_t>(properties.n_running))
    add(false)["state"] = "idle";
  return slots;
}

bool asks_for_idle_slot(std::string_view query) {
  return fmt::format("&{}&", query).find("&fail_on_no_slot=1&") != std::string::npos;
}

}  // namespace

std::vector<HttpRoute> status_routes(StatusSources sources) {
  const auto from = std::make_shared<const StatusSources>(std::move(sources));
  const auto once_loaded = [from](auto answer) -> HttpHandler {
    return [from, answer](const HttpRequest& request, const Reply& reply) {
      if (from->state() == ServerState::loading)
        reply->send(error_response(request.path, 503, "Loading model"));
      else
        answer(*from, request, *reply);
    };
  };

  const HttpHandler health =
      once_loaded([](const StatusSources& from, const HttpRequest& request, HttpReply& reply) {
        if (from.state() == ServerState::draining)
          reply.send(error_response(request.path, 503, "The server is shutting down"));
        else
          send(reply, {{"status", "ok"}});
      });
  const HttpHandler version = [from](const HttpRequest&, const Reply& reply) {
    send(*reply, {{"version", from->version}});
  };
  const HttpHandler props =
      once_loaded([](const StatusSources& from, const HttpRequest&, HttpReply& reply) {
        send(reply, properties_json(from.properties(), from.version));
      });
  const HttpHandler slots =
      once_loaded([](const StatusSources& from, const HttpRequest& request, HttpReply& reply) {
        const Json json = slots_json(from.status(), from.properties());
        if (asks_for_idle_slot(request.query) && (json.empty() || json.back()["is_processing"]))
          reply.send(error_response(request.path, 503, "No slot is idle"));
        else
          send(reply, json);
      });
  const HttpHandler metrics =
      once_loaded([](const StatusSources& from, const HttpRequest&, HttpReply& reply) {
        reply.send({.body = from.metrics(from.status()),
                    .content_type = "text/plain; version=0.0.4; charset=utf-8"});
      });
  return {{"GET", "/health", health}, {"GET", "/v1/health", health}, {"GET", "/version", version},
          {"GET", "/props", props},   {"GET", "/slots", slots},      {"GET", "/metrics", metrics}};
}

}  // namespace outrider

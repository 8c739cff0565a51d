#include "server/openai_routes.h"

#include <array>
#include <ctime>
#include <utility>

#include "server/answer_ids.h"
#include "server/answer_request.h"
#include "server/chat_answer.h"
#include "server/chat_prompt.h"
#include "server/chat_request.h"
#include "server/completion_answer.h"
#include "server/completion_request.h"
#include "server/delivery.h"
#include "server/validation.h"

namespace outrider {
namespace {

using Reply = std::shared_ptr<HttpReply>;

constexpr std::string_view kComment = ": still here\n\n";  // which clients skip

Asked asked(const HttpRequest& http, const GenerationFields& fields,
            std::unique_ptr<AnswerForm> form) {
  return {.answers = {},
          .form = std::move(form),
          .stream = fields.stream,
          .path = http.path,
          .heartbeat = std::string(kComment)};
}

void chat(const ServedModel& model, const HttpRequest& http, Reply reply) {
  ChatRequest request = read_chat_request(http.body, model.limits, model.unknown_field);
  draw_seed(request);
  const AnswerHead head = answer_head(model, request, "chatcmpl-");
  const ChatPrompt prompt = chat_prompt(model, request);
  std::vector<Token> tokens = prompt.tokens(*model.tokenizer);
  check_prompt(model, tokens, "messages", request.max_tokens);
  AnswerRequest first = answer_request(model, request, std::move(tokens), http.api_key);
  first.request.stop.shown_tokens =
      shown_tokens(model.format, *model.tokenizer, request.has_tools());

  const auto form = request.stream ? chat_stream : chat_document;
  Asked ask = asked(http, request,
                    form({.head = head,
                          .n = request.n,
                          .logprobs = request.n_logprobs.has_value(),
                          .include_usage = request.include_usage,
                          .format = model.format,
                          .parser = parser_options(request, prompt),
                          .tokenizer = model.tokenizer,
                          .new_call_id = [] { return random_id("call_"); }}));
  add_answers(ask.answers, first, request.n);
  give_answers(model, std::move(ask), std::move(reply));
}

std::vector<Token> tokens_of(const ServedModel& model, const CompletionRequest& request,
                             const CompletionPrompt& prompt) {
  if (const auto* tokens = std::get_if<std::vector<Token>>(&prompt)) return *tokens;
  const TextPiece pieces[] = {{std::get<std::string>(prompt), true}};
  return request.adds_special_tokens ? model.tokenizer->encode_whole(pieces)
                                     : model.tokenizer->encode(pieces);
}

void complete(const ServedModel& model, const HttpRequest& http, Reply reply) {
  CompletionRequest request = read_completion_request(http.body, model.limits, model.unknown_field);
  draw_seed(request);
  const AnswerHead head = answer_head(model, request, "cmpl-");
  std::vector<std::vector<Token>> prompts;
  std::vector<AnswerRequest> answers;
  AnswerRequest first = answer_request(model, request, {}, http.api_key);
  first.request.options.prompt_logprobs = request.echo && request.n_logprobs;
  for (const CompletionPrompt& prompt : request.prompts) {
    prompts.push_back(tokens_of(model, request, prompt));
    check_prompt(model, prompts.back(), "prompt", request.max_tokens);
    first.request.prompt = prompts.back();
    add_answers(answers, first, request.n);
  }

  const auto form = request.stream ? completion_stream : completion_document;
  Asked ask = asked(http, request,
                    form({.head = head,
                          .n = request.n,
                          .prompts = std::move(prompts),
                          .echo = request.echo,
                          .logprobs = request.n_logprobs.has_value(),
                          .include_usage = request.include_usage,
                          .tokenizer = model.tokenizer}));
  ask.answers = std::move(answers);
  give_answers(model, std::move(ask), std::move(reply));
}

// For the clients of OpenAI and of Anthropic, who ask at the same path.
Json model_json(const ServedModel& model, const std::string& name) {
  const auto time = static_cast<std::time_t>(model.created);
  std::tm utc = {};
  gmtime_r(&time, &utc);
  std::array<char, 32> date = {};
  std::strftime(date.data(), date.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return {{"id", name},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "outrider"},
          {"max_model_len", model.context},
          {"type", "model"},
          {"display_name", name},
          {"created_at", date.data()}};
}

HttpResponse models(const ServedModel& model) {
  Json json = {{"object", "list"}, {"data", Json::array({model_json(model, model.name)})}};
  for (const std::string& alias : model.aliases)
    if (alias != "*") json["data"].push_back(model_json(model, alias));
  json["first_id"] = json["data"].front()["id"];
  json["last_id"] = json["data"].back()["id"];
  json["has_more"] = false;
  return {.body = document_text(json)};
}

HttpResponse one_model(const ServedModel& model, const HttpRequest& http) {
  const std::string name = http.path.substr(std::string_view("/v1/models/").size());
  return {.body = document_text(model_json(model, answering_name(model, name)))};
}

}  // namespace

std::vector<HttpRoute> openai_routes(std::shared_ptr<const ServedModel> model) {
  return {
      {"POST", "/v1/chat/completions",
       [model](HttpRequest http, Reply reply) { chat(*model, http, std::move(reply)); }},
      {"POST", "/v1/completions",
       [model](HttpRequest http, Reply reply) { complete(*model, http, std::move(reply)); }},
      {"GET", "/v1/models", [model](HttpRequest, Reply reply) { reply->send(models(*model)); }},
      {"GET", "/v1/models/*",
       [model](HttpRequest http, Reply reply) { reply->send(one_model(*model, http)); }},
  };
}

}  // namespace outrider

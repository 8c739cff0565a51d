#include "server/anthropic_routes.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "server/answer_ids.h"
#include "server/answer_request.h"
#include "server/chat_prompt.h"
#include "server/delivery.h"
#include "server/messages_answer.h"
#include "server/messages_request.h"
#include "server/validation.h"

namespace outrider {
namespace {

using Reply = std::shared_ptr<HttpReply>;

constexpr std::string_view kPing = "event: ping\ndata: {\"type\": \"ping\"}\n\n";

// Clients name an effort for models of any kind: it is for those that know one.
ChatPrompt prompt_of(const ServedModel& model, MessagesRequest& request) {
  if (model.chat_template && !model.chat_template->names("reasoning_effort"))
    request.reasoning_effort.clear();
  return chat_prompt(model, request);
}

// The words by which clients know that they have to shorten the conversation.
void check_length(const ServedModel& model, std::size_t n_tokens, std::optional<int> max_tokens) {
  const int most = max_tokens == 0 ? model.context : model.context - 1;
  if (std::cmp_greater(n_tokens, most))
    throw RequestError(400, "context_length_exceeded", "messages",
                       fmt::format("prompt is too long: {} tokens > {} maximum", n_tokens, most));
}

// Nothing where the model does not reason.
std::optional<ReasoningLimit> reasoning_limit(const ServedModel& model, const ChatPrompt& prompt,
                                              std::size_t n_prompt, int budget) {
  if (model.format.reasoning == nullptr) return std::nullopt;
  const auto tokens = reasoning_tokens(model.format, *model.tokenizer);
  if (!tokens)
    throw RequestError(400, "unsupported_value", "thinking.budget_tokens",
                       "thinking.budget_tokens: not supported with this model, whose thinking no "
                       "one token ends; leave it out with \"type\": \"adaptive\"");
  return ReasoningLimit{.n_prompt = static_cast<int>(n_prompt),
                        .n_tokens = budget,
                        .open = tokens->open,
                        .close = tokens->close,
                        .is_begun = is_reasoning(model.format, prompt.begun)};
}

void answer(const ServedModel& model, const HttpRequest& http, Reply reply) {
  MessagesRequest request = read_messages_request(http.body, model.limits, model.unknown_field);
  draw_seed(request);
  const AnswerHead head = answer_head(model, request, "msg_");
  const ChatPrompt prompt = prompt_of(model, request);
  std::vector<Token> tokens = prompt.tokens(*model.tokenizer);
  check_length(model, tokens.size(), request.max_tokens);
  check_prompt(model, tokens, "messages", request.max_tokens);
  const auto form = request.stream ? messages_stream : messages_document;
  Asked asked{.answers = {},
              .form = form({.head = head,
                            .prompt_tokens = static_cast<int>(tokens.size()),
                            .shows_thinking = request.shows_thinking,
                            .format = model.format,
                            .parser = parser_options(request, prompt),
                            .new_call_id = [] { return random_id("toolu_"); }}),
              .stream = request.stream,
              .path = http.path,
              .heartbeat = std::string(kPing)};
  AnswerRequest ask = answer_request(model, request, std::move(tokens), http.api_key);
  if (request.thinking_budget)
    ask.request.sampling.reasoning =
        reasoning_limit(model, prompt, ask.request.prompt.size(), *request.thinking_budget);
  ask.request.stop.shown_tokens = shown_tokens(model.format, *model.tokenizer, request.has_tools());
  asked.answers.push_back(std::move(ask));
  give_answers(model, std::move(asked), std::move(reply));
}

void count(const ServedModel& model, const HttpRequest& http, const Reply& reply) {
  MessagesRequest request = read_count_request(http.body, model.limits, model.unknown_field);
  answering_name(model, request.model);
  const std::vector<Token> tokens = prompt_of(model, request).tokens(*model.tokenizer);
  reply->send({.body = document_text({{"input_tokens", tokens.size()}})});
}

}  // namespace

std::vector<HttpRoute> anthropic_routes(std::shared_ptr<const ServedModel> model) {
  return {
      {"POST", "/v1/messages",
       [model](HttpRequest http, Reply reply) { answer(*model, http, std::move(reply)); }},
      {"POST", "/v1/messages/count_tokens",
       [model](HttpRequest http, Reply reply) { count(*model, http, reply); }},
  };
}

}  // namespace outrider

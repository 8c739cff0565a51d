// A served model for tests: letters are tokens, answers come when the test says so.

#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "http/router.h"
#include "sampling/fake_tokenizer.h"
#include "server/fake_reply.h"
#include "server/served_model.h"

namespace outrider {

// A chat template whose model reasons and calls tools.
inline constexpr std::string_view kFakeTemplate =
    R"({%- for tool in tools or [] %}<tool>{{ tool | tojson }}</tool>{% endfor -%}
{%- for message in messages -%}
[{{ message.role }}]{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif -%}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] -%}
<tool_call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</tool_call>
{%- endfor -%}
{%- if message.role == 'user' and message.content == 'raise' -%}{{ raise_exception('no such talk') }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
[assistant]{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif -%}
{%- endif -%})";

// 0 ends the text, 1 is a lone first byte of é and 2 its second, 3 is <s>; then ASCII, and whatever
// else is a control token.
inline std::shared_ptr<FakeTokenizer> letters(const std::vector<std::string>& control = {}) {
  std::vector<std::string> entries{"<end>", "\xc3", "\xa9", "<s>"};
  entries.push_back("\n");
  for (char letter = ' '; letter <= '~'; ++letter) entries.push_back({letter});
  const auto n_letters = static_cast<Token>(entries.size());
  entries.insert(entries.end(), control.begin(), control.end());
  auto tokenizer = std::make_shared<FakeTokenizer>(std::move(entries));
  tokenizer->control = {0, 3};
  for (Token token = n_letters; token < tokenizer->size(); ++token)
    tokenizer->control.push_back(token);
  tokenizer->end_tokens = {0};
  return tokenizer;
}

// A step that brings these letters, one token each.
inline AnswerEvent letters_event(const Tokenizer& tokenizer, const std::string& text) {
  AnswerEvent event;
  for (const Token token : tokenizer.encode(text))
    event.tokens.push_back({.token = token, .text = tokenizer.bytes(token)});
  return event;
}

class FakeScheduler {
 public:
  struct Submitted {
    AnswerRequest request;
    AnswerListener listener;
    bool is_cancelled = false;
    int n_tokens = 0;
  };

  FakeScheduler() {
    model_.name = "fake";
    model_.version = "v1";
    model_.created = 1'700'000'000;
    model_.tokenizer = letters();
    model_.vocabulary = model_.tokenizer->size();
    model_.context = 1000;
    model_.drafters = {"prediction", "lookup"};
    model_.chat_template = std::make_shared<ChatTemplate>(kFakeTemplate, "fake", "", "<end>");
    model_.format = answer_format(*model_.chat_template);
    model_.filters = [](const FilterSettings& settings) {
      return filters_for(settings, Metadata("fake"));
    };
    model_.submit = [this](AnswerRequest request, AnswerListener listener) {
      if (submitted.size() == n_room) throw Overloaded("the queue is full");
      submitted.push_back({std::move(request), std::move(listener)});
      return AnswerId{submitted.size() - 1};
    };
    model_.cancel = [this](AnswerId id) { submitted.at(id.value).is_cancelled = true; };
  }

  // Before model() is asked for.
  ServedModel& setting() { return model_; }
  std::shared_ptr<const ServedModel> model() const { return std::make_shared<ServedModel>(model_); }

  // The answer's next step, and its last.
  void bring(std::size_t answer, const std::string& text) {
    AnswerEvent event = letters_event(*model_.tokenizer, text);
    submitted.at(answer).n_tokens += static_cast<int>(event.tokens.size());
    submitted.at(answer).listener(event);
  }
  void finish(std::size_t answer, FinishReason reason = FinishReason::stop,
              std::optional<std::string> stop_text = {}) {
    Submitted& from = submitted.at(answer);
    AnswerFigures figures;
    figures.prompt_tokens = static_cast<int>(from.request.request.prompt.size());
    figures.cached_tokens = 1;
    figures.completion_tokens = from.n_tokens;
    end(answer, {.reason = reason, .stop_text = std::move(stop_text), .figures = figures});
  }
  void end(std::size_t answer, AnswerEnd end) {
    AnswerEvent event;
    event.end = std::move(end);
    submitted.at(answer).listener(event);
  }

  std::vector<Submitted> submitted;
  std::size_t n_room = 1000;

 private:
  ServedModel model_;
};

// What these routes say; a RequestError leaves as they throw it.
inline std::shared_ptr<FakeReply> ask(const std::vector<HttpRoute>& routes,
                                      const HttpRequest& request) {
  const Router router(routes);
  auto reply = std::make_shared<FakeReply>();
  const HttpHandler* const handler = router.find(request.method, request.path);
  if (handler)
    (*handler)(request, reply);
  else
    ADD_FAILURE() << "no route";
  return reply;
}

template <typename Ask>
RequestError refused(const Ask& ask) {
  try {
    ask();
  } catch (const RequestError& error) {
    return error;
  }
  ADD_FAILURE() << "not refused";
  return RequestError(0, "", "", "");
}

}  // namespace outrider

#include "server/chat_answer.h"

#include <optional>
#include <utility>
#include <vector>

#include "server/answer_reader.h"
#include "server/token_text.h"

namespace outrider {
namespace {

using Kind = AnswerDelta::Kind;

// One choice, as both forms read it.
class ChatChoice {
 public:
  explicit ChatChoice(const ChatAnswerOptions& options)
      : options_(&options), reader_(options.format, options.parser) {}

  std::vector<AnswerDelta> read(const AnswerEvent& event) {
    for (const AnswerToken& token : event.tokens)
      if (token.score)
        logprobs_.push_back(chat_logprob(*options_->tokenizer, token.token, *token.score));
    return reader_.read(event);
  }
  bool has_enough() const { return reader_.has_enough(); }
  int n_reasoning() const { return reader_.n_reasoning(); }
  // Nothing: the answer failed, or the server stopped before its end.
  std::optional<std::string_view> finish_reason(const AnswerEnd& end) const {
    if (end.error || (!end.reason && !has_enough())) return std::nullopt;
    if (end.reason == FinishReason::length) return "length";
    return reader_.calls() ? "tool_calls" : "stop";
  }
  // Of the tokens since the last call; null: there are none, or none are asked for.
  Json take_logprobs() {
    if (logprobs_.empty()) return nullptr;
    return {{"content", std::exchange(logprobs_, Json::array())}};
  }

 private:
  const ChatAnswerOptions* options_;
  AnswerReader reader_;
  Json logprobs_ = Json::array();
};

// What both forms keep of a request's answers.
class ChatForm : public AnswerForm {
 public:
  explicit ChatForm(ChatAnswerOptions options) : options_(std::move(options)) {
    for (int i = 0; i < options_.n; ++i) choices_.emplace_back(options_);
  }
  bool has_enough(int index) const override {
    return choices_[static_cast<std::size_t>(index)].has_enough();
  }

 protected:
  Json call_json(const std::string& name) const {
    return {{"id", options_.new_call_id()},
            {"type", "function"},
            {"function", {{"name", name}, {"arguments", ""}}}};
  }
  Json usage_json() const {
    int n_reasoning = 0;
    for (const ChatChoice& choice : choices_) n_reasoning += choice.n_reasoning();
    return openai_usage_json(figures_, n_reasoning);
  }

  const ChatAnswerOptions options_;
  std::vector<ChatChoice> choices_;
  AnswerFigures figures_;
};

class ChatDocument final : public ChatForm {
 public:
  explicit ChatDocument(ChatAnswerOptions options)
      : ChatForm(std::move(options)), messages_(choices_.size()) {}

  std::string push(int index, const AnswerEvent& event) override {
    ChatChoice& choice = choices_[static_cast<std::size_t>(index)];
    Message& message = messages_[static_cast<std::size_t>(index)];
    for (const AnswerDelta& delta : choice.read(event)) add(message, delta);
    if (!event.end) return {};
    message.finish_reason = choice.finish_reason(*event.end).value_or("");
    add_figures(figures_, event.end->figures, index == 0);
    return {};
  }

  std::string end() override {
    Json json = head_json(options_.head, "chat.completion");
    for (std::size_t i = 0; i < messages_.size(); ++i)
      json["choices"].push_back({{"index", i},
                                 {"message", message_json(messages_[i])},
                                 {"logprobs", choices_[i].take_logprobs()},
                                 {"finish_reason", messages_[i].finish_reason}});
    json["usage"] = usage_json();
    json["timings"] = timings_json(figures_);
    return document_text(json);
  }

 private:
  struct Message {
    std::string content, reasoning, finish_reason;
    Json calls = Json::array();
  };

  void add(Message& message, const AnswerDelta& delta) const {
    switch (delta.kind) {
      case Kind::content: message.content += delta.text; break;
      case Kind::reasoning: message.reasoning += delta.text; break;
      case Kind::call: message.calls.push_back(call_json(delta.text)); break;
      case Kind::arguments:
        message.calls.back()["function"]["arguments"].get_ref<std::string&>() += delta.text;
        break;
      case Kind::call_end: break;
      case Kind::call_void: message.calls.erase(message.calls.size() - 1); break;
    }
  }

  static Json message_json(const Message& message) {
    Json json = {{"role", "assistant"}, {"content", message.content}, {"refusal", nullptr}};
    if (message.content.empty() && !message.calls.empty()) json["content"] = nullptr;
    if (!message.reasoning.empty()) json["reasoning_content"] = message.reasoning;
    if (!message.calls.empty()) json["tool_calls"] = message.calls;
    return json;
  }

  std::vector<Message> messages_;
};

class ChatStream final : public ChatForm {
 public:
  using ChatForm::ChatForm;

  std::string begin() override {
    std::string text;
    for (int i = 0; i < options_.n; ++i)
      text += event_text(chunk_json(i, {{"role", "assistant"}, {"content", ""}}));
    return text;
  }

  std::string push(int index, const AnswerEvent& event) override {
    ChatChoice& choice = choices_[static_cast<std::size_t>(index)];
    std::string text;
    for (const AnswerDelta& delta : choice.read(event))
      if (const Json json = delta_json(delta); !json.is_null())
        text += event_text(chunk_json(index, json));
    if (!event.end) return text;
    const auto finish_reason = choice.finish_reason(*event.end);
    if (!finish_reason) return text;  // fail() says the rest
    add_figures(figures_, event.end->figures, index == 0);
    Json last = chunk_json(index, Json::object(), *finish_reason);
    if (++n_ended_ == options_.n && !options_.include_usage)
      last["timings"] = timings_json(figures_);
    return text + event_text(last);
  }

  std::string end() override {
    if (!options_.include_usage) return std::string(kOpenAiDone);
    Json chunk = head_json(options_.head, kObject);
    chunk["choices"] = Json::array();
    chunk["usage"] = usage_json();
    chunk["timings"] = timings_json(figures_);
    return event_text(chunk).append(kOpenAiDone);
  }

  std::string fail(const RequestError& error) override { return openai_error_event(error); }

 private:
  static constexpr const char* kObject = "chat.completion.chunk";

  // Nothing for what clients are not told.
  Json delta_json(const AnswerDelta& delta) const {
    switch (delta.kind) {
      case Kind::content: return {{"content", delta.text}};
      case Kind::reasoning: return {{"reasoning_content", delta.text}};
      case Kind::call: {
        Json call = call_json(delta.text);
        call["index"] = delta.call;
        return {{"tool_calls", Json::array({call})}};
      }
      case Kind::arguments:
        return {{"tool_calls", Json::array({{{"index", delta.call},
                                             {"function", {{"arguments", delta.text}}}}})}};
      case Kind::call_end:
      case Kind::call_void: return nullptr;
    }
    return nullptr;
  }

  Json chunk_json(int index, Json delta, Json finish_reason = nullptr) {
    Json chunk = head_json(options_.head, kObject);
    Json choice = {{"index", index}, {"delta", std::move(delta)}};
    if (options_.logprobs)
      choice["logprobs"] = choices_[static_cast<std::size_t>(index)].take_logprobs();
    choice["finish_reason"] = std::move(finish_reason);
    chunk["choices"].push_back(std::move(choice));
    if (options_.include_usage) chunk["usage"] = nullptr;
    return chunk;
  }

  int n_ended_ = 0;
};

}  // namespace

std::unique_ptr<AnswerForm> chat_document(ChatAnswerOptions options) {
  return std::make_unique<ChatDocument>(std::move(options));
}

std::unique_ptr<AnswerForm> chat_stream(ChatAnswerOptions options) {
  return std::make_unique<ChatStream>(std::move(options));
}

}  // namespace outrider

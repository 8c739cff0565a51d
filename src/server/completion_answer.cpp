#include "server/completion_answer.h"

#include <utility>

#include "server/token_text.h"
#include "text/stream_decoder.h"

namespace outrider {
namespace {

constexpr std::string_view kObject = "text_completion";

// One choice, as both forms read it.
class CompletionChoice {
 public:
  CompletionChoice(const CompletionAnswerOptions& options, const std::vector<Token>& prompt)
      : options_(&options), prompt_(&prompt), logprobs_(*options.tokenizer) {}

  // The text that the event adds.
  std::string read(const AnswerEvent& event) {
    std::string text;
    const bool has_begun = !event.tokens.empty() || event.end;
    if (options_->echo && has_begun && !std::exchange(echoed_, true)) text = echo(event.prompt);
    for (const AnswerToken& token : event.tokens) {
      text += token.text;
      if (options_->logprobs)
        logprobs_.add(token.token, token.text, token.score ? &*token.score : nullptr);
    }
    return text + event.held_text;
  }
  Json json(std::size_t index, const std::string& text, Json finish_reason) {
    return {{"index", index},
            {"text", text},
            {"logprobs", options_->logprobs ? logprobs_.take() : Json()},
            {"finish_reason", std::move(finish_reason)}};
  }

 private:
  // The prompt's text. Nothing is before its first token, so that has no score.
  std::string echo(const std::vector<ScoredToken>& scores) {
    StreamDecoder decoder(*options_->tokenizer);
    std::string whole;
    for (std::size_t i = 0; i < prompt_->size(); ++i) {
      const Token token = (*prompt_)[i];
      const std::string text = decoder.push(token);
      whole += text;
      const bool has_score = i > 0 && i <= scores.size();
      if (options_->logprobs) logprobs_.add(token, text, has_score ? &scores[i - 1] : nullptr);
    }
    return whole + decoder.finish();
  }

  const CompletionAnswerOptions* options_;
  const std::vector<Token>* prompt_;
  bool echoed_ = false;
  CompletionLogprobs logprobs_;
};

// What both forms keep of a request's answers.
class CompletionForm : public AnswerForm {
 public:
  explicit CompletionForm(CompletionAnswerOptions options) : options_(std::move(options)) {
    for (const std::vector<Token>& prompt : options_.prompts)
      for (int i = 0; i < options_.n; ++i) choices_.emplace_back(options_, prompt);
  }

 protected:
  void add_end(int choice, const AnswerEnd& end) {
    add_figures(figures_, end.figures, choice % options_.n == 0);
    ++n_ended_;
  }
  bool all_ended() const { return n_ended_ == choices_.size(); }
  static Json finish_reason(const AnswerEvent& event) {
    if (!event.end || !event.end->reason) return nullptr;
    return name(*event.end->reason);
  }
  Json with_figures(Json json) const {
    json["usage"] = openai_usage_json(figures_);
    json["timings"] = timings_json(figures_);
    return json;
  }

  const CompletionAnswerOptions options_;
  std::vector<CompletionChoice> choices_;
  AnswerFigures figures_;

 private:
  std::size_t n_ended_ = 0;
};

class CompletionDocument final : public CompletionForm {
 public:
  explicit CompletionDocument(CompletionAnswerOptions options)
      : CompletionForm(std::move(options)), texts_(choices_.size()) {}

  std::string push(int choice, const AnswerEvent& event) override {
    Text& text = texts_[static_cast<std::size_t>(choice)];
    text.text += choices_[static_cast<std::size_t>(choice)].read(event);
    if (event.end) {
      text.finish_reason = finish_reason(event);
      add_end(choice, *event.end);
    }
    return {};
  }

  std::string end() override {
    Json json = head_json(options_.head, kObject);
    for (std::size_t i = 0; i < texts_.size(); ++i)
      json["choices"].push_back(choices_[i].json(i, texts_[i].text, texts_[i].finish_reason));
    return json_text(with_figures(std::move(json)));
  }

 private:
  struct Text {
    std::string text;
    Json finish_reason;
  };
  std::vector<Text> texts_;
};

class CompletionStream final : public CompletionForm {
 public:
  using CompletionForm::CompletionForm;

  std::string push(int index, const AnswerEvent& event) override {
    CompletionChoice& choice = choices_[static_cast<std::size_t>(index)];
    const std::string text = choice.read(event);
    if (text.empty() && !event.end) return {};
    Json chunk = head_json(options_.head, kObject);
    chunk["choices"].push_back(
        choice.json(static_cast<std::size_t>(index), text, finish_reason(event)));
    if (options_.include_usage) chunk["usage"] = nullptr;
    if (event.end) add_end(index, *event.end);
    if (all_ended() && !options_.include_usage) chunk["timings"] = timings_json(figures_);
    return event_text(chunk);
  }

  std::string end() override {
    if (!options_.include_usage) return std::string(kOpenAiDone);
    Json chunk = head_json(options_.head, kObject);
    chunk["choices"] = Json::array();
    return event_text(with_figures(std::move(chunk))).append(kOpenAiDone);
  }

  std::string fail(const RequestError& error) override { return openai_error_event(error); }
};

}  // namespace

std::unique_ptr<AnswerForm> completion_document(CompletionAnswerOptions options) {
  return std::make_unique<CompletionDocument>(std::move(options));
}

std::unique_ptr<AnswerForm> completion_stream(CompletionAnswerOptions options) {
  return std::make_unique<CompletionStream>(std::move(options));
}

}  // namespace outrider

#include "server/completion_answer.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "server/token_text.h"

namespace outrider {
namespace {

constexpr std::string_view kObject = "text_completion";

// The letter that a prompt begins and its answer may complete. In the answer's own text each of
// its bytes is U+FFFD.
class SharedLetter {
 public:
  void begin(std::string bytes) { letter_ = std::move(bytes), n_begun_ = letter_.size(); }

  // Whether there is such a letter, so that push needs the answer's bytes.
  bool is_open() const { return n_begun_ > 0; }
  // The answer's next bytes, and what its own text gained by now. What can be shown of both texts.
  std::string push(std::string_view bytes, std::string_view text) {
    if (n_begun_ == 0) return std::string(text);
    text_ += text;
    for (; !bytes.empty() && !is_closed_; bytes.remove_prefix(1)) {
      letter_ += bytes[0];
      const Utf8Step step = utf8_step(letter_);
      is_closed_ = !step.unfinished;
      letter_.resize(step.n_bytes);
    }
    if (!is_closed_ || n_characters(text_) < letter_.size() - n_begun_) return {};
    return finish();
  }
  // At the answer's end. Bytes that its text lacks are part of a stop string.
  std::string finish() {
    if (n_begun_ == 0) return {};
    const std::size_t n = std::min(letter_.size() - n_begun_, n_characters(text_));
    letter_.resize(std::exchange(n_begun_, 0) + n);
    return well_formed(letter_) + text_.substr(n * kReplacementCharacter.size());
  }

 private:
  std::string letter_;       // its bytes so far
  std::size_t n_begun_ = 0;  // of these, the prompt's; 0: there is no such letter, or it was shown
  bool is_closed_ = false;   // what follows is not of it
  std::string text_;         // the answer's own text
};

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
      text += letter_.is_open() ? letter_.push(options_->tokenizer->bytes(token.token), token.text)
                                : token.text;
      if (options_->logprobs) logprobs_.add(token.token, token.score ? &*token.score : nullptr);
    }
    text += letter_.push({}, event.held_text);
    return event.end ? text + letter_.finish() : text;
  }
  Json json(std::size_t index, const std::string& text, Json finish_reason) {
    return {{"index", index},
            {"text", text},
            {"logprobs", options_->logprobs ? logprobs_.take() : Json()},
            {"finish_reason", std::move(finish_reason)}};
  }

 private:
  // The prompt's text, but for the letter that it only begins. Nothing is before its first token,
  // so that has no score.
  std::string echo(const std::vector<ScoredToken>& scores) {
    const std::string bytes = options_->tokenizer->decode(*prompt_);
    const std::size_t n_whole = bytes.size() - unfinished_suffix(bytes);
    letter_.begin(bytes.substr(n_whole));
    for (std::size_t i = 0; options_->logprobs && i < prompt_->size(); ++i) {
      const bool has_score = i > 0 && i <= scores.size();
      logprobs_.add((*prompt_)[i], has_score ? &scores[i - 1] : nullptr);
    }
    return well_formed(bytes.substr(0, n_whole));
  }

  const CompletionAnswerOptions* options_;
  const std::vector<Token>* prompt_;
  bool echoed_ = false;
  SharedLetter letter_;
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
  void add_end(int index, const AnswerEnd& end) {
    add_figures(figures_, end.figures, index % options_.n == 0);
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

  std::string push(int index, const AnswerEvent& event) override {
    Text& text = texts_[static_cast<std::size_t>(index)];
    text.text += choices_[static_cast<std::size_t>(index)].read(event);
    if (event.end) {
      text.finish_reason = finish_reason(event);
      add_end(index, *event.end);
    }
    return {};
  }

  std::string end() override {
    Json json = head_json(options_.head, kObject);
    for (std::size_t i = 0; i < texts_.size(); ++i)
      json["choices"].push_back(choices_[i].json(i, texts_[i].text, texts_[i].finish_reason));
    return document_text(with_figures(std::move(json)));
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

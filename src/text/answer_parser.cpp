#include "text/answer_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "text/call_reader.h"

namespace outrider {
namespace {

using Kind = AnswerDelta::Kind;

// Content or reasoning, and the white space of the contract.
class Flow {
 public:
  Flow(Kind kind, AnswerDeltas& out) : kind_(kind), out_(out) {}

  // What the prompt wrote counts as text, and is not shown.
  void push(char byte, bool by_prompt) {
    if (is_white(byte)) return hold(byte, by_prompt);
    std::string text = take_space();
    if (!by_prompt) text += byte;
    out_.add(kind_, text);
  }
  // White space, or what counts as such: shown if further text follows.
  void hold(char byte, bool by_prompt) {
    space_ += byte;
    if (by_prompt) n_by_prompt_ = space_.size();
  }
  // The prompt wrote what there is so far.
  void begin_answer() {
    n_by_prompt_ = space_.size();
    before_delimiter_.clear();
  }

  // A delimiter stands here, which is shown too if further text follows after text.
  void part(std::string_view delimiter = {}) {
    erase_space(0);
    if (!after_delimiter_) before_delimiter_ += space_;
    before_delimiter_ += delimiter;
    space_.clear();
    after_delimiter_ = true;
  }

  void finish() {
    erase_space(after_delimiter_ ? std::min(space_.find_first_not_of(kWhite), space_.size()) : 0);
    out_.add(kind_, std::exchange(space_, {}));
  }

 private:
  std::string take_space() {
    if (std::exchange(after_delimiter_, false)) {
      const std::size_t n_white = std::min(space_.find_first_not_of(kWhite), space_.size());
      const std::size_t line_end = std::string_view(space_).substr(0, n_white).rfind('\n');
      erase_space(line_end == std::string_view::npos ? n_white : line_end + 1);
      if (has_text_) space_.insert(0, before_delimiter_);
      before_delimiter_.clear();
    }
    erase_space(0);
    has_text_ = true;
    return std::exchange(space_, {});
  }
  // So many bytes of it, and what the prompt wrote.
  void erase_space(std::size_t n) { space_.erase(0, std::max(n, std::exchange(n_by_prompt_, 0))); }

  const Kind kind_;
  AnswerDeltas& out_;
  std::string space_;             // white space after the last text or delimiter
  std::size_t n_by_prompt_ = 0;   // bytes at its beginning that the prompt wrote
  std::string before_delimiter_;  // and before that delimiter
  bool after_delimiter_ = false, has_text_ = false;
};

}  // namespace

struct AnswerParser::Machine {
  enum class Action {
    open_reasoning,
    close_reasoning,
    open_response,
    close_response,
    call,
    close,
    fenced_call,
    close_fence
  };
  struct Delimiter {
    std::string_view text;
    Action action;
  };

  const ToolSyntax* syntax;
  const GivenTools tools;
  const bool parallel_calls;
  std::vector<Delimiter> delimiters;
  AnswerDeltas out;

  Flow content{Kind::content, out}, reasoning{Kind::reasoning, out};
  bool in_reasoning = false, has_reasoned = false, in_response = false, in_fence = false;
  bool at_beginning = true, after_call = false;  // nothing but white space since then
  std::string held;                              // the beginning of a delimiter
  std::optional<CallReader> reader;              // reads what follows one
  std::string raw;  // what it has read since its delimiter, or since its last complete call
  std::size_t n_by_prompt = 0;  // bytes at the beginning of raw and held that the prompt wrote
  std::size_t n_steps = 0;

  Machine(const AnswerFormat& format, const AnswerParserOptions& options)
      : syntax(format.tools), tools(options.tools), parallel_calls(options.parallel_calls) {
    const auto add = [&](const Texts& texts, Action action) {
      for (const std::string_view text : texts) delimiters.push_back({text, action});
    };
    if (const ReasoningSyntax* row = format.reasoning) {
      add(row->opens, Action::open_reasoning);
      add(row->closes, Action::close_reasoning);
      add(row->response_opens, Action::open_response);
      add(row->response_closes, Action::close_response);
    }
    if (syntax != nullptr && tools.empty() && syntax->answer_name.empty()) syntax = nullptr;
    if (syntax != nullptr) {
      add(syntax->opens, Action::call);
      add(syntax->closes, Action::close);
      if (syntax->bare && syntax->shape == ToolSyntax::Shape::json) {
        add({"```json"}, Action::fenced_call);
        add({"```"}, Action::close_fence);
      }
    }
    push(options.begun);
    raw.clear();  // the prompt wrote it, not the model
    n_by_prompt = held.size();
    content.begin_answer();
    reasoning.begin_answer();
  }

  bool ended() const { return !parallel_calls && out.n_complete() > 0; }

  void push(std::string_view text) {
    for (const char byte : text) push(byte);
  }

  void push(char byte) {
    ++n_steps;
    if (ended()) return;
    if (reader) return push_to_call(byte);
    held += byte;
    settle();
  }

  // A call may begin here without a delimiter.
  bool may_be_bare() const {
    return syntax != nullptr && syntax->bare && (at_beginning || after_call);
  }

  bool is_possible(Action action) const {
    if (in_reasoning) return action == Action::close_reasoning;
    switch (action) {
      case Action::open_reasoning: return at_beginning && !has_reasoned;
      case Action::close_reasoning: return false;
      case Action::open_response: return at_beginning && !in_response;
      case Action::close_response: return in_response;
      case Action::call: return true;
      case Action::close: return after_call;
      case Action::fenced_call: return may_be_bare();
      case Action::close_fence: return after_call && in_fence;
    }
    return false;
  }

  // Lets go of what is held until the rest may become a delimiter, and acts on one that is whole.
  void settle() {
    while (!held.empty()) {
      bool may_become_one = false;
      for (const Delimiter& delimiter : delimiters) {
        ++n_steps;
        if (!is_possible(delimiter.action) || !delimiter.text.starts_with(held)) continue;
        if (delimiter.text.size() == held.size()) {
          held.clear();
          act(delimiter);
          if (!reader) n_by_prompt = 0;
          return;
        }
        may_become_one = true;
      }
      if (may_become_one) return;
      release();
    }
  }

  // The first byte that is held is no delimiter's.
  void release() {
    const char byte = held.front();
    held.erase(0, 1);
    if (in_reasoning) return reasoning.push(byte, is_by_prompt());
    if (may_be_bare() && after_call && byte == ';') return content.hold(byte, is_by_prompt());
    if (!may_be_bare() || !CallReader::may_begin(*syntax, byte)) return push_content(byte);
    begin_call({}, /*given_only=*/true);
    for (const char next : byte + std::exchange(held, {})) push(next);
  }

  void push_content(char byte) {
    if (!is_white(byte)) at_beginning = after_call = false;
    content.push(byte, is_by_prompt());
  }

  // Of the byte that leaves raw or held for a text.
  bool is_by_prompt() {
    if (n_by_prompt == 0) return false;
    --n_by_prompt;
    return true;
  }

  void act(const Delimiter& delimiter) {
    switch (delimiter.action) {
      case Action::open_reasoning:
        in_reasoning = has_reasoned = true;
        content.part();
        reasoning.part();
        break;
      case Action::close_reasoning:
        in_reasoning = false;
        at_beginning = true;
        content.part();
        break;
      case Action::open_response:
        in_response = true;
        content.part();
        break;
      case Action::close_response:
        in_response = false;
        content.part(delimiter.text.substr(std::min(n_by_prompt, delimiter.text.size())));
        break;
      case Action::call: begin_call(delimiter.text, syntax->given_only); break;
      case Action::fenced_call:
        in_fence = true;
        begin_call(delimiter.text, /*given_only=*/true);
        break;
      case Action::close_fence: in_fence = false; [[fallthrough]];
      case Action::close: content.part(); break;
    }
  }

  void begin_call(std::string_view open, bool given_only) {
    raw = open;
    reader.emplace(*syntax, open, given_only, tools, out);
  }

  void push_to_call(char byte) {
    const int n_before = out.n_complete();
    const CallReader::Outcome outcome = reader->push(byte);
    if (outcome == CallReader::Outcome::wrong) {
      give_up_call();
      held += byte;
      return settle();
    }
    raw += byte;
    if (out.n_complete() > n_before || outcome == CallReader::Outcome::answer) {
      raw.clear();
      n_by_prompt = 0;
      content.part();
      at_beginning = false;
      after_call = outcome != CallReader::Outcome::answer;
    }
    if (outcome != CallReader::Outcome::more) end_call();
  }

  void end_call() {
    reader.reset();
    raw.clear();
    n_by_prompt = 0;
  }

  // What was read is content after all, but for calls that are complete.
  void give_up_call() {
    if (reader->is_begun()) out.add(Kind::call_void);
    const std::string text = raw;
    const std::size_t n_text_by_prompt = n_by_prompt;
    in_fence = in_fence && reader->is_complete();
    end_call();
    n_by_prompt = n_text_by_prompt;
    for (const char byte : text) push_content(byte);
    n_steps += text.size();
  }

  void finish() {
    if (ended()) return;
    while (reader || !held.empty()) {
      if (!reader) {
        release();
        settle();
      } else if (reader->is_complete()) {
        end_call();
      } else {
        give_up_call();
      }
    }
    (in_reasoning ? reasoning : content).finish();
  }
};

AnswerParser::AnswerParser(const AnswerFormat& format, const AnswerParserOptions& options)
    : machine_(std::make_unique<Machine>(format, options)) {}
AnswerParser::~AnswerParser() = default;
AnswerParser::AnswerParser(AnswerParser&&) noexcept = default;

std::vector<AnswerDelta> AnswerParser::push(std::string_view text) {
  machine_->push(text);
  return machine_->out.take();
}

std::vector<AnswerDelta> AnswerParser::finish() {
  machine_->finish();
  return machine_->out.take();
}

bool AnswerParser::ended() const {
  return machine_->ended();
}

std::size_t AnswerParser::n_steps() const {
  return machine_->n_steps;
}

}  // namespace outrider

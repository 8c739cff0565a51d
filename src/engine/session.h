// One user's conversation or completion, turn after turn on one sequence. The tokens that a turn
// shares with the one before are not computed again.

#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/request.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace outrider {

struct Completion {
  std::string text;
  std::vector<Token> tokens;                  // an end token among them
  std::optional<FinishReason> finish_reason;  // nothing: interrupted

  // Tokens: of the prompt, of these already in the cache, of the answer.
  int prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;

  // prompt_ms: from before the engine gets the prompt until the first tokens come, with the
  // prompt's last pass. generation_ms: from then on, so the time of completion_tokens -
  // first_tokens. Drafters' indexing and prefill counts where it happens; time between the calls of
  // begin(), step() and finish() does not count.
  double prompt_ms = 0, generation_ms = 0;
  int first_tokens = 0;
  double whole_ms() const { return prompt_ms + generation_ms; }
  double tokens_per_second() const;  // of generation; 0 if there was none

  Counters counters;  // of this answer
  struct Draft {
    std::string name;
    DrafterCounts counts;
  };
  std::vector<Draft> draft;  // [drafters]
};

// Text as it becomes showable. `was_draft`: it came with an accepted draft token.
using ShowText = std::function<void(std::string_view text, bool was_draft)>;

// Not thread-safe, except for the flag that interrupts.
class Session {
 public:
  // All three are borrowed and must outlive the session. chat_template may be null. The engine's
  // target must have a sequence left when complete() is called first.
  Session(Engine& engine, const Tokenizer& tokenizer, const ChatTemplate* chat_template)
      : engine_(engine), tokenizer_(tokenizer), chat_template_(chat_template) {}

  // A text's tokens as complete() takes them: BOS in front where the model expects it and the text
  // does not begin with it.
  std::vector<Token> tokens_of(std::span<const TextPiece> pieces) const;
  // A conversation's, up to where the assistant's answer begins. Throws Error without a template.
  std::vector<Token> tokens_of(std::span<const Message> messages) const;

  // Continues the prompt; the part of it that the last turn left
  // in the cache is reused. Positions of choices count from its beginning, so an answer depends on
  // prompt, parameters and seed, not on how the conversation got there. With stop.ignore_eos end
  // tokens are also forbidden. `interrupted` is looked at after each step. Throws Error like
  // Engine::begin, and the error that ended the generation if there was one; the session can be
  // used further.
  Completion complete(Request request, const ShowText& show = {},
                      const std::atomic<bool>* interrupted = nullptr);

  // The same step by step, for a caller that does something else in between. begin() takes the
  // prompt in, also while another answer is in progress, which ends. step() is one step of the
  // engine; false once the answer has ended, also by an error. finish() gives what there is of the
  // answer, or throws the error. step() and finish() only after begin().
  void begin(Request request, ShowText show = {});
  bool step();
  Completion finish();

  int n_tokens() const;    // of the text so far
  int n_computed() const;  // of these, tokens in the cache

 private:
  struct Answer {
    ShowText show;
    Completion completion = {};
    double ms = 0;  // in begin() and step()
    std::optional<double> first_ms = {};

    void take(std::string_view text, bool was_draft);
  };

  Engine& engine_;
  const Tokenizer& tokenizer_;
  const ChatTemplate* chat_template_;
  std::unique_ptr<Generation> generation_;
  Answer answer_;  // in progress
};

}  // namespace outrider

// When a text ends: the first end token, the token limit, or a stop string, whichever comes first,
// token by token.

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/token.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace outrider {

enum class FinishReason { stop, length };
std::string_view name(FinishReason reason);  // "stop", "length": OpenAI's words

struct StopParams {
  int n_predict = -1;  // tokens at most; -1: no limit
  // Matched on text across tokens, not printed; one that is the text of a control, unknown or
  // unused token, which is invisible, also ends the answer at that token.
  std::vector<std::string> texts = {};
  bool ignore_eos = false;  // end tokens are tokens like others
  // Control tokens whose text is shown, ascending (answer_format.h); an end token ends all the
  // same.
  std::vector<Token> shown_tokens = {};
};

// Follows one answer. Text comes out whole characters at a time; the longest tail that could still
// become a stop string is held back. What is shown and where it ends depend on the text alone, not
// on how it is split into tokens: of several stop strings, the first to be complete ends the text;
// of those complete at the same character, the longest.
class StopRules {
 public:
  // The tokenizer must outlive this. Throws Error if a stop string is empty, or not UTF-8: within a
  // character it would be found, and a part of that shown.
  StopRules(const Tokenizer& tokenizer, StopParams params);

  // Takes the next token. After it has returned a reason, no further token may be pushed. An end
  // token counts as a token of the answer but shows no text; neither a stop string nor what follows
  // it is shown.
  std::optional<FinishReason> push(Token token);

  // The answer ends for another reason (a full context, an interruption): text that was held back
  // becomes showable.
  void finish();

  // Text that became showable since the last call. After push() gave a reason this includes the
  // rest.
  std::string take_text();

  // The stop string that ended the text; nothing: none has.
  const std::optional<std::string>& stopped_by() const { return stopped_by_; }
  int n_tokens() const { return n_tokens_; }
  // Tokens that may still come; nothing: no limit.
  std::optional<int> n_left() const;

 private:
  const Tokenizer* tokenizer_;
  StopParams params_;
  StreamDecoder decoder_;
  std::string held_;   // decoded, not yet showable
  std::string ready_;  // showable, not yet taken
  std::optional<std::string> stopped_by_;
  int n_tokens_ = 0;
};

}  // namespace outrider

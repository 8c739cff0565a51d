// When a text ends: the first end token, the token limit, or a stop string, whichever comes first, token by token.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/token.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace outrider {

enum class FinishReason { stop, length };

struct StopParams {
  int n_predict = -1;               // tokens at most; -1: no limit
  std::vector<std::string> texts;   // matched on text across tokens, not printed
  bool ignore_eos = false;
};

// Follows one answer. Text comes out whole characters at a time; the longest tail that could still become a stop string is
// held back.
class StopRules {
 public:
  StopRules(const Tokenizer& tokenizer, StopParams params);

  // Takes the next token. After a reason is given no further token may be pushed. An end token is part of the
  // answer's tokens but shows no text; a stop string's text is not shown, nor what follows it.
  std::optional<FinishReason> push(Token token);

  // Text that became showable since the last call. After push() gave a reason this includes the rest.
  std::string take_text();

  int n_tokens() const { return n_tokens_; }

  // For a copy along a draft path.
  StopRules(const StopRules&) = default;
  StopRules& operator=(const StopRules&) = default;

 private:
  const Tokenizer* tokenizer_;
  StopParams params_;
  StreamDecoder decoder_;
  std::string held_;   // decoded, not yet showable
  std::string ready_;  // showable, not yet taken
  int n_tokens_ = 0;
};

}  // namespace outrider

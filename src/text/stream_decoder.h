// Tokens to text that can be shown at once: never half a UTF-8 character.

#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/token.h"
#include "text/tokenizer.h"

namespace outrider {

// The concatenated output is well_formed(the tokens' bytes), however the bytes are split into
// tokens.
class StreamDecoder {
 public:
  // The tokenizer must outlive this. shown: control tokens, ascending, whose text comes out, unlike
  // that of others, because AnswerParser needs it (shown_tokens in answer_format.h).
  explicit StreamDecoder(const Tokenizer& tokenizer, std::vector<Token> shown = {})
      : tokenizer_(&tokenizer), shown_(std::move(shown)) {}

  // The characters that `token` completes; an unfinished one waits. Bytes that can never become a
  // character come out as U+FFFD, one per maximal subpart.
  std::string push(Token token);
  // At the end of the text: what still waits, as U+FFFD. The decoder is then as after construction.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  std::vector<Token> shown_;
  std::string waiting_;  // a proper prefix of a character, at most 3 bytes
};

}  // namespace outrider

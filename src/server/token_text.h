// Tokens as answers name them beside their log probabilities.

#pragma once

#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "server/fields.h"
#include "text/tokenizer.h"

namespace outrider {

// Its bytes, special tokens by their names; "bytes:\xe2\x80" if they are not whole characters, so
// that different tokens have different texts (OpenAI's way).
std::string token_text(const Tokenizer& tokenizer, Token token);

// An entry of a chat's logprobs.content.
Json chat_logprob(const Tokenizer& tokenizer, Token token, const ScoredToken& score);

// The logprobs of a completion: four lists with an entry per token.
class CompletionLogprobs {
 public:
  explicit CompletionLogprobs(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // The next token of the text. Without a score: nothing is before it.
  void add(Token token, const ScoredToken* score);
  // Entries since the last call.
  Json take();
  bool empty() const { return tokens_.empty(); }

 private:
  // Adds the bytes of the next token to the text and returns where they begin, in characters. Bytes
  // that go on with an unfinished character begin where it does.
  std::size_t next_offset(std::string_view bytes);

  const Tokenizer& tokenizer_;
  Json tokens_ = Json::array(), logprobs_ = Json::array(), best_ = Json::array(),
       offsets_ = Json::array();
  std::size_t n_characters_ = 0;  // of the text so far, whole ones
  std::string begun_;             // the unfinished character that it ends with
};

}  // namespace outrider

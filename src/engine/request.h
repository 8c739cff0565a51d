// What an answer shall be to.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/token.h"
#include "cache/ids.h"
#include "sampling/sampling.h"
#include "sampling/stop.h"

namespace outrider {

// What an answer may be asked besides its sampling and its end.
struct AnswerOptions {
  // How it is expected to read mostly, if that is known. It may make it come faster.
  std::vector<Token> prediction = {};
  // Whose texts it may share pages with.
  CacheScope scope = {};
  // Drafted nodes of a step at most; 0: no drafts. Nothing: as the planner's options allow.
  std::optional<int> draft_rows = {};
  // The names of the drafters that may propose; nothing: all of the engine's.
  std::optional<std::vector<std::string>> drafters = {};
  // For each of its tokens the log probability, and so many best ones; nothing: none.
  std::optional<int> n_logprobs = {};
  // The same for the tokens of the prompt: then all of it is computed, cached or not.
  bool prompt_logprobs = false;
  // The prompt is read where no token of an answer is wanted, too: for its log probabilities, and
  // for those that begin alike.
  bool prefills_always = false;
};

struct Request {
  std::vector<Token> prompt;  // the whole text from its beginning
  SamplingParams sampling;
  StopParams stop = {};
  AnswerOptions options = {};
};

// The request's, where end tokens are forbidden if it ignores them.
SamplingParams sampling_of(const Request& request, const Tokenizer& tokenizer);

}  // namespace outrider

// A request: a prompt, and how it is to be answered.

#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/token.h"
#include "cache/ids.h"
#include "sampling/sampling.h"
#include "sampling/stop.h"
#include "speculation/verifier.h"

namespace outrider {

// How an answer is to be made, besides its sampling and its end.
struct AnswerOptions {
  // What the answer is expected to repeat mostly: drafts come from it. Empty: not known.
  std::vector<Token> prediction = {};
  // Whose cached pages and earlier answers the answer may use.
  CacheScope scope = {};
  // Drafted nodes of a step at most; 0: no drafts. Nothing: as the planner's options allow.
  std::optional<int> draft_rows = {};
  // Which drafted tokens become text. Never null.
  std::shared_ptr<const Verifier> verifier = coupled_verifier();
  // The names of the drafters that may propose; nothing: all of the engine's.
  std::optional<std::vector<std::string>> drafters = {};
  bool allows_drafter(std::string_view name) const {
    return !drafters || std::ranges::find(*drafters, name) != drafters->end();
  }
  // Log probabilities of each token of the answer, and of so many best tokens in its place;
  // nothing: none.
  std::optional<int> n_logprobs = {};
  // The same for the tokens of the prompt: then all of it is computed, cached or not.
  bool prompt_logprobs = false;
  // Each token of the answer with a fingerprint of the logits that it was chosen from.
  bool fingerprints = false;
  // The prompt is prefilled even if no token of an answer is wanted: for its log probabilities, and
  // for prompts that begin alike.
  bool prefills_always = false;
};

struct Request {
  std::vector<Token> prompt;  // the whole text from its beginning
  SamplingParams sampling;
  StopParams stop = {};
  AnswerOptions options = {};
};

// The request's sampling, with end tokens forbidden if stop.ignore_eos.
SamplingParams sampling_of(const Request& request, const Tokenizer& tokenizer);

}  // namespace outrider

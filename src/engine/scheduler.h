// Many users' answers on one engine: who runs, how much of a prompt a step reads, who waits, and
// who gives way when pages run out. Continuous batching: Yu et al. 2022 (Orca, OSDI 22); chunked
// prefill beside decoding: Agrawal et al. 2024, arXiv:2403.02310.
//
// One thread owns engine and scheduler and calls turn(); all others speak to it through submit()
// and cancel(), and hear of their answers by a callback.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cache/ids.h"
#include "engine/engine.h"
#include "engine/session.h"

namespace outrider {

struct AnswerRequest {
  Request request;
  CacheScope scope = {};
  int priority = 0;  // lower goes first; among equals first come, first served
  // Drafted rows of a step at most; 0: no drafts. Nothing: as the engine's budget allows.
  std::optional<int> draft_rows = {};
  // For each token of the answer its log probability and those of so many best tokens, by the
  // model before bias, penalties, temperature and filters. Nothing: none.
  std::optional<int> n_logprobs = {};
  // The same for the tokens of the prompt, but the first. Its rows are computed, cached or not.
  bool prompt_logprobs = false;
};

struct TokenLogprob {
  Token token;
  float logprob;
};

struct AnswerToken {
  Token token;
  std::string text;        // became showable with it: whole characters, perhaps none
  bool was_draft = false;  // an accepted draft
  std::optional<float> logprob = {};
  std::vector<TokenLogprob> best = {};  // by logprob descending, n_logprobs of them
};

// Why steps that could have drafted checked no draft.
struct NotDrafted {
  long off = 0;           // the request asked for none
  long limit = 0;         // no room: the context's or answer's end, or the pass was full
  long no_match = 0;      // no drafter had a guess
  long does_not_pay = 0;  // at this load, or it did not come true before
};

struct AnswerFigures {
  int prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  // By the clock: waiting before the first step; from there to the first token; from there on.
  double queued_ms = 0, prompt_ms = 0, generation_ms = 0;
  int first_tokens = 0;  // that came with the step that ended the prompt
  int n_preempted = 0;
  Counters counters;
  std::vector<long> accepted_lengths;  // [n]: steps with drafts that had n accepted
  NotDrafted not_drafted;
  // Of Request::prediction: tokens that became text, and drafted ones that did not.
  long prediction_accepted = 0, prediction_rejected = 0;
};

struct AnswerEnd {
  std::optional<FinishReason> reason;  // nothing: cancelled, or failed
  std::optional<Error> error;          // the answer failed
  std::optional<std::string> stop;     // the stop string that ended it (StopRules::stopped_by)
  AnswerFigures figures;
};

// What a step brought for one answer.
struct AnswerEvent {
  std::vector<AnswerToken> prompt;  // with prompt_logprobs, once, before the first token: the whole
  std::vector<AnswerToken> tokens;
  std::optional<AnswerEnd> end;  // nothing follows
};

// Called on the engine's thread, in order; must not block or throw. The last call has an end.
using AnswerListener = std::function<void(const AnswerEvent&)>;

struct AnswerId {
  std::uint64_t value = 0;
  friend auto operator<=>(AnswerId, AnswerId) = default;
};

// The queue is full: come again later.
class Overloaded : public Error {
 public:
  using Error::Error;
};

}  // namespace outrider

// A sequence in progress, and what its last step brought.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/token.h"
#include "engine/request.h"
#include "model/backend.h"
#include "sampling/logprobs.h"
#include "sampling/sampling.h"
#include "sampling/stop.h"
#include "speculation/drafter.h"

namespace outrider {

class Engine;

// One token by which a step lengthened the sequence.
struct Emitted {
  Token token;
  std::optional<int> drafter;             // who proposed it first, if it was an accepted draft
  std::string text;                       // became showable with it: whole characters, perhaps none
  std::optional<ScoredToken> score = {};  // if AnswerOptions::n_logprobs asks for it
  std::uint64_t fingerprint = 0;          // if AnswerOptions::fingerprints: FNV-1a of all bits
};

struct DrafterCounts {
  long proposed = 0;  // checked nodes that this drafter had proposed
  long accepted = 0;  // of these, tokens of the text
  long first = 0;     // steps in which it guessed the next token, checked or not
  long first_right = 0;

  DrafterCounts& operator+=(const DrafterCounts& other);
};

// For a draft model: it is so seldom right about the next token that it hardly fits the target, as
// with another training, another chat template or a damaged file.
bool is_misaligned(const DrafterCounts& counts);

// Steps that could have checked drafts, and why they checked none.
struct NotDrafted {
  long off = 0;           // the answer was asked to have none, or there are no drafters
  long limit = 0;         // no room: the end of answer or context, or the pass was full
  long no_match = 0;      // no drafter had a guess
  long does_not_pay = 0;  // it was not expected to, at this load
  long measured = 0;      // such a step's time has to stay known

  long sum() const { return off + limit + no_match + does_not_pay + measured; }
};

// What drafting took, each step counted once however many sequences shared it.
struct DraftWork {
  long passes = 0, levels = 0;  // of drafters' own models, and what these decided
  double ms = 0;                // of Drafter::propose, prefill included, indexing not
};

// Of one answer.
struct Counters {
  long steps = 0;
  long generating = 0;  // steps that computed the end of the sequence, so brought tokens
  long rows = 0;        // of passes, prompt rows among them
  long drafted = 0;     // nodes checked, each once
  long accepted = 0;
  long emitted = 0;
  long drafts = 0;       // steps that checked nodes
  long draft_depth = 0;  // sum of the depths of their deepest nodes
  long tested = 0;       // places where a drafted token could be accepted: nodes of the text with
                         // drafted children, the root among them
  // In this answer's steps: passes of drafters' own models, and levels that these decided.
  long draft_passes = 0, draft_levels = 0;
  // Of Drafter::propose in these steps, prefill included, indexing not. Of a step that several
  // sequences share, all of it.
  double draft_ms = 0;
  NotDrafted not_drafted = {};
  // [n]: steps with drafts of which n tokens were accepted.
  std::vector<long> accepted_lengths = {};
  std::vector<DrafterCounts> drafters = {};  // [drafters]

  // Adds all but `drafters`, since the two may be of different drafters.
  Counters& operator+=(const Counters& other);
};

// Made by Engine::begin and changed by its engine, and by take_held_text(); everybody else reads
// it. Destroying it returns its sequence and its drafters' state, which must happen before the
// engine dies.
//
// The cache holds tokens[0, committed), committed < tokens.size().
struct Generation {
  Generation(Engine& engine, DraftSequence draft_sequence, SamplingParams sampling, StopRules stop,
             AnswerOptions options);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // Nothing follows: a stop rule ended the answer, or an error did.
  bool ended() const { return finish_reason || error; }

  // Every row of the prompt has to be computed, for its log probabilities: nothing was generated
  // yet. Later they are known, also if the sequence is preempted.
  bool scores_prompt() const { return options.prompt_logprobs && std::ssize(tokens) == n_prompt; }

  // Ends the answer here: returns the text that was held back because it could have become a stop
  // string.
  std::string take_held_text() {
    stop.finish();
    return stop.take_text();
  }

  Engine& engine;
  const OwnedSequence owned_sequence;
  const SequenceId sequence = owned_sequence.id();
  const DraftSequence draft_sequence;
  AnswerOptions options;      // the scope never changes
  std::vector<Token> tokens;  // prompt and answer
  int n_prompt = 0;
  int n_shown = 0;        // tokens that the drafters have seen
  int cached_tokens = 0;  // tokens of the prompt that the cache had already
  SamplingParams sampling;
  ChoiceState state;  // after `tokens`
  StopRules stop;
  std::optional<FinishReason> finish_reason;
  // Why the answer cannot go on; `tokens` are as they were before the step that failed.
  std::optional<Error> error;
  std::vector<Emitted> emitted;  // by the last step; empty during prefill
  // With prompt_logprobs: of the prompt's tokens but the first, as far as they were computed.
  std::vector<ScoredToken> prompt_scores;
  Counters counters;
};

}  // namespace outrider

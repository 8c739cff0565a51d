// One step of speculative decoding over any number of sequences: draft, plan, forward, verify,
// commit, emit. Plain decoding is the same step without drafters.

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/backend.h"
#include "sampling/sampling.h"
#include "sampling/stop.h"
#include "speculation/budget.h"
#include "speculation/drafter.h"
#include "speculation/tree.h"

namespace outrider {

// What a step emitted for one sequence.
struct Emitted {
  Token token;
  std::optional<int> drafter;  // who proposed it first, if it was an accepted draft
  std::string text;            // became showable with it: whole characters, perhaps none
};

struct DrafterCounts {
  long proposed = 0;  // nodes checked that this drafter had proposed
  long accepted = 0;  // of these, tokens of the text
};

struct Counters {
  long steps = 0;
  long rows = 0;     // of passes, prompt rows among them
  long drafted = 0;  // nodes checked, each once
  long accepted = 0;
  long emitted = 0;
  std::vector<DrafterCounts> drafters;  // [drafters]
};

// A text in progress; made, moved on and ended by an Engine. The cache holds text[0, committed),
// with at least the last token still to be computed.
struct Generation {
  SequenceId sequence;
  DraftSequence draft_sequence;
  std::vector<Token> text;  // prompt and answer
  int n_prompt = 0;
  int n_reused = 0;  // tokens of the prompt that the cache had already
  SamplingParams sampling;
  ProcessorState state;  // after `text`
  StopRules stop;
  std::optional<FinishReason> finished;
  std::vector<Emitted> emitted;  // by the last step; empty while the prompt is read
  Counters counters;             // of this answer
};

struct EngineOptions {
  BudgetOptions budget = {};
  int prompt_chunk = 0;  // prompt rows of a sequence in one pass at most; 0: as many as fit
};

// Not thread-safe.
class Engine {
 public:
  // Drafters are asked in order.
  Engine(std::unique_ptr<Backend> target, std::vector<std::unique_ptr<Drafter>> drafters,
         EngineOptions options);
  ~Engine();

  // A text with this prompt. The backend must have a sequence left. Throws Error if the prompt is
  // empty, fills the context or holds tokens that the model does not have.
  Generation begin(std::span<const Token> prompt, SamplingParams sampling, StopRules stop);

  // The same sequence with another prompt: what the longest common prefix of text and prompt left
  // in the cache is kept, but for the last token of the prompt. Throws like begin(), and then
  // leaves the generation as it was.
  void restart(Generation& generation, std::span<const Token> prompt, SamplingParams sampling,
               StopRules stop);

  // Gives the sequence back.
  void end(const Generation& generation);

  // One pass for all given generations, none of them finished, each at most once and no more than
  // the backend's batch_rows: for each a chunk of its prompt, or draft and verify. Throws Error if
  // the model has no usable logits (NaN) where a text goes on; all other texts have then gone on,
  // and that one stands where it stood.
  void step(std::span<Generation* const> generations);

  // Times the drafters and, the first time, the target on as many rows as a step may have, for the
  // budget: on a sequence of its own, for which the backend must have room, or on top of a
  // generation's text, which stays as it is.
  void measure_costs(const Generation* generation = nullptr);

  // Other drafters from now on; they are shown the texts of the generations that are alive.
  void set_drafters(std::vector<std::unique_ptr<Drafter>> drafters, BudgetOptions budget,
                    std::span<Generation* const> alive);

  // Takes one JSON document without line break after every step: docs in trace.h.
  void set_trace(std::function<void(const std::string& line)> trace) { trace_ = std::move(trace); }

  const Backend& target() const { return *target_; }
  std::span<const std::unique_ptr<Drafter>> drafters() const { return drafters_; }
  const EngineOptions& options() const { return options_; }
  const Counters& counters() const { return counters_; }  // of all steps
  double forward_ms() const { return forward_ms_; }       // choices among it
  double draft_ms() const { return draft_ms_; }

 private:
  struct Step;
  Step open(std::span<Generation* const> generations) const;
  void draft(Step& step);
  void plan(Step& step);
  void forward(Step& step);
  void verify(Step& step);
  void commit(Step& step);
  void emit(Step& step);

  void check(std::span<const Token> prompt) const;

  std::unique_ptr<Backend> target_;
  std::vector<std::unique_ptr<Drafter>> drafters_;
  EngineOptions options_;
  Budget budget_;
  int next_draft_sequence_ = 0;
  Counters counters_;
  double forward_ms_ = 0, draft_ms_ = 0;
  std::function<void(const std::string&)> trace_;
};

}  // namespace outrider

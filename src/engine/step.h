// One step of speculative decoding over any number of sequences: draft, plan, forward, verify, commit, emit.

#pragma once

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
};

struct DrafterCounts {
  long proposed = 0;  // nodes checked that this drafter had proposed
  long accepted = 0;
};

// A text in progress.
struct Generation {
  SequenceId sequence;
  DraftSequence draft_sequence;
  std::vector<Token> text;  // prompt and answer; runs one token ahead of the cache while generating
  int n_prompt = 0;
  SamplingParams sampling;
  ProcessorState state;  // after `text`
  StopRules stop;
  std::optional<FinishReason> finished;
  std::vector<Emitted> emitted;  // by the last step
  long steps = 0;
};

class Engine {
 public:
  // Drafters are asked in order. Backend and drafters are owned.
  Engine(std::unique_ptr<Backend> target, std::vector<std::unique_ptr<Drafter>> drafters, BudgetOptions budget);

  // One pass for all given generations, none of them finished: a chunk of prompt, or draft and verify.
  void step(std::span<Generation* const> generations);
};

}  // namespace outrider

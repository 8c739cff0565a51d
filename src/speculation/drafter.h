// A way to guess. A drafter sees the text of every sequence and proposes continuations into a draft
// tree; that it is wrong costs time, never a different text.

#pragma once

#include <compare>
#include <span>
#include <string_view>

#include "base/token.h"
#include "sampling/sampling.h"
#include "speculation/tree.h"

namespace outrider {

// The engine's number of a text in progress; unrelated to a backend's SequenceId.
struct DraftSequence {
  int value = -1;
  friend auto operator<=>(DraftSequence, DraftSequence) = default;
};

struct DraftLimits {
  int nodes = 16;  // that this drafter may add
  int depth = 16;  // edges from node 0
  int width = 4;   // children that this drafter proposes for a node
  // A further level of drafting does not pay where the product of confidences along every path that
  // could be lengthened is below this; 0: go on to the other limits. Set by the budget: the tokens
  // that the time of drafting a level and of checking its row would otherwise bring.
  double worth = 0;
};

// One sequence's turn. The tree may already hold other drafters' proposals.
struct DraftRequest {
  DraftSequence sequence;
  DraftTree* tree;
  int drafter;  // this drafter's index, for its proposals
  DraftLimits limits;
  const SamplingParams* sampling;
  const ProcessorState* state;  // after the whole text, node 0 among it
};

// What a proposal costs, for the budget: milliseconds, as measured by the drafter so far; 0 if it
// does not know yet.
struct DraftCost {
  double fixed_ms = 0;       // of a propose() at all, with proposals at depth 1
  double per_depth_ms = 0;   // of each further level
  double per_unread_ms = 0;  // of each token that it has to read first

  // Of a propose() whose deepest proposal was at `depth`.
  double ms(int depth) const { return fixed_ms + per_depth_ms * (depth > 1 ? depth - 1 : 0); }
};

// State equals that of a fresh drafter (same corpus and history) shown the same text; what a draft
// model's backend learned from earlier texts (Backend::add_outputs) is history, too. One thread at
// a time calls a drafter.
class Drafter {
 public:
  virtual ~Drafter() = default;

  virtual std::string_view name() const = 0;

  // A new sequence without text. The number is not in use.
  virtual void begin(DraftSequence sequence) = 0;
  // Tokens were appended to the text, prompt tokens too.
  virtual void observe(DraftSequence sequence, std::span<const Token> tokens) = 0;
  // Adds guesses at what follows the text of each request's sequence, within the request's limits.
  // Each sequence occurs at most once and has a text.
  virtual void propose(std::span<const DraftRequest> requests) = 0;
  // Keeps the first `length` tokens of the text.
  virtual void truncate(DraftSequence sequence, int length) = 0;
  virtual void end(DraftSequence sequence) = 0;

  // Tokens of the text that the next propose() would have to read beyond what each step brings;
  // 0 for drafters that read as they observe.
  virtual int unread(DraftSequence) const { return 0; }

  // Times what proposing takes, if that is worth knowing beforehand. Texts stay as they are.
  virtual void measure_costs() {}
  virtual DraftCost cost() const = 0;
};

}  // namespace outrider

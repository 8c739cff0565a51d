// A way to guess. A drafter sees the text of every sequence and proposes continuations into a draft tree; that it is wrong
// costs time, never a different text.

#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
  int rows = 16;   // drafted nodes that this drafter may add
  int depth = 16;  // edges from node 0
  int width = 4;   // children a node
};

// One sequence's turn. The tree may already hold other drafters' proposals.
struct DraftRequest {
  DraftSequence sequence;
  DraftTree* tree;
  DraftLimits limits;
  const SamplingParams* sampling;
  const ProcessorState* state;  // after the whole text, node 0 among it
};

// What a proposal costs, for the budget: milliseconds, as measured by the drafter so far.
struct DraftCost {
  double fixed_ms = 0;     // of a propose() at all
  double per_depth_ms = 0;  // of each further level
};

// State equals that of a fresh drafter (same corpus and history) shown the same text.
class Drafter {
 public:
  virtual ~Drafter() = default;

  virtual std::string_view name() const = 0;

  virtual void begin(DraftSequence sequence) = 0;
  // Tokens were appended to the text, prompt tokens too. `features`: [tokens, width] or empty.
  virtual void observe(DraftSequence sequence, std::span<const Token> tokens,
                       std::span<const float> features) = 0;
  virtual void propose(std::span<const DraftRequest> requests) = 0;
  virtual void truncate(DraftSequence sequence, int length) = 0;
  virtual void fork(DraftSequence from, DraftSequence to) = 0;
  virtual void end(DraftSequence sequence) = 0;

  virtual DraftCost cost() const = 0;
};

}  // namespace outrider

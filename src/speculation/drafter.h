// A drafter guesses how texts go on. It is shown the text of every sequence and adds its guesses to
// a draft tree. A wrong guess costs time, never a different text.

#pragma once

#include <compare>
#include <span>
#include <string_view>

#include "base/token.h"
#include "sampling/sampling.h"
#include "speculation/tree.h"

namespace outrider {

// The engine's number for a text in progress; unrelated to a backend's SequenceId.
struct DraftSequence {
  int value = -1;
  friend auto operator<=>(DraftSequence, DraftSequence) = default;
};

// What one drafter may add to one tree.
struct DraftLimits {
  int nodes = 16;
  int depth = 16;  // edges from node 0
  int width = 4;   // children that this drafter proposes for a node
  // A drafter whose levels take time should not give children to a node of less value than this. A
  // node's value is the product of the drafter's confidences along its path; min_value is the
  // number of tokens that the time for a further level and its row would give otherwise. 0: no such
  // limit.
  double min_value = 0;
};

struct DraftRequest {
  DraftSequence sequence;
  DraftTree* tree;  // may hold other drafters' proposals
  int drafter;      // this drafter's index, for its proposals
  DraftLimits limits;
  const SamplingParams* sampling;
  const ProcessorState* state;  // after the whole text, node 0 included
};

// Milliseconds that a proposal takes, as the drafter measured so far; 0 where it does not know yet.
struct DraftCost {
  double fixed_ms = 0;       // of a propose() whose proposals all have depth 1
  double per_depth_ms = 0;   // of each further level
  double per_unread_ms = 0;  // of each token of unread()

  // Of a propose() whose deepest proposal has this depth.
  double ms(int depth) const { return fixed_ms + per_depth_ms * (depth > 1 ? depth - 1 : 0); }
};

// A drafter proposes what a new one would propose that was shown the same text. One exception: a
// draft model that has outputs for some tokens keeps those that earlier texts added, until
// forget(). One thread at a time calls a drafter.
class Drafter {
 public:
  virtual ~Drafter() = default;

  virtual std::string_view name() const = 0;

  // A new sequence without text. The number is not in use.
  virtual void begin(DraftSequence sequence) = 0;
  // Tokens were appended to the text, those of the prompt too.
  virtual void observe(DraftSequence sequence, std::span<const Token> tokens) = 0;
  // Adds guesses at what follows the text of each request's sequence, within the request's limits.
  // Each sequence occurs at most once and has a text.
  virtual void propose(std::span<const DraftRequest> requests) = 0;
  // Keeps the first `length` tokens of the text.
  virtual void truncate(DraftSequence sequence, int length) = 0;
  virtual void end(DraftSequence sequence) = 0;

  // Tokens of the text that the next propose() has to read first, without the few that each step
  // adds. 0 for drafters that read in observe().
  virtual int unread(DraftSequence) const { return 0; }

  // Passes of a model of its own so far, reading among them, without those of measure_costs().
  virtual long n_passes() const { return 0; }

  // Forgets what it keeps of texts that have ended, so that it proposes what a new drafter would.
  virtual void forget() {}

  // Measures cost() before the first proposal, if that is worth the time. Texts stay as they are.
  virtual void measure_costs() {}
  virtual DraftCost cost() const = 0;
};

}  // namespace outrider

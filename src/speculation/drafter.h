// A drafter guesses how sequences go on. It is shown their tokens and adds its guesses to a draft
// tree. A wrong guess costs time, never a different answer, unless the verifier is lossy
// (verifier.h).

#pragma once

#include <compare>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/token.h"
#include "cache/ids.h"
#include "sampling/sampling.h"
#include "speculation/cost_curve.h"
#include "speculation/draft_worth.h"
#include "speculation/tree.h"

namespace outrider {

struct Pass;  // model/backend.h

// The engine's number for a sequence; unrelated to a backend's SequenceId.
struct DraftSequence {
  int value = -1;
  friend auto operator<=>(DraftSequence, DraftSequence) = default;
};

// What one drafter may add to one tree.
struct DraftLimits {
  int nodes = 16;
  int depth = 16;  // edges from the root
  int width = 4;   // children that this drafter proposes for a node
};

// What the drafter would have guessed for a token of the sequence that it prefilled.
struct PrefillGuess {
  float confidence;
  bool was_right;
  int n_known;  // tokens before it that the drafter had computed; all of them: the largest int
};

struct DraftRequest {
  DraftSequence sequence;
  DraftTree* tree;  // may hold other drafters' proposals
  int drafter;      // this drafter's index, for its proposals
  DraftLimits limits;
  const SamplingParams* sampling;
  const ChoiceState* state;  // after the whole sequence, the root included
  // Of the sequence's last tokens, how many a drafter that prefills has to know.
  int n_context = std::numeric_limits<int>::max();
  // For a drafter whose levels take time. Null: confidences stand, and time has no price.
  const DraftWorth* worth = nullptr;
  // Where the drafter prefills, it adds its guesses for the last n_prefill_guesses tokens of the
  // sequence, as far as it has just computed what is before them. Null: it adds nothing.
  std::vector<PrefillGuess>* prefill_guesses = nullptr;
  int n_prefill_guesses = 0;
  // A drafter that can draw does: its proposals are drawn from its own distribution after each
  // path, without replacement, with noise of NoiseUse::draft, and say so (Proposal::drawn_from);
  // how many a node gets is settled before the first (tree.h). All that is drawn is handed over.
  bool draws = false;
};

// A row that rides along in the target's pass beside the checked nodes, for what the target says
// after it. It becomes no text.
struct Rider {
  Token token;
  int parent;  // an earlier rider of its list; -1: the last token of the text
};

// Tokens that a pass of the target has computed and that are about to become history.
struct ComputedText {
  DraftSequence sequence;
  int first;                      // position of the first of them
  std::span<const Token> tokens;  // not empty
  std::span<const int> rows;      // of the pass, one for each
  // The last token of the text, which follows them and which the next pass computes. Nothing: more
  // of the prompt follows, or the answer has ended.
  std::optional<Token> next;
};

// Milliseconds that a proposal takes, as the drafter measured so far; 0 where it does not know yet.
struct DraftCost {
  double fixed_ms = 0;        // of a propose() whose proposals all have depth 1
  double per_depth_ms = 0;    // of each further level
  double per_prefill_ms = 0;  // of each token of n_to_prefill()
  bool is_old = false;        // of an earlier run, and not confirmed yet

  // Of a propose() whose deepest proposal has this depth.
  double ms(int depth) const { return fixed_ms + per_depth_ms * (depth > 1 ? depth - 1 : 0); }
};

// A drafter proposes what a new one would that was shown the same tokens and prediction.
// Exceptions: until forget() a draft model keeps outputs that earlier sequences added, and a
// drafter may draft from earlier answers; how much of a sequence it knows depends on the n_context
// of earlier requests; and it remembers answers to its riders. One thread at a time calls it.
class Drafter {
 public:
  virtual ~Drafter() = default;

  virtual std::string_view name() const = 0;
  // Whether it has a distribution to draw from. Otherwise its proposals are chosen: functions of
  // the text and of what it was shown before.
  virtual bool can_draw() const { return false; }

  // A new, empty sequence, whose number is not in use. It uses earlier answers and cached pages of
  // its scope alone; scopes share a draft model's outputs and successors.
  virtual void begin(DraftSequence sequence, CacheScope scope = {}) = 0;
  // The target's own sequence, for a drafter that runs layers of the target. Between begin() and
  // the first tokens.
  virtual void bind(DraftSequence, SequenceId /*target*/) {}
  // Tokens, also of the prompt, were appended to the sequence.
  virtual void observe(DraftSequence sequence, std::span<const Token> tokens) = 0;
  // The answer begins here, and is expected to read mostly like `prediction`, which replaces an
  // earlier one; empty: nothing is expected.
  virtual void expect(DraftSequence, std::span<const Token> /*prediction*/) {}
  // Adds guesses at what follows each request's sequence, within its limits. Each sequence occurs
  // at most once and is not empty.
  virtual void propose(std::span<const DraftRequest> requests) = 0;
  // Rows that a drafter wants to ride along for a sequence, at most, in one pass.
  virtual int riders_max() const { return 0; }
  // These rows: no more than `rows`, at most `depth` levels below the last token of the text that
  // was observed. Asked for after other drafters and this one had their proposals, if they had any.
  virtual std::vector<Rider> riders(DraftSequence, int /*rows*/, int /*depth*/) { return {}; }
  // After the pass, if it had such rows and did not fail, before the tokens that it brought are
  // observed: what the target says after each of them, in order; nothing where a row cannot be
  // used. It is the target's choice, with the noise of its place, where the verifier follows
  // choices (Guarantee::same_text), and otherwise the most likely token, which depends on no noise.
  virtual void answered(DraftSequence, std::span<const std::optional<Token>> /*answers*/) {}
  // Whether it runs the target's head (Backend::head), which the target's sequences then use.
  virtual bool uses_head() const { return false; }
  // Of a drafter that does: after each pass of the target, before what it computed is committed.
  // The drafter has the head write all rows of these texts, which are not observed yet.
  virtual void computed(const Pass& /*pass*/, std::span<const ComputedText> /*texts*/) {}
  // Keeps the first `length` tokens of the sequence.
  virtual void truncate(DraftSequence sequence, int length) = 0;
  // The sequence is preempted: gives back its pages of a cache, keeps its tokens.
  virtual void suspend(DraftSequence) {}
  virtual void end(DraftSequence sequence) = 0;

  // Tokens of the sequence that the next propose() has to prefill, if it is to know at least the
  // last n_context. 0 for drafters without a model, and where no more is missing than a step
  // usually adds.
  virtual int n_to_prefill(DraftSequence, int /*n_context*/) const { return 0; }

  // How many of the sequence's last tokens it will know then; the largest int: all.
  virtual int n_known(DraftSequence, int /*n_context*/) const {
    return std::numeric_limits<int>::max();
  }

  // Passes of a model of its own, or of some of the target's layers, so far, those of prefill too,
  // without those of measure_costs().
  virtual long n_passes() const { return 0; }
  // Levels of its drafts that these passes decided.
  virtual long n_levels() const { return 0; }

  // Forgets ended sequences, so that it proposes what a new drafter would.
  virtual void forget() {}

  // Measures cost() before the first proposal, if that is worth the time. No sequence changes.
  virtual void measure_costs() {}
  // The times of a model's passes, for restore_costs() of another drafter; nothing: it runs none.
  virtual std::vector<CostCurve::Point> costs() const { return {}; }
  virtual void restore_costs(std::span<const CostCurve::Point> /*costs*/) {}
  // Of a propose() for so many sequences of about `length` tokens each.
  virtual DraftCost cost(int n_sequences, int length) const = 0;
};

}  // namespace outrider

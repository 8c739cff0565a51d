// How much to draft, and which drafted nodes to check. A planner decides how fast answers come,
// never what they say.

#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "speculation/cost_curve.h"
#include "speculation/drafter.h"
#include "speculation/learned.h"
#include "speculation/step_costs.h"
#include "speculation/tree.h"

namespace outrider {

struct PlannerOptions {
  bool automatic = true;  // priced_planner.h; false: fixed_planner.h
  int rows = 16;          // drafted nodes checked per sequence and step, and riders, together
  int depth = 16;         // of drafts: edges from the root
  int width = 4;          // children that one drafter proposes for a node
};

// A sequence that gets tokens in this step and has a token of its answer already.
struct PlannedSequence {
  DraftSequence sequence;
  DraftTree* tree;
  int length;                 // tokens of the sequence
  int n_answered;             // of these, the answer's
  std::optional<int> n_left;  // tokens that it may still get
  int rows_max;               // drafted nodes and riders that its request allows; 0: no drafts
  int depth_max;              // of drafts, as context and token limit leave room
  int drawers = 0;            // drafters that draw for it: then its tree is not pruned
};

// What became of a sequence's drafts.
struct DraftOutcome {
  DraftSequence sequence;
  const DraftTree* drafted;      // as proposed
  const DraftTree* checked;      // as pruned
  std::span<const Token> taken;  // tokens that the step added to the text
  std::vector<int> riders = {};  // [drafters], or empty: none
};

class Planner {
 public:
  static constexpr int kWholeText = std::numeric_limits<int>::max();  // as n_context

  // For a sequence's DraftRequest. Without limits the drafter is not asked.
  struct Ask {
    std::optional<DraftLimits> limits = {};
    int n_context = kWholeText;
    DraftWorth worth = {};
  };
  struct Report {
    Reliability reliability = {};  // whether drafts came true as often as was expected
    double bank = 0;               // what it holds, in passes (guard.h)
    long vetoes = 0;  // steps that drafted less so that no sequence is too far behind (guard.h)
    long probes = 0;  // of drafters that were not expected to pay
  };

  virtual ~Planner() = default;

  // An answer begins, of whose prompt n_prefill tokens are not computed yet. If the sequence had
  // another answer, that has ended.
  virtual void begin(DraftSequence sequence, int n_prefill) = 0;
  // Its answer has ended; nothing if that is known already.
  virtual void end(DraftSequence sequence) = 0;

  // Whether this step should draft nothing, so that the time of a pass without drafts stays known.
  virtual bool plain_step_is_due(const PassLoad& load) const = 0;

  // What to ask of this drafter for each of these sequences, [sequences]. Their trees may hold
  // proposals of drafters before it.
  virtual std::vector<Ask> ask(int drafter, const Drafter& asked,
                               std::span<const PlannedSequence> sequences,
                               const PassLoad& load) = 0;
  // After the proposals of a drafter, for each of these sequences. levels: the depth of its deepest
  // proposal for any of them. prefill_guesses: what it would have guessed for tokens that it
  // prefilled.
  virtual void learn(int drafter, DraftSequence sequence, int levels,
                     std::span<const PrefillGuess> prefill_guesses) = 0;

  // Cuts the trees of a step to the nodes that shall be checked, perhaps none; not those of
  // sequences that draw.
  virtual void prune(std::span<const PlannedSequence> sequences, const PassLoad& load) = 0;

  // How many riders of the drafter each of these sequences may have beside its tree, which is
  // pruned, [sequences]. n_riders: those that other drafters have got already.
  virtual std::vector<int> riders(int drafter, const Drafter& asked,
                                  std::span<const PlannedSequence> sequences, const PassLoad& load,
                                  int n_riders) = 0;

  // After the step, whose pass took forward_ms with its choices. Outcomes of all sequences that got
  // tokens, those that got their first one too.
  virtual void observe(std::span<const DraftOutcome> outcomes, const PassLoad& load,
                       double forward_ms) = 0;

  // What the next planner for the same models on the same machine may begin with. Passes are not
  // part of it.
  virtual Learned learned() const { return {}; }
  virtual void restore(const Learned&) {}

  virtual Report report() const { return {}; }
};

// curve: T(n), which the caller measures and the planner refines. It must outlive the planner.
std::unique_ptr<Planner> make_planner(const PlannerOptions& options, CostCurve& curve,
                                      int n_drafters);

}  // namespace outrider

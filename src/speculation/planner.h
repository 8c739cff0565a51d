// How much to draft, and which drafted nodes to check. The planner decides how fast answers come,
// never what they say.
//
// It drafts what is expected to pay. Time has a price: the tokens that the sequences of a step
// would get from it at their recent speed, at least that of plain decoding. Of all choices of
// (sequences, levels, rows) a step takes the one with the most expected tokens less price times
// time: the condition for the most tokens per time of a renewal process (Cox 1962). What is
// expected comes from a belief about acceptance, which each outcome refines (calibration.h). A
// guard bounds what is lost where that was wrong (guard.h). Drafters that are not expected to pay
// are probed.
//
// In a batch every sequence waits for the same passes, drafters' too, so time costs what all of
// them would get from it. Prompt rows in the pass do not change that: they have to be computed
// anyway.

#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "speculation/cost_curve.h"
#include "speculation/drafter.h"
#include "speculation/guard.h"
#include "speculation/learned.h"
#include "speculation/step_costs.h"
#include "speculation/tree.h"

namespace outrider {

struct PlannerOptions {
  // Otherwise, and as long as no pass was timed, it drafts as much as the other options allow, in
  // every step: no clocks, no guard, no belief, so that the same requests get the same drafts.
  bool automatic = true;
  int rows = 16;   // drafted nodes checked per sequence and step, and riders, together
  int depth = 16;  // of drafts: edges from the root
  int width = 4;   // children that one drafter proposes for a node
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
  int n_riders = 0;           // that drafters have got already

  // Nodes that cannot be pruned any more.
  int n_settled() const { return drawers > 0 ? tree->size() - 1 : 0; }
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

  // curve: T(n), which the caller measures and the planner refines. It must outlive the planner.
  Planner(const PlannerOptions& options, CostCurve& curve, int n_drafters);

  // An answer begins, of whose prompt n_prefill tokens are not computed yet. If the sequence had
  // another answer, that has ended.
  void begin(DraftSequence sequence, int n_prefill);
  // Its answer has ended; nothing if that is known already.
  void end(DraftSequence sequence);

  // Whether this step should draft nothing, so that the time of a pass without drafts stays known.
  bool plain_step_is_due(const PassLoad& load) const;

  // What to ask of this drafter for each of these sequences, [sequences]. Their trees may hold
  // proposals of drafters before it.
  std::vector<Ask> ask(int drafter, const Drafter& asked,
                       std::span<const PlannedSequence> sequences, const PassLoad& load);
  // After the proposals of a drafter, for each of these sequences. levels: the depth of its deepest
  // proposal for any of them. prefill_guesses: what it would have guessed for tokens that it
  // prefilled.
  void learn(int drafter, DraftSequence sequence, int levels,
             std::span<const PrefillGuess> prefill_guesses);

  // Cuts the trees of a step to the nodes that shall be checked, perhaps none; not those of
  // sequences that draw.
  void prune(std::span<const PlannedSequence> sequences, const PassLoad& load);

  // How many riders of the drafter each of these sequences may have beside its tree, which is
  // pruned, [sequences].
  std::vector<int> riders(int drafter, const Drafter& asked,
                          std::span<const PlannedSequence> sequences, const PassLoad& load);

  // After the step, whose pass took forward_ms with its choices. Outcomes of all sequences that got
  // tokens, those that got their first one too.
  void observe(std::span<const DraftOutcome> outcomes, const PassLoad& load, double forward_ms);

  // What the next planner for the same models on the same machine may begin with. Passes, which are
  // a part of it, are left to the caller.
  Learned learned() const;
  void restore(const Learned& learned);  // of as many drafters

  Report report() const;
  const Guard::Account& account(DraftSequence sequence) const {
    return sequences_.at(sequence).account;
  }

 private:
  // Of what is tried now and then though it does not seem to pay, or is known: after 8 steps, then
  // after twice as many, at last after every 64.
  struct Trial {
    int gap = 0, n_since = 0;  // steps; a gap of 0: it need not be tried
    void tried();
  };
  struct Sequence {
    Calibration::Sequence belief;
    std::vector<Trial> trials;  // [drafters]: of one that is not expected to pay
    Guard::Account account = {};
    double tokens, passes;  // of recent steps
    // Of this step, in passes: what drafters took for it, and prefilling for them; and its part of
    // each further level of the drafter that was asked last, whose depth is not known yet.
    double drafting = 0, prefill = 0, per_level = 0;
    double speed() const { return std::max(1.0, tokens / passes); }
  };
  struct Entry;
  struct Ledger;
  struct Row;

  bool prices() const { return options_.automatic && !curve_.empty(); }
  Ledger ledger(std::span<const PlannedSequence> planned, const PassLoad& load);
  int room(const Entry& entry, const Ledger& ledger) const;
  bool allows(const Ledger& ledger);
  std::vector<double> chances(const PlannedSequence& planned) const;
  void choose(int drafter, const Drafter& asked, Ledger& ledger, std::span<Ask> asks);
  void weigh(Entry& entry, int n_context, const Drafter& asked, const Ledger& ledger);
  void choose_context(Entry& entry, const Drafter& asked, const Ledger& ledger);
  void choose_levels(Ledger& ledger);
  void probe(int drafter, const Drafter& asked, Ledger& ledger);
  int n_that_pay(Ledger ledger, std::span<const Row> rows, double ms_price);
  void count(std::span<const DraftOutcome> outcomes, const PassLoad& load);

  PlannerOptions options_;
  CostCurve& curve_;
  Calibration calibration_;
  Guard guard_;
  std::map<DraftSequence, Sequence> sequences_;
  Learned learned_;          // bank and acceptance are the guard's and the calibration's
  std::vector<bool> rides_;  // [drafters]: it was asked how many riders it may have
  int n_plain_due_;          // plain steps before anything is drafted
  Trial plain_trial_, row_trial_;
  bool is_vetoed_ = false;  // this step
  long n_vetoes_ = 0, n_probes_ = 0;
};

}  // namespace outrider

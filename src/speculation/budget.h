// How much to draft and which nodes to check: expected tokens over expected time, from a measured
// cost curve T(n) and learned acceptance. It decides how fast a text comes, never what it says.

#pragma once

#include <optional>
#include <span>
#include <vector>

#include "speculation/calibration.h"
#include "speculation/cost_curve.h"
#include "speculation/drafter.h"
#include "speculation/tree.h"

namespace outrider {

struct BudgetOptions {
  bool automatic = true;  // false ("fixed"): as much as the following allow, no clocks
  int rows = 16;          // drafted nodes checked per sequence and step, all drafters together
  int depth = 16;         // of the tree: edges from node 0
  int width = 4;          // children that one drafter proposes for a node
};

// The rest of a step that drafts must share a pass with.
struct PassLoad {
  int rows = 0;      // without any draft: node 0 of every sequence, and prompt rows
  int rows_max = 0;  // of the pass, drafts among them
};

// What became of one sequence's drafts.
struct DraftOutcome {
  const DraftTree* drafted;      // as proposed
  const DraftTree* checked;      // as planned
  std::span<const Token> taken;  // how the text went on
};

struct StepCost {
  int rows = 0;                   // of the pass
  bool with_prompt_rows = false;  // some were prompt rows without logits
  double forward_ms = 0;          // forward and choices
  // [drafters] by their DraftCost; nothing: not asked.
  std::vector<std::optional<double>> draft_ms = {};
};

class Budget {
 public:
  Budget(BudgetOptions options, int n_drafters);

  // A text begins, or goes on with another prompt: what a drafter brought of late counts no more
  // than what it usually brings.
  void begin_text();

  // What drafter `drafter` may add to each of these trees this step; nothing: do not ask it. A
  // drafter is asked if the tokens that it is expected to add to what the trees hold already,
  // judged by what it brought before, are more than its time would bring at the speed of late. One
  // that fails this on its own account is left out for a number of steps which doubles each time,
  // then tried once more; one whose asking costs next to nothing is always asked.
  std::optional<DraftLimits> limits(int drafter, const DraftCost& cost,
                                    std::span<const DraftTree* const> trees, const PassLoad& load);

  // Whether a drafter that limits() wants asked should first read `n_unread` tokens of a text whose
  // answer has `n_answered` tokens so far and may have `n_left` more. An answer is taken to go on
  // for as long again. A drafter that lately did not pay reads no more than a small share of the
  // time is worth; the time that it reads counts as spent.
  bool worth_reading(int drafter, const DraftCost& cost, int n_unread, int n_answered,
                     std::optional<int> n_left);

  // Prunes all trees of a step together to the nodes that pay: with a node's value the product of
  // calibrated acceptances along its path, nodes best first, that many for which
  // (sequences + sum of values) / (T(rows) + draft_ms) is largest over all counts, none among them.
  // Fixed: as many as the limits allow. draft_ms: what drafting took this step.
  void plan(std::span<DraftTree* const> trees, const PassLoad& load, double draft_ms) const;

  // After the step. Outcomes of the sequences that generated.
  void observe(std::span<const DraftOutcome> outcomes, const StepCost& cost);

  CostCurve& curve() { return curve_; }

 private:
  // What asking a drafter brings, from the times it was asked: running means.
  struct Standing {
    double tokens;        // proposed that came true, per sequence
    double usual_tokens;  // the same over a longer time
    double rows = 0;      // checked per sequence
    double depth = 0;     // of its deepest proposal
    double ms = 0;        // of drafting
    DraftCost cost = {};  // as the drafter last said
    double share = 1;     // of the steps: what it brings was needed beside what the trees held
    double spare_ms = 0;  // what it may spend on reading while it does not pay
    bool asked = false;   // ever
    int pause = 0;        // steps of the last pause; 0: it pays
    int steps_left = 0;   // of it
  };
  struct Candidate {  // a drafted node
    int tree, node;
    double value;
  };
  struct Prospect {  // of a pass with the best `count` candidates
    int count = 0;
    double tokens = 0, ms = 0;
  };
  // What asking a drafter brings: as deep as of late, then at each lesser depth.
  struct Offer {
    double tokens, rows, ms;
  };
  static std::vector<Offer> offers(const Standing& standing);
  std::vector<double> values(const DraftTree& tree) const;
  std::vector<Candidate> candidates(std::span<const DraftTree* const> trees,
                                    const PassLoad& load) const;
  Prospect best(std::span<const Candidate> candidates, std::size_t n_sequences,
                const PassLoad& load, double draft_ms) const;
  bool pays(const Standing& standing, const Prospect& without, std::size_t n_sequences,
            const PassLoad& load, double tokens_per_ms) const;
  bool pays_alone(const Standing& standing, std::size_t n_sequences) const;

  BudgetOptions options_;
  CostCurve curve_;
  Calibration calibration_;
  std::vector<Standing> standings_;  // [drafters]
  double tokens_per_ms_ = 0;         // of one sequence, running mean; 0: not known
  double tokens_per_step_ = 0;       // likewise
};

}  // namespace outrider

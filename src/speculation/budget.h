// How much to draft, and which drafted nodes to check: as much as gives the most expected tokens
// per expected time, by a measured cost curve T(n) and learned acceptance. The budget decides how
// fast a text comes, never what it says.

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
  bool automatic = true;  // false ("fixed"): always as much as the following allow, no clocks
  int rows = 16;          // drafted nodes checked per sequence and step, all drafters together
  int depth = 16;         // of drafts: edges from node 0
  int width = 4;          // children that one drafter proposes for a node
};

// Rows of a step's pass.
struct PassLoad {
  int rows = 0;      // without drafts: node 0 of every sequence, and prompt rows
  int rows_max = 0;  // that the pass may have, with drafts
};

// What became of one sequence's drafts.
struct DraftOutcome {
  const DraftTree* drafted;      // as proposed
  const DraftTree* checked;      // as planned
  std::span<const Token> taken;  // tokens that the step added to the text
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

  // A text begins, or goes on with another prompt: each drafter is judged by what it gave over a
  // longer time again, not by the recent steps.
  void begin_text();

  // What drafter `drafter` may add to each of these trees in this step; nothing: do not ask it. The
  // trees may hold proposals of other drafters. A drafter is asked if it is expected to add more
  // tokens than its time would give at the recent speed. One that would be slower than plain
  // decoding even with the trees to itself is paused for some steps and then tried once; each
  // failed trial doubles the pause. A drafter that takes next to no time is always asked.
  std::optional<DraftLimits> limits(int drafter, const DraftCost& cost,
                                    std::span<const DraftTree* const> trees, const PassLoad& load);

  // Whether a drafter that limits() lets propose should first read `n_unread` tokens of a text. The
  // answer has `n_answered` tokens so far and may have `n_left` more; it is assumed to become twice
  // as long. The drafter should read if its drafts are expected to save more time in the rest of
  // the answer than reading takes. While a drafter does not pay, its reading is limited to a small
  // share of the time that passes; true then counts the time of reading as spent.
  bool worth_reading(int drafter, const DraftCost& cost, int n_unread, int n_answered,
                     std::optional<int> n_left);

  // Prunes the trees of a step to the nodes that pay. A node's value is the product of calibrated
  // acceptances along its path. Of all nodes, ordered by value, that many are kept for which
  // (sequences + sum of values) / (T(rows) + draft_ms) is largest, perhaps none. Fixed: as many as
  // the options allow. draft_ms: what drafting took in this step.
  void plan(std::span<DraftTree* const> trees, const PassLoad& load, double draft_ms) const;

  // After the step. Outcomes of the sequences that generated.
  void observe(std::span<const DraftOutcome> outcomes, const StepCost& cost);

  CostCurve& curve() { return curve_; }

 private:
  // What one drafter did in the steps that asked it, as running means per step.
  struct Record {
    double tokens;            // proposed and taken into the text, per sequence
    double long_term_tokens;  // the same over a longer time
    double rows = 0;          // of its nodes checked, per sequence
    double depth = 0;         // of its deepest proposal
    double ms = 0;            // of drafting
    DraftCost cost = {};      // as stated last
    double needed = 1;        // share of steps where other drafters' proposals were not enough
    double reading_ms = 0;    // that it may spend on reading while it does not pay
    bool asked = false;       // at least once
    int pause = 0;            // steps from its last failed trial to the next trial; 0: it pays
    int pause_left = 0;       // of these
  };
  // What one more request to a drafter is expected to give, per sequence.
  struct DraftEstimate {
    double tokens, rows, ms;
  };
  struct RankedNode {
    int tree, node;
    double value;
  };
  // A pass that checks the best `n_nodes` drafted nodes.
  struct PassEstimate {
    int n_nodes = 0;
    double tokens = 0, ms = 0;
  };
  struct Tally {  // of a drafter's nodes in one step, over all sequences
    double taken = 0, checked = 0;
    int depth = 0;  // of the deepest proposal
  };

  std::vector<double> values(const DraftTree& tree) const;
  std::vector<RankedNode> ranked_nodes(std::span<const DraftTree* const> trees,
                                       const PassLoad& load) const;
  PassEstimate best_pass(std::span<const RankedNode> nodes, std::size_t n_sequences,
                         const PassLoad& load, double draft_ms) const;
  static std::vector<DraftEstimate> estimates(const Record& record);
  bool pays(const Record& record, const PassEstimate& without, std::size_t n_sequences,
            const PassLoad& load, double tokens_per_ms) const;
  bool beats_plain_decoding(const Record& record, std::size_t n_sequences) const;
  std::vector<Tally> tally(std::span<const DraftOutcome> outcomes) const;
  void update(Record& record, const Tally& tally, double draft_ms, std::size_t n_sequences) const;

  BudgetOptions options_;
  CostCurve curve_;
  Calibration calibration_;
  std::vector<Record> records_;  // [drafters]
  // Running means of one sequence, drafts included; 0: not known yet.
  double tokens_per_ms_ = 0, tokens_per_step_ = 0;
};

}  // namespace outrider

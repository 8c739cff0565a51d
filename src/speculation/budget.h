// How much to draft, and which drafted nodes to check. The budget decides how fast a text comes,
// never what it says.
//
// Time has a price. A text that lately got `speed` tokens in the time of a pass without drafts
// would get that from any time, so drafting is worth its time only if it brings more: a drafter is
// asked, a draft made longer and a node checked where the expected tokens exceed speed · added
// time. This is the condition for the most tokens per time of a renewal process (Cox 1962). In a
// batch every text waits for the same passes, those of drafters, too, so time costs what all of
// them would get from it, and those draft that together gain more than that. Rows of prompts that
// the pass also has do not change that: they have to be computed, now or later.
//
// What is expected comes from acceptance learned in this text, which begins as texts usually are
// (calibration.h). What it may cost to be wrong is bounded by an account of each text: a step may
// take for drafts what the accounts of its texts have in the mean, and for those of others no more
// than each text has the patience for, or expects of its own.

#pragma once

#include <cmath>
#include <optional>
#include <span>
#include <vector>

#include "speculation/calibration.h"
#include "speculation/cost_curve.h"
#include "speculation/drafter.h"
#include "speculation/learned.h"
#include "speculation/tree.h"

namespace outrider {

struct BudgetOptions {
  bool automatic = true;  // false ("fixed"): always as much as the following allow, no clocks
  int rows = 16;          // drafted nodes checked per sequence and step, all drafters together
  int depth = 16;         // of drafts: edges from node 0
  int width = 4;          // children that one drafter proposes for a node
};

// A step's pass without drafts.
struct PassLoad {
  int rows = 0;                // node 0 of every text, and prompt rows
  int rows_max = 0;            // that the pass may have, with drafts
  int prompt_rows = 0;         // that only read
  int scored_rows = 0;         // of these, with logits
  int texts = 1;               // that wait for the pass, with or without rows of it
  double attended = 0;         // by these rows
  double prompt_attended = 0;  // of that, by prompt rows
  double node_attended = 0;    // by a drafted node's row, in the mean of the texts
};

// What the budget knows about one text: begun by Budget::begin_text, read and changed by it alone.
class TextBudget {
 private:
  friend class Budget;
  struct OfDrafter {
    static constexpr int kGapMin = 16, kGapMax = 64;  // steps between trials

    void go_on_with_trial();

    Yield yield;
    double gain = 0;  // that was expected of asking it in the recent steps, their mean
    int n_gains = 0;
    int gap = 0;             // steps from the last trial to the next; 0: it is expected to pay
    int steps_left = 0;      // of these
    bool was_asked = false;  // in this step
    double reading_ms = 0;   // in this step
    // Of the first guesses of its drafts, and of those at tokens of the answer that it has read.
    int n_guesses = 0, n_right = 0;
    int levels = 0;  // of its draft in this step; 0: none, or it takes next to no time
  };
  Calibration::Text acceptance_;
  std::vector<OfDrafter> drafters_;
  // Of the recent steps: tokens, and time in passes without drafts.
  double tokens_ = 0, passes_ = 0;
  // The account: what the answer may invest, what the fund has lent it and what its drafts have
  // saved, in passes without drafts, and the time that they took, of all texts that waited for
  // them. Beside it, the time that the text waited for drafts of whichever text. Times are as if
  // steps had been those of one text; how many passes they are may turn out later.
  double allowance_ = 0, lent_ = 0, saved_ = 0, spent_ms_ = 0, waited_ms_ = 0;
  double own_ms_ = 0;   // of this step: reading, and its share of the drafters' time
  int n_expected_ = 0;  // tokens of the answer that the allowance has counted already
};

// A text that gets tokens in this step, and waits for drafts of others even if it may have none.
struct DraftTurn {
  TextBudget* budget;
  DraftSequence sequence;
  DraftTree* tree;
  int length;                 // of the text
  int n_answered;             // of these, tokens of the answer
  std::optional<int> n_left;  // that it may still get
  int rows_max;               // drafted nodes that the text itself allows
  int depth_max;              // of drafts
};

// What became of a text's drafts.
struct DraftOutcome {
  TextBudget* budget;
  const DraftTree* drafted;      // as proposed
  const DraftTree* checked;      // as planned
  std::span<const Token> taken;  // tokens that the step added to the text
};

class Budget {
 public:
  // For a DraftRequest; no limits: the drafter shall not be asked.
  struct Ask {
    std::optional<DraftLimits> limits = {};
    int n_context = 0;
    DraftWorth worth = {};
  };

  Budget(BudgetOptions options, int n_drafters);

  // A text begins, or goes on with another prompt of which `n_read` tokens have to be read. It may
  // have n_left tokens.
  TextBudget begin_text(int n_read, std::optional<int> n_left) const;
  // It ends, or its answer does, for whatever reason. Once for each beginning.
  void end_text(TextBudget& text);

  // Whether this step should draft nothing, so that the time of a pass without drafts, and without
  // rows of prompts, stays known.
  bool plain_step_is_due(const PassLoad& load) const;

  // What the drafter may add to each of these texts' trees, [turns]: all texts of the step that
  // have a token already. The trees may hold proposals of other drafters. A drafter that takes next
  // to no time is always asked. Another one is asked for the texts that together are expected to
  // gain the most beyond the time that they share, and tried for the others at growing intervals.
  // It reads all that it lacks of a text if that is expected to pay and the accounts allow it, and
  // the other texts' patience; a trial reads the end.
  std::vector<Ask> ask(int drafter, const Drafter& asked, std::span<const DraftTurn> turns,
                       const PassLoad& load);

  void learn(int drafter, TextBudget& text, std::span<const Rehearsed> rehearsed);

  // Prunes the trees of a step to the nodes that pay, perhaps none. Fixed: as many as the options
  // allow.
  void plan(std::span<const DraftTurn> turns, const PassLoad& load);

  // After the step, whose pass took forward_ms with its choices. Outcomes of the texts that
  // generated.
  void observe(std::span<const DraftOutcome> outcomes, const PassLoad& load, double forward_ms);

  CostCurve& curve() { return curve_; }
  const CostCurve& curve() const { return curve_; }
  // Without what drafters know of their own passes.
  Learned learned() const;
  // For as many drafters.
  void restore(const Learned& learned);
  const Reliability& reliability() const { return calibration_.reliability(); }

 private:
  static constexpr double kNextToNoTime = 0.005;  // as a share of a pass
  static constexpr int kProbe = 3;                // nodes

  bool decides() const { return options_.automatic && !curve_.empty(); }
  double speed(const TextBudget& text) const;
  // What its drafts have saved, and the fund lent, beyond what they took, in passes.
  double earned(const TextBudget& text) const;
  static double kept_back(const DraftTurn& turn);
  // What a step may take for drafts as far as its accounts have it, how much of that not for
  // reading and for rows, and how much not for trials.
  struct Purse {
    double ms, kept_back_ms, reserve_ms;
  };
  Purse purse(std::span<const DraftTurn> turns, const PassLoad& load) const;
  // By how many passes the text may fall behind in this step for others, which has taken so many
  // already.
  double patience(const DraftTurn& turn, double taken) const;
  double tokens_per_ms(std::span<const DraftTurn> turns, const PassLoad& load) const;
  static PassWork work(const PassLoad& load, int n_nodes = 0);
  double pass_ms(const PassLoad& load, int n_nodes = 0) const;
  double added_ms(const PassLoad& load, int n_nodes) const;
  std::vector<double> row_prices(const PassLoad& load, int n_max, double tokens_per_ms) const;
  std::vector<double> values(const DraftTurn& turn) const;
  // What asking a drafter is expected to bring, in tokens: beyond the other drafters and the price
  // of rows, but not of its time; and in all.
  struct Prospect {
    double gain = 0, tokens = 0;
  };
  struct Occasion;
  struct Round;
  void decide(std::vector<Ask>& asks, const Drafter& asked, std::span<const DraftTurn> turns,
              const PassLoad& load);
  std::vector<Prospect> prospects(const Occasion& occasion, double handicap) const;
  void share(std::vector<Occasion>& occasions, Round& round) const;
  void grant_what_pays(Occasion& occasion, Round& round) const;
  void try_again(std::vector<Occasion>& occasions, Round& round) const;
  bool probe_is_due();
  Yield expected_yield(const TextBudget& text, int drafter) const;
  void learn_yields(const DraftOutcome& outcome);
  void count_drafting(std::span<const DraftTurn> turns);
  double withheld_ms(std::span<const DraftTurn> turns, const PassLoad& load, const Purse& purse,
                     bool probes) const;

  BudgetOptions options_;
  CostCurve curve_;
  Calibration calibration_;
  std::vector<Yield> yields_;     // [drafters] over all texts
  std::vector<DraftCost> costs_;  // [drafters] of this step, for the texts that were asked about
  double draft_ms_ = 0, reading_ms_ = 0;  // of this step, as estimated
  double fund_ = 0;  // what drafts have saved lately, less what they took, in passes of one text
  double answers_ = 1, answer_tokens_;  // that have ended lately, and the tokens of all
  int n_since_plain_ = 0;               // steps with drafts
  int n_plain_ = 0;                     // passes without
  int n_since_probe_ = 0;               // steps that could have checked nodes and did not
  int probe_gap_ = 4;
  double speed_ = 1;  // of the last step's texts, their mean
};

}  // namespace outrider

// Drafts what is expected to pay. Time has a price: the tokens that the sequences of a step would
// get from it at their recent speed, at least that of plain decoding. Of all choices of (sequences,
// levels, rows) a step takes the one with the most expected tokens less price times time: the
// condition for the most tokens per time of a renewal process (Cox 1962). What is expected comes
// from a belief about acceptance, which each outcome refines (calibration.h). A guard bounds what
// is lost where that was wrong (guard.h). Drafters that are not expected to pay are probed.
//
// In a batch every sequence waits for the same passes, drafters' too, so time costs what all of
// them would get from it. Prompt rows in the pass do not change that: they have to be computed
// anyway.

#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "speculation/fixed_planner.h"
#include "speculation/guard.h"
#include "speculation/planner.h"
#include "speculation/rider_gain.h"

namespace outrider {

// Without measured passes a fixed planner.
class PricedPlanner final : public Planner {
 public:
  PricedPlanner(const PlannerOptions& options, CostCurve& curve, int n_drafters);

  void begin(DraftSequence sequence, int n_prefill) override;
  void end(DraftSequence sequence) override;
  bool plain_step_is_due(const PassLoad& load) const override;
  std::vector<Ask> ask(int drafter, const Drafter& asked,
                       std::span<const PlannedSequence> sequences, const PassLoad& load) override;
  void learn(int drafter, DraftSequence sequence, int levels,
             std::span<const PrefillGuess> prefill_guesses) override;
  void prune(std::span<const PlannedSequence> sequences, const PassLoad& load) override;
  // As many as bring the most tokens less the price of their rows.
  std::vector<int> riders(int drafter, const Drafter& asked,
                          std::span<const PlannedSequence> sequences, const PassLoad& load,
                          int n_riders) override;
  void observe(std::span<const DraftOutcome> outcomes, const PassLoad& load,
               double forward_ms) override;
  Learned learned() const override;
  void restore(const Learned& learned) override;  // of as many drafters
  Report report() const override;

  const Guard::Account& account(DraftSequence sequence) const {
    return sequences_.at(sequence).account;
  }

 private:
  // Of what does not seem to pay, or is known, but is tried now and then: after 8 steps, then after
  // twice as many, at last after every 64.
  struct Trial {
    int gap = 0, n_since = 0;  // steps; a gap of 0: it need not be tried
    void tried();
  };
  struct Sequence {
    Calibration::Sequence belief;
    std::vector<Trial> trials;  // [drafters]: of one that is not expected to pay
    Guard::Account account = {};
    double tokens, passes;  // of recent steps
    // Of this step, in passes: what drafters took for it, and what prefilling for them; and its
    // part of each further level of the drafter that was asked last, whose depth is not known yet.
    double drafting = 0, prefill = 0, per_level = 0;
    double speed() const { return std::max(1.0, tokens / passes); }
  };
  struct View;
  struct Candidate;
  struct Question;

  View view(std::span<const PlannedSequence> planned, const PassLoad& load);
  std::vector<double> chances(const PlannedSequence& planned) const;
  bool allows(std::span<const Guard::Share> shares, const PassLoad& load);
  bool allows(const Question& question);
  void choose_context(Candidate& candidate, const Question& question);
  void choose_levels(Question& question);
  void probe(Question& question);
  static std::vector<Guard::Share> shares(std::span<Sequence* const> sequences,
                                          std::span<const int> rows, const StepCosts& costs);
  void count(std::span<const DraftOutcome> outcomes, const PassLoad& load,
             std::span<const int> rows);

  PlannerOptions options_;
  FixedPlanner fixed_;
  CostCurve& curve_;
  Calibration calibration_;
  Guard guard_;
  std::map<DraftSequence, Sequence> sequences_;
  std::vector<RiderGain> rider_gains_;    // [drafters]
  std::vector<bool> rides_;               // [drafters]: it was asked how many riders it may have
  double n_answers_ = 1, answer_tokens_;  // that have ended recently, and their mean
  double speed_ = 1;                      // of the last step's sequences, their mean
  int n_plain_due_;                       // plain steps before anything is drafted
  Trial plain_trial_, row_trial_;
  bool is_vetoed_ = false;  // this step
  long n_vetoes_ = 0, n_probes_ = 0;
};

}  // namespace outrider

// How often drafts come true, learned from answers. The probability that a proposal is accepted,
// given that its parent is, is a logistic function of the drafter's stated confidence, fitted for
// each drafter and depth over all sequences (Platt 1999), and shifted by how much more or less
// often the drafter is right in this one. Both are refitted with every outcome, by one step of a
// Kalman filter on log odds.

#pragma once

#include <array>
#include <span>
#include <vector>

#include "base/token.h"
#include "speculation/tree.h"

namespace outrider {

// Whether what was predicted came true, over all predictions so far.
struct Reliability {
  struct Range {  // of predicted probabilities
    long n = 0;
    double predicted = 0, accepted = 0;  // sums
  };
  std::array<Range, 10> ranges;  // of equal width, from 0 to 1

  long n() const;
  // The expected calibration error: the mean distance between what was predicted and how often it
  // came true, each range with the weight of its predictions (Naeini et al. 2015). 0 without any.
  double expected_error() const;
};

class Calibration {
 public:
  // How a sequence's log odds differ from those of all: a normal distribution.
  struct Shift {
    double mean = 0, variance;
  };
  // A sequence begins as recent ones were, with the weight of one or two outcomes.
  struct Sequence {
    std::vector<Shift> confidences, best_guesses;  // [drafters]
    std::vector<double> handicaps;                 // [drafters]: handicap() of what each knows now
  };
  // A logistic function: log odds intercept + slope · x, x the log odds of the confidence, with the
  // covariance of the two.
  struct Fit {
    double intercept, slope;
    double intercept_variance, covariance, slope_variance;
  };

  // By how much recent sequences differed, in the mean.
  struct Recent {
    double confidence = 0, best_guess = 0;
    double weight = 0;  // sequences
  };

  // Of one drafter over all sequences, [depth ranges].
  struct OfDrafter {
    std::vector<Fit> confidences, best_guesses;
    Recent recent;
  };

  explicit Calibration(int n_drafters);

  OfDrafter of_drafter(std::size_t drafter) const;
  // With as many depth ranges as of_drafter() gives.
  void restore(std::size_t drafter, const OfDrafter& known);

  Sequence begin() const;
  void end(const Sequence& sequence);

  // By how much the log odds of a drafter's best guess fall if it knows only the last n_known
  // tokens of a longer sequence; 0 if those are as many as it can use.
  static double handicap(int n_known);

  // The probability that this proposal is accepted if its parent is, at this depth of its node.
  double acceptance(const Sequence& sequence, const Proposal& proposal, int depth) const;
  // The same for each node of a tree, [tree.size()]; 1 for the root. Of a node's proposals the most
  // hopeful counts. Only one of several siblings can be accepted: the others together have at most
  // what the most likely one leaves.
  std::vector<double> acceptances(const Sequence& sequence, const DraftTree& tree) const;
  // The probability that the drafter's best guess at this depth is accepted if its parent is,
  // before its confidence is known.
  double best_guess_acceptance(const Sequence& sequence, int drafter, int depth) const;
  // The same with another handicap.
  double best_guess_acceptance(const Sequence& sequence, int drafter, int depth,
                               double handicap) const;

  // Learns the outcome of every proposal whose parent is part of the answer, whether it was checked
  // or not. taken: the tokens that followed the root.
  void observe(Sequence& sequence, const DraftTree& tree, std::span<const Token> taken);
  // The best guess of a drafter at a token of the sequence was right or wrong, without any draft.
  void observe(Sequence& sequence, const Proposal& guess, bool was_right, double handicap);

  const Reliability& reliability() const { return reliability_; }

 private:
  std::size_t fit(int drafter, int depth) const;

  std::vector<Fit> confidences_, best_guesses_;  // [drafters, depth ranges]
  std::vector<Recent> recent_;                   // [drafters]
  Reliability reliability_;
};

}  // namespace outrider

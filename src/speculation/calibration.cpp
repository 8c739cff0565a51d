#include "speculation/calibration.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "base/error.h"

namespace outrider {
namespace {

// Depths 1, 2, 3 to 4, 5 to 8, and more.
constexpr std::array kDepthBounds = {2, 3, 5, 9};
constexpr std::size_t kDepthRanges = kDepthBounds.size() + 1;

// Variances, in squares of log odds. One outcome of an even chance has the information 1/4, so a
// variance of 2 weighs as much as two outcomes.
constexpr double kTextVariance = 2;
// Texts change: what an outcome adds, where it is as surprising as usual. A great surprise adds
// much, so that it and the next outcomes count more.
constexpr double kTextDrift = 0.01, kBestGuessDrift = 0.01;
// Sequences over which the mean of what they differ by is taken.
constexpr double kRecentSequences = 8;
constexpr double kInterceptVariance = 0.5;
constexpr double kSlopeVariance = 0.1;
constexpr double kFitDrift = 1e-4;

constexpr double kBestGuessAtFirst = 1.6;  // log odds
// A draft model of 0.5B parameters for one of 1.5B was right about 0.90 of the tokens of answers
// after the whole text, 0.64 after the last 64 tokens and 0.37 after 8
// (docs/experiments/planner.md). Its confidence tells a part of that.
constexpr double kHandicapOf8 = 2.7, kHandicapLessPerDoubling = 0.35;
constexpr double kHandicapOfConfidence = 0.65;
constexpr double kHandicapDeviation = 1.5;  // as a share
constexpr double kConfidenceMin = 1e-4;
constexpr double kProbabilityMin = 1e-3;  // of what an outcome is compared with

double probability(double log_odds) {
  return 1 / (1 + std::exp(-log_odds));
}

double log_odds(double confidence) {
  const double c = std::clamp(confidence, kConfidenceMin, 1 - kConfidenceMin);
  return std::log(c / (1 - c));
}

// Texts differ in how much of them is needed.
double variance(const Calibration::Fit& fit, const Calibration::Shift& shift, double x,
                double handicap) {
  const double deviation = kHandicapDeviation * handicap;
  return fit.intercept_variance + 2 * x * fit.covariance + x * x * fit.slope_variance +
         shift.variance + deviation * deviation;
}

// The mean of the logistic function over a normal distribution of log odds, nearly (MacKay 1992).
double predict(const Calibration::Fit& fit, const Calibration::Shift& shift, double x,
               double handicap) {
  const double mean = fit.intercept + fit.slope * x + shift.mean - handicap;
  return probability(mean /
                     std::sqrt(1 + std::numbers::pi / 8 * variance(fit, shift, x, handicap)));
}

void update(Calibration::Fit& fit, Calibration::Shift& shift, double x, double handicap,
            bool was_right, double drift) {
  const double p =
      std::clamp(predict(fit, shift, x, handicap), kProbabilityMin, 1 - kProbabilityMin);
  const double information = p * (1 - p);
  const double error = (was_right ? 1 : 0) - p;
  shift.variance = std::min(shift.variance + drift * error * error / information, kTextVariance);
  const double gain = 1 / (1 + information * variance(fit, shift, x, handicap));
  const double step = gain * error;
  const double narrowing = gain * information;
  const double intercept = fit.intercept_variance + fit.covariance * x;
  const double slope = fit.covariance + fit.slope_variance * x;

  fit.intercept += intercept * step;
  fit.slope += slope * step;
  fit.intercept_variance += kFitDrift - intercept * intercept * narrowing;
  fit.covariance -= intercept * slope * narrowing;
  fit.slope_variance += kFitDrift / 10 - slope * slope * narrowing;

  shift.mean += shift.variance * step;
  shift.variance -= shift.variance * shift.variance * narrowing;
}

const Proposal* find(const DraftNode& node, int drafter) {
  const auto found = std::ranges::find(node.proposals, drafter, &Proposal::drafter);
  return found == node.proposals.end() ? nullptr : &*found;
}

}  // namespace

long Reliability::n() const {
  long n = 0;
  for (const Range& range : ranges) n += range.n;
  return n;
}

double Reliability::expected_error() const {
  double error = 0;
  for (const Range& range : ranges) error += std::abs(range.predicted - range.accepted);
  return n() > 0 ? error / static_cast<double>(n()) : 0;
}

Calibration::Calibration(int n_drafters)
    : confidences_(n_drafters * kDepthRanges, {.intercept = 0,
                                               .slope = 1,
                                               .intercept_variance = kInterceptVariance,
                                               .covariance = 0,
                                               .slope_variance = kSlopeVariance}),
      best_guesses_(n_drafters * kDepthRanges, {.intercept = kBestGuessAtFirst,
                                                .slope = 0,
                                                .intercept_variance = kInterceptVariance,
                                                .covariance = 0,
                                                .slope_variance = 0}),
      recent_(n_drafters) {}

Calibration::OfDrafter Calibration::of_drafter(std::size_t drafter) const {
  const auto of = [&](const std::vector<Fit>& fits) {
    const auto first = fits.begin() + drafter * kDepthRanges;
    return std::vector<Fit>(first, first + kDepthRanges);
  };
  return {of(confidences_), of(best_guesses_), recent_[drafter]};
}

void Calibration::restore(std::size_t drafter, const OfDrafter& known) {
  CHECK(known.confidences.size() == kDepthRanges && known.best_guesses.size() == kDepthRanges);
  std::ranges::copy(known.confidences, confidences_.begin() + drafter * kDepthRanges);
  std::ranges::copy(known.best_guesses, best_guesses_.begin() + drafter * kDepthRanges);
  recent_[drafter] = known.recent;
}

Calibration::Sequence Calibration::begin() const {
  Sequence sequence{.confidences = {}, .best_guesses = {}, .handicaps = {}};
  for (const Recent& recent : recent_) {
    sequence.confidences.push_back({.mean = recent.confidence, .variance = kTextVariance});
    sequence.best_guesses.push_back({.mean = recent.best_guess, .variance = kTextVariance});
    sequence.handicaps.push_back(0);
  }
  return sequence;
}

// A sequence counts by how much is known of it.
void Calibration::end(const Sequence& sequence) {
  for (std::size_t drafter = 0; drafter < recent_.size(); ++drafter) {
    Recent& recent = recent_[drafter];
    const double known = 1 - sequence.best_guesses[drafter].variance / kTextVariance;
    if (known <= 0) continue;
    recent.weight = std::min(recent.weight + known, kRecentSequences);
    const double share = known / recent.weight;
    recent.confidence += share * (sequence.confidences[drafter].mean - recent.confidence);
    recent.best_guess += share * (sequence.best_guesses[drafter].mean - recent.best_guess);
  }
}

double Calibration::handicap(int n_known) {
  return std::max(0.0, kHandicapOf8 - kHandicapLessPerDoubling * std::log2(n_known / 8.0));
}

std::size_t Calibration::fit(int drafter, int depth) const {
  const std::size_t range =
      std::upper_bound(kDepthBounds.begin(), kDepthBounds.end(), depth) - kDepthBounds.begin();
  const std::size_t fit = drafter * kDepthRanges + range;
  CHECK(drafter >= 0 && fit < confidences_.size());
  return fit;
}

double Calibration::acceptance(const Sequence& sequence, const Proposal& proposal,
                               int depth) const {
  return predict(confidences_[fit(proposal.drafter, depth)], sequence.confidences[proposal.drafter],
                 log_odds(proposal.confidence),
                 kHandicapOfConfidence * sequence.handicaps[proposal.drafter]);
}

double Calibration::best_guess_acceptance(const Sequence& sequence, int drafter, int depth) const {
  return best_guess_acceptance(sequence, drafter, depth, sequence.handicaps[drafter]);
}

double Calibration::best_guess_acceptance(const Sequence& sequence, int drafter, int depth,
                                          double handicap) const {
  return predict(best_guesses_[fit(drafter, depth)], sequence.best_guesses[drafter], 0, handicap);
}

std::vector<double> Calibration::acceptances(const Sequence& sequence,
                                             const DraftTree& tree) const {
  std::vector<double> acceptances(tree.size(), 1);
  for (int parent = 0; parent < tree.size(); ++parent) {
    double best = 0, sum = 0;
    for (int child : tree.children(parent)) {
      double& own = acceptances[child] = 0;
      for (const Proposal& proposal : tree[child].proposals)
        own = std::max(own, acceptance(sequence, proposal, tree[child].depth));
      best = std::max(best, own);
      sum += own;
    }
    if (sum <= 1) continue;
    const double share = (1 - best) / (sum - best);
    bool best_is_left = true;
    for (int child : tree.children(parent)) {
      const bool is_best = best_is_left && acceptances[child] == best;
      if (is_best)
        best_is_left = false;
      else
        acceptances[child] *= share;
    }
  }
  return acceptances;
}

void Calibration::observe(Sequence& sequence, const DraftTree& tree, std::span<const Token> taken) {
  const std::vector<double> predicted = acceptances(sequence, tree);
  const int n_drafters = static_cast<int>(sequence.best_guesses.size());
  std::optional<int> parent = 0;
  for (Token token : taken) {
    for (int drafter = 0; drafter < n_drafters; ++drafter) {
      int depth = 0;
      float best = -1;
      bool best_was_right = false;
      for (int child : tree.children(*parent)) {
        const DraftNode& node = tree[child];
        const Proposal* proposal = find(node, drafter);
        if (!proposal) continue;
        depth = node.depth;
        if (proposal->confidence > best) {
          best = proposal->confidence;
          best_was_right = node.token == token;
        }
        update(confidences_[fit(drafter, depth)], sequence.confidences[drafter],
               log_odds(proposal->confidence), kHandicapOfConfidence * sequence.handicaps[drafter],
               node.token == token, kTextDrift);
      }
      if (depth > 0)
        update(best_guesses_[fit(drafter, depth)], sequence.best_guesses[drafter], 0,
               sequence.handicaps[drafter], best_was_right, kBestGuessDrift);
    }
    for (int child : tree.children(*parent)) {
      Reliability::Range& range =
          reliability_
              .ranges[std::min<std::size_t>(9, static_cast<std::size_t>(10 * predicted[child]))];
      ++range.n;
      range.predicted += predicted[child];
      range.accepted += tree[child].token == token ? 1 : 0;
    }
    parent = tree.child(*parent, token);
    if (!parent) return;
  }
}

void Calibration::observe(Sequence& sequence, const Proposal& guess, bool was_right,
                          double handicap) {
  update(confidences_[fit(guess.drafter, 1)], sequence.confidences[guess.drafter],
         log_odds(guess.confidence), kHandicapOfConfidence * handicap, was_right, kTextDrift);
  update(best_guesses_[fit(guess.drafter, 1)], sequence.best_guesses[guess.drafter], 0, handicap,
         was_right, kBestGuessDrift);
}

}  // namespace outrider

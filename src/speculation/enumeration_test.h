// Every outcome of a random experiment in turn, each with its probability: what tests compare
// distributions with, without drawing a single number.

#pragma once

#include <gtest/gtest.h>

#include <compare>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "numerics/noise.h"
#include "speculation/verifier.h"

namespace outrider {

// What one random decision is keyed by. No key may be asked for twice in one outcome: with numbers
// made from keys the two decisions would be the same.
struct DecisionKey {
  NoiseUse use;
  int length;  // the text's, at the start of the step; a choice: before the chosen token
  int node;
  int draw;
  friend auto operator<=>(const DecisionKey&, const DecisionKey&) = default;
};

class Enumeration {
 public:
  // Calls `experiment` once for each way its decisions can go.
  void run(const std::function<void()>& experiment) {
    do {
      at_ = 0;
      probability_ = 1;
      keys_.clear();
      experiment();
      while (!decisions_.empty() && !decisions_.back().go_on()) decisions_.pop_back();
    } while (!decisions_.empty());
  }

  double probability() const { return probability_; }  // of the decisions so far
  // A key that was asked for twice, if any was.
  const std::optional<DecisionKey>& repeated() const { return repeated_; }

  // Index i with probability weights[i] / their sum; those of weight 0 are left out.
  std::size_t pick(const DecisionKey& key, std::span<const double> weights) {
    if (!keys_.insert(key).second) repeated_ = key;
    if (at_ == decisions_.size()) decisions_.push_back(Decision(weights));
    const Decision& decision = decisions_[at_++];
    probability_ *= decision.probability();
    return decision.index();
  }

 private:
  class Decision {
   public:
    explicit Decision(std::span<const double> weights) {
      double sum = 0;
      for (const double weight : weights) sum += weight;
      for (std::size_t i = 0; i < weights.size(); ++i)
        if (weights[i] > 0) outcomes_.push_back({i, weights[i] / sum});
      EXPECT_FALSE(outcomes_.empty()) << "nothing to pick from";
    }
    bool go_on() { return ++now_ < outcomes_.size(); }
    std::size_t index() const { return outcomes_[now_].first; }
    double probability() const { return outcomes_[now_].second; }

   private:
    std::vector<std::pair<std::size_t, double>> outcomes_;
    std::size_t now_ = 0;
  };

  std::vector<Decision> decisions_;
  std::size_t at_ = 0;
  double probability_ = 1;
  std::set<DecisionKey> keys_;
  std::optional<DecisionKey> repeated_;
};

class EnumeratedChance final : public Chance {
 public:
  EnumeratedChance(Enumeration& enumeration, int length)
      : enumeration_(enumeration), length_(length) {}
  bool accepts(int node, double probability) const override {
    EXPECT_GE(probability, 0);
    EXPECT_LE(probability, 1);
    const double weights[] = {1 - probability, probability};
    return enumeration_.pick({NoiseUse::acceptance, length_, node, 0}, weights) == 1;
  }
  std::size_t pick(int node, std::span<const double> weights) const override {
    return enumeration_.pick({NoiseUse::residual, length_, node, 0}, weights);
  }

 private:
  Enumeration& enumeration_;
  int length_;
};

}  // namespace outrider

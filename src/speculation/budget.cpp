#include "speculation/budget.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"

namespace outrider {
namespace {

constexpr double kFirstTokens = 2;  // what a drafter is expected to bring before it was ever asked
constexpr double kRate = 0.25;      // of the last step in the running means
constexpr double kNextToNothing = 0.005;  // of a pass: drafting that costs less is always asked
constexpr int kFirstPause = 2, kLongestPause = 64;  // steps
constexpr int kFirstDepth = 2;                      // of a drafter whose cost is not known yet
constexpr double kWorthMost = 0.9;  // a path as good as certain is always lengthened

struct Valued {
  int tree, node;
  double value;
};

double blend(double mean, double last) {
  return mean + kRate * (last - mean);
}

}  // namespace

Budget::Budget(BudgetOptions options, int n_drafters)
    : options_(options),
      calibration_(n_drafters),
      standings_(n_drafters, {.tokens = kFirstTokens}) {}

// The probability of every node: along its path the product of acceptances. Siblings exclude each
// other, so where their acceptances sum to more than 1 they are scaled down.
std::vector<double> Budget::values(const DraftTree& tree) const {
  std::vector<double> values(tree.size());
  values[0] = 1;
  for (int parent = 0; parent < tree.size(); ++parent) {
    double sum = 0;
    for (int child : tree.children(parent))
      sum += values[child] = calibration_.acceptance(tree[child]);
    for (int child : tree.children(parent)) values[child] *= values[parent] / std::max(1.0, sum);
  }
  return values;
}

std::optional<DraftLimits> Budget::limits(int drafter, const DraftCost& cost,
                                          std::span<const DraftTree* const> trees,
                                          const PassLoad& load) {
  DraftLimits limits = options_.limits;
  if (limits.rows == 0 || limits.depth == 0 || limits.width == 0) return std::nullopt;
  if (!options_.automatic || curve_.empty()) return limits;
  Standing& standing = standings_[drafter];
  if (standing.steps_left > 0 && --standing.steps_left > 0) return std::nullopt;
  const bool on_trial = !standing.asked || standing.pause > 0;
  if (!on_trial && standing.ms > kNextToNothing * curve_.ms(load.rows) &&
      !pays(standing, trees, load, /*alone=*/false))
    return std::nullopt;
  if (!standing.asked) limits.depth = std::min(limits.depth, kFirstDepth);
  const double plain_ms = curve_.ms(load.rows);
  const double row_ms = (curve_.ms(load.rows + limits.rows) - plain_ms) / limits.rows;
  const double tokens_per_ms = std::max(tokens_per_ms_, 1 / plain_ms);
  limits.worth = std::min(kWorthMost, tokens_per_ms * (cost.per_depth_ms + row_ms));
  return limits;
}

bool Budget::pays(const Standing& standing, std::span<const DraftTree* const> trees,
                  const PassLoad& load, bool alone) const {
  const double sequences = static_cast<double>(trees.size());
  double expected = 0;  // tokens from what the trees hold
  int rows = 0;
  if (!alone)
    for (const DraftTree* tree : trees) {
      const std::vector<double> values = this->values(*tree);
      for (int node = 1; node < tree->size(); ++node) expected += values[node];
      rows += std::min(tree->size() - 1, options_.limits.rows);
    }
  const double brought = std::max(expected, sequences * standing.tokens);
  const int rows_brought = std::max(rows, static_cast<int>(std::lround(sequences * standing.rows)));
  return (sequences + brought) / (curve_.ms(load.rows + rows_brought) + standing.ms) >
         (sequences + expected) / curve_.ms(load.rows + rows);
}

void Budget::plan(std::span<DraftTree* const> trees, const PassLoad& load, double draft_ms) const {
  std::vector<Valued> nodes;
  for (int tree = 0; tree < static_cast<int>(trees.size()); ++tree) {
    const std::vector<double> values = this->values(*trees[tree]);
    for (int node = 1; node < trees[tree]->size(); ++node)
      nodes.push_back({tree, node, values[node]});
  }
  // A parent's value is at least its child's and its number is lower, so it comes first.
  std::ranges::stable_sort(nodes, std::greater<>{}, &Valued::value);

  // The best nodes that the limits allow; of a tree its first ones, so no kept node lacks its
  // parent.
  const std::size_t n_max = std::max(0, load.rows_max - load.rows);
  std::vector<Valued> candidates;
  std::vector<int> n_nodes(trees.size());
  for (const Valued& node : nodes)
    if (candidates.size() < n_max && n_nodes[node.tree]++ < options_.limits.rows)
      candidates.push_back(node);

  std::size_t best_count = candidates.size();
  if (options_.automatic && !curve_.empty()) {
    double tokens = static_cast<double>(trees.size());
    const auto speed = [&](std::size_t count) {
      return tokens / (curve_.ms(load.rows + static_cast<int>(count)) + draft_ms);
    };
    best_count = 0;
    double best = speed(0);
    for (std::size_t count = 1; count <= candidates.size(); ++count) {
      tokens += candidates[count - 1].value;
      if (speed(count) > best) best = speed(count), best_count = count;
    }
  }

  std::vector<std::vector<bool>> kept;
  for (const DraftTree* tree : trees) {
    kept.emplace_back(tree->size(), false);
    kept.back()[0] = true;
  }
  for (std::size_t i = 0; i < best_count; ++i) kept[candidates[i].tree][candidates[i].node] = true;
  for (std::size_t tree = 0; tree < trees.size(); ++tree) trees[tree]->keep(kept[tree]);
}

void Budget::observe(std::span<const DraftOutcome> outcomes, const StepCost& cost) {
  for (const DraftOutcome& outcome : outcomes)
    calibration_.observe(*outcome.drafted, outcome.taken);
  if (!options_.automatic) return;
  if (!cost.with_prompt_rows) curve_.refine(cost.rows, cost.forward_ms);
  if (outcomes.empty() || curve_.empty()) return;

  const double sequences = static_cast<double>(outcomes.size());
  double n_taken = 0, ms = cost.forward_ms;
  std::vector<double> right(standings_.size()), checked(standings_.size());
  for (const DraftOutcome& outcome : outcomes) {
    n_taken += static_cast<double>(outcome.taken.size());
    for (int node = 1; node < outcome.checked->size(); ++node)
      for (const Proposal& proposal : (*outcome.checked)[node].proposals)
        checked[proposal.drafter] += 1;
    std::optional<int> node = 0;
    for (Token token : outcome.taken) {
      node = outcome.drafted->child(*node, token);
      if (!node) break;
      for (const Proposal& proposal : (*outcome.drafted)[*node].proposals)
        right[proposal.drafter] += 1;
    }
  }
  std::vector<const DraftTree*> trees;
  for (const DraftOutcome& outcome : outcomes) trees.push_back(outcome.checked);
  for (std::size_t drafter = 0; drafter < standings_.size(); ++drafter) {
    if (!cost.draft_ms[drafter]) continue;
    ms += *cost.draft_ms[drafter];
    Standing& standing = standings_[drafter];
    standing.tokens = blend(standing.tokens, right[drafter] / sequences);
    if (!standing.asked) {
      standing.rows = checked[drafter] / sequences;
      standing.ms = *cost.draft_ms[drafter];
      standing.asked = true;
    }
    standing.rows = blend(standing.rows, checked[drafter] / sequences);
    standing.ms = blend(standing.ms, *cost.draft_ms[drafter]);
    const PassLoad plain{.rows = static_cast<int>(outcomes.size())};
    if (standing.ms <= kNextToNothing * curve_.ms(plain.rows) ||
        pays(standing, trees, plain, /*alone=*/true)) {
      standing.pause = standing.steps_left = 0;
    } else {
      standing.pause = std::clamp(2 * standing.pause, kFirstPause, kLongestPause);
      standing.steps_left = standing.pause;
    }
  }
  const double tokens_per_ms = n_taken / sequences / ms;
  tokens_per_ms_ = tokens_per_ms_ == 0 ? tokens_per_ms : blend(tokens_per_ms_, tokens_per_ms);
}

}  // namespace outrider

#include "speculation/budget.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"

namespace outrider {
namespace {

constexpr int kFirstTokens = 2;     // what a drafter is expected to bring before it was ever asked
constexpr double kRate = 0.25;      // of the last step in the running means
constexpr double kSlowRate = 0.05;  // in those over a longer time
constexpr double kNextToNothing = 0.005;  // of a pass: drafting that costs less is always asked
constexpr int kFirstPause = 2, kLongestPause = 64;  // steps
// A path as good as certain is always lengthened, so a level's cost is measured again.
constexpr double kWorthMost = 0.9;
constexpr int kLeastAnswer = 32;      // tokens that an answer is taken to go on for at least
constexpr double kSpareShare = 0.02;  // of the time, for reading texts by drafters that do not pay

double blend(double mean, double last, double rate = kRate) {
  return mean + rate * (last - mean);
}

// a + a^2 + ... + a^depth, for any depth from 0 on.
double path_tokens(double acceptance, double depth) {
  if (acceptance >= 1) return depth;
  return acceptance * (1 - std::pow(acceptance, depth)) / (1 - acceptance);
}

// The chance that a path comes true for one more level, if paths of this depth bring so many
// tokens.
double level_acceptance(double tokens, double depth) {
  double low = 0, high = 1;
  for (int i = 0; i < 20; ++i) {
    const double middle = (low + high) / 2;
    (path_tokens(middle, depth) < tokens ? low : high) = middle;
  }
  return high;
}

}  // namespace

Budget::Budget(BudgetOptions options, int n_drafters)
    : options_(options),
      calibration_(n_drafters),
      standings_(n_drafters, {.tokens = kFirstTokens, .usual_tokens = kFirstTokens}) {}

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

// The nodes that may be checked, best first; of a tree its first ones, so none lacks its parent.
std::vector<Budget::Candidate> Budget::candidates(std::span<const DraftTree* const> trees,
                                                  const PassLoad& load) const {
  std::vector<Candidate> nodes;
  for (int tree = 0; tree < static_cast<int>(trees.size()); ++tree) {
    const std::vector<double> values = this->values(*trees[tree]);
    for (int node = 1; node < trees[tree]->size(); ++node)
      nodes.push_back({tree, node, values[node]});
  }
  // A parent's value is at least its child's and its number is lower, so it comes first.
  std::ranges::stable_sort(nodes, std::greater<>{}, &Candidate::value);

  const std::size_t n_max = std::max(0, load.rows_max - load.rows);
  std::vector<Candidate> candidates;
  std::vector<int> n_nodes(trees.size());
  for (const Candidate& node : nodes)
    if (candidates.size() < n_max && n_nodes[node.tree]++ < options_.rows)
      candidates.push_back(node);
  return candidates;
}

// The count of candidates that brings most tokens per time.
Budget::Prospect Budget::best(std::span<const Candidate> candidates, std::size_t n_sequences,
                              const PassLoad& load, double draft_ms) const {
  Prospect best, here;
  here.tokens = static_cast<double>(n_sequences);
  for (;; ++here.count) {
    here.ms = curve_.ms(load.rows + here.count) + draft_ms;
    if (here.count == 0 || here.tokens / here.ms > best.tokens / best.ms) best = here;
    if (here.count == static_cast<int>(candidates.size())) return best;
    here.tokens += candidates[here.count].value;
  }
}

// A drafter that went deep in one text may pay in another if it stops early.
std::vector<Budget::Offer> Budget::offers(const Standing& standing) {
  std::vector<Offer> offers = {{standing.tokens, standing.rows, standing.ms}};
  const double acceptance = level_acceptance(standing.tokens, standing.depth);
  for (int depth = static_cast<int>(std::ceil(standing.depth)) - 1; depth > 0; --depth) {
    offers.push_back({path_tokens(acceptance, depth), standing.rows * depth / standing.depth,
                      standing.cost.ms(depth)});
  }
  return offers;
}

// Whether asking a drafter of this standing is expected to beat `without` it, when a millisecond is
// worth `tokens_per_ms` otherwise. By time's worth and not by the step's own ratio: in a text that
// another drafter speeds up, a slow step had better be a short one.
bool Budget::pays(const Standing& standing, const Prospect& without, std::size_t n_sequences,
                  const PassLoad& load, double tokens_per_ms) const {
  const double sequences = static_cast<double>(n_sequences);
  return std::ranges::any_of(offers(standing), [&](const Offer& offer) {
    const double tokens = std::max(without.tokens, sequences * (1 + offer.tokens));
    const int rows = std::max(without.count, static_cast<int>(std::lround(sequences * offer.rows)));
    const double ms = curve_.ms(load.rows + rows) + offer.ms;
    return tokens - without.tokens > tokens_per_ms * (ms - without.ms);
  });
}

// Whether asking a drafter of this standing beats plain decoding, or costs next to nothing.
bool Budget::pays_alone(const Standing& standing, std::size_t n_sequences) const {
  const PassLoad plain{.rows = static_cast<int>(n_sequences)};
  const Prospect without = best({}, n_sequences, plain, 0);
  return standing.ms <= kNextToNothing * without.ms ||
         pays(standing, without, n_sequences, plain, without.tokens / without.ms);
}

void Budget::begin_text() {
  if (!options_.automatic || curve_.empty()) return;
  for (Standing& standing : standings_) {
    standing.tokens = standing.usual_tokens;
    standing.share = (1 + standing.share) / 2;  // another drafter may not suffice here
    if (pays_alone(standing, 1)) standing.pause = standing.steps_left = 0;
  }
}

std::optional<DraftLimits> Budget::limits(int drafter, const DraftCost& cost,
                                          std::span<const DraftTree* const> trees,
                                          const PassLoad& load) {
  DraftLimits limits{.nodes = options_.rows, .depth = options_.depth, .width = options_.width};
  if (limits.nodes == 0 || limits.depth == 0 || limits.width == 0) return std::nullopt;
  if (!options_.automatic || curve_.empty()) return limits;
  Standing& standing = standings_[drafter];
  standing.cost = cost;
  if (standing.steps_left > 0 && --standing.steps_left > 0) return std::nullopt;
  const double sequences = static_cast<double>(trees.size());
  const double plain_ms = curve_.ms(load.rows);
  const double tokens_per_ms = std::max(tokens_per_ms_, 1 / plain_ms);  // of one sequence
  const bool on_trial = !standing.asked || standing.pause > 0;
  if (!on_trial && standing.ms > kNextToNothing * plain_ms) {
    const Prospect without = best(candidates(trees, load), trees.size(), load, 0);
    const bool needed = pays(standing, without, trees.size(), load,
                             std::max(sequences * tokens_per_ms, without.tokens / without.ms));
    standing.share = blend(standing.share, needed, kSlowRate);
    if (!needed) return std::nullopt;
  }
  const double row_ms = (curve_.ms(load.rows + limits.nodes) - plain_ms) / limits.nodes;
  limits.worth = std::min(kWorthMost, tokens_per_ms * (cost.per_depth_ms + row_ms));
  return limits;
}

bool Budget::worth_reading(int drafter, const DraftCost& cost, int n_unread, int n_answered,
                           std::optional<int> n_left) {
  if (n_unread == 0 || !options_.automatic || curve_.empty()) return true;
  Standing& standing = standings_[drafter];
  const double reading_ms = n_unread * cost.per_unread_ms;
  if (standing.pause > 0) {
    if (reading_ms > standing.spare_ms) return false;
    standing.spare_ms -= reading_ms;
    return true;
  }
  const double plain_ms = curve_.ms(1);
  std::vector<Offer> offers = {{kFirstTokens, kFirstTokens, cost.ms(kFirstTokens)}};
  if (standing.asked) offers = this->offers(standing);
  double saved_ms = -HUGE_VAL, tokens = 0;  // a step
  for (const Offer& offer : offers) {
    const int rows = static_cast<int>(std::lround(offer.rows));
    const double ms = offer.ms + curve_.ms(1 + rows) - plain_ms;
    const double saved = standing.share * (offer.tokens * plain_ms - ms);
    if (saved > saved_ms) saved_ms = saved, tokens = offer.tokens;
  }
  const int n_expected = std::max(n_answered, kLeastAnswer);
  const double n_steps = std::min(n_expected, n_left.value_or(n_expected)) /
                         std::max(tokens_per_step_, 1 + standing.share * tokens);
  return n_steps * saved_ms > reading_ms;
}

void Budget::plan(std::span<DraftTree* const> trees, const PassLoad& load, double draft_ms) const {
  const std::vector<const DraftTree*> drafted(trees.begin(), trees.end());
  std::vector<Candidate> kept = candidates(drafted, load);
  if (options_.automatic && !curve_.empty())
    kept.resize(best(kept, trees.size(), load, draft_ms).count);

  std::vector<std::vector<bool>> keep;
  for (const DraftTree* tree : trees) {
    keep.emplace_back(tree->size(), false);
    keep.back()[0] = true;
  }
  for (const Candidate& candidate : kept) keep[candidate.tree][candidate.node] = true;
  for (std::size_t tree = 0; tree < trees.size(); ++tree) trees[tree]->keep(keep[tree]);
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
  std::vector<int> deepest(standings_.size());
  for (const DraftOutcome& outcome : outcomes) {
    n_taken += static_cast<double>(outcome.taken.size());
    for (int node = 1; node < outcome.checked->size(); ++node)
      for (const Proposal& proposal : (*outcome.checked)[node].proposals)
        checked[proposal.drafter] += 1;
    for (int node = 1; node < outcome.drafted->size(); ++node)
      for (const Proposal& proposal : (*outcome.drafted)[node].proposals)
        deepest[proposal.drafter] =
            std::max(deepest[proposal.drafter], (*outcome.drafted)[node].depth);
    std::optional<int> node = 0;
    for (Token token : outcome.taken) {
      node = outcome.drafted->child(*node, token);
      if (!node) break;
      for (const Proposal& proposal : (*outcome.drafted)[*node].proposals)
        right[proposal.drafter] += 1;
    }
  }
  for (std::size_t drafter = 0; drafter < standings_.size(); ++drafter) {
    Standing& standing = standings_[drafter];
    standing.spare_ms += kSpareShare * cost.forward_ms;
    if (!cost.draft_ms[drafter]) continue;
    ms += *cost.draft_ms[drafter];
    standing.tokens = blend(standing.tokens, right[drafter] / sequences);
    standing.usual_tokens = blend(standing.usual_tokens, right[drafter] / sequences, kSlowRate);
    if (!standing.asked) {
      standing.rows = checked[drafter] / sequences;
      standing.depth = deepest[drafter];
      standing.ms = *cost.draft_ms[drafter];
      standing.asked = true;
    }
    standing.rows = blend(standing.rows, checked[drafter] / sequences);
    standing.depth = blend(standing.depth, deepest[drafter]);
    standing.ms = blend(standing.ms, *cost.draft_ms[drafter]);
    if (pays_alone(standing, outcomes.size())) {
      standing.pause = standing.steps_left = 0;
    } else {
      standing.pause = std::clamp(2 * standing.pause, kFirstPause, kLongestPause);
      standing.steps_left = standing.pause;
    }
  }
  const double tokens_per_ms = n_taken / sequences / ms;
  tokens_per_ms_ = tokens_per_ms_ == 0 ? tokens_per_ms : blend(tokens_per_ms_, tokens_per_ms);
  const double tokens_per_step = n_taken / sequences;
  tokens_per_step_ =
      tokens_per_step_ == 0 ? tokens_per_step : blend(tokens_per_step_, tokens_per_step);
}

}  // namespace outrider

#include "speculation/budget.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"

namespace outrider {
namespace {

constexpr double kTokensAssumed = 2;          // per request to a drafter that was never asked
constexpr double kRate = 0.25;                // weight of the last step in a running mean
constexpr double kLongTermRate = 0.05;        // the same in a mean over a longer time
constexpr double kNextToNoTime = 0.005;       // as a share of a pass
constexpr int kPauseMin = 2, kPauseMax = 64;  // steps
// A path that is almost certain is always lengthened, so that the time of a level is measured
// again.
constexpr double kMinValueMax = 0.9;
constexpr int kAnswerLeftMin = 32;      // tokens by which an answer is assumed to go on at least
constexpr double kReadingShare = 0.02;  // of the time, for reading by drafters that do not pay

double running_mean(double mean, double last, double rate = kRate) {
  return mean + rate * (last - mean);
}

// The expected number of accepted tokens of a path of `depth` levels, each accepted with this
// probability if its parent is: a + a^2 + ... + a^depth, continued to depths between whole ones.
double path_tokens(double acceptance, double depth) {
  if (acceptance >= 1) return depth;
  return acceptance * (1 - std::pow(acceptance, depth)) / (1 - acceptance);
}

// The inverse: the acceptance per level at which a path of this depth gives this many tokens.
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
      records_(n_drafters, {.tokens = kTokensAssumed, .long_term_tokens = kTokensAssumed}) {}

void Budget::begin_text() {
  if (!options_.automatic || curve_.empty()) return;
  for (Record& record : records_) {
    record.tokens = record.long_term_tokens;
    record.needed = (1 + record.needed) / 2;  // other drafters may not be enough in this text
    if (beats_plain_decoding(record, 1)) record.pause = record.pause_left = 0;
  }
}

std::optional<DraftLimits> Budget::limits(int drafter, const DraftCost& cost,
                                          std::span<const DraftTree* const> trees,
                                          const PassLoad& load) {
  DraftLimits limits{.nodes = options_.rows, .depth = options_.depth, .width = options_.width};
  if (limits.nodes == 0 || limits.depth == 0 || limits.width == 0) return std::nullopt;
  if (!options_.automatic || curve_.empty()) return limits;
  Record& record = records_[drafter];
  record.cost = cost;
  if (record.pause_left > 0 && --record.pause_left > 0) return std::nullopt;

  const double sequences = static_cast<double>(trees.size());
  const double plain_ms = curve_.ms(load.rows);
  const double tokens_per_ms = std::max(tokens_per_ms_, 1 / plain_ms);  // of one sequence
  const bool on_trial = !record.asked || record.pause > 0;
  if (!on_trial && record.ms > kNextToNoTime * plain_ms) {
    const PassEstimate without = best_pass(ranked_nodes(trees, load), trees.size(), load, 0);
    const bool needed = pays(record, without, trees.size(), load,
                             std::max(sequences * tokens_per_ms, without.tokens / without.ms));
    record.needed = running_mean(record.needed, needed, kLongTermRate);
    if (!needed) return std::nullopt;
  }
  const double row_ms = (curve_.ms(load.rows + limits.nodes) - plain_ms) / limits.nodes;
  limits.min_value = std::min(kMinValueMax, tokens_per_ms * (cost.per_depth_ms + row_ms));
  return limits;
}

bool Budget::worth_reading(int drafter, const DraftCost& cost, int n_unread, int n_answered,
                           std::optional<int> n_left) {
  if (n_unread == 0 || !options_.automatic || curve_.empty()) return true;
  Record& record = records_[drafter];
  const double reading_ms = n_unread * cost.per_unread_ms;
  if (record.pause > 0) {
    if (reading_ms > record.reading_ms) return false;
    record.reading_ms -= reading_ms;
    return true;
  }

  // The depth that saves most time per step.
  const double plain_ms = curve_.ms(1);
  std::vector<DraftEstimate> estimates = {
      {kTokensAssumed, kTokensAssumed, cost.ms(kTokensAssumed)}};
  if (record.asked) estimates = this->estimates(record);
  double saved_ms = -HUGE_VAL, tokens = 0;
  for (const DraftEstimate& estimate : estimates) {
    const int rows = static_cast<int>(std::lround(estimate.rows));
    const double ms = estimate.ms + curve_.ms(1 + rows) - plain_ms;
    const double saved = record.needed * (estimate.tokens * plain_ms - ms);
    if (saved > saved_ms) saved_ms = saved, tokens = estimate.tokens;
  }
  const int n_expected = std::max(n_answered, kAnswerLeftMin);
  const double n_steps = std::min(n_expected, n_left.value_or(n_expected)) /
                         std::max(tokens_per_step_, 1 + record.needed * tokens);
  return n_steps * saved_ms > reading_ms;
}

void Budget::plan(std::span<DraftTree* const> trees, const PassLoad& load, double draft_ms) const {
  const std::vector<const DraftTree*> drafted(trees.begin(), trees.end());
  std::vector<RankedNode> kept = ranked_nodes(drafted, load);
  if (options_.automatic && !curve_.empty())
    kept.resize(best_pass(kept, trees.size(), load, draft_ms).n_nodes);

  std::vector<std::vector<bool>> keep;
  for (const DraftTree* tree : trees) {
    keep.emplace_back(tree->size(), false);
    keep.back()[0] = true;
  }
  for (const RankedNode& ranked : kept) keep[ranked.tree][ranked.node] = true;
  for (std::size_t tree = 0; tree < trees.size(); ++tree) trees[tree]->keep(keep[tree]);
}

void Budget::observe(std::span<const DraftOutcome> outcomes, const StepCost& cost) {
  for (const DraftOutcome& outcome : outcomes)
    calibration_.observe(*outcome.drafted, outcome.taken);
  if (!options_.automatic) return;
  if (!cost.with_prompt_rows) curve_.refine(cost.rows, cost.forward_ms);
  if (outcomes.empty() || curve_.empty()) return;

  const std::vector<Tally> tallies = tally(outcomes);
  double ms = cost.forward_ms;
  for (std::size_t drafter = 0; drafter < records_.size(); ++drafter) {
    Record& record = records_[drafter];
    record.reading_ms += kReadingShare * cost.forward_ms;
    if (const std::optional<double> draft_ms = cost.draft_ms[drafter]) {
      ms += *draft_ms;
      update(record, tallies[drafter], *draft_ms, outcomes.size());
    }
  }

  double n_taken = 0;
  for (const DraftOutcome& outcome : outcomes) n_taken += static_cast<double>(outcome.taken.size());
  const double tokens = n_taken / static_cast<double>(outcomes.size());
  tokens_per_ms_ = tokens_per_ms_ == 0 ? tokens / ms : running_mean(tokens_per_ms_, tokens / ms);
  tokens_per_step_ = tokens_per_step_ == 0 ? tokens : running_mean(tokens_per_step_, tokens);
}

std::vector<Budget::Tally> Budget::tally(std::span<const DraftOutcome> outcomes) const {
  std::vector<Tally> tallies(records_.size());
  for (const DraftOutcome& outcome : outcomes) {
    const DraftTree& drafted = *outcome.drafted;
    const DraftTree& checked = *outcome.checked;
    for (int node = 1; node < checked.size(); ++node)
      for (const Proposal& proposal : checked[node].proposals)
        tallies[proposal.drafter].checked += 1;
    for (int node = 1; node < drafted.size(); ++node)
      for (const Proposal& proposal : drafted[node].proposals) {
        int& depth = tallies[proposal.drafter].depth;
        depth = std::max(depth, drafted[node].depth);
      }
    std::optional<int> node = 0;
    for (Token token : outcome.taken) {
      node = drafted.child(*node, token);
      if (!node) break;
      for (const Proposal& proposal : drafted[*node].proposals)
        tallies[proposal.drafter].taken += 1;
    }
  }
  return tallies;
}

// After a step that asked the drafter.
void Budget::update(Record& record, const Tally& tally, double draft_ms,
                    std::size_t n_sequences) const {
  const double tokens = tally.taken / static_cast<double>(n_sequences);
  const double rows = tally.checked / static_cast<double>(n_sequences);
  const double rate = record.asked ? kRate : 1;
  record.asked = true;
  record.tokens = running_mean(record.tokens, tokens);
  record.long_term_tokens = running_mean(record.long_term_tokens, tokens, kLongTermRate);
  record.rows = running_mean(record.rows, rows, rate);
  record.depth = running_mean(record.depth, tally.depth, rate);
  record.ms = running_mean(record.ms, draft_ms, rate);

  if (beats_plain_decoding(record, n_sequences))
    record.pause = 0;
  else
    record.pause = std::clamp(2 * record.pause, kPauseMin, kPauseMax);
  record.pause_left = record.pause;
}

// The estimated probability of each node that it is accepted: the product of acceptances along its
// path. Only one sibling can be accepted, so acceptances of siblings are scaled down where their
// sum is more than 1.
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

// The nodes that limits and the pass have room for, best first, parents before their children.
std::vector<Budget::RankedNode> Budget::ranked_nodes(std::span<const DraftTree* const> trees,
                                                     const PassLoad& load) const {
  std::vector<RankedNode> all;
  for (int tree = 0; tree < static_cast<int>(trees.size()); ++tree) {
    const std::vector<double> values = this->values(*trees[tree]);
    for (int node = 1; node < trees[tree]->size(); ++node)
      all.push_back({tree, node, values[node]});
  }
  // A parent's value is at least its child's, and its number is lower, so a stable sort puts it
  // first.
  std::ranges::stable_sort(all, std::greater<>{}, &RankedNode::value);

  const std::size_t n_max = std::max(0, load.rows_max - load.rows);
  std::vector<RankedNode> ranked;
  std::vector<int> n_nodes(trees.size());
  for (const RankedNode& node : all)
    if (ranked.size() < n_max && n_nodes[node.tree]++ < options_.rows) ranked.push_back(node);
  return ranked;
}

// Of the passes with the best 0, 1, 2, ... nodes the one with the most tokens per time.
Budget::PassEstimate Budget::best_pass(std::span<const RankedNode> nodes, std::size_t n_sequences,
                                       const PassLoad& load, double draft_ms) const {
  PassEstimate best, pass;
  pass.tokens = static_cast<double>(n_sequences);
  for (;; ++pass.n_nodes) {
    pass.ms = curve_.ms(load.rows + pass.n_nodes) + draft_ms;
    if (pass.n_nodes == 0 || pass.tokens / pass.ms > best.tokens / best.ms) best = pass;
    if (pass.n_nodes == static_cast<int>(nodes.size())) return best;
    pass.tokens += nodes[pass.n_nodes].value;
  }
}

// For a draft as deep as the recent ones, then for each smaller depth: a drafter that drafted
// deeply in one text may pay in another if it stops earlier.
std::vector<Budget::DraftEstimate> Budget::estimates(const Record& record) {
  std::vector<DraftEstimate> estimates = {{record.tokens, record.rows, record.ms}};
  const double acceptance = level_acceptance(record.tokens, record.depth);
  for (int depth = static_cast<int>(std::ceil(record.depth)) - 1; depth > 0; --depth) {
    estimates.push_back({path_tokens(acceptance, depth), record.rows * depth / record.depth,
                         record.cost.ms(depth)});
  }
  return estimates;
}

// Whether the drafter is expected to add more tokens to the pass `without` it than the additional
// time would give at `tokens_per_ms`. That is the speed to compare with, not the speed of
// `without`: where another drafter makes the text fast, a step in which that one proposes little
// should be short.
bool Budget::pays(const Record& record, const PassEstimate& without, std::size_t n_sequences,
                  const PassLoad& load, double tokens_per_ms) const {
  const double sequences = static_cast<double>(n_sequences);
  return std::ranges::any_of(estimates(record), [&](const DraftEstimate& estimate) {
    const double tokens = std::max(without.tokens, sequences * (1 + estimate.tokens));
    const int rows =
        std::max(without.n_nodes, static_cast<int>(std::lround(sequences * estimate.rows)));
    const double ms = curve_.ms(load.rows + rows) + estimate.ms;
    return tokens - without.tokens > tokens_per_ms * (ms - without.ms);
  });
}

// With the trees to itself; or it takes next to no time.
bool Budget::beats_plain_decoding(const Record& record, std::size_t n_sequences) const {
  const PassLoad plain{.rows = static_cast<int>(n_sequences)};
  const PassEstimate without = best_pass({}, n_sequences, plain, 0);
  return record.ms <= kNextToNoTime * without.ms ||
         pays(record, without, n_sequences, plain, without.tokens / without.ms);
}

}  // namespace outrider

#include "speculation/planner.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace outrider {
namespace {

constexpr double kRecent = 31.0 / 32;     // what a step leaves of the weight of those before it
constexpr int kGapMin = 8, kGapMax = 64;  // steps between trials
constexpr int kPlainAtFirst = 2;          // steps; one suffices where passes are known from before
constexpr int kProbeContext = 16;         // tokens of a text's end that a probed drafter reads
constexpr std::size_t kProbeRows = 3;
// A prefill needs room for a draft of so many levels after it, or it would have to wait.
constexpr int kLevelsAfterPrefill = 3;

int sum(std::span<const int> values) {
  return std::accumulate(values.begin(), values.end(), 0);
}

// That the pass had for it, the root's not among them.
int rows_of(const DraftOutcome& outcome) {
  return outcome.checked->size() - 1 + sum(outcome.riders);
}

// Tokens that the step took from this drafter and would have had from no other.
int n_alone(const DraftOutcome& outcome, int drafter) {
  const DraftTree& tree = *outcome.checked;
  int n = 0;
  std::optional<int> node = 0;
  for (const Token token : outcome.taken) {
    node = tree.child(*node, token);
    if (!node) break;
    const std::vector<Proposal>& proposals = tree[*node].proposals;
    n += proposals.size() == 1 && proposals[0].drafter == drafter ? 1 : 0;
  }
  return n;
}

}  // namespace

void Planner::Trial::tried() {
  *this = {std::clamp(2 * gap, kGapMin, kGapMax)};
}

Planner::Planner(const PlannerOptions& options, CostCurve& curve, int n_drafters)
    : options_(options),
      curve_(curve),
      calibration_(n_drafters),
      rides_(n_drafters),
      n_plain_due_(kPlainAtFirst),
      row_trial_{kGapMin} {
  learned_.drafters.resize(n_drafters);
}

// Its speed begins as that of recent sequences, with the weight of one step.
void Planner::begin(DraftSequence number, int n_prefill) {
  end(number);
  Sequence sequence{
      .belief = calibration_.begin(), .trials = {}, .tokens = learned_.speed, .passes = 1};
  sequence.trials.resize(rides_.size());
  if (prices() && n_prefill > 0)
    sequence.account.prefill =
        curve_.ms({.rows = n_prefill, .without_logits = n_prefill - 1}) / curve_.ms(1);
  sequences_.emplace(number, std::move(sequence));
}

void Planner::end(DraftSequence number) {
  const auto found = sequences_.find(number);
  if (found == sequences_.end()) return;
  if (const int n = found->second.account.n_tokens; n > 0) {
    calibration_.end(found->second.belief);
    learned_.answers = kRecent * learned_.answers + 1;
    learned_.answer_tokens += (n - learned_.answer_tokens) / learned_.answers;
  }
  sequences_.erase(found);
}

Learned Planner::learned() const {
  Learned learned = learned_;
  learned.bank = guard_.bank();
  for (std::size_t drafter = 0; drafter < learned.drafters.size(); ++drafter)
    learned.drafters[drafter].acceptance = calibration_.of_drafter(drafter);
  return learned;
}

void Planner::restore(const Learned& learned) {
  CHECK(learned.drafters.size() == learned_.drafters.size());
  learned_ = learned;
  guard_.restore(learned.bank);
  for (std::size_t drafter = 0; drafter < learned.drafters.size(); ++drafter)
    calibration_.restore(drafter, learned.drafters[drafter].acceptance);
  n_plain_due_ = 1;
}

Planner::Report Planner::report() const {
  if (!options_.automatic) return {};
  return {.reliability = calibration_.reliability(),
          .bank = guard_.bank(),
          .vetoes = n_vetoes_,
          .probes = n_probes_};
}

bool Planner::plain_step_is_due(const PassLoad& load) const {
  if (!prices() || load.prompt_rows > 0) return false;
  return n_plain_due_ > 0 || plain_trial_.n_since >= plain_trial_.gap * learned_.speed;
}

// What a step's decisions look at.
struct Planner::View {
  const PassLoad& load;
  StepCosts costs;
  std::vector<Sequence*> sequences;  // that are planned
  // What all sequences would get from another millisecond without prompts; those that prefill
  // theirs, or wait to, count as if they decoded without drafts.
  double ms_price;
};

Planner::View Planner::view(std::span<const PlannedSequence> planned, const PassLoad& load) {
  View view{load, StepCosts(curve_, load), {}, 0};
  double speeds = load.sequences - static_cast<double>(planned.size());
  for (const PlannedSequence& each : planned) {
    view.sequences.push_back(&sequences_.at(each.sequence));
    speeds += view.sequences.back()->speed();
  }
  view.ms_price = speeds / view.costs.plain_ms();
  return view;
}

// The probability of each node that it is accepted, [tree.size()]: as the drafters state it where
// nothing has a price.
std::vector<double> Planner::chances(const PlannedSequence& planned) const {
  const DraftTree& tree = *planned.tree;
  std::vector<double> chances(tree.size(), 1);
  if (prices()) chances = calibration_.acceptances(sequences_.at(planned.sequence).belief, tree);
  for (int node = 1; node < tree.size(); ++node) {
    if (!prices())
      chances[node] = std::ranges::max(tree[node].proposals, {}, &Proposal::confidence).confidence;
    chances[node] *= chances[tree[node].parent];
  }
  return chances;
}

void Planner::learn(int drafter, DraftSequence number, int levels,
                    std::span<const PrefillGuess> prefill_guesses) {
  if (!options_.automatic) return;
  Sequence& sequence = sequences_.at(number);
  sequence.drafting += std::exchange(sequence.per_level, 0) * std::max(0, levels - 1);
  for (const PrefillGuess& guess : prefill_guesses)
    calibration_.observe(sequence.belief, {drafter, guess.confidence}, guess.was_right,
                         Calibration::handicap(guess.n_known));
}

// If so many rows of each are checked, [sequences].
std::vector<Guard::Share> Planner::shares(std::span<Sequence* const> sequences,
                                          std::span<const int> rows, const StepCosts& costs) {
  const int n_rows = sum(rows);
  const double per_row = n_rows == 0 ? 0 : costs.added_ms(n_rows) / n_rows / costs.plain_ms();
  std::vector<Guard::Share> shares;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    Sequence& sequence = *sequences[i];
    shares.push_back({&sequence.account, sequence.drafting + sequence.prefill + rows[i] * per_row});
  }
  return shares;
}

// A sequence for which a drafter may be asked.
struct Planner::Candidate {
  std::size_t index;  // among the planned sequences
  const PlannedSequence& planned;
  Sequence& sequence;
  Ask& ask;
  std::vector<double> tree;  // chances of its nodes
  // Chosen:
  int levels = 0;  // 0: it is not asked for
  double prefill_ms = 0;
  Prospect prospect = {};  // with what it will have prefilled

  Prospect expect(double handicap) const {
    return ask.worth.prospect(tree, ask.limits->depth, handicap);
  }
  double gain() const { return prospect.gains[prospect.at(levels)]; }
};

struct Planner::Question {
  const View& view;
  int drafter;
  const Drafter& asked;
  std::vector<Candidate> candidates = {};
  std::vector<DraftCost> costs = {{}};  // [candidates + 1]: for so many together

  int n_chosen() const {
    return static_cast<int>(std::ranges::count_if(candidates, &Candidate::levels));
  }
};

// Proposals that will be pruned may be more than the pass has room for; draws share what room is
// left.
std::vector<Planner::Ask> Planner::ask(int drafter, const Drafter& asked,
                                       std::span<const PlannedSequence> sequences,
                                       const PassLoad& load) {
  std::vector<Ask> asks;
  int n_left = load.rows_left();
  for (const PlannedSequence& sequence : sequences) n_left -= sequence.n_settled();
  const int share = n_left / std::max(1, static_cast<int>(sequences.size()));
  for (const PlannedSequence& sequence : sequences) {
    Ask& ask = asks.emplace_back();
    DraftLimits limits{std::min(options_.rows, sequence.rows_max),
                       std::min(options_.depth, sequence.depth_max), options_.width};
    if (sequence.drawers > 0 && asked.can_draw())
      limits.nodes = std::min(limits.nodes - sequence.n_settled(), share) / sequence.drawers;
    if (limits.nodes > 0 && limits.depth > 0 && limits.width > 0) ask.limits = limits;
  }
  if (!prices()) return asks;
  const View view = this->view(sequences, load);
  Question question{view, drafter, asked};
  choose(question, sequences, asks);
  return asks;
}

// Leaves only the limits of sequences for which the drafter shall be asked.
void Planner::choose(Question& question, std::span<const PlannedSequence> planned,
                     std::span<Ask> asks) {
  const View& view = question.view;
  const double plain_ms = view.costs.plain_ms();
  const int drafter = question.drafter;
  const Drafter& asked = question.asked;
  long length = 0;
  for (std::size_t i = 0; i < planned.size(); ++i) {
    if (!asks[i].limits) continue;
    Sequence& sequence = *view.sequences[i];
    const int rows = std::min(asks[i].limits->nodes, view.load.rows_left());
    asks[i].worth = {&calibration_, &sequence.belief, drafter,
                     view.costs.row_prices(rows, view.ms_price), view.ms_price};
    std::vector<double> tree = chances(planned[i]);
    tree.erase(tree.begin());
    question.candidates.push_back({i, planned[i], sequence, asks[i], std::move(tree)});
    length += planned[i].length;
  }
  const int n = static_cast<int>(question.candidates.size());
  if (n == 0) return;
  for (int i = 1; i <= n; ++i)
    question.costs.push_back(asked.cost(i, static_cast<int>(length / n)));
  if (question.costs[n].ms(options_.depth) <= StepCosts::kRowMin * plain_ms) {
    question.costs.assign(n + 1, {});  // next to no time
    for (Candidate& candidate : question.candidates) candidate.levels = options_.depth;
  } else {
    for (Candidate& candidate : question.candidates) choose_context(candidate, question);
    choose_levels(question);
    probe(question);
  }
  const int n_chosen = question.n_chosen();
  const DraftCost& cost = question.costs[n_chosen];
  for (Candidate& candidate : question.candidates) {
    DraftLimits& limits = *candidate.ask.limits;
    if (candidate.levels == 0) {
      candidate.ask.limits.reset();
      continue;
    }
    limits.depth = std::min(limits.depth, candidate.levels);
    // What is drawn is checked, so it has as many rows as the choice was made for.
    if (candidate.planned.drawers > 0 && asked.can_draw())
      limits.nodes = std::min(limits.nodes, limits.depth);
    Sequence& sequence = candidate.sequence;
    sequence.belief.handicaps[drafter] =
        Calibration::handicap(asked.n_known(candidate.planned.sequence, candidate.ask.n_context));
    sequence.drafting += cost.fixed_ms / n_chosen / plain_ms;
    sequence.per_level = cost.per_depth_ms / n_chosen / plain_ms;
    sequence.prefill += candidate.prefill_ms / plain_ms;
  }
}

// Prefilling all that the drafter lacks of a text is an investment, which the rest of the answer
// has to bring in. Otherwise the drafter is asked with what it knows, if it knows the end.
void Planner::choose_context(Candidate& candidate, const Question& question) {
  const PlannedSequence& planned = candidate.planned;
  const Drafter& asked = question.asked;
  candidate.prospect = candidate.expect(0);
  candidate.prefill_ms =
      asked.n_to_prefill(planned.sequence, kWholeText) * question.costs[1].per_prefill_ms;
  if (candidate.prefill_ms == 0) return;
  Prospect as_it_is;
  if (asked.n_to_prefill(planned.sequence, kProbeContext) == 0)
    as_it_is =
        candidate.expect(Calibration::handicap(asked.n_known(planned.sequence, kProbeContext)));
  // What a step gains, where all that may be asked share the time.
  const double ms_price = question.view.ms_price;
  const double share = ms_price / static_cast<double>(question.candidates.size());
  const auto price = [&](int levels) { return share * question.costs.back().ms(levels); };
  const BestGain with = candidate.prospect.best(price), without = as_it_is.best(price);
  // An answer goes on for as long as answers are, or as it has gone on already.
  const double n_left =
      std::min<double>(std::max<double>(planned.n_answered, learned_.answer_tokens),
                       planned.n_left.value_or(kWholeText));
  const double gain = n_left / (1 + with.tokens) * (with.gain - without.gain);
  candidate.levels = kLevelsAfterPrefill;
  const bool pays = gain > ms_price * candidate.prefill_ms && allows(question);
  candidate.levels = 0;
  if (pays) return;
  candidate.prefill_ms = 0;
  candidate.ask.n_context = kProbeContext;
  candidate.prospect = as_it_is;
}

// If no draft is accepted.
bool Planner::allows(std::span<const Guard::Share> shares, const PassLoad& load) {
  const Guard::Bound bound = guard_.exceeded(shares, load.sequences);
  is_vetoed_ = is_vetoed_ || bound == Guard::Bound::patience;
  return bound == Guard::Bound::none;
}

// The same for what is chosen, with a row for each level.
bool Planner::allows(const Question& question) {
  const View& view = question.view;
  std::vector<int> rows(view.sequences.size());
  for (const Candidate& candidate : question.candidates) rows[candidate.index] = candidate.levels;
  const int n_chosen = question.n_chosen();
  const double ms = question.costs[n_chosen].ms(std::ranges::max(rows)) / n_chosen;
  std::vector<Guard::Share> shares = this->shares(view.sequences, rows, view.costs);
  for (const Candidate& candidate : question.candidates)
    if (candidate.levels > 0)
      shares[candidate.index].passes += (ms + candidate.prefill_ms) / view.costs.plain_ms();
  return allows(shares, view.load);
}

// The levels, alike for all that are asked for, and the sequences that bring most together.
void Planner::choose_levels(Question& question) {
  std::vector<Candidate*> order, best;
  double most = 0;
  int levels_max = 0, best_levels = 0;
  for (Candidate& candidate : question.candidates) {
    order.push_back(&candidate);
    levels_max = std::max(levels_max, candidate.prospect.at(options_.depth));
  }
  for (int levels = 1; levels <= levels_max; ++levels) {
    for (Candidate* candidate : order) candidate->levels = levels;
    std::ranges::stable_sort(order, std::greater<>{}, &Candidate::gain);
    for (Candidate* candidate : order) candidate->levels = 0;
    std::vector<Candidate*> chosen;
    double gain = 0;
    for (Candidate* candidate : order) {
      candidate->levels = levels;
      if (candidate->gain() <= 0 || !allows(question)) {
        candidate->levels = 0;
        continue;
      }
      chosen.push_back(candidate);
      gain += candidate->gain();
      const double net = gain - question.view.ms_price * question.costs[chosen.size()].ms(levels);
      if (net <= most) continue;
      most = net;
      best = chosen;
      best_levels = levels;
    }
    for (Candidate* candidate : order) candidate->levels = 0;
  }
  for (Candidate* candidate : best) candidate->levels = best_levels;
}

// A drafter that is not expected to pay for a sequence, or has too much to prefill, is asked for
// one level now and then. Probes share their time, so those that have waited for half of their gap
// go with one that is due.
void Planner::probe(Question& question) {
  bool is_due = false;
  for (Candidate& candidate : question.candidates) {
    Trial& trial = candidate.sequence.trials[question.drafter];
    if (candidate.levels > 0)
      trial = {};
    else if (trial.gap == 0)
      trial.gap = kGapMin;
    else
      is_due = ++trial.n_since >= trial.gap || is_due;
  }
  if (!is_due) return;
  const View& view = question.view;
  const DraftCost& cost = question.costs.back();
  for (Candidate& candidate : question.candidates) {
    Trial& trial = candidate.sequence.trials[question.drafter];
    if (candidate.levels > 0 || 2 * trial.n_since < trial.gap) continue;
    // Not where even a right guess would bring too little beside the tree, unless what the drafter
    // takes was measured in an earlier run: a slow moment then must not keep it away for ever.
    const double right[] = {1 - (candidate.tree.empty() ? 0 : std::ranges::max(candidate.tree))};
    const double price =
        view.ms_price * cost.fixed_ms / static_cast<double>(question.candidates.size());
    if (!cost.is_old && candidate.ask.worth.level_gain(candidate.tree, right) <= price) continue;
    candidate.ask.n_context = kProbeContext;
    candidate.prefill_ms = question.asked.n_to_prefill(candidate.planned.sequence, kProbeContext) *
                           question.costs[1].per_prefill_ms;
    candidate.levels = 1;
    if (allows(question)) {
      trial.tried();
      ++n_probes_;
    } else {
      candidate.levels = 0;
    }
  }
}

// A row that a pass may have beside those that are settled.
struct Planner::Row {
  int sequence;     // among the planned ones
  int node;         // of its tree; a rider is none
  double expected;  // tokens that it brings
};

// How many of these rows, the first ones, bring the most tokens less their price, as far as the
// guard allows. settled: rows that each sequence has already.
int Planner::n_that_pay(const View& view, std::span<const Row> rows, std::vector<int> settled,
                        double ms_price) {
  const int n_settled = sum(settled), n_max = static_cast<int>(rows.size());
  const std::vector<double> prices = view.costs.row_prices(n_settled + n_max, ms_price);
  int best = 0;
  double tokens = 0, most = 0;
  for (int n = 1; n <= n_max; ++n) {
    tokens += rows[n - 1].expected;
    ++settled[rows[n - 1].sequence];
    const double gain = tokens - (prices[n_settled + n] - prices[n_settled]);
    if (gain <= most || !allows(shares(view.sequences, settled, view.costs), view.load)) continue;
    most = gain;
    best = n;
  }
  return best;
}

void Planner::prune(std::span<const PlannedSequence> sequences, const PassLoad& load) {
  std::vector<Row> all, rows;
  std::vector<int> settled, room;
  for (int i = 0; i < static_cast<int>(sequences.size()); ++i) {
    settled.push_back(sequences[i].n_settled());
    room.push_back(std::min(options_.rows, sequences[i].rows_max));
    if (sequences[i].drawers > 0) continue;
    const std::vector<double> chances = this->chances(sequences[i]);
    for (int node = 1; node < static_cast<int>(chances.size()); ++node)
      all.push_back({i, node, chances[node]});
  }
  // A parent's chance is at least its child's, and its number is lower, so a stable sort puts it
  // first.
  std::ranges::stable_sort(all, std::greater<>{}, &Row::expected);
  int n_left = load.rows_left() - sum(settled);
  for (const Row& row : all) {
    if (n_left <= 0 || room[row.sequence] <= 0) continue;
    --n_left, --room[row.sequence];
    rows.push_back(row);
  }
  if (prices() && !rows.empty()) {
    const View view = this->view(sequences, load);
    int n = n_that_pay(view, rows, settled, view.ms_price);
    if (n > 0) {
      row_trial_.n_since = 0;
    } else if (++row_trial_.n_since >= row_trial_.gap) {
      // The times of rows that are never checked stay as they were last estimated, be it wrongly: a
      // few rows are checked now and then as if they were free.
      n = n_that_pay(view, std::span(rows).first(std::min(rows.size(), kProbeRows)), settled, 0);
      row_trial_.tried();
    }
    rows.resize(n);
  }
  for (int i = 0; i < static_cast<int>(sequences.size()); ++i) {
    if (sequences[i].drawers > 0) continue;
    std::vector<bool> kept(sequences[i].tree->size());
    kept[0] = true;
    for (const Row& row : rows)
      if (row.sequence == i) kept[row.node] = true;
    sequences[i].tree->keep(kept);
  }
}

std::vector<int> Planner::riders(int drafter, const Drafter& asked,
                                 std::span<const PlannedSequence> sequences, const PassLoad& load) {
  rides_[drafter] = true;
  std::vector<int> settled, riders;
  for (const PlannedSequence& each : sequences)
    settled.push_back(each.tree->size() - 1 + each.n_riders);
  for (int i = 0; i < static_cast<int>(sequences.size()); ++i) {
    const int n_own = std::min(options_.rows, sequences[i].rows_max) - settled[i];
    int n = std::max(0, std::min({asked.riders_max(), n_own, load.rows_left() - sum(settled)}));
    if (prices()) {
      const RiderGain& gain = learned_.drafters[drafter].riders;
      std::vector<Row> rows;
      for (int k = 0; k < n; ++k)
        rows.push_back(
            {.sequence = i, .node = -1, .expected = gain.expected(k + 1) - gain.expected(k)});
      const View view = this->view(sequences, load);
      n = n_that_pay(view, rows, settled, view.ms_price);
    }
    settled[i] += n;
    riders.push_back(n);
  }
  return riders;
}

void Planner::observe(std::span<const DraftOutcome> outcomes, const PassLoad& load,
                      double forward_ms) {
  if (!options_.automatic) return;
  std::vector<int> rows;
  for (const DraftOutcome& outcome : outcomes) rows.push_back(rows_of(outcome));
  const int n_rows = sum(rows);
  // With the estimates that the step was planned with.
  if (!curve_.empty() && !outcomes.empty()) count(outcomes, load, rows);
  for (const DraftOutcome& outcome : outcomes) {
    calibration_.observe(sequences_.at(outcome.sequence).belief, *outcome.drafted, outcome.taken);
    for (std::size_t drafter = 0; drafter < rides_.size(); ++drafter)
      if (rides_[drafter])
        learned_.drafters[drafter].riders.observe(
            outcome.riders.empty() ? 0 : outcome.riders[drafter],
            n_alone(outcome, static_cast<int>(drafter)));
  }
  curve_.refine(StepCosts::work(load, n_rows), forward_ms);
  n_vetoes_ += std::exchange(is_vetoed_, false);
  if (load.prompt_rows > 0) return;
  ++plain_trial_.n_since;
  if (n_rows > 0) return;
  plain_trial_.tried();
  n_plain_due_ = std::max(0, n_plain_due_ - 1);
}

void Planner::count(std::span<const DraftOutcome> outcomes, const PassLoad& load,
                    std::span<const int> rows) {
  std::vector<Sequence*> sequences;
  for (const DraftOutcome& outcome : outcomes)
    sequences.push_back(&sequences_.at(outcome.sequence));
  std::vector<Guard::Share> shares = this->shares(sequences, rows, StepCosts(curve_, load));
  double passes = 1;  // that the step took; a prefill is sunk
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    shares[i].n_tokens = static_cast<int>(outcomes[i].taken.size());
    passes += shares[i].passes - sequences[i]->prefill;
    sequences[i]->drafting = sequences[i]->prefill = 0;
  }
  guard_.count(shares, load.sequences);
  double speeds = 0;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const DraftOutcome& outcome = outcomes[i];
    Sequence& sequence = *sequences[i];
    sequence.tokens = kRecent * sequence.tokens + static_cast<double>(outcome.taken.size());
    sequence.passes = kRecent * sequence.passes + passes;
    speeds += sequence.speed();
    for (std::size_t drafter = 0; drafter < rides_.size(); ++drafter) {
      Trial& trial = sequence.trials[drafter];
      if (trial.gap == 0 || outcome.taken.empty() ||
          !outcome.drafted->guesses(static_cast<int>(drafter), outcome.taken[0]))
        continue;
      // What a probe has to prefill is computed by now: while it is right, the next step goes on.
      trial = {.gap = kGapMin, .n_since = kGapMin - 1};
    }
  }
  learned_.speed = speeds / static_cast<double>(outcomes.size());
}

}  // namespace outrider

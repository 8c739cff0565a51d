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

// That the pass had for it, the root's not among them.
int rows_of(const DraftOutcome& outcome) {
  return std::accumulate(outcome.riders.begin(), outcome.riders.end(), outcome.checked->size() - 1);
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
  Sequence sequence{.belief = calibration_.begin(),
                    .trials = std::vector<Trial>(rides_.size()),
                    .tokens = learned_.speed,
                    .passes = 1};
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

// A sequence in a step's ledger.
struct Planner::Entry {
  Sequence* sequence;
  int rows;  // of the pass, for its nodes and riders
  const PlannedSequence* planned = nullptr;
  // Of a drafter that may be asked for it:
  Ask* ask = nullptr;
  std::vector<double> tree = {};  // chances of the nodes that there are
  int levels = 0;                 // that are asked for, a row for each; 0: it is not asked
  int n_context = kWholeText;     // and with this:
  double prefill_ms = 0, handicap = 0;
  Prospect prospect = {};

  double gain(int levels) const { return prospect.gains[prospect.at(levels)]; }
};

// What a step takes as far as it is decided, beside what sequences have noted.
struct Planner::Ledger {
  const PassLoad& load;
  StepCosts costs;
  std::vector<Entry> entries = {};
  // What all sequences would get from another millisecond without prompts; those that prefill
  // theirs, or wait to, count as if they decoded without drafts.
  double ms_price = 0;
  std::vector<DraftCost> draft_costs = {{}};  // [candidates + 1]: if asked for so many together

  int n_candidates() const { return static_cast<int>(draft_costs.size()) - 1; }
  int n_asked() const { return static_cast<int>(std::ranges::count_if(entries, &Entry::levels)); }
  int n_rows() const {
    int n = 0;
    for (const Entry& entry : entries) n += entry.rows + entry.levels;
    return n;
  }
  // Rows share what they all add to the pass; who is asked shares the drafter's time.
  std::vector<Guard::Share> shares() const {
    const double row_ms = costs.added_ms(n_rows()) / std::max(1, n_rows());
    const int levels = entries.empty() ? 0 : std::ranges::max(entries, {}, &Entry::levels).levels;
    const double draft_ms = draft_costs[n_asked()].ms(levels) / std::max(1, n_asked());
    std::vector<Guard::Share> shares;
    for (const Entry& entry : entries) {
      double ms = (entry.rows + entry.levels) * row_ms;
      if (entry.levels > 0) ms += draft_ms + entry.prefill_ms;
      const Sequence& noted = *entry.sequence;
      shares.push_back(
          {&entry.sequence->account, noted.drafting + noted.prefill + ms / costs.plain_ms()});
    }
    return shares;
  }
};

Planner::Ledger Planner::ledger(std::span<const PlannedSequence> planned, const PassLoad& load) {
  Ledger ledger{load, StepCosts(curve_, load)};
  double speeds = load.sequences - static_cast<double>(planned.size());
  for (const PlannedSequence& each : planned) {
    ledger.entries.push_back({&sequences_.at(each.sequence), each.n_settled(), &each});
    speeds += ledger.entries.back().sequence->speed();
  }
  if (prices()) ledger.ms_price = speeds / ledger.costs.plain_ms();
  return ledger;
}

// Rows that the sequence, and the pass, have left.
int Planner::room(const Entry& entry, const Ledger& ledger) const {
  return std::min(std::min(options_.rows, entry.planned->rows_max) - entry.rows,
                  ledger.load.rows_left() - ledger.n_rows());
}

// Whether the guard does, if no draft is accepted.
bool Planner::allows(const Ledger& ledger) {
  const Guard::Bound bound = guard_.exceeded(ledger.shares(), ledger.load.sequences);
  is_vetoed_ = is_vetoed_ || bound == Guard::Bound::patience;
  return bound == Guard::Bound::none;
}

// The probability of each node but the root that it is accepted: as the drafters state it where
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
  chances.erase(chances.begin());
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

// Proposals that will be pruned may be more than the pass has room for; draws share what room is
// left.
std::vector<Planner::Ask> Planner::ask(int drafter, const Drafter& asked,
                                       std::span<const PlannedSequence> sequences,
                                       const PassLoad& load) {
  std::vector<Ask> asks(sequences.size());
  Ledger ledger = this->ledger(sequences, load);
  const int n_left = load.rows_left() - ledger.n_rows();
  for (std::size_t i = 0; i < asks.size(); ++i) {
    const PlannedSequence& planned = sequences[i];
    DraftLimits limits{std::min(options_.rows, planned.rows_max),
                       std::min(options_.depth, planned.depth_max), options_.width};
    if (planned.drawers > 0 && asked.can_draw())
      limits.nodes =
          std::min(limits.nodes - planned.n_settled(), n_left / static_cast<int>(asks.size())) /
          planned.drawers;
    if (limits.nodes > 0 && limits.depth > 0 && limits.width > 0) asks[i].limits = limits;
  }
  if (prices()) choose(drafter, asked, ledger, asks);
  return asks;
}

// Leaves limits only to those sequences for which the drafter shall be asked.
void Planner::choose(int drafter, const Drafter& asked, Ledger& ledger, std::span<Ask> asks) {
  const double plain_ms = ledger.costs.plain_ms();
  std::vector<Entry*> candidates;
  long length = 0;
  for (std::size_t i = 0; i < asks.size(); ++i) {
    Entry& entry = ledger.entries[i];
    if (!asks[i].limits) continue;
    const int rows = std::min(asks[i].limits->nodes, ledger.load.rows_left());
    asks[i].worth = {&calibration_, &entry.sequence->belief, drafter,
                     ledger.costs.row_prices(rows, ledger.ms_price), ledger.ms_price};
    entry.ask = &asks[i];
    entry.tree = chances(*entry.planned);
    candidates.push_back(&entry);
    length += entry.planned->length;
  }
  const int n = static_cast<int>(candidates.size());
  if (n == 0) return;
  for (int i = 1; i <= n; ++i)
    ledger.draft_costs.push_back(asked.cost(i, static_cast<int>(length / n)));
  const bool takes_time = ledger.draft_costs[n].ms(options_.depth) > StepCosts::kRowMin * plain_ms;
  if (!takes_time) ledger.draft_costs.assign(n + 1, {});
  for (Entry* candidate : candidates) weigh(*candidate, kWholeText, asked, ledger);
  if (takes_time) {
    for (Entry* candidate : candidates) choose_context(*candidate, asked, ledger);
    choose_levels(ledger);
    probe(drafter, asked, ledger);
  } else {
    for (Entry* candidate : candidates) candidate->levels = options_.depth;
  }
  const int n_asked = ledger.n_asked();
  for (Entry* candidate : candidates) {
    if (candidate->levels == 0) {
      candidate->ask->limits.reset();
      continue;
    }
    DraftLimits& limits = *candidate->ask->limits;
    limits.depth = std::min(limits.depth, candidate->levels);
    // What is drawn is checked, so it has as many rows as the choice was made for.
    if (candidate->planned->drawers > 0 && asked.can_draw())
      limits.nodes = std::min(limits.nodes, limits.depth);
    candidate->ask->n_context = candidate->n_context;
    Sequence& sequence = *candidate->sequence;
    sequence.belief.handicaps[drafter] = candidate->handicap;
    sequence.drafting += ledger.draft_costs[n_asked].fixed_ms / n_asked / plain_ms;
    sequence.per_level = ledger.draft_costs[n_asked].per_depth_ms / n_asked / plain_ms;
    sequence.prefill += candidate->prefill_ms / plain_ms;
  }
}

// What asking takes and brings if the drafter knows so much of the text. A part that it lacks is
// prefilled for probes alone.
void Planner::weigh(Entry& entry, int n_context, const Drafter& asked, const Ledger& ledger) {
  const DraftSequence sequence = entry.planned->sequence;
  entry.n_context = n_context;
  entry.prefill_ms = asked.n_to_prefill(sequence, n_context) * ledger.draft_costs[1].per_prefill_ms;
  entry.handicap = Calibration::handicap(asked.n_known(sequence, n_context));
  entry.prospect = {};
  if (n_context == kWholeText || entry.prefill_ms == 0)
    entry.prospect =
        entry.ask->worth.prospect(entry.tree, entry.ask->limits->depth, entry.handicap);
}

// Prefilling all that the drafter lacks of a text is an investment, which the rest of the answer
// has to bring in. Otherwise the drafter is asked with what it knows, if it knows the end.
void Planner::choose_context(Entry& entry, const Drafter& asked, const Ledger& ledger) {
  if (entry.prefill_ms == 0) return;
  // What a step gains, where all that may be asked share the time.
  const double share = ledger.ms_price / ledger.n_candidates();
  const auto price = [&](int levels) { return share * ledger.draft_costs.back().ms(levels); };
  Entry as_it_is = entry;
  weigh(as_it_is, kProbeContext, asked, ledger);
  const BestGain with = entry.prospect.best(price), without = as_it_is.prospect.best(price);
  // An answer goes on for as long as answers are, or as it has gone on already.
  const double n_left =
      std::min<double>(std::max<double>(entry.planned->n_answered, learned_.answer_tokens),
                       entry.planned->n_left.value_or(kWholeText));
  const double gain = n_left / (1 + with.tokens) * (with.gain - without.gain);
  entry.levels = kLevelsAfterPrefill;
  const bool pays = gain > ledger.ms_price * entry.prefill_ms && allows(ledger);
  entry.levels = 0;
  if (!pays) entry = std::move(as_it_is);
}

// The levels, alike for all that are asked for, and the sequences that bring most together.
void Planner::choose_levels(Ledger& ledger) {
  std::vector<Entry*> best;
  double most = 0;
  int levels_max = 0, best_levels = 0;
  for (const Entry& entry : ledger.entries)
    levels_max = std::max(levels_max, entry.prospect.at(options_.depth));
  for (int levels = 1; levels <= levels_max; ++levels) {
    std::vector<Entry*> order, chosen;
    for (Entry& entry : ledger.entries)
      if (entry.gain(levels) > 0) order.push_back(&entry);
    std::ranges::stable_sort(order, std::greater<>{},
                             [&](const Entry* entry) { return entry->gain(levels); });
    double gain = 0;
    for (Entry* entry : order) {
      entry->levels = levels;
      if (!allows(ledger)) {
        entry->levels = 0;
        continue;
      }
      chosen.push_back(entry);
      gain += entry->gain(levels);
      const double net = gain - ledger.ms_price * ledger.draft_costs[chosen.size()].ms(levels);
      if (net <= most) continue;
      most = net;
      best = chosen;
      best_levels = levels;
    }
    for (Entry* entry : chosen) entry->levels = 0;
  }
  for (Entry* entry : best) entry->levels = best_levels;
}

// A drafter that is not expected to pay for a sequence, or has too much to prefill, is asked for
// one level now and then. Probes share their time, so those that have waited for half of their gap
// go with one that is due.
void Planner::probe(int drafter, const Drafter& asked, Ledger& ledger) {
  bool is_due = false;
  for (const Entry& entry : ledger.entries) {
    Trial& trial = entry.sequence->trials[drafter];
    if (!entry.ask) continue;
    if (entry.levels > 0)
      trial = {};
    else if (trial.gap == 0)
      trial.gap = kGapMin;
    else
      is_due = ++trial.n_since >= trial.gap || is_due;
  }
  if (!is_due) return;
  const DraftCost& cost = ledger.draft_costs.back();
  const double price = ledger.ms_price * cost.fixed_ms / ledger.n_candidates();
  for (Entry& entry : ledger.entries) {
    Trial& trial = entry.sequence->trials[drafter];
    if (!entry.ask || entry.levels > 0 || 2 * trial.n_since < trial.gap) continue;
    // Not where even a right guess would bring too little beside the tree, unless what the drafter
    // takes was measured in an earlier run: a slow moment then must not keep it away for ever.
    const double right[] = {1 - (entry.tree.empty() ? 0 : std::ranges::max(entry.tree))};
    if (!cost.is_old && entry.ask->worth.level_gain(entry.tree, right) <= price) continue;
    weigh(entry, kProbeContext, asked, ledger);
    entry.levels = 1;
    if (allows(ledger)) {
      trial.tried();
      ++n_probes_;
    } else {
      entry.levels = 0;
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
// guard allows, beside the rows of the ledger.
int Planner::n_that_pay(Ledger ledger, std::span<const Row> rows, double ms_price) {
  const int n_before = ledger.n_rows(), n_max = static_cast<int>(rows.size());
  const std::vector<double> prices = ledger.costs.row_prices(n_before + n_max, ms_price);
  int best = 0;
  double tokens = 0, most = 0;
  for (int n = 1; n <= n_max; ++n) {
    tokens += rows[n - 1].expected;
    ++ledger.entries[rows[n - 1].sequence].rows;
    const double gain = tokens - (prices[n_before + n] - prices[n_before]);
    if (gain <= most || !allows(ledger)) continue;
    most = gain;
    best = n;
  }
  return best;
}

void Planner::prune(std::span<const PlannedSequence> sequences, const PassLoad& load) {
  std::vector<Row> all, rows;
  for (int i = 0; i < std::ssize(sequences); ++i) {
    if (sequences[i].drawers > 0) continue;
    const std::vector<double> chances = this->chances(sequences[i]);
    for (int node = 1; node < sequences[i].tree->size(); ++node)
      all.push_back({i, node, chances[node - 1]});
  }
  // A parent's chance is at least its child's, and its number is lower, so a stable sort puts it
  // first.
  std::ranges::stable_sort(all, std::greater<>{}, &Row::expected);
  const Ledger ledger = this->ledger(sequences, load);
  Ledger full = ledger;
  for (const Row& row : all) {
    Entry& entry = full.entries[row.sequence];
    if (room(entry, full) <= 0) continue;
    ++entry.rows;
    rows.push_back(row);
  }
  if (prices() && !rows.empty()) {
    int n = n_that_pay(ledger, rows, ledger.ms_price);
    if (n > 0) {
      row_trial_.n_since = 0;
    } else if (++row_trial_.n_since >= row_trial_.gap) {
      // The times of rows that are never checked stay as they were last estimated, be it wrongly: a
      // few rows are checked now and then as if they were free.
      n = n_that_pay(ledger, std::span(rows).first(std::min(rows.size(), kProbeRows)), 0);
      row_trial_.tried();
    }
    rows.resize(n);
  }
  for (int i = 0; i < std::ssize(sequences); ++i) {
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
  const RiderGain& gain = learned_.drafters[drafter].riders;
  Ledger ledger = this->ledger(sequences, load);
  for (Entry& entry : ledger.entries)
    entry.rows = entry.planned->tree->size() - 1 + entry.planned->n_riders;
  std::vector<int> riders;
  for (int i = 0; i < std::ssize(sequences); ++i) {
    Entry& entry = ledger.entries[i];
    int n = std::clamp(room(entry, ledger), 0, asked.riders_max());
    if (prices()) {
      std::vector<Row> rows;
      for (int k = 0; k < n; ++k)
        rows.push_back({i, /*node=*/-1, gain.expected(k + 1) - gain.expected(k)});
      n = n_that_pay(ledger, rows, ledger.ms_price);
    }
    entry.rows += n;
    riders.push_back(n);
  }
  return riders;
}

void Planner::observe(std::span<const DraftOutcome> outcomes, const PassLoad& load,
                      double forward_ms) {
  if (!options_.automatic) return;
  if (prices()) count(outcomes, load);  // with the estimates that the step was planned with
  int n_rows = 0;
  for (const DraftOutcome& outcome : outcomes) {
    n_rows += rows_of(outcome);
    Sequence& sequence = sequences_.at(outcome.sequence);
    calibration_.observe(sequence.belief, *outcome.drafted, outcome.taken);
    for (int drafter = 0; drafter < std::ssize(rides_); ++drafter) {
      if (rides_[drafter])
        learned_.drafters[drafter].riders.observe(
            outcome.riders.empty() ? 0 : outcome.riders[drafter], n_alone(outcome, drafter));
      // What a probe has to prefill is computed by now: while it is right, the next step goes on.
      Trial& trial = sequence.trials[drafter];
      if (trial.gap > 0 && !outcome.taken.empty() &&
          outcome.drafted->guesses(drafter, outcome.taken[0]))
        trial = {.gap = kGapMin, .n_since = kGapMin - 1};
    }
  }
  curve_.refine(StepCosts::work(load, n_rows), forward_ms);
  n_vetoes_ += std::exchange(is_vetoed_, false);
  if (load.prompt_rows > 0) return;
  ++plain_trial_.n_since;
  if (n_rows > 0) return;
  plain_trial_.tried();
  n_plain_due_ = std::max(0, n_plain_due_ - 1);
}

// What a step's drafts took and brought, for the guard and for what time costs from now on.
void Planner::count(std::span<const DraftOutcome> outcomes, const PassLoad& load) {
  Ledger ledger{load, StepCosts(curve_, load)};
  for (const DraftOutcome& outcome : outcomes)
    ledger.entries.push_back({&sequences_.at(outcome.sequence), rows_of(outcome)});
  std::vector<Guard::Share> shares = ledger.shares();
  double passes = 1;  // that the step took; a prefill is sunk
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    Sequence& sequence = *ledger.entries[i].sequence;
    shares[i].n_tokens = static_cast<int>(outcomes[i].taken.size());
    passes += shares[i].passes - sequence.prefill;
    sequence.drafting = sequence.prefill = 0;
  }
  guard_.count(shares, load.sequences);
  double speeds = 0;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    Sequence& sequence = *ledger.entries[i].sequence;
    sequence.tokens = kRecent * sequence.tokens + shares[i].n_tokens;
    sequence.passes = kRecent * sequence.passes + passes;
    speeds += sequence.speed();
  }
  if (!outcomes.empty()) learned_.speed = speeds / static_cast<double>(outcomes.size());
}

}  // namespace outrider

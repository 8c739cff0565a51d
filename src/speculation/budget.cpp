#include "speculation/budget.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "base/error.h"

namespace outrider {
namespace {

constexpr int kWhole = std::numeric_limits<int>::max();  // as n_context

constexpr double kNextToNoTime = 0.005;  // as a share of a pass
constexpr double kRowMin = 0.02;  // what a row is assumed to cost at least, as a share of a pass
constexpr double kRecent = 31.0 / 32;  // what a step leaves of the weight of those before it
constexpr double kStepsAtFirst = 2;    // plain ones with which a text's speed begins

// The account. A text may invest this share of the time that reading its prompt and answering with
// up to kAnswerExpected tokens take without drafts, and a smaller share of each token that it gets.
constexpr double kShareAtFirst = 0.02, kShareOfTokens = 0.006;
constexpr int kAnswerExpected = 128;
// Many answers are short: of that share, rows and reading get what an answer twice as long as now
// may invest, or one of so many tokens.
constexpr int kAnswerMin = 24;
// What nodes count meanwhile, as long as drafts have not saved more than they cost.
constexpr double kDoubt = 0.5;
// What rows leave of the account where a drafter is to be tried again.
constexpr double kReserve = 0.4;

// The first steps are plain. Later ones come after 16, 32, ... steps with drafts, at last this
// many, times the speed.
constexpr int kPlainAtFirst = 2;
constexpr int kDraftsBetweenPlain = 64;

constexpr int kGapMin = 16, kGapMax = 64;  // steps between trials
constexpr double kTrialShare = 1.5;  // passes for which a trial reads all that it lacks of a text
constexpr int kTrialContext = 16;    // tokens of its end that it reads otherwise
// Who reads all of a text keeps enough for so many drafts, of which the first may be wrong.
constexpr int kDraftsAfterReading = 3;
constexpr int kProbe = 3;  // nodes

constexpr int kGainsOfText = 16;  // steps over which the mean of what asking would gain is taken
// Times over which means of what asking brought are taken, in a text and over all; what is usual
// counts in a text like so many.
constexpr double kYieldOfText = 8, kYieldUsual = 64, kUsualWeight = 1;
constexpr int kAnswerLeftMin = 48;  // tokens by which an answer is assumed to go on at least

// Whether one of the drafter's proposals for node 0 is this token.
bool guessed(const DraftTree& tree, int drafter, Token token) {
  const std::optional<int> child = tree.child(0, token);
  return child && std::ranges::count(tree[*child].proposals, drafter, &Proposal::drafter) > 0;
}

}  // namespace

// What a trial has to read, it has read: while it is right, the next step goes on, and its first
// mistake is followed by a short pause.
void TextBudget::OfDrafter::go_on_with_trial() {
  if (gap == 0) return;
  gap = kGapMin / 2;  // the next trial doubles it
  steps_left = 1;
}

Budget::Budget(BudgetOptions options, int n_drafters)
    : options_(options), calibration_(n_drafters), yields_(n_drafters), costs_(n_drafters) {}

TextBudget Budget::begin_text(int n_read, std::optional<int> n_left) const {
  TextBudget text;
  text.acceptance_ = calibration_.begin_text();
  text.drafters_.resize(costs_.size());
  double prompt_passes = 0;
  if (decides() && n_read > 0)
    prompt_passes = curve_.ms({.rows = n_read, .without_logits = n_read - 1}) / curve_.ms(1);
  text.n_expected_ = std::min(n_left.value_or(kAnswerExpected), kAnswerExpected);
  text.allowance_ = kShareAtFirst * (prompt_passes + text.n_expected_);
  return text;
}

Learned Budget::learned() const {
  Learned learned{.passes = curve_.points(),
                  .logits_ms = curve_.logits_ms(),
                  .attention_ms = curve_.attention_ms(),
                  .drafters = {}};
  for (std::size_t drafter = 0; drafter < yields_.size(); ++drafter)
    learned.drafters.push_back(
        {.passes = {}, .acceptance = calibration_.of_drafter(drafter), .yield = yields_[drafter]});
  return learned;
}

void Budget::restore(const Learned& learned) {
  CHECK(learned.drafters.size() == yields_.size());
  curve_.restore(learned.passes, learned.logits_ms, learned.attention_ms);
  for (std::size_t drafter = 0; drafter < yields_.size(); ++drafter) {
    calibration_.restore(drafter, learned.drafters[drafter].acceptance);
    yields_[drafter] = learned.drafters[drafter].yield;
  }
}

bool Budget::plain_step_is_due() const {
  if (!decides()) return false;
  if (n_plain_ < kPlainAtFirst) return true;
  const double n_between =
      std::min<double>(kDraftsBetweenPlain, std::exp2(n_plain_ - kPlainAtFirst + 4));
  return n_since_plain_ >= n_between * speed_;
}

double Budget::speed(const TextBudget& text) const {
  return std::max(1.0, (text.tokens_ + kStepsAtFirst) / (text.passes_ + kStepsAtFirst));
}

// What all texts would get from another millisecond; those that read their prompts, or wait to,
// count as if they decoded without drafts.
double Budget::tokens_per_ms(std::span<const DraftTurn> turns, const PassLoad& load) const {
  double sum = static_cast<double>(load.texts) - static_cast<double>(turns.size());
  for (const DraftTurn& turn : turns) sum += speed(*turn.budget);
  return sum / pass_ms(load);
}

PassWork Budget::work(const PassLoad& load, int n_nodes) {
  return {.rows = load.rows + n_nodes,
          .without_logits = load.prompt_rows,
          .attended = load.attended + n_nodes * load.node_attended};
}

double Budget::pass_ms(const PassLoad& load, int n_nodes) const {
  return curve_.ms(work(load, n_nodes));
}

// What n more rows take.
double Budget::added_ms(const PassLoad& load, int n) const {
  if (n == 0) return 0;
  const double plain_ms = pass_ms(load);
  return std::max(pass_ms(load, n) - plain_ms, kRowMin * n * plain_ms);
}

std::vector<double> Budget::row_prices(const PassLoad& load, int n_max,
                                       double tokens_per_ms) const {
  std::vector<double> prices{0};
  for (int n = 1; n <= n_max; ++n)
    prices.push_back(std::max(prices.back(), tokens_per_ms * added_ms(load, n)));
  return prices;
}

// The probability of each node that it is accepted, [tree.size()]. Fixed: as drafters state it, so
// that no text depends on an earlier one.
std::vector<double> Budget::values(const DraftTurn& turn) const {
  std::vector<double> values(turn.tree->size(), 1);
  if (options_.automatic) {
    values = calibration_.acceptances(turn.budget->acceptance_, *turn.tree);
  } else {
    for (int node = 1; node < turn.tree->size(); ++node) {
      const auto& proposals = (*turn.tree)[node].proposals;
      values[node] = std::ranges::max(proposals, {}, &Proposal::confidence).confidence;
    }
  }
  for (int node = 1; node < turn.tree->size(); ++node)
    values[node] *= values[(*turn.tree)[node].parent];
  return values;
}

std::vector<Budget::Ask> Budget::ask(int drafter, const Drafter& asked,
                                     std::span<const DraftTurn> turns, const PassLoad& load) {
  std::vector<Ask> asks(turns.size());
  if (turns.empty() || options_.rows == 0 || options_.depth == 0 || options_.width == 0)
    return asks;
  long length = 0;
  for (const DraftTurn& turn : turns) length += turn.length;
  const int n_turns = static_cast<int>(turns.size());
  DraftCost& cost = costs_[drafter];
  cost = asked.cost(n_turns, static_cast<int>(length / n_turns));
  // A text's share.
  cost.fixed_ms /= n_turns;
  cost.per_depth_ms /= n_turns;

  const double price = decides() ? tokens_per_ms(turns, load) : 0;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const DraftTurn& turn = turns[i];
    TextBudget::OfDrafter& state = turn.budget->drafters_[drafter];
    if (turn.depth_max <= 0) continue;
    asks[i] = {.limits = DraftLimits{std::min(options_.rows, turn.rows_max), options_.depth,
                                     options_.width},
               .n_context = kWhole,
               .worth = {.calibration = options_.automatic ? &calibration_ : nullptr,
                         .text = &turn.budget->acceptance_,
                         .drafter = drafter,
                         .row_prices = {}}};
    if (decides()) decide(asks[i], asked, turn, load, cost, price);
    if (asks[i].limits) asks[i].limits->depth = std::min(asks[i].limits->depth, turn.depth_max);
    state.was_asked = asks[i].limits.has_value();
  }
  return asks;
}

// A drafter that takes time may be asked for a text whose tree may hold other proposals already.
struct Budget::Occasion {
  const DraftTurn& turn;
  int drafter;
  const Drafter& asked;
  const DraftCost& cost;
  const std::vector<double>& row_prices;
  double first;             // the probability that the best first guess of the tree is accepted
  BestGain without;         // of the tree
  double plain_ms;          // of the pass without drafts
  double tokens_per_ms;     // what time costs
  double passes_per_ms;     // of this text
  double kept_back, funds;  // in passes

  TextBudget::OfDrafter& state() const { return turn.budget->drafters_[drafter]; }

  Reading reading(int n_context) const {
    return {n_context, asked.unread(turn.sequence, n_context) * cost.per_unread_ms};
  }
  bool can_afford(const Reading& reading) const {
    const double drafts = reading.n_context == kWhole && reading.ms > 0 ? kDraftsAfterReading : 1;
    return (drafts * cost.fixed_ms + reading.ms) * passes_per_ms <=
           funds - (reading.ms > 0 ? kept_back : 0);
  }
  // In tokens, of a draft of this depth that is expected to bring so many: in place of the others,
  // or where their first guess is wrong.
  double gain(double tokens, int depth) const {
    const int n_both = std::min(without.n + depth, static_cast<int>(row_prices.size()) - 1);
    return std::max(tokens - row_prices[depth] - without.gain,
                    (1 - first) * tokens - (row_prices[n_both] - row_prices[without.n])) -
           tokens_per_ms * cost.ms(depth);
  }
};

void Budget::decide(Ask& ask, const Drafter& asked, const DraftTurn& turn, const PassLoad& load,
                    const DraftCost& cost, double tokens_per_ms) {
  const int drafter = ask.worth.drafter;
  const double plain_ms = pass_ms(load);
  const int n_max = std::min(ask.limits->nodes, load.rows_max - load.rows);
  ask.worth.row_prices = row_prices(load, n_max, tokens_per_ms);
  ask.worth.level_price = tokens_per_ms * cost.per_depth_ms;
  if (cost.fixed_ms <= kNextToNoTime * plain_ms) return;

  std::vector<double> values = this->values(turn);
  values.erase(values.begin());
  std::ranges::sort(values, std::greater<>{});
  const double passes_per_ms = static_cast<double>(load.texts) / plain_ms;
  const Occasion occasion{
      .turn = turn,
      .drafter = drafter,
      .asked = asked,
      .cost = cost,
      .row_prices = ask.worth.row_prices,
      .first = values.empty() ? 0 : values[0],
      .without = best_gain(values, ask.worth.row_prices),
      .plain_ms = plain_ms,
      .tokens_per_ms = tokens_per_ms,
      .passes_per_ms = passes_per_ms,
      .kept_back = kept_back(turn),
      .funds = funds(*turn.budget, plain_ms) - added_ms(load, kProbe) * passes_per_ms};

  TextBudget::OfDrafter& state = occasion.state();
  std::optional<Reading> reading = reading_that_pays(occasion);
  if (reading) {
    state.gap = 0;
    const double left = occasion.funds - (cost.fixed_ms + reading->ms) * passes_per_ms;
    const double levels = left / std::max(1e-9, cost.per_depth_ms * passes_per_ms);
    ask.limits->depth = 1 + static_cast<int>(std::min<double>(options_.depth - 1, levels));
  } else {
    reading = trial(occasion);
    ask.limits->depth = 1;
  }
  if (!reading) {
    ask.limits.reset();
    return;
  }
  ask.n_context = reading->n_context;
  state.reading_ms = reading->ms;
  turn.budget->acceptance_.handicaps[drafter] =
      Calibration::handicap(asked.n_known(turn.sequence, reading->n_context));
}

// Reading all that it lacks is an investment, which the rest of the answer has to bring in. Or it
// is asked with what it knows.
std::optional<Budget::Reading> Budget::reading_that_pays(const Occasion& occasion) {
  const DraftTurn& turn = occasion.turn;
  TextBudget::OfDrafter& state = occasion.state();
  const Prospect knowing_all = prospect(occasion, 0);
  state.n_gains = std::min(state.n_gains + 1, kGainsOfText);
  state.gain += (std::max(0.0, knowing_all.gain) - state.gain) / state.n_gains;

  const Reading some = occasion.reading(kTrialContext);
  double gain_as_it_is = 0;
  if (some.ms == 0) {
    const int n_known = occasion.asked.n_known(turn.sequence, kTrialContext);
    gain_as_it_is = std::max(0.0, prospect(occasion, Calibration::handicap(n_known)).gain);
  }
  const int n_expected = std::max(turn.n_answered, kAnswerLeftMin);
  const double n_steps =
      std::min(n_expected, turn.n_left.value_or(n_expected)) / (1 + knowing_all.tokens);
  const Reading all = occasion.reading(kWhole);
  if (knowing_all.gain > 0 &&
      n_steps * (state.gain - gain_as_it_is) > occasion.tokens_per_ms * all.ms &&
      occasion.can_afford(all))
    return all;
  if (gain_as_it_is > 0 && occasion.can_afford(some)) return some;
  return std::nullopt;
}

// It is not right often enough, as far as is known, or has too much to read. If a trial is due:
// with all of the text if little is missing, else with its end.
std::optional<Budget::Reading> Budget::trial(const Occasion& occasion) const {
  TextBudget::OfDrafter& state = occasion.state();
  if (state.gap == 0) state.gap = state.steps_left = kGapMin;
  if (--state.steps_left > 0 || occasion.gain(1, 1) <= 0) return std::nullopt;
  Reading reading = occasion.reading(kWhole);
  if (reading.ms * occasion.passes_per_ms > kTrialShare) reading = occasion.reading(kTrialContext);
  // While some of the account is kept back, a trial waits for it instead of reading less.
  if (occasion.kept_back == 0 &&
      (occasion.cost.fixed_ms + reading.ms) * occasion.passes_per_ms > occasion.funds / 2)
    reading = occasion.reading(kTrialContext / 2);
  if (!occasion.can_afford(reading)) return std::nullopt;
  state.gap = std::min(2 * state.gap, kGapMax);
  state.steps_left = state.gap;
  return reading;
}

// Of the depth at which it is best.
Budget::Prospect Budget::prospect(const Occasion& occasion, double handicap) const {
  const TextBudget& text = *occasion.turn.budget;
  Prospect best;
  double tokens = 0, path = 1, tokens_now = 0, path_now = 1;
  for (int depth = 1;
       depth <= options_.depth && depth < static_cast<int>(occasion.row_prices.size()); ++depth) {
    const auto level = [&](double with) {
      return calibration_.level(text.acceptance_, occasion.drafter, depth, with);
    };
    tokens += path *= level(handicap);
    tokens_now += path_now *= level(text.acceptance_.handicaps[occasion.drafter]);
    if (const double gain = occasion.gain(tokens, depth); gain > best.gain) best = {gain, tokens};
  }
  // What it has brought shows what stopping early where it is unsure is worth.
  if (const Yield yield = expected_yield(text, occasion.drafter); yield.weight > 0) {
    const double brought = yield.tokens * tokens / tokens_now;
    const double price = occasion.tokens_per_ms * occasion.plain_ms * yield.passes;
    const double gain = (1 - occasion.first) * brought - price;
    if (gain > best.gain) best = {gain, brought};
  }
  return best;
}

void Budget::learn(int drafter, TextBudget& text, std::span<const Rehearsed> rehearsed) {
  for (const Rehearsed& guess : rehearsed)
    calibration_.observe(text.acceptance_, {drafter, guess.confidence}, guess.was_right,
                         Calibration::handicap(guess.n_known));
  if (2 * std::ranges::count_if(rehearsed, &Rehearsed::was_right) > std::ssize(rehearsed))
    text.drafters_[drafter].go_on_with_trial();
}

void Budget::plan(std::span<const DraftTurn> turns, const PassLoad& load) {
  struct Ranked {
    int turn, node;
    double value;
  };
  std::vector<Ranked> all;
  for (int turn = 0; turn < static_cast<int>(turns.size()); ++turn) {
    const std::vector<double> values = this->values(turns[turn]);
    const bool is_unproven =
        decides() && kept_back(turns[turn]) > 0 && earned(*turns[turn].budget, pass_ms(load)) <= 0;
    const double doubt = is_unproven ? kDoubt : 1;
    for (int node = 1; node < static_cast<int>(values.size()); ++node)
      all.push_back({turn, node, doubt * values[node]});
  }
  // A parent's value is at least its child's, and its number is lower, so a stable sort puts it
  // first.
  std::ranges::stable_sort(all, std::greater<>{}, &Ranked::value);

  const std::size_t n_max = std::max(0, load.rows_max - load.rows);
  std::vector<int> room;
  for (const DraftTurn& turn : turns) room.push_back(std::min(options_.rows, turn.rows_max));
  const bool probes = decides() && !all.empty() && probe_is_due();
  if (decides())
    for (std::size_t i = 0; i < turns.size(); ++i) {
      charge_drafting(turns[i]);
      room[i] = std::min(room[i], affordable_nodes(turns[i], load, probes));
    }
  std::vector<Ranked> kept;
  std::vector<double> values;
  for (const Ranked& node : all)
    if (kept.size() < n_max && room[node.turn]-- > 0) {
      kept.push_back(node);
      values.push_back(node.value);
    }
  if (decides()) {
    const int n = static_cast<int>(kept.size());
    const int n_best = best_gain(values, row_prices(load, n, tokens_per_ms(turns, load))).n;
    if (n_best > 0) n_since_probe_ = 0;
    kept.resize(probes && n_best == 0 ? std::min(n, kProbe) : n_best);
  }

  std::vector<std::vector<bool>> keep;
  for (const DraftTurn& turn : turns) {
    keep.emplace_back(turn.tree->size(), false);
    keep.back()[0] = true;
  }
  for (const Ranked& ranked : kept) keep[ranked.turn][ranked.node] = true;
  for (std::size_t i = 0; i < turns.size(); ++i) turns[i].tree->keep(keep[i]);
}

// The times of rows that are never checked stay as they were last estimated, be it wrongly. So a
// few rows are checked now and then even where they do not seem to pay.
bool Budget::probe_is_due() {
  if (++n_since_probe_ < probe_gap_) return false;
  n_since_probe_ = 0;
  probe_gap_ = std::min(2 * probe_gap_, kGapMax);
  return true;
}

// What drafting for this text has cost in this step.
void Budget::charge_drafting(const DraftTurn& turn) {
  TextBudget& text = *turn.budget;
  text.draft_ms_ = text.reading_ms_ = 0;
  for (int drafter = 0; drafter < static_cast<int>(costs_.size()); ++drafter) {
    TextBudget::OfDrafter& state = text.drafters_[drafter];
    text.reading_ms_ += std::exchange(state.reading_ms, 0);
    if (!std::exchange(state.was_asked, false)) continue;
    int depth = 0;
    for (int node = 1; node < turn.tree->size(); ++node)
      for (const Proposal& proposal : (*turn.tree)[node].proposals)
        if (proposal.drafter == drafter) depth = std::max(depth, (*turn.tree)[node].depth);
    state.draft_ms = costs_[drafter].ms(depth);
    text.draft_ms_ += state.draft_ms;
  }
}

// A text begins with what is usual, which counts like one time.
Yield Budget::expected_yield(const TextBudget& text, int drafter) const {
  const Yield& usual = yields_[drafter];
  Yield yield = text.drafters_[drafter].yield;
  if (usual.weight == 0) return yield;
  const double n = yield.weight + kUsualWeight;
  yield.tokens = (yield.weight * yield.tokens + kUsualWeight * usual.tokens) / n;
  yield.passes = (yield.weight * yield.passes + kUsualWeight * usual.passes) / n;
  yield.weight = n;
  return yield;
}

void Budget::learn_yields(const DraftOutcome& outcome, double plain_ms, double row_ms) {
  TextBudget& text = *outcome.budget;
  const DraftTree& checked = *outcome.checked;
  for (int drafter = 0; drafter < static_cast<int>(yields_.size()); ++drafter) {
    TextBudget::OfDrafter& state = text.drafters_[drafter];
    const double draft_ms = std::exchange(state.draft_ms, 0);
    if (draft_ms == 0) continue;
    if (!outcome.taken.empty() && guessed(*outcome.drafted, drafter, outcome.taken[0]))
      state.go_on_with_trial();
    int n_rows = 0, n_accepted = 0;
    for (int node = 1; node < checked.size(); ++node)
      n_rows += checked[node].proposals[0].drafter == drafter;
    std::optional<int> node = 0;
    for (const Token token : outcome.taken) {
      node = checked.child(*node, token);
      if (!node) break;
      n_accepted += checked[*node].proposals[0].drafter == drafter;
    }
    const double passes = (draft_ms + n_rows * row_ms) / plain_ms;
    for (auto [yield, most] :
         {std::pair{&state.yield, kYieldOfText}, std::pair{&yields_[drafter], kYieldUsual}}) {
      yield->weight = std::min(yield->weight + 1, most);
      yield->tokens += (n_accepted - yield->tokens) / yield->weight;
      yield->passes += (passes - yield->passes) / yield->weight;
    }
  }
}

// What of the account has to wait, because only a much longer answer would bring it.
double Budget::kept_back(const DraftTurn& turn) {
  const int n_counted = turn.n_answered + turn.budget->n_expected_;
  return kShareAtFirst * std::max(0, n_counted - std::max(kAnswerMin, 2 * turn.n_answered));
}

// The most nodes of a text whose rows its account can pay.
int Budget::affordable_nodes(const DraftTurn& turn, const PassLoad& load, bool probes) const {
  const double plain_ms = pass_ms(load);
  const double price_of_ms = static_cast<double>(load.texts) / plain_ms;
  const double funds = this->funds(*turn.budget, plain_ms) -
                       (turn.budget->draft_ms_ + turn.budget->reading_ms_) * price_of_ms;
  // What has been drafted at a price is checked if anything is left.
  const bool paid = turn.budget->draft_ms_ > kNextToNoTime * plain_ms;
  const bool tries =
      std::ranges::any_of(turn.budget->drafters_, [](const auto& state) { return state.gap > 0; });
  const double most =
      probes || paid ? funds : funds - std::max(kept_back(turn), tries ? kReserve : 0);
  int n = 0;
  while (n < options_.rows && added_ms(load, n + 1) * price_of_ms <= most) ++n;
  return n;
}

void Budget::observe(std::span<const DraftOutcome> outcomes, const PassLoad& load,
                     double forward_ms) {
  int n_nodes = 0;
  double draft_ms = 0;
  for (const DraftOutcome& outcome : outcomes) {
    calibration_.observe(outcome.budget->acceptance_, *outcome.drafted, outcome.taken);
    n_nodes += outcome.checked->size() - 1;
    draft_ms += outcome.budget->draft_ms_;
  }
  if (!options_.automatic) return;
  curve_.refine(work(load, n_nodes), forward_ms);
  if (load.prompt_rows == 0) {
    n_since_plain_ = n_nodes == 0 ? 0 : n_since_plain_ + 1;
    if (n_nodes == 0) n_plain_ = std::min(n_plain_ + 1, kDraftsBetweenPlain);
  }
  if (outcomes.empty() || curve_.empty()) return;

  const double plain_ms = pass_ms(load);
  const double added = added_ms(load, n_nodes);
  double speeds = 0;
  for (const DraftOutcome& outcome : outcomes) {
    TextBudget& text = *outcome.budget;
    const double n_taken = static_cast<double>(outcome.taken.size());
    const int n_own = outcome.checked->size() - 1;
    const double own_ms = text.draft_ms_ + (n_own > 0 ? added * n_own / n_nodes : 0);
    learn_yields(outcome, plain_ms, n_nodes > 0 ? added / n_nodes : 0);
    text.saved_ += n_taken - 1;
    text.spent_ms_ += (own_ms + text.reading_ms_) * load.texts;
    text.n_expected_ = std::max(0, text.n_expected_ - static_cast<int>(outcome.taken.size()));
    text.allowance_ += kShareOfTokens * n_taken;
    text.tokens_ = kRecent * text.tokens_ + n_taken;
    text.passes_ = kRecent * text.passes_ + 1 + (added + draft_ms) / plain_ms;
    text.draft_ms_ = text.reading_ms_ = 0;
    speeds += speed(text);
  }
  speed_ = speeds / static_cast<double>(outcomes.size());
}

}  // namespace outrider

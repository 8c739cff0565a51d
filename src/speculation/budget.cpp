#include "speculation/budget.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
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
// Besides its allowance, a text may fall behind by this share of its tokens for the drafts of
// others.
constexpr double kShareForOthers = 0.025;
// What rows leave of the account where a drafter is to be tried again.
constexpr double kReserve = 0.4;
// Many texts learn from each other, so trials take less of what each may invest.
constexpr double kReserveOfMany = 0.5;

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
  const double price = decides() ? tokens_per_ms(turns, load) : 0;
  const int rows_left = std::max(0, load.rows_max - load.rows);
  std::vector<double> prices;
  if (decides()) prices = row_prices(load, std::min(options_.rows, rows_left), price);
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const DraftTurn& turn = turns[i];
    const int n_max = std::min(options_.rows, turn.rows_max);
    if (turn.depth_max <= 0 || n_max <= 0) continue;
    asks[i] = {
        .limits = DraftLimits{n_max, std::min(options_.depth, turn.depth_max), options_.width},
        .n_context = kWhole,
        .worth = {.calibration = options_.automatic ? &calibration_ : nullptr,
                  .text = &turn.budget->acceptance_,
                  .drafter = drafter,
                  .row_prices = prices,
                  .ms_price = price}};
    if (decides()) asks[i].worth.row_prices.resize(std::min(n_max, rows_left) + 1);
  }
  if (decides()) decide(asks, asked, turns, load);

  int n_asked = 0;
  long length = 0;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    turns[i].budget->drafters_[drafter].was_asked = asks[i].limits.has_value();
    if (!asks[i].limits) continue;
    ++n_asked;
    length += turns[i].length;
  }
  if (n_asked > 0) costs_[drafter] = asked.cost(n_asked, static_cast<int>(length / n_asked));
  return asks;
}

// A drafter that takes time may be asked for a text whose tree may hold other proposals already.
struct Budget::Occasion {
  const DraftTurn& turn;
  Ask& ask;
  const Drafter& asked;
  Purse own = {};         // of the text alone, whose account invests in reading and trials
  double first = 0;       // the probability that the best first guess of the tree is accepted
  BestGain without = {};  // of the tree
  std::vector<Prospect> knowing_all = {};  // [levels + 1] if it reads the whole text
  // Of the levels that are best for all: what it gains, and less its share of their time.
  Prospect prospect = {};
  double net = 0;
  bool is_granted = false;

  TextBudget::OfDrafter& state() const { return turn.budget->drafters_[ask.worth.drafter]; }
  int unread(int n_context) const { return asked.unread(turn.sequence, n_context); }
  // With at most so many levels.
  static const Prospect& at(const std::vector<Prospect>& prospects, int levels) {
    return prospects[std::min(levels, static_cast<int>(prospects.size()) - 1)];
  }

  // In tokens, of a draft of this depth that is expected to bring so many: in place of the others,
  // or where their first guess is wrong.
  double gain(double tokens, double depth) const {
    return std::max(tokens - price(depth) - without.gain,
                    (1 - first) * tokens - (price(without.n + depth) - price(without.n)));
  }
  // Of rows, which may be a mean number of them.
  double price(double n_rows) const {
    const std::vector<double>& prices = ask.worth.row_prices;
    const double n = std::min(n_rows, static_cast<double>(prices.size()) - 1);
    const auto whole = static_cast<std::size_t>(n);
    const double part = n - static_cast<double>(whole);
    return prices[whole] + (part > 0 ? part * (prices[whole + 1] - prices[whole]) : 0);
  }
};

// The texts that a drafter is asked about together.
struct Budget::Round {
  std::vector<DraftCost> costs;  // [texts + 1]
  double ms_price;               // in tokens
  double passes_per_ms;          // of all texts that wait
  Purse purse;
  int levels = 1;  // that are best for all
  int n_granted = 0;
  double reading_ms = 0;  // of those

  // Whether so many more texts may be asked about, which read for so long.
  bool can_afford(double ms, double n_drafts, int n_more = 1) const {
    const double fixed_ms = n_drafts * costs[n_granted + n_more].fixed_ms;
    return fixed_ms + reading_ms + ms <= purse.ms - (ms > 0 ? purse.kept_back_ms : 0);
  }
  // Whether its own account has a share of so many drafts, and the time of reading.
  bool can_invest(const Occasion& occasion, double ms, double n_drafts, int n_more) const {
    const int n = n_granted + n_more;
    return n_drafts * costs[n].fixed_ms / n + ms <=
           occasion.own.ms - (ms > 0 ? occasion.own.kept_back_ms : 0);
  }
  // Whether the others have the patience for it.
  bool can_wait() const { return costs[n_granted + 1].fixed_ms <= purse.patience_ms; }
  void grant(Occasion& occasion, int n_context, double ms) {
    occasion.is_granted = true;
    occasion.ask.n_context = n_context;
    occasion.state().reading_ms = ms;
    occasion.turn.budget->acceptance_.handicaps[occasion.ask.worth.drafter] =
        Calibration::handicap(occasion.asked.n_known(occasion.turn.sequence, n_context));
    ++n_granted;
    reading_ms += ms;
  }
};

void Budget::decide(std::vector<Ask>& asks, const Drafter& asked, std::span<const DraftTurn> turns,
                    const PassLoad& load) {
  std::vector<Occasion> occasions;
  long length = 0;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    if (!asks[i].limits) continue;
    length += turns[i].length;
    occasions.push_back({.turn = turns[i], .ask = asks[i], .asked = asked});
  }
  if (occasions.empty()) return;
  const int n = static_cast<int>(occasions.size());
  Round round{
      .costs = {{}}, .ms_price = occasions[0].ask.worth.ms_price, .passes_per_ms = 0, .purse = {}};
  for (int i = 1; i <= n; ++i) round.costs.push_back(asked.cost(i, static_cast<int>(length / n)));
  const double plain_ms = pass_ms(load);
  if (round.costs[n].fixed_ms <= kNextToNoTime * plain_ms) return;

  round.passes_per_ms = static_cast<double>(load.texts) / plain_ms;
  for (Occasion& occasion : occasions) {
    const double nothing_expected = 0;
    occasion.own = purse({&occasion.turn, 1}, load, {&nothing_expected, 1});
    std::vector<double> values = this->values(occasion.turn);
    values.erase(values.begin());
    std::ranges::sort(values, std::greater<>{});
    occasion.first = values.empty() ? 0 : values[0];
    occasion.without = best_gain(values, occasion.ask.worth.row_prices);
    occasion.knowing_all = prospects(occasion, 0);
  }
  share(occasions, round);
  std::vector<double> expected(turns.size());
  for (const Occasion& occasion : occasions)
    if (occasion.net > 0) expected[&occasion.turn - turns.data()] = occasion.prospect.tokens;
  round.purse = purse(turns, load, expected);
  round.purse.ms -= added_ms(load, kProbe);
  round.purse.patience_ms -= added_ms(load, kProbe);
  std::vector<Occasion*> order;
  for (Occasion& occasion : occasions) order.push_back(&occasion);
  std::ranges::stable_sort(order, std::greater<>{}, &Occasion::net);
  for (Occasion* occasion : order) grant_what_pays(*occasion, round);
  if (round.n_granted > 0) {
    const DraftCost& cost = round.costs[round.n_granted];
    const double left =
        std::min(round.purse.ms - round.reading_ms, round.purse.patience_ms) - cost.fixed_ms;
    const double levels = left / std::max(1e-9, cost.per_depth_ms);
    const int depth = 1 + static_cast<int>(std::min<double>(options_.depth - 1, levels));
    for (Occasion& occasion : occasions)
      if (occasion.is_granted)
        occasion.ask.limits->depth = std::min(occasion.ask.limits->depth, depth);
  }
  try_again(occasions, round);
  for (Occasion& occasion : occasions)
    if (!occasion.is_granted) occasion.ask.limits.reset();
}

// The levels at which the texts that draft together gain most, and what that leaves for each.
void Budget::share(std::vector<Occasion>& occasions, Round& round) const {
  double most = 0, least_gain = 0;
  double share_left = 0;  // of what a text gains, when the time is paid
  for (int levels = 1; levels <= options_.depth; ++levels) {
    std::vector<double> gains;
    for (const Occasion& occasion : occasions)
      gains.push_back(Occasion::at(occasion.knowing_all, levels).gain);
    std::ranges::sort(gains, std::greater<>{});
    const int n =
        n_that_share(gains, [&](int n) { return round.ms_price * round.costs[n].ms(levels); });
    if (n == 0) continue;
    const double sum = std::accumulate(gains.begin(), gains.begin() + n, 0.0);
    const double left = sum - round.ms_price * round.costs[n].ms(levels);
    if (left <= most) continue;
    most = left;
    least_gain = gains[n - 1];
    round.levels = levels;
    share_left = left / sum;
  }
  for (Occasion& occasion : occasions) {
    occasion.prospect = Occasion::at(occasion.knowing_all, round.levels);
    if (share_left > 0 && occasion.prospect.gain >= least_gain)
      occasion.net = share_left * occasion.prospect.gain;
  }
}

// Reading all that it lacks is an investment, which the rest of the answer has to bring in. Or it
// is asked with what it knows.
void Budget::grant_what_pays(Occasion& occasion, Round& round) const {
  const DraftTurn& turn = occasion.turn;
  TextBudget::OfDrafter& state = occasion.state();
  state.n_gains = std::min(state.n_gains + 1, kGainsOfText);
  state.gain += (occasion.net - state.gain) / state.n_gains;

  const double per_unread_ms = round.costs[round.n_granted + 1].per_unread_ms;
  double gain_as_it_is = 0;
  const bool has_to_read = occasion.unread(kTrialContext) > 0;
  if (!has_to_read && occasion.net > 0) {
    const int n_known = occasion.asked.n_known(turn.sequence, kTrialContext);
    const std::vector<Prospect> now = prospects(occasion, Calibration::handicap(n_known));
    const double gain = Occasion::at(now, round.levels).gain;
    gain_as_it_is = std::max(0.0, gain - (occasion.prospect.gain - occasion.net));
  }
  const int n_expected = std::max(turn.n_answered, kAnswerLeftMin);
  const double n_steps =
      std::min(n_expected, turn.n_left.value_or(n_expected)) / (1 + occasion.prospect.tokens);
  const double all_ms = occasion.unread(kWhole) * per_unread_ms;
  if (!round.can_wait()) return;
  if (occasion.net > 0 && n_steps * (state.gain - gain_as_it_is) > round.ms_price * all_ms &&
      round.can_afford(all_ms, all_ms > 0 ? kDraftsAfterReading : 1) &&
      (all_ms == 0 || round.can_invest(occasion, all_ms, kDraftsAfterReading, 1))) {
    round.grant(occasion, kWhole, all_ms);
  } else if (gain_as_it_is > 0 && round.can_afford(0, 1)) {
    round.grant(occasion, kTrialContext, 0);
  }
  if (occasion.is_granted) state.gap = 0;
}

// Where it is not right often enough, as far as is known, or has too much to read. Trials share
// their time, so with one that is due go those that have waited for half of theirs, and where no
// text drafts anyway they wait until all can be afforded.
void Budget::try_again(std::vector<Occasion>& occasions, Round& round) const {
  bool is_due = false;
  for (Occasion& occasion : occasions) {
    if (occasion.is_granted) continue;
    TextBudget::OfDrafter& state = occasion.state();
    if (state.gap == 0) state.gap = state.steps_left = kGapMin;
    is_due = --state.steps_left <= 0 || is_due;
  }
  if (!is_due) return;
  const double fixed_ms = round.costs.back().fixed_ms;  // of all together
  const double per_unread_ms = round.costs[1].per_unread_ms;
  const int n = static_cast<int>(round.costs.size()) - 1;
  struct Trial {
    Occasion* occasion;
    int n_context;
    double reading_ms;
  };
  std::vector<Trial> trials;
  double ms = 0;
  for (Occasion& occasion : occasions) {
    if (occasion.is_granted || 2 * occasion.state().steps_left > occasion.state().gap ||
        occasion.gain(1, 1) <= round.ms_price * fixed_ms / n)
      continue;
    // With all of the text if little is missing, else with its end. While some of the account is
    // kept back, a trial waits for it instead of reading less.
    Trial trial{&occasion, kWhole, occasion.unread(kWhole) * per_unread_ms};
    const auto read = [&](int n_context) {
      trial.n_context = n_context;
      trial.reading_ms = occasion.unread(n_context) * per_unread_ms;
    };
    if (trial.reading_ms * round.passes_per_ms > kTrialShare) read(kTrialContext);
    if (round.purse.kept_back_ms == 0 && fixed_ms + trial.reading_ms > round.purse.ms / 2)
      read(kTrialContext / 2);
    ms += trial.reading_ms;
    trials.push_back(trial);
  }
  if (round.n_granted == 0 &&
      !round.can_afford(ms + round.purse.reserve_ms, 1, static_cast<int>(trials.size())))
    return;
  int n_trials = static_cast<int>(trials.size());
  for (const auto& [occasion, n_context, reading_ms] : trials) {
    if (!round.can_afford(reading_ms, 1) || !round.can_invest(*occasion, reading_ms, 1, n_trials))
      continue;
    round.grant(*occasion, n_context, reading_ms);
    occasion->ask.limits->depth = 1;
    TextBudget::OfDrafter& state = occasion->state();
    state.gap = std::min(2 * state.gap, kGapMax);
    state.steps_left = state.gap;
    --n_trials;
  }
}

// [levels + 1] of drafts up to so many levels, as many as there are rows for.
std::vector<Budget::Prospect> Budget::prospects(const Occasion& occasion, double handicap) const {
  const TextBudget& text = *occasion.turn.budget;
  const int drafter = occasion.ask.worth.drafter;
  const auto n_rows = static_cast<int>(occasion.ask.worth.row_prices.size()) - 1;
  const int levels_max = std::min(occasion.ask.limits->depth, n_rows);
  std::vector<Prospect> best(1);
  double tokens = 0, path = 1, tokens_now = 0, path_now = 1;
  for (int depth = 1; depth <= levels_max; ++depth) {
    const auto level = [&](double with) {
      return calibration_.level(text.acceptance_, drafter, depth, with);
    };
    tokens += path *= level(handicap);
    tokens_now += path_now *= level(text.acceptance_.handicaps[drafter]);
    const double gain = occasion.gain(tokens, depth);
    best.push_back(gain > best.back().gain ? Prospect{gain, tokens} : best.back());
  }
  // What it has brought shows what stopping early where it is unsure is worth.
  if (const Yield yield = expected_yield(text, drafter); yield.weight > 0 && levels_max > 0) {
    const double brought = yield.tokens * tokens / tokens_now;
    const double gain = (1 - occasion.first) * brought - occasion.price(yield.rows);
    for (int levels = std::max(1, static_cast<int>(std::lround(yield.levels)));
         levels <= levels_max; ++levels)
      if (gain > best[levels].gain) best[levels] = {gain, brought};
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
  std::vector<double> expected;  // [turns] tokens, if all nodes are checked
  for (int turn = 0; turn < static_cast<int>(turns.size()); ++turn) {
    const std::vector<double> values = this->values(turns[turn]);
    const bool is_unproven =
        decides() && kept_back(turns[turn]) > 0 && earned(*turns[turn].budget) <= 0;
    const double doubt = is_unproven ? kDoubt : 1;
    expected.push_back(std::accumulate(values.begin() + 1, values.end(), 0.0));
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
  std::size_t n_affordable = n_max;
  if (decides()) {
    count_drafting(turns);
    n_affordable = std::min<std::size_t>(n_max, affordable_nodes(turns, load, expected, probes));
  }
  std::vector<Ranked> kept;
  std::vector<double> values;
  for (const Ranked& node : all)
    if (kept.size() < n_affordable && room[node.turn]-- > 0) {
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

// What drafting has cost in this step.
void Budget::count_drafting(std::span<const DraftTurn> turns) {
  draft_ms_ = reading_ms_ = 0;
  for (const DraftTurn& turn : turns) turn.budget->own_ms_ = 0;
  for (int drafter = 0; drafter < static_cast<int>(costs_.size()); ++drafter) {
    int deepest = 0;
    std::vector<TextBudget*> asked;
    for (const DraftTurn& turn : turns) {
      TextBudget::OfDrafter& state = turn.budget->drafters_[drafter];
      const double reading_ms = std::exchange(state.reading_ms, 0);
      turn.budget->own_ms_ += reading_ms;
      reading_ms_ += reading_ms;
      state.levels = 0;
      if (!std::exchange(state.was_asked, false)) continue;
      asked.push_back(turn.budget);
      for (int node = 1; node < turn.tree->size(); ++node)
        for (const Proposal& proposal : (*turn.tree)[node].proposals)
          if (proposal.drafter == drafter)
            state.levels = std::max(state.levels, (*turn.tree)[node].depth);
      deepest = std::max(deepest, state.levels);
      state.levels = costs_[drafter].fixed_ms > 0 ? std::max(1, state.levels) : 0;
    }
    if (asked.empty()) continue;
    const double ms = costs_[drafter].ms(deepest);
    draft_ms_ += ms;
    for (TextBudget* text : asked) text->own_ms_ += ms / static_cast<double>(asked.size());
  }
}

// A text begins with what is usual, which counts like one time.
Yield Budget::expected_yield(const TextBudget& text, int drafter) const {
  const Yield& usual = yields_[drafter];
  Yield yield = text.drafters_[drafter].yield;
  if (usual.weight == 0) return yield;
  const double n = yield.weight + kUsualWeight;
  yield.tokens = (yield.weight * yield.tokens + kUsualWeight * usual.tokens) / n;
  yield.levels = (yield.weight * yield.levels + kUsualWeight * usual.levels) / n;
  yield.rows = (yield.weight * yield.rows + kUsualWeight * usual.rows) / n;
  yield.weight = n;
  return yield;
}

void Budget::learn_yields(const DraftOutcome& outcome) {
  TextBudget& text = *outcome.budget;
  const DraftTree& checked = *outcome.checked;
  for (int drafter = 0; drafter < static_cast<int>(yields_.size()); ++drafter) {
    TextBudget::OfDrafter& state = text.drafters_[drafter];
    const int levels = std::exchange(state.levels, 0);
    if (levels == 0) continue;
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
    for (auto [yield, most] :
         {std::pair{&state.yield, kYieldOfText}, std::pair{&yields_[drafter], kYieldUsual}}) {
      yield->weight = std::min(yield->weight + 1, most);
      yield->tokens += (n_accepted - yield->tokens) / yield->weight;
      yield->levels += (levels - yield->levels) / yield->weight;
      yield->rows += (n_rows - yield->rows) / yield->weight;
    }
  }
}

// What of the account has to wait, because only a much longer answer would bring it.
double Budget::kept_back(const DraftTurn& turn) {
  const int n_counted = turn.n_answered + turn.budget->n_expected_;
  return kShareAtFirst * std::max(0, n_counted - std::max(kAnswerMin, 2 * turn.n_answered));
}

double Budget::earned(const TextBudget& text) const {
  return text.saved_ - text.spent_ms_ / curve_.ms(1);
}

// expected: the tokens that drafts are expected to bring in this step, [turns].
Budget::Purse Budget::purse(std::span<const DraftTurn> turns, const PassLoad& load,
                            std::span<const double> expected) const {
  const auto n = static_cast<double>(turns.size());
  double funds = 0, allowance = 0, kept_back = 0, least = HUGE_VAL;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const TextBudget& text = *turns[i].budget;
    funds += text.allowance_ + earned(text);
    allowance += text.allowance_;
    kept_back += this->kept_back(turns[i]);
    // A step that is expected to bring a text what it takes leaves it no further behind.
    const double for_others = text.allowance_ + kShareForOthers * turns[i].n_answered;
    const double lead = text.saved_ - text.waited_ms_ / curve_.ms(1);
    least = std::min(least, std::max(0.0, for_others + lead) + expected[i]);
  }
  const double ms_per_pass = pass_ms(load) * n / static_cast<double>(load.texts);
  return {.ms = funds / n * ms_per_pass,
          .kept_back_ms = kept_back / n * ms_per_pass,
          .reserve_ms = kReserveOfMany * (1 - 1 / n) * allowance / n * ms_per_pass,
          .patience_ms = least * pass_ms(load)};
}

// The most nodes whose rows the accounts can pay.
int Budget::affordable_nodes(std::span<const DraftTurn> turns, const PassLoad& load,
                             std::span<const double> expected, bool probes) const {
  if (turns.empty()) return 0;
  const Purse purse = this->purse(turns, load, expected);
  const double plain_ms = pass_ms(load);
  double most = std::min(purse.ms - reading_ms_, purse.patience_ms) - draft_ms_;
  // What has been drafted at a price is checked if anything is left.
  const bool paid = draft_ms_ > kNextToNoTime * plain_ms;
  if (!probes && !paid) {
    const bool tries = std::ranges::any_of(turns, [](const DraftTurn& turn) {
      return std::ranges::any_of(turn.budget->drafters_, [](const auto& d) { return d.gap > 0; });
    });
    const double ms_per_pass = plain_ms * static_cast<double>(turns.size()) / load.texts;
    most -= std::max(purse.kept_back_ms, tries ? kReserve * ms_per_pass : 0);
  }
  const int n_max = options_.rows * static_cast<int>(turns.size());
  int n = 0;
  while (n < n_max && added_ms(load, n + 1) <= most) ++n;
  return n;
}

void Budget::observe(std::span<const DraftOutcome> outcomes, const PassLoad& load,
                     double forward_ms) {
  int n_nodes = 0;
  for (const DraftOutcome& outcome : outcomes) {
    calibration_.observe(outcome.budget->acceptance_, *outcome.drafted, outcome.taken);
    n_nodes += outcome.checked->size() - 1;
  }
  const double draft_ms = std::exchange(draft_ms_, 0), reading_ms = std::exchange(reading_ms_, 0);
  if (!options_.automatic) return;
  curve_.refine(work(load, n_nodes), forward_ms);
  if (load.prompt_rows == 0) {
    n_since_plain_ = n_nodes == 0 ? 0 : n_since_plain_ + 1;
    if (n_nodes == 0) n_plain_ = std::min(n_plain_ + 1, kDraftsBetweenPlain);
  }
  if (outcomes.empty() || curve_.empty()) return;

  const double plain_ms = pass_ms(load);
  const double added = n_nodes > 0 ? added_ms(load, n_nodes) : 0;
  const auto n = static_cast<double>(outcomes.size());
  const double of_one = curve_.ms(1) / plain_ms;
  double speeds = 0;
  for (const DraftOutcome& outcome : outcomes) {
    TextBudget& text = *outcome.budget;
    const double n_taken = static_cast<double>(outcome.taken.size());
    learn_yields(outcome);
    text.saved_ += n_taken - 1;
    const int n_own = outcome.checked->size() - 1;
    const double rows_ms = n_own > 0 ? added * n_own / n_nodes : 0;
    text.spent_ms_ += (std::exchange(text.own_ms_, 0) + rows_ms) * load.texts * of_one;
    text.waited_ms_ += (added + draft_ms + reading_ms) * of_one;
    text.n_expected_ = std::max(0, text.n_expected_ - static_cast<int>(outcome.taken.size()));
    text.allowance_ += kShareOfTokens * n_taken;
    text.tokens_ = kRecent * text.tokens_ + n_taken;
    text.passes_ = kRecent * text.passes_ + 1 + (added + draft_ms) / plain_ms;
    speeds += speed(text);
  }
  speed_ = speeds / n;
}

}  // namespace outrider

// Which texts a drafter is asked about in a step, and how deep their drafts may be.

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "speculation/budget.h"

namespace outrider {
namespace {

constexpr int kWhole = std::numeric_limits<int>::max();  // as n_context

constexpr double kTrialShare = 1.5;  // passes for which a trial reads all that it lacks of a text
constexpr int kTrialContext = 16;    // tokens of its end that it reads otherwise
// Who reads all of a text keeps enough for so many drafts, of which the first may be wrong.
constexpr int kDraftsAfterReading = 3;
constexpr int kGainsOfText = 16;  // steps over which the mean of what asking would gain is taken
// The fund lends to a text in which a drafter has made so many guesses and this share of them was
// right, if its reading is expected to bring so many times what it takes: up to a share of the time
// that the answer is expected to take without drafts.
constexpr int kGuessesForFund = 8;
constexpr double kRightForFund = 0.25, kGainOfFund = 2, kShareOfFund = 0.125;

}  // namespace

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
  std::size_t index;  // of its turn
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
  double reading_ms = 0, lent_ms = 0;  // that was granted

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
  double plain_ms;               // of the pass without drafts
  double passes_per_ms;          // of all texts that wait
  bool is_alone;                 // no other text waits for the pass
  double fund;                   // what is left of it, in passes
  Purse purse;
  // How long a text waits in this step.
  struct Patience {
    double ms;              // by what it may fall behind, less a probe
    double hoped_ms = 0;    // more, for the tokens that its own drafts may bring
    double reading_ms = 0;  // of its own, which its account pays
  };
  std::vector<Patience> patience = {};  // [turns]
  int best_levels = 1;                  // for all
  int n_granted = 0;
  double reading_ms = 0;  // of those

  // What the accounts of all texts, and that of this one, lack for so many drafts if so many more
  // texts are asked about and read for so long; below 0 is what they have left.
  double lacking_ms(double ms, double n_drafts, int n_more = 1) const {
    const double fixed_ms = n_drafts * costs[n_granted + n_more].fixed_ms;
    return fixed_ms + reading_ms + ms - available_ms(purse, ms);
  }
  double own_lacking_ms(const Occasion& occasion, double ms, double n_drafts,
                        int n_more = 1) const {
    const int n = n_granted + n_more;
    return n_drafts * costs[n].fixed_ms / n + ms - available_ms(occasion.own, ms);
  }
  static double available_ms(const Purse& purse, double reading_ms) {
    return purse.ms - (reading_ms > 0 ? purse.kept_back_ms : 0);
  }
  // How long all texts go on waiting when others have read, with and without what they hope for.
  double wait_ms() const {
    double least = HUGE_VAL;
    for (const Patience& text : patience)
      least = std::min(least, text.ms + text.hoped_ms - (reading_ms - text.reading_ms));
    return least;
  }
  double wait_without_hopes_ms() const {
    double least = HUGE_VAL;
    for (const Patience& text : patience)
      least = std::min(least, text.ms - (reading_ms - text.reading_ms));
    return least;
  }
  // Whether all wait for a draft with one text more, and so much reading.
  bool can_wait(double ms = 0) const { return costs[n_granted + 1].fixed_ms + ms <= wait_ms(); }
  // Whether the other texts wait for so much reading without hopes, and then for the draft.
  bool others_can_wait(const Occasion& occasion, double ms) const {
    const double fixed_ms = costs[n_granted + 1].fixed_ms;
    return std::ranges::all_of(patience, [&](const Patience& text) {
      const double read_ms = reading_ms - text.reading_ms + ms;
      return &text == &patience[occasion.index] ||
             (read_ms <= std::max(0.0, text.ms) && fixed_ms + read_ms <= text.ms + text.hoped_ms);
    });
  }
  // By how many levels drafts may go on after the first. Drafts that are unsure end early, so what
  // a text hopes for pays for the levels that are best for all, and no deeper ones of others.
  int levels_after_first(int most) const {
    const DraftCost& cost = costs[n_granted];
    const auto affordable = [&](double ms) {
      const double levels = (ms - cost.fixed_ms) / std::max(1e-9, cost.per_depth_ms);
      return std::clamp(levels, 0.0, static_cast<double>(most));
    };
    const double with_hopes = std::min(best_levels - 1.0, affordable(wait_ms()));
    return static_cast<int>(std::min(affordable(purse.ms - reading_ms),
                                     std::max(affordable(wait_without_hopes_ms()), with_hopes)));
  }
  void grant(Occasion& occasion, int n_context, double ms) {
    occasion.is_granted = true;
    occasion.ask.n_context = n_context;
    occasion.reading_ms = patience[occasion.index].reading_ms = ms;
    ++n_granted;
    reading_ms += ms;
  }
  // It is not asked about, and gives back what it was granted and lent.
  void deny(Occasion& occasion) {
    patience[occasion.index].hoped_ms = patience[occasion.index].reading_ms = 0;
    reading_ms -= std::exchange(occasion.reading_ms, 0);
    lend(occasion, -occasion.lent_ms);
    n_granted -= std::exchange(occasion.is_granted, false);
  }
  // Takes so much from the fund for the text's account.
  void lend(Occasion& occasion, double ms) {
    occasion.lent_ms += ms;
    occasion.own.ms += ms;
    purse.ms += ms;
    fund -= ms * passes_per_ms;
  }
};

void Budget::decide(std::vector<Ask>& asks, const Drafter& asked, std::span<const DraftTurn> turns,
                    const PassLoad& load) {
  std::vector<Occasion> occasions;
  long length = 0;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    if (!asks[i].limits) continue;
    length += turns[i].length;
    occasions.push_back({.turn = turns[i], .index = i, .ask = asks[i], .asked = asked});
  }
  if (occasions.empty()) return;
  const int n = static_cast<int>(occasions.size());
  const int mean_length = static_cast<int>(length / n);
  const double plain_ms = pass_ms(load);
  if (asked.cost(n, mean_length).fixed_ms <= kNextToNoTime * plain_ms) return;

  Round round{.costs = {{}},
              .ms_price = occasions[0].ask.worth.ms_price,
              .plain_ms = plain_ms,
              .passes_per_ms = static_cast<double>(load.texts) / plain_ms,
              .is_alone = load.texts == 1,
              .fund = fund_,
              .purse = purse(turns, load)};
  for (int i = 1; i <= n; ++i) round.costs.push_back(asked.cost(i, mean_length));
  for (Occasion& occasion : occasions) {
    occasion.own = purse({&occasion.turn, 1}, load);
    std::vector<double> values = this->values(occasion.turn);
    values.erase(values.begin());
    std::ranges::sort(values, std::greater<>{});
    occasion.first = values.empty() ? 0 : values[0];
    occasion.without = best_gain(values, occasion.ask.worth.row_prices);
    occasion.knowing_all = prospects(occasion, 0);
  }
  share(occasions, round);
  const double probe_ms = added_ms(load, kProbe);
  round.purse.ms -= probe_ms;
  for (const DraftTurn& turn : turns)
    round.patience.push_back({.ms = patience(turn, 0) * plain_ms - probe_ms});
  std::vector<Occasion*> order;
  for (Occasion& occasion : occasions) {
    order.push_back(&occasion);
    if (occasion.net > 0)
      round.patience[occasion.index].hoped_ms = occasion.prospect.tokens * plain_ms;
  }
  std::ranges::stable_sort(order, std::greater<>{}, &Occasion::net);
  for (Occasion* occasion : order) {
    grant_what_pays(*occasion, round);
    if (!occasion->is_granted) round.deny(*occasion);
  }
  // Who would gain needs no trial.
  for (Occasion& occasion : occasions)
    if (occasion.is_granted) occasion.state().gap = 0;
  // A text may have been granted its draft while another one hoped, which then got none.
  if (round.costs[round.n_granted].fixed_ms > round.wait_ms())
    for (Occasion& occasion : occasions) round.deny(occasion);
  try_again(occasions, round);
  const int depth = 1 + round.levels_after_first(options_.depth - 1);
  for (Occasion& occasion : occasions) {
    if (!occasion.is_granted) {
      occasion.ask.limits.reset();
      continue;
    }
    DraftLimits& limits = *occasion.ask.limits;
    limits.depth = std::min(limits.depth, depth);
    TextBudget& text = *occasion.turn.budget;
    text.acceptance_.handicaps[occasion.ask.worth.drafter] =
        Calibration::handicap(asked.n_known(occasion.turn.sequence, occasion.ask.n_context));
    occasion.state().reading_ms = occasion.reading_ms;
    text.lent_ += occasion.lent_ms * round.passes_per_ms;
  }
  fund_ = round.fund;
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
    round.best_levels = levels;
    share_left = left / sum;
  }
  for (Occasion& occasion : occasions) {
    occasion.prospect = Occasion::at(occasion.knowing_all, round.best_levels);
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
  Prospect as_it_is;
  const bool has_to_read = occasion.unread(kTrialContext) > 0;
  if (!has_to_read && occasion.net > 0) {
    const int n_known = occasion.asked.n_known(turn.sequence, kTrialContext);
    const std::vector<Prospect> now = prospects(occasion, Calibration::handicap(n_known));
    as_it_is = Occasion::at(now, round.best_levels);
    gain_as_it_is = std::max(0.0, as_it_is.gain - (occasion.prospect.gain - occasion.net));
  }
  // An answer goes on for as long as answers are, or as it has gone on already.
  const double n_expected = std::max<double>(turn.n_answered, answer_tokens_ / answers_);
  const double n_left = std::min<double>(n_expected, turn.n_left.value_or(kWhole));
  const double n_steps = n_left / (1 + occasion.prospect.tokens);
  const double all_ms = occasion.unread(kWhole) * per_unread_ms;
  const double gain_of_all = n_steps * (state.gain - gain_as_it_is);
  if (!round.can_wait()) return;
  if (occasion.net > 0 && gain_of_all > kGainOfFund * round.ms_price * all_ms &&
      state.n_guesses >= kGuessesForFund && state.n_right >= kRightForFund * state.n_guesses &&
      round.others_can_wait(occasion, all_ms)) {
    const double ms = std::max({0.0, round.lacking_ms(all_ms, kDraftsAfterReading),
                                round.own_lacking_ms(occasion, all_ms, kDraftsAfterReading)});
    const double passes = ms * round.passes_per_ms;
    if (passes <= round.fund &&
        turn.budget->lent_ + passes <= kShareOfFund * (turn.n_answered + n_left))
      round.lend(occasion, ms);
  }
  if (occasion.net > 0 && gain_of_all > round.ms_price * all_ms &&
      round.lacking_ms(all_ms, all_ms > 0 ? kDraftsAfterReading : 1) <= 0 &&
      (all_ms == 0 || (round.own_lacking_ms(occasion, all_ms, kDraftsAfterReading) <= 0 &&
                       round.others_can_wait(occasion, all_ms)))) {
    round.grant(occasion, kWhole, all_ms);
  } else if (gain_as_it_is > 0 && round.lacking_ms(0, 1) <= 0) {
    round.grant(occasion, kTrialContext, 0);
    round.patience[occasion.index].hoped_ms = as_it_is.tokens * round.plain_ms;
  }
}

// Where it is not right often enough, as far as is known, or has too much to read. Trials share
// their time, so with one that is due go those that have waited for half of theirs, and where no
// text drafts anyway they wait until all can be afforded.
void Budget::try_again(std::vector<Occasion>& occasions, Round& round) const {
  bool is_due = false;
  for (Occasion& occasion : occasions) {
    if (occasion.is_granted) continue;
    TextBudget::OfDrafter& state = occasion.state();
    if (state.gap == 0) state.gap = state.steps_left = state.kGapMin;
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
    // kept back, a trial waits for it instead of reading less; but alone, if the fund has what the
    // reading takes, the end shows sooner whether it should be lent.
    Trial trial{&occasion, kWhole, occasion.unread(kWhole) * per_unread_ms};
    const auto read = [&](int n_context) {
      trial.n_context = n_context;
      trial.reading_ms = occasion.unread(n_context) * per_unread_ms;
    };
    const double passes = trial.reading_ms * round.passes_per_ms;
    const bool may_be_lent = round.is_alone && passes < round.fund &&
                             round.own_lacking_ms(occasion, trial.reading_ms, 1) > 0;
    if (passes > kTrialShare || may_be_lent) read(kTrialContext);
    if (round.purse.kept_back_ms == 0 && fixed_ms + trial.reading_ms > round.purse.ms / 2)
      read(kTrialContext / 2);
    ms += trial.reading_ms;
    trials.push_back(trial);
  }
  if (round.n_granted == 0 &&
      round.lacking_ms(ms + round.purse.reserve_ms, 1, static_cast<int>(trials.size())) > 0)
    return;
  int n_trials = static_cast<int>(trials.size());
  for (const auto& [occasion, n_context, reading_ms] : trials) {
    if (round.lacking_ms(reading_ms, 1) > 0 ||
        round.own_lacking_ms(*occasion, reading_ms, 1, n_trials) > 0)
      continue;
    // A text that is alone needs no patience, however long it has waited for others before.
    if (!round.is_alone &&
        !(round.can_wait(reading_ms) && round.others_can_wait(*occasion, reading_ms)))
      continue;
    round.grant(*occasion, n_context, reading_ms);
    occasion->ask.limits->depth = 1;
    TextBudget::OfDrafter& state = occasion->state();
    state.gap = std::min(2 * state.gap, state.kGapMax);
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

}  // namespace outrider

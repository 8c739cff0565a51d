#include "speculation/budget.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace outrider {
namespace {

constexpr double kRowMin = 0.02;  // what a row is assumed to cost at least, as a share of a pass
// Of many texts, a row has to bring so much more than its price: estimates are wrong, those that
// look best the most, and a text that ends early leaves the others a pass that is shared by fewer.
constexpr double kRowMargin = 0.25;
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
constexpr double kShareForOthers = 0.012;
// What rows leave of the account where a drafter is to be tried again.
constexpr double kReserve = 0.4;
// Many texts learn from each other, so trials take less of what each may invest.
constexpr double kReserveOfMany = 0.5;

// The first steps are plain. Later ones come after 16, 32, ... steps with drafts, at last this
// many, times the speed.
constexpr int kPlainAtFirst = 2;
constexpr int kDraftsBetweenPlain = 64;

// Times over which means of what asking brought are taken, in a text and over all; what is usual
// counts in a text like so many.
constexpr double kYieldOfText = 8, kYieldUsual = 64, kUsualWeight = 1;

constexpr int kProbeGapMax = 64;  // steps

// The most that the fund holds, so that what was right of earlier texts loses little in others.
constexpr double kFundMax = 40;
// How long an answer is before any has ended, and what one that ends leaves of the weight of those
// before it.
constexpr double kAnswerUsual = 48, kRecentAnswers = 7.0 / 8;

PassLoad without_prompts(PassLoad load) {
  load.rows -= std::exchange(load.prompt_rows, 0);
  load.scored_rows = 0;
  load.attended -= std::exchange(load.prompt_attended, 0);
  return load;
}

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
    : options_(options),
      calibration_(n_drafters),
      yields_(n_drafters),
      costs_(n_drafters),
      answer_tokens_(kAnswerUsual) {}

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

void Budget::end_text(TextBudget& text) {
  if (text.passes_ == 0) return;                                     // it got nothing
  fund_ = std::min(kFundMax, fund_ + std::exchange(text.lent_, 0));  // losses are counted already
  answer_tokens_ *= kRecentAnswers;
  answers_ = kRecentAnswers * (answers_ + 1);
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

bool Budget::plain_step_is_due(const PassLoad& load) const {
  if (!decides() || load.prompt_rows > 0) return false;
  if (n_plain_ < kPlainAtFirst) return true;
  const double n_between =
      std::min<double>(kDraftsBetweenPlain, std::exp2(n_plain_ - kPlainAtFirst + 4));
  return n_since_plain_ >= n_between * speed_;
}

double Budget::speed(const TextBudget& text) const {
  return std::max(1.0, (text.tokens_ + kStepsAtFirst) / (text.passes_ + kStepsAtFirst));
}

// What all texts would get from another millisecond without prompts; those that read theirs, or
// wait to, count as if they decoded without drafts.
double Budget::tokens_per_ms(std::span<const DraftTurn> turns, const PassLoad& load) const {
  double sum = static_cast<double>(load.texts) - static_cast<double>(turns.size());
  for (const DraftTurn& turn : turns) sum += speed(*turn.budget);
  return sum / pass_ms(without_prompts(load));
}

PassWork Budget::work(const PassLoad& load, int n_nodes) {
  return {.rows = load.rows + n_nodes,
          .without_logits = load.prompt_rows - load.scored_rows,
          .attended = load.attended + n_nodes * load.node_attended};
}

double Budget::pass_ms(const PassLoad& load, int n_nodes) const {
  return curve_.ms(work(load, n_nodes));
}

// What n more rows take.
double Budget::added_ms(const PassLoad& load, int n) const {
  if (n == 0) return 0;
  return std::max(pass_ms(load, n) - pass_ms(load), kRowMin * n * pass_ms(without_prompts(load)));
}

std::vector<double> Budget::row_prices(const PassLoad& load, int n_max,
                                       double tokens_per_ms) const {
  const double price = tokens_per_ms * (1 + kRowMargin * (1 - 1.0 / load.texts));
  std::vector<double> prices{0};
  for (int n = 1; n <= n_max; ++n)
    prices.push_back(std::max(prices.back(), price * added_ms(load, n)));
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

void Budget::learn(int drafter, TextBudget& text, std::span<const Rehearsed> rehearsed) {
  for (const Rehearsed& guess : rehearsed)
    calibration_.observe(text.acceptance_, {drafter, guess.confidence}, guess.was_right,
                         Calibration::handicap(guess.n_known));
  TextBudget::OfDrafter& state = text.drafters_[drafter];
  const auto n_right = std::ranges::count_if(rehearsed, &Rehearsed::was_right);
  state.n_guesses += static_cast<int>(rehearsed.size());
  state.n_right += static_cast<int>(n_right);
  if (2 * n_right > std::ssize(rehearsed)) state.go_on_with_trial();
}

void Budget::plan(std::span<const DraftTurn> turns, const PassLoad& load) {
  struct Ranked {
    int turn, node;
    double chance, value;
  };
  std::vector<Ranked> all;
  for (int turn = 0; turn < static_cast<int>(turns.size()); ++turn) {
    const std::vector<double> chances = values(turns[turn]);
    const bool is_unproven =
        decides() && kept_back(turns[turn]) > 0 && earned(*turns[turn].budget) <= 0;
    const double doubt = is_unproven ? kDoubt : 1;
    for (int node = 1; node < static_cast<int>(chances.size()); ++node)
      all.push_back({turn, node, chances[node], doubt * chances[node]});
  }
  // A parent's value is at least its child's, and its number is lower, so a stable sort puts it
  // first.
  std::ranges::stable_sort(all, std::greater<>{}, &Ranked::value);

  const std::size_t n_max = std::max(0, load.rows_max - load.rows);
  std::vector<int> room;
  for (const DraftTurn& turn : turns) room.push_back(std::min(options_.rows, turn.rows_max));
  const bool probes = decides() && !all.empty() && probe_is_due();
  std::vector<Ranked> kept;
  for (const Ranked& node : all)
    if (kept.size() < n_max && room[node.turn]-- > 0) kept.push_back(node);
  if (decides() && !turns.empty()) {
    count_drafting(turns);
    const Purse purse = this->purse(turns, load);
    const double withheld_ms = this->withheld_ms(turns, load, purse, probes);
    // What the step has taken is spent: rows that are expected to bring a text what they take put
    // it no further back.
    const double plain_ms = pass_ms(load), taken = (draft_ms_ + reading_ms_) / plain_ms;
    std::vector<double> patience;  // and what the rows bring each text, in passes
    for (const DraftTurn& turn : turns) patience.push_back(this->patience(turn, taken));
    std::vector<double> values;
    std::vector<double> prices =
        row_prices(load, static_cast<int>(kept.size()), tokens_per_ms(turns, load));
    int n_probe = 0;
    for (int n = 1; n <= static_cast<int>(kept.size()); ++n) {
      values.push_back(kept[n - 1].value);
      patience[kept[n - 1].turn] += kept[n - 1].chance;
      const double rows_ms = added_ms(load, n);
      if (draft_ms_ + rows_ms > purse.ms - reading_ms_ - withheld_ms ||
          rows_ms > std::ranges::min(patience) * plain_ms - withheld_ms)
        prices[n] = HUGE_VAL;
      else if (n <= kProbe)
        n_probe = n;
    }
    const int n_best = best_gain(values, prices).n;
    if (n_best > 0) n_since_probe_ = 0;
    kept.resize(probes && n_best == 0 ? n_probe : n_best);
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
  probe_gap_ = std::min(2 * probe_gap_, kProbeGapMax);
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
    ++state.n_guesses;
    if (!outcome.taken.empty() && guessed(*outcome.drafted, drafter, outcome.taken[0])) {
      ++state.n_right;
      state.go_on_with_trial();
    }
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
  return text.lent_ + text.saved_ - text.spent_ms_ / curve_.ms(1);
}

double Budget::patience(const DraftTurn& turn, double taken) const {
  const TextBudget& text = *turn.budget;
  const double for_others = text.allowance_ + kShareForOthers * turn.n_answered;
  const double lead = text.lent_ + text.saved_ - text.waited_ms_ / curve_.ms(1);
  return std::max(0.0, for_others + lead - taken);
}

Budget::Purse Budget::purse(std::span<const DraftTurn> turns, const PassLoad& load) const {
  const auto n = static_cast<double>(turns.size());
  double funds = 0, allowance = 0, kept_back = 0;
  for (const DraftTurn& turn : turns) {
    funds += turn.budget->allowance_ + earned(*turn.budget);
    allowance += turn.budget->allowance_;
    kept_back += this->kept_back(turn);
  }
  const double ms_per_pass = pass_ms(load) * n / static_cast<double>(load.texts);
  return {.ms = funds / n * ms_per_pass,
          .kept_back_ms = kept_back / n * ms_per_pass,
          .reserve_ms = kReserveOfMany * (1 - 1 / n) * allowance / n * ms_per_pass};
}

// What rows leave of the accounts.
double Budget::withheld_ms(std::span<const DraftTurn> turns, const PassLoad& load,
                           const Purse& purse, bool probes) const {
  const double plain_ms = pass_ms(load);
  // What has been drafted at a price is checked if anything is left.
  const bool paid = draft_ms_ > kNextToNoTime * plain_ms;
  if (probes || paid) return 0;
  const bool tries = std::ranges::any_of(turns, [](const DraftTurn& turn) {
    return std::ranges::any_of(turn.budget->drafters_, [](const auto& d) { return d.gap > 0; });
  });
  const double ms_per_pass = plain_ms * static_cast<double>(turns.size()) / load.texts;
  return std::max(purse.kept_back_ms, tries ? kReserve * ms_per_pass : 0);
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
    const double spent_ms = (std::exchange(text.own_ms_, 0) + rows_ms) * load.texts * of_one;
    text.spent_ms_ += spent_ms;
    text.waited_ms_ += (added + draft_ms + reading_ms) * of_one;
    fund_ += n_taken - 1 - spent_ms / curve_.ms(1);
    answer_tokens_ += n_taken;
    text.n_expected_ = std::max(0, text.n_expected_ - static_cast<int>(outcome.taken.size()));
    text.allowance_ += kShareOfTokens * n_taken;
    text.tokens_ = kRecent * text.tokens_ + n_taken;
    text.passes_ = kRecent * text.passes_ + 1 + (added + draft_ms) / plain_ms;
    speeds += speed(text);
  }
  speed_ = speeds / n;
  fund_ = std::clamp(fund_, 0.0, kFundMax);
}

}  // namespace outrider

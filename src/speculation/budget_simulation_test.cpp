// The budget in simulated texts: it sees noisy times, and is judged by the costs behind them.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "speculation/budget.h"
#include "speculation/drafters/excerpt.h"

namespace outrider {
namespace {

// Passes without drafts take the time 1.
struct Costs {
  std::vector<std::pair<int, double>> passes = {{1, 1},     {2, 1.01},  {4, 1.06}, {8, 1.31},
                                                {12, 1.95}, {16, 2.58}, {32, 5.09}};
  double level = 0.35;   // of the draft model
  double unread = 0.05;  // a token that it reads

  double pass(int rows) const {
    std::size_t i = 1;
    while (i + 1 < passes.size() && rows > passes[i].first) ++i;
    const auto [r0, t0] = passes[i - 1];
    const auto [r1, t1] = passes[i];
    return t0 + (t1 - t0) * (rows - r0) / (r1 - r0);
  }
};

// A text as what each drafter would guess at each place, if all before it were known.
struct Guess {
  bool is_right;  // after the whole text
  float confidence;
  double needs = 0;  // what share of what can be known
};
struct Text {
  std::vector<Guess> lookup, model;
};
using Rates = std::function<double(int place)>;  // of right guesses

Text make_text(int n, const Rates& lookup, const Rates& model, std::mt19937& random) {
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  Text text;
  for (int i = 0; i < n + 64; ++i) {
    text.lookup.push_back({uniform(random) < lookup(i), 0.6f});
    const bool is_right = uniform(random) < model(i);
    const double lead = (is_right ? 2.0 : 0.0) + 1.5 * normal(random);
    text.model.push_back(
        {is_right, static_cast<float>(1 / (1 + std::exp(-lead))), uniform(random)});
  }
  return text;
}

// Texts consist of the token 1; wrong guesses are other tokens.
class FakeDrafter final : public Drafter {
 public:
  FakeDrafter(const Costs& costs, bool is_model, double noise, std::mt19937& random)
      : costs_(costs), is_model_(is_model), noise_(noise), random_(random) {}

  std::string_view name() const override { return "fake"; }
  void begin(DraftSequence, CacheScope) override {}
  void end(DraftSequence) override {}
  void truncate(DraftSequence, int) override {}
  void observe(DraftSequence, std::span<const Token> tokens) override {
    place_ += static_cast<int>(tokens.size());
  }

  void begin_text(const Text& text, int n_prompt) {
    text_ = &text;
    place_ = 0;
    length_ = n_prompt;
    excerpt_ = {};
    n_read_ = 0;
  }

  static constexpr int kFree = 8;  // tokens that the pass of node 0 reads as well

  int size() const { return length_ + place_; }
  Excerpt excerpt(int n_context) const { return excerpt_.with(n_context, size(), n_read_); }
  int lacking(int n_context) const { return excerpt_.n_unread(n_context, size(), n_read_); }
  int unread(DraftSequence, int n_context) const override {
    return is_model_ ? std::max(0, lacking(n_context) - kFree) : 0;
  }
  int n_known(DraftSequence, int n_context) const override {
    return excerpt(n_context).n_known(size());
  }
  void read(int n_context) {
    spent += costs_.unread * unread({}, n_context);
    excerpt_ = excerpt(n_context);
    n_read_ = excerpt_.length(size());
  }

  void propose(std::span<const DraftRequest> requests) override {
    const DraftRequest& request = requests[0];
    if (is_model_) {
      const int n = std::min(lacking(request.n_context), request.n_rehearsed);
      read(request.n_context);
      for (int i = place_ - n + 4; i < place_; ++i)
        request.rehearsed->push_back({guesses()[i].confidence, is_right(i), n_known_before(i)});
    }
    ++n_asked;
    int node = 0;
    std::vector<double> values;
    double value = 1;
    for (int level = 0; level < std::min(request.limits.depth, request.limits.nodes); ++level) {
      if (is_model_ && level > 0) {
        const double next[] = {value * request.worth->level(level + 1)};
        if (!request.worth->level_pays(values, next)) break;
      }
      if (is_model_) spent += costs_.level;
      const Guess& guess = guesses()[place_ + level];
      node = request.tree->propose(node, is_right(place_ + level) ? 1 : 2 + request.drafter,
                                   {request.drafter, guess.confidence});
      value *= request.worth->acceptance(guess.confidence, level + 1);
      values.push_back(value);
    }
  }
  DraftCost cost(int, int) const override {
    if (!is_model_) return {};
    // As a running mean of noisy times.
    std::normal_distribution<double> normal(1, noise_ / 3);
    const double off = std::max(0.5, normal(random_));
    return {.fixed_ms = costs_.level * off,
            .per_depth_ms = costs_.level * off,
            .per_unread_ms = costs_.unread * off};
  }

  double spent = 0;
  int n_asked = 0;
  bool the_end_is_enough = false;

 private:
  // Before this place. A draft model that knows the end of a text only is less often right.
  int n_known_before(int place) const { return excerpt_.n_known(length_ + place); }
  bool is_right(int place) const {
    const Guess& guess = guesses()[place];
    if (the_end_is_enough) return guess.is_right;
    const double share = 1 - 0.2 * Calibration::handicap(std::max(1, n_known_before(place)));
    return guess.is_right && guess.needs <= share;
  }
  const std::vector<Guess>& guesses() const { return is_model_ ? text_->model : text_->lookup; }

  const Costs& costs_;
  bool is_model_;
  double noise_;
  std::mt19937& random_;
  const Text* text_ = nullptr;
  int place_ = 0, length_ = 0, n_read_ = 0;
  Excerpt excerpt_;
};

struct Answer {
  double cost = 0;
  std::vector<int> asked;  // steps that asked the draft model, by place
};

struct World {
  explicit World(double noise, int seed, double first_error = 1)
      : noise(noise),
        random(seed),
        lookup(costs, false, noise, random),
        model(costs, true, noise, random),
        budget({}, 2) {
    for (const int rows : {1, 2, 3, 4, 6, 8, 12, 16, 17}) {
      double times[] = {noisy(), noisy(), noisy()};
      std::ranges::sort(times);
      budget.curve().measure(rows, costs.pass(rows) * times[1] * (rows == 1 ? first_error : 1));
    }
  }
  double noisy() {
    std::normal_distribution<double> normal(1, noise);
    return std::clamp(normal(random), 0.4, 2.5);
  }

  // An answer of n tokens, which may have n_limit.
  Answer answer(const Text& text, int n, int n_prompt = 0, bool with_model = true,
                int n_limit = 0) {
    n_limit = std::max(n_limit, n);
    lookup.begin_text(text, n_prompt);
    model.begin_text(text, n_prompt);
    TextBudget state = budget.begin_text(n_prompt, n_limit);
    Answer answer;
    FakeDrafter* const drafters[] = {&lookup, &model};
    for (int place = 0; place < n;) {
      DraftTree drafted(1);
      const PassLoad load{.rows = 1, .rows_max = 64, .texts = 1};
      DraftTurn turn{.budget = &state,
                     .sequence = {0},
                     .tree = &drafted,
                     .length = n_prompt + place,
                     .n_answered = place,
                     .n_left = n_limit - place,
                     .rows_max = 64,
                     .depth_max = n_limit - place - 1};
      const double spent = lookup.spent + model.spent;
      const int n_asked = model.n_asked;
      if (place > 0 && !budget.plain_step_is_due())
        for (int i = 0; i < 1 + with_model; ++i) {
          const auto asks = budget.ask(i, *drafters[i], {&turn, 1}, load);
          std::vector<Rehearsed> rehearsed;
          const DraftRequest request{.sequence = {0},
                                     .tree = &drafted,
                                     .drafter = i,
                                     .limits = asks[0].limits.value_or(DraftLimits{}),
                                     .sampling = nullptr,
                                     .state = nullptr,
                                     .n_context = asks[0].n_context,
                                     .worth = &asks[0].worth,
                                     .rehearsed = &rehearsed,
                                     .n_rehearsed = place};
          if (asks[0].limits) drafters[i]->propose({&request, 1});
          budget.learn(i, state, rehearsed);
        }
      if (model.n_asked > n_asked) answer.asked.push_back(place);
      DraftTree checked = drafted;
      turn.tree = &checked;
      budget.plan({&turn, 1}, load);
      std::vector<Token> taken;
      int node = 0;
      while (const auto child = checked.child(node, 1)) taken.push_back(1), node = *child;
      taken.push_back(1);
      const double time = costs.pass(checked.size());
      answer.cost += time + lookup.spent + model.spent - spent;
      const DraftOutcome outcome{&state, &drafted, &checked, taken};
      budget.observe({&outcome, 1}, load, time * noisy());
      place += static_cast<int>(taken.size());
      for (FakeDrafter* drafter : drafters) drafter->observe({0}, taken);
    }
    return answer;
  }

  double noise;
  std::mt19937 random;
  Costs costs;
  FakeDrafter lookup, model;
  Budget budget;
};

// Every step checks so many guesses of lookup and so many of the draft model, as far as they are
// not the same, and lengthens the draft by no other rule.
double fixed_cost(const Costs& costs, const Text& text, int n, int n_prompt, int n_lookup,
                  int n_model) {
  double cost = 0;
  const auto right = [](const std::vector<Guess>& guesses, int place, int n) {
    int right = 0;
    while (right < n && guesses[place + right].is_right) ++right;
    return right;
  };
  if (n_model > 0) cost += n_prompt * costs.unread;
  for (int place = 0; place < n;) {
    const int lookups = place == 0 ? 0 : std::min(n_lookup, n - place - 1);
    const int models = place == 0 ? 0 : std::min(n_model, n - place - 1);
    const int by_lookup = right(text.lookup, place, lookups);
    const int by_model = right(text.model, place, models);
    const int shared = std::min(by_lookup, by_model);
    cost += costs.pass(1 + lookups + models - shared) + costs.level * models;
    place += 1 + std::max(by_lookup, by_model);
  }
  return cost;
}

struct Case {
  const char* name;
  Rates lookup, model;
  int n_before = 0;  // tokens of a text before it
  Rates lookup_before = {}, model_before = {};
  double first_error = 1;
  int n_prompt = 0;
  double of_best = 0.95;
};

struct Score {
  double of_plain_64, of_plain_512, of_best_512;
};

Score score(const Case& c, double noise, int n_seeds) {
  std::vector<double> ratios[2];
  std::map<std::pair<int, int>, double> fixed;
  double own = 0;
  for (int seed = 0; seed < n_seeds; ++seed)
    for (const int n : {64, 512}) {
      World world(noise, 1000 * seed + n, c.first_error);
      if (c.n_before > 0)
        world.answer(make_text(c.n_before, c.lookup_before, c.model_before, world.random),
                     c.n_before);
      const Text text = make_text(n, c.lookup, c.model, world.random);
      const double prompt = c.n_prompt > 0 ? world.costs.pass(c.n_prompt) : 0;
      const double cost = prompt + world.answer(text, n, c.n_prompt).cost;
      ratios[n == 512].push_back((prompt + n) / cost);
      if (n != 512) continue;
      own += cost;
      for (const int n_lookup : {0, 1, 2, 3, 4, 5, 6, 7, 9, 12, 15})
        for (const int n_model : {0, 1, 2, 3, 4, 5, 6, 7})
          fixed[{n_lookup, n_model}] +=
              prompt + fixed_cost(world.costs, text, n, c.n_prompt, n_lookup, n_model);
    }
  for (auto& r : ratios) std::ranges::sort(r);
  double best = HUGE_VAL;
  for (const auto& [policy, cost] : fixed) best = std::min(best, cost);
  return {ratios[0][n_seeds / 10], ratios[1][n_seeds / 10], best / own};
}

Rates always(double rate) {
  return [rate](int) { return rate; };
}
Rates then(int place, double before, double after) {
  return [=](int i) { return i < place ? before : after; };
}

// Never much slower than without drafts, and close to the best fixed policy: both, because never
// drafting never loses.
TEST(BudgetSimulation, LosesNothingAndGainsWhatThereIs) {
  const Case cases[] = {
      {"hopeless", always(0.03), always(0.1)},
      {"hopeless after an edit", always(0.03), always(0.1), 512, always(0.97), always(0.8)},
      {"edit after hopeless", always(0.97), always(0.8), 512, always(0.03), always(0.1)},
      {"model right after hopeless", always(0.1), always(0.85), 512, always(0.03), always(0.1)},
      {"right, then wrong", then(256, 0.9, 0.03), then(256, 0.8, 0.1)},
      {"wrong, then right", then(256, 0.03, 0.9), then(256, 0.1, 0.8)},
      {"12 % right", always(0.12), always(0.12)},
      {"40 % right", always(0.4), always(0.4)},
      {"model 60 % right", always(0.1), always(0.6)},
      {"model becomes right", always(0.03), then(256, 0.05, 0.9)},
      {"T(1) too high, hopeless", always(0.03), always(0.1), 0, {}, {}, 1.5},
      {"T(1) too low, hopeless", always(0.03), always(0.1), 0, {}, {}, 0.67},
      {"T(1) too high, edit", always(0.97), always(0.8), 0, {}, {}, 1.5},
      {"T(1) too low, edit", always(0.97), always(0.8), 0, {}, {}, 0.67},
      {"T(1) too low, model right", always(0.03), always(0.8), 0, {}, {}, 0.67},
      // The best policy reads the prompt at once, for 15 passes: more than the account allows.
      {"long prompt, model right", always(0.03), always(0.8), 0, {}, {}, 1, 300, 0.83},
  };
  for (const Case& c : cases)
    for (const double noise : {0.0, 0.1, 0.2}) {
      SCOPED_TRACE(fmt::format("{}, noise {}", c.name, noise));
      const Score s = score(c, noise, 150);
      // The 10th percentile over texts, and the mean.
      EXPECT_GE(s.of_plain_64, 0.97);
      EXPECT_GE(s.of_plain_512, 0.99);
      EXPECT_GE(s.of_best_512, c.of_best);
    }
}

// Nobody knows that an answer will be short: it spends little of what a long one might invest. Its
// drafts seem sure and are wrong, and its prompt would have to be read.
TEST(BudgetSimulation, ShortAnswersLoseLittle) {
  constexpr int kTokens = 12, kPrompt = 60;
  double cost = 0;
  for (int seed = 0; seed < 100; ++seed) {
    World world(0.1, seed);
    Text text = make_text(128, always(0), always(0), world.random);
    for (Guess& guess : text.lookup) guess.confidence = 0.9f;
    for (Guess& guess : text.model) guess.confidence = 0.9f;
    world.answer(make_text(256, always(0.6), always(0.8), world.random), 256, kPrompt);
    cost += world.answer(text, kTokens, kPrompt, true, 128).cost / 100;
  }
  EXPECT_LE(cost, kTokens + 0.75);
}

// A draft model that was useless for 400 tokens is asked again soon after it has become right.
TEST(BudgetSimulation, TriesAgainWithinAHundredSteps) {
  int n_back = 0;
  for (const double noise : {0.0, 0.2})
    for (int seed = 0; seed < 100; ++seed) {
      SCOPED_TRACE(fmt::format("seed {}, noise {}", seed, noise));
      World world(noise, seed);
      world.model.the_end_is_enough = true;
      const Text text = make_text(800, always(0.03), then(400, 0, 0.95), world.random);
      const std::vector<int> asked = world.answer(text, 800, 200).asked;
      EXPECT_LE(std::ranges::count_if(asked, [](int place) { return place < 400; }), 14);
      n_back +=
          std::ranges::count_if(asked, [](int place) { return place >= 400 && place < 500; }) >= 3;
    }
  EXPECT_GE(n_back, 197);  // of 200: some accounts are empty
}

// An answer whose drafts were unlucky at first has spent its account. It fills while the answer
// goes on, so that a draft model that is right by then is asked again.
TEST(BudgetSimulation, AnEmptyAccountFills) {
  constexpr int kTokens = 256;
  std::vector<double> ratios;
  for (const int n_prompt : {10, 40})
    for (const int n_wrong : {16, 24})
      for (int seed = 0; seed < 200; ++seed) {
        World world(0.1, seed);
        world.answer(make_text(256, always(0.03), always(0.8), world.random), 256, n_prompt);
        const Text text = make_text(kTokens, always(0.03), then(n_wrong, 0, 0.9), world.random);
        ratios.push_back(world.answer(text, kTokens, n_prompt).cost / kTokens);
      }
  // 0.81 if nothing is added before the 128th token, and reading leaves nothing for drafts.
  EXPECT_LE(std::accumulate(ratios.begin(), ratios.end(), 0.0) / std::ssize(ratios), 0.79);
}

// What the account allows bounds the loss even where every draft that seems sure is wrong.
TEST(BudgetSimulation, TheAccountBoundsWhatCanBeLost) {
  for (int seed = 0; seed < 20; ++seed) {
    World world(0, seed);
    Text text = make_text(512, always(0), always(0), world.random);
    for (Guess& guess : text.lookup) guess.confidence = 0.999f;
    for (Guess& guess : text.model) guess.confidence = 0.999f;
    EXPECT_LE(world.answer(text, 512).cost, 512 + 0.013 * 64 + 0.006 * 512 + 1.5);
  }
}

}  // namespace
}  // namespace outrider

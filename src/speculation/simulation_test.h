// Texts in which two drafters are right as often as is wanted, and a machine on which passes take
// given times: for tests of a planner, which sees noisy times and is judged by those behind them.

#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "speculation/drafters/excerpt.h"
#include "speculation/planner.h"

namespace outrider {

// Passes without drafts take the time 1.
struct Costs {
  std::vector<std::pair<int, double>> passes = {{1, 1},     {2, 1.01},  {4, 1.06}, {8, 1.31},
                                                {12, 1.95}, {16, 2.58}, {32, 5.09}};
  double level = 0.35;             // of the draft model, for one text
  double level_of_sequence = 0.0;  // and for each further one
  double per_prefill = 0.05;       // a token that it prefills
  int rows_of_sequences = 1;       // passes are known beforehand up to a few times as many

  double levels(int n_sequences) const { return level + level_of_sequence * (n_sequences - 1); }
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
struct SimulatedText {
  std::vector<Guess> lookup, model;
};
using Rates = std::function<double(int place)>;  // of right guesses

inline SimulatedText make_text(int n, const Rates& lookup, const Rates& model,
                               std::mt19937& random) {
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  SimulatedText text;
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
  void observe(DraftSequence number, std::span<const Token> tokens) override {
    sequences_.at(number.value).place += static_cast<int>(tokens.size());
  }

  void begin_texts(std::span<const SimulatedText> texts, int n_prompt) {
    sequences_.clear();
    for (const SimulatedText& text : texts)
      sequences_.push_back({is_model_ ? &text.model : &text.lookup, n_prompt});
  }

  int n_to_prefill(DraftSequence number, int n_context) const override {
    return is_model_ ? std::max(0, sequences_.at(number.value).lacking(n_context) - kFree) : 0;
  }
  int n_known(DraftSequence number, int n_context) const override {
    const Sequence& sequence = sequences_.at(number.value);
    return sequence.with(n_context).n_known(sequence.size());
  }

  void propose(std::span<const DraftRequest> requests) override {
    ++n_asked;
    std::vector<Draft> drafts;
    for (const DraftRequest& request : requests) {
      Sequence& sequence = sequences_.at(request.sequence.value);
      drafts.push_back({&request, &sequence});
      if (is_model_) read(request, sequence);
    }
    // Level by level, for those texts that together gain more than it costs.
    for (int level = 0; !drafts.empty(); ++level) {
      std::erase_if(drafts, [&](const Draft& draft) {
        const DraftLimits& limits = draft.request->limits;
        return level >= std::min(limits.depth, limits.nodes);
      });
      if (is_model_ && level > 0) {
        std::ranges::stable_sort(drafts, std::greater<>{},
                                 [&](const Draft& draft) { return draft.gain(level); });
        std::vector<double> gains;
        for (const Draft& draft : drafts) gains.push_back(draft.gain(level));
        const double price = requests[0].worth->ms_price;
        drafts.resize(n_that_share(gains, [&](int n) { return price * costs_.levels(n); }));
      }
      if (is_model_ && !drafts.empty()) spent += costs_.levels(static_cast<int>(drafts.size()));
      for (Draft& draft : drafts) grow(draft, level);
    }
  }

  DraftCost cost(int n_sequences, int) const override {
    if (!is_model_) return {};
    // As a running mean of noisy times.
    std::normal_distribution<double> normal(1, noise_ / 3);
    const double off = std::max(0.5, normal(random_));
    return {.fixed_ms = costs_.levels(n_sequences) * off,
            .per_depth_ms = costs_.levels(n_sequences) * off,
            .per_prefill_ms = costs_.per_prefill * off};
  }

  double spent = 0;
  int n_asked = 0;
  bool the_end_is_enough = false;

 private:
  static constexpr int kFree = 8;  // tokens that the pass of the root reads as well

  struct Sequence {
    const std::vector<Guess>* guesses;
    int n_prompt;
    int place = 0, n_computed = 0;
    Excerpt excerpt = {};

    int size() const { return n_prompt + place; }
    Excerpt with(int n_context) const { return excerpt.with(n_context, size(), n_computed); }
    int lacking(int n_context) const { return excerpt.n_to_prefill(n_context, size(), n_computed); }
  };
  struct Draft {
    const DraftRequest* request;
    Sequence* sequence;
    int node = 0;
    double value = 1;
    std::vector<double> values = {};

    double gain(int level) const {
      const double next[] = {value * request->worth->best_guess_acceptance(level + 1)};
      return request->worth->level_gain(values, next);
    }
  };

  void read(const DraftRequest& request, Sequence& sequence) {
    const int n = std::min(sequence.lacking(request.n_context), request.n_prefill_guesses);
    spent += costs_.per_prefill * n_to_prefill(request.sequence, request.n_context);
    sequence.excerpt = sequence.with(request.n_context);
    sequence.n_computed = sequence.excerpt.length(sequence.size());
    for (int i = sequence.place - n + 4; i < sequence.place; ++i)
      request.prefill_guesses->push_back(
          {(*sequence.guesses)[i].confidence, is_right(sequence, i), n_known_before(sequence, i)});
  }
  void grow(Draft& draft, int level) const {
    const Sequence& sequence = *draft.sequence;
    const DraftRequest& request = *draft.request;
    const int place = sequence.place + level;
    const float confidence = (*sequence.guesses)[place].confidence;
    draft.node =
        request.tree->propose(draft.node, is_right(sequence, place) ? 1 : 2 + request.drafter,
                              {request.drafter, confidence});
    draft.value *= request.worth->acceptance(confidence, level + 1);
    draft.values.push_back(draft.value);
  }
  // Before this place. A draft model that knows the end of a text only is less often right.
  static int n_known_before(const Sequence& sequence, int place) {
    return sequence.excerpt.n_known(sequence.n_prompt + place);
  }
  bool is_right(const Sequence& sequence, int place) const {
    const Guess& guess = (*sequence.guesses)[place];
    if (the_end_is_enough) return guess.is_right;
    const int n_known = std::max(1, n_known_before(sequence, place));
    return guess.is_right && guess.needs <= 1 - 0.2 * Calibration::handicap(n_known);
  }

  const Costs& costs_;
  bool is_model_;
  double noise_;
  std::mt19937& random_;
  std::vector<Sequence> sequences_;
};

struct SimulatedAnswer {
  double cost = 0;         // from the first token of all
  std::vector<int> asked;  // steps that asked the draft model, by place
};

struct World {
  explicit World(double noise, int seed, double first_error = 1, Costs costs = {})
      : noise(noise),
        random(seed),
        costs(std::move(costs)),
        lookup(this->costs, false, noise, random),
        model(this->costs, true, noise, random),
        planner({}, curve, 2) {
    for (const int rows : {1, 2, 3, 4, 6, 8, 12, 16, 17, 33, 65}) {
      if (rows > 17 && rows > 2 * this->costs.rows_of_sequences) break;
      double times[] = {noisy(), noisy(), noisy()};
      std::ranges::sort(times);
      curve.measure(rows, this->costs.pass(rows) * times[1] * (rows == 1 ? first_error : 1));
    }
  }
  double noisy() {
    std::normal_distribution<double> normal(1, noise);
    return std::clamp(normal(random), 0.4, 2.5);
  }

  SimulatedAnswer answer(const SimulatedText& text, int n, int n_prompt = 0, int n_limit = 0) {
    return answers({&text, 1}, n, n_prompt, n_limit)[0];
  }

  // Answers of n tokens, which may have n_limit, all begun at once; of all but the first n_others
  // tokens, if that is given.
  std::vector<SimulatedAnswer> answers(std::span<const SimulatedText> texts, int n,
                                       int n_prompt = 0, int n_limit = 0, int n_others = 0) {
    const auto end_of = [&](int i) { return i == 0 || n_others == 0 ? n : n_others; };
    n_limit = std::max(n_limit, n);
    lookup.begin_texts(texts, n_prompt);
    model.begin_texts(texts, n_prompt);
    const auto n_texts = static_cast<int>(texts.size());
    std::vector<SimulatedAnswer> answers(n_texts);
    std::vector<int> places(n_texts);
    for (int i = 0; i < n_texts; ++i) planner.begin({i}, n_prompt);
    FakeDrafter* const drafters[] = {&lookup, &model};
    double now = 0;
    for (;;) {
      std::vector<int> running;
      for (int i = 0; i < n_texts; ++i)
        if (places[i] < end_of(i)) running.push_back(i);
      if (running.empty()) return answers;
      const auto n_running = static_cast<int>(running.size());
      std::vector<DraftTree> drafted(n_running, DraftTree(1));
      const PassLoad load{.rows = n_running, .rows_max = 512, .sequences = n_running};
      std::vector<PlannedSequence> planned;
      bool is_first = false;
      for (int k = 0; k < n_running; ++k) {
        const int i = running[k], place = places[i];
        is_first = is_first || place == 0;
        planned.push_back({.sequence = {i},
                           .tree = &drafted[k],
                           .length = n_prompt + place,
                           .n_answered = place,
                           .n_left = n_limit - place,
                           .rows_max = 64,
                           .depth_max = n_limit - place - 1});
      }
      const double spent = lookup.spent + model.spent;
      const bool is_plain = is_first || planner.plain_step_is_due(load);
      for (int d = 0; !is_plain && d < 2; ++d) {
        const auto asks = planner.ask(d, *drafters[d], planned, load);
        std::vector<std::vector<PrefillGuess>> prefill_guesses(n_running);
        std::vector<DraftRequest> requests;
        for (int k = 0; k < n_running; ++k) {
          if (!asks[k].limits) continue;
          if (d == 1) answers[running[k]].asked.push_back(places[running[k]]);
          requests.push_back({.sequence = planned[k].sequence,
                              .tree = &drafted[k],
                              .drafter = d,
                              .limits = *asks[k].limits,
                              .sampling = nullptr,
                              .state = nullptr,
                              .n_context = asks[k].n_context,
                              .worth = &asks[k].worth,
                              .prefill_guesses = &prefill_guesses[k],
                              .n_prefill_guesses = places[running[k]]});
        }
        if (!requests.empty()) drafters[d]->propose(requests);
        int levels = 0;
        for (const DraftTree& tree : drafted) levels = std::max(levels, tree.depth(d));
        for (int k = 0; k < n_running; ++k)
          planner.learn(d, planned[k].sequence, levels, prefill_guesses[k]);
      }
      std::vector<DraftTree> checked = drafted;
      for (int k = 0; k < n_running; ++k) planned[k].tree = &checked[k];
      planner.prune(is_first ? std::span<PlannedSequence>{} : planned, load);
      int n_rows = 0;
      std::vector<std::vector<Token>> taken(n_running);
      std::vector<DraftOutcome> outcomes;
      for (int k = 0; k < n_running; ++k) {
        n_rows += checked[k].size();
        int node = 0;
        while (const auto child = checked[k].child(node, 1)) taken[k].push_back(1), node = *child;
        taken[k].push_back(1);
        outcomes.push_back({{running[k]}, &drafted[k], &checked[k], taken[k]});
      }
      const double time = costs.pass(n_rows), drafting = lookup.spent + model.spent - spent;
      now += time + drafting;
      if (n_rows == n_running) wasted += drafting;
      planner.observe(outcomes, load, time * noisy());
      if (check) check(planner);
      for (int k = 0; k < n_running; ++k) {
        const int i = running[k];
        places[i] += static_cast<int>(taken[k].size());
        answers[i].cost = now;
        for (FakeDrafter* drafter : drafters) drafter->observe({i}, taken[k]);
        if (places[i] >= end_of(i)) planner.end({i});
      }
    }
  }

  double noise;
  std::mt19937 random;
  Costs costs;
  FakeDrafter lookup, model;
  CostCurve curve;
  Planner planner;
  std::function<void(const Planner&)> check = {};  // after every step
  double wasted = 0;                               // drafting in steps that checked nothing
};

// Every step checks so many guesses of lookup and so many of the draft model, as far as they are
// not the same, and lengthens the draft by no other rule.
inline double fixed_cost(const Costs& costs, const SimulatedText& text, int n, int n_prompt,
                         int n_lookup, int n_model) {
  double cost = 0;
  const auto right = [](const std::vector<Guess>& guesses, int place, int n) {
    int right = 0;
    while (right < n && guesses[place + right].is_right) ++right;
    return right;
  };
  if (n_model > 0) cost += n_prompt * costs.per_prefill;
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

}  // namespace outrider

#include "speculation/drafters/model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "model/fake_backend.h"
#include "sampling/fake_tokenizer.h"

namespace outrider {
namespace {

struct Drafting {
  explicit Drafting(FakeModel model = {},
                    const LoadOptions& options = {.context = 256, .n_sequences = 8},
                    int target_vocabulary = 23, std::size_t memory_bytes = 1 << 20) {
    auto owned = std::make_unique<FakeBackend>(std::move(model), options);
    backend = owned.get();
    drafter = std::make_unique<ModelDrafter>(std::move(owned),
                                             ModelDrafterOptions{target_vocabulary, memory_bytes});
  }

  DraftTree propose(int sequence, std::span<const Token> text, DraftLimits limits = {},
                    const SamplingParams& sampling = greedy(), int n_context = 1 << 30,
                    bool draws = false) {
    ChoiceState state(sampling);
    state.advance(text);
    DraftTree tree(text.back());
    const DraftRequest request{.sequence = {sequence},
                               .tree = &tree,
                               .drafter = 0,
                               .limits = limits,
                               .sampling = &sampling,
                               .state = &state,
                               .n_context = n_context,
                               .draws = draws};
    drafter->propose({&request, 1});
    tree.check_integrity();
    return tree;
  }

  static SamplingParams greedy() {
    SamplingParams params;
    params.filters.temperature = 0;
    return params;
  }

  FakeBackend* backend;
  std::unique_ptr<ModelDrafter> drafter;
};

// What the model itself would choose next, computed from nothing.
Choice choice(const FakeModel& model, std::span<const Token> text, const SamplingParams& sampling,
              int n_best) {
  ChoiceState state(sampling);
  state.advance(text);
  const auto counts = state.counts();
  ChoiceRequest request = choice_request(sampling, counts, 0, static_cast<int>(text.size()));
  request.n_best = n_best;
  return choose_reference(model.logits(text), request);
}

SamplingParams sampled() {
  SamplingParams params;
  params.filters.temperature = 1;
  params.filters.top_k = 10;
  params.filters.top_p = 1;
  params.filters.min_p = 0;
  params.filters.repeat_penalty = 1.3f;
  params.filters.presence_penalty = 0.2f;
  params.repeat_last_n = 5;
  params.seed = 42;
  params.stream = 2;
  params.bias = {{3, 1.0f}};
  return params;
}

// Draws: as many nodes as are allowed, children in the order drawn, each from the model's own
// distribution there, also where a token's probability is too small for a float.
TEST(ModelDrafter, DrawsFromItsDistribution) {
  for (const float temperature : {0.02f, 1.0f}) {
    SCOPED_TRACE(temperature);
    Drafting drafting;
    SamplingParams sampling = sampled();
    sampling.filters.temperature = temperature;
    sampling.repeat_last_n = 0;
    std::map<Token, int> first;
    const std::vector<Token> text{1, 2, 3, 1, 2};
    drafting.drafter->begin({1});
    drafting.drafter->observe({1}, text);
    constexpr int kDraws = 2000;
    for (int i = 0; i < kDraws; ++i) {
      sampling.seed = static_cast<std::uint64_t>(i);
      const DraftTree tree =
          drafting.propose(1, text, {.nodes = 6, .depth = 3, .width = 3}, sampling, 1 << 30, true);
      EXPECT_LE(tree.size(), 7);
      EXPECT_LE(tree.depth(), 3);
      if (temperature == 1) {
        EXPECT_EQ(tree.size(), 7);
      }
      for (int node = 0; node < tree.size(); ++node) {
        EXPECT_LE(tree.children(node).size(), 3u);
        for (const DraftTree::Offer& offer : tree.offers(node)) {
          ASSERT_TRUE(offer.proposal.drawn_from);
          EXPECT_EQ(offer.proposal.drawn_from, tree.offers(node)[0].proposal.drawn_from);
        }
      }
      ++first[tree[tree.children(0)[0]].token];
    }
    const Choice expected = [&] {
      const std::vector<TokenCount> none;
      ChoiceRequest request = choice_request(sampling, none, 0, 5);
      request.wants_probabilities = true;
      return choose_reference(drafting.backend->model().logits(text), request);
    }();
    for (const auto& [token, p] : expected.probabilities)
      EXPECT_NEAR(first[token], kDraws * p, 5 * std::sqrt(kDraws * p * (1 - p)) + 1e-9) << token;
    drafting.drafter->end({1});
  }
}

TEST(ModelDrafter, DraftsWhatTheModelWouldSay) {
  for (const SamplingParams& sampling : {Drafting::greedy(), sampled()}) {
    Drafting drafting;
    std::vector<Token> text{1, 2, 3};
    drafting.drafter->begin({0});
    drafting.drafter->observe({0}, text);
    const DraftTree tree =
        drafting.propose(0, text, {.nodes = 6, .depth = 6, .width = 1}, sampling);
    ASSERT_EQ(tree.size(), 7);
    for (int node = 1; node < 7; ++node) {
      EXPECT_EQ(tree[node].parent, node - 1);
      EXPECT_EQ(tree[node].token, *choice(drafting.backend->model(), text, sampling, 0).token);
      text.push_back(tree[node].token);
    }
  }
}

TEST(ModelDrafter, ChildrenAreTheBestByTheNoisyScore) {
  for (const SamplingParams& sampling : {Drafting::greedy(), sampled()}) {
    Drafting drafting;
    const std::vector<Token> text{4, 5};
    drafting.drafter->begin({0});
    drafting.drafter->observe({0}, text);
    const DraftTree tree =
        drafting.propose(0, text, {.nodes = 40, .depth = 3, .width = 3}, sampling);
    EXPECT_GT(tree.size(), 12);
    for (int node = 0; node < tree.size(); ++node) {
      std::vector<Token> path = text;
      for (Token token : tree.path(node)) path.push_back(token);
      const Choice wanted = choice(drafting.backend->model(), path, sampling, 3);
      float last = 1;
      for (std::size_t i = 0; i < tree.children(node).size(); ++i) {
        const DraftNode& child = tree[tree.children(node)[i]];
        EXPECT_EQ(child.token, wanted.best[i].token);
        EXPECT_LE(child.proposals[0].confidence, last);
        last = child.proposals[0].confidence;
        const float lead = wanted.best[i].score - wanted.best[i == 0 ? 1 : 0].score;
        EXPECT_NEAR(last, 1 / (1 + std::exp(-lead)), 1e-5);
      }
    }
  }
}

// Of a trimmed vocabulary a text's own tokens are worth having, also those of the prompt.
TEST(ModelDrafter, AsksForLogitsOfTheTextsTokens) {
  Drafting drafting;
  drafting.drafter->begin({0});
  drafting.drafter->observe({0}, std::vector<Token>{1, 2, 3});
  EXPECT_EQ(drafting.backend->outputs_added(), std::set<Token>{});  // that would take time
  drafting.propose(0, std::vector<Token>{1, 2, 3});
  EXPECT_EQ(drafting.backend->outputs_added(), (std::set<Token>{1, 2, 3}));
  drafting.drafter->observe({0}, std::vector<Token>{7, 2});
  drafting.propose(0, std::vector<Token>{1, 2, 3, 7, 2});
  EXPECT_EQ(drafting.backend->outputs_added(), (std::set<Token>{1, 2, 3, 7}));
}

// What it does not read of a text takes no time for its tokens either.
TEST(ModelDrafter, AsksForNoLogitsOfWhatItLeavesOut) {
  Drafting drafting;
  std::vector<Token> text(60, 4);
  text[0] = 5;
  text[30] = 6;
  text[50] = 7;
  drafting.drafter->begin({0});
  drafting.drafter->observe({0}, text);
  drafting.propose(0, text, {}, Drafting::greedy(), 16);
  EXPECT_EQ(drafting.backend->outputs_added(), (std::set<Token>{4, 7}));
  drafting.propose(0, text, {}, Drafting::greedy(), 40);
  EXPECT_EQ(drafting.backend->outputs_added(), (std::set<Token>{4, 6, 7}));
  drafting.drafter->observe({0}, std::vector<Token>{8});
  text.push_back(8);
  drafting.propose(0, text);
  EXPECT_EQ(drafting.backend->outputs_added(), (std::set<Token>{4, 5, 6, 7, 8}));
}

TEST(ModelDrafter, ForgetsTheTokensOfEarlierTexts) {
  Drafting drafting;
  for (const int text : {0, 1}) {
    drafting.drafter->begin({text});
    drafting.drafter->observe({text}, std::vector<Token>{1 + text, 3});
    drafting.propose(text, std::vector<Token>{1 + text, 3});
  }
  drafting.drafter->end({0});
  EXPECT_EQ(drafting.backend->outputs_added(), (std::set<Token>{1, 2, 3}));
  drafting.drafter->forget();
  EXPECT_EQ(drafting.backend->outputs_added(), std::set<Token>{});
  drafting.propose(1, std::vector<Token>{2, 3});
  EXPECT_EQ(drafting.backend->outputs_added(), (std::set<Token>{2, 3}));
}

TEST(ModelDrafter, CountsItsPasses) {
  Drafting drafting;
  const std::vector<Token> text{1, 2, 3};
  drafting.drafter->begin({0});
  drafting.drafter->observe({0}, text);
  drafting.drafter->measure_costs();
  EXPECT_EQ(drafting.drafter->n_passes(), 0);
  drafting.backend->counts = {};
  drafting.propose(0, text, {.nodes = 9, .depth = 4, .width = 1});
  EXPECT_EQ(drafting.drafter->n_passes(), 4);
  EXPECT_EQ(drafting.backend->counts.forwards, 4);
}

TEST(ModelDrafter, KeepsItsLimits) {
  std::mt19937 random(9);
  for (int round = 0; round < 100; ++round) {
    Drafting drafting;
    const std::vector<Token> text{static_cast<Token>(random() % 23)};
    drafting.drafter->begin({0});
    drafting.drafter->observe({0}, text);
    const DraftLimits limits{static_cast<int>(random() % 20), static_cast<int>(random() % 6),
                             static_cast<int>(random() % 5)};
    const DraftTree tree = drafting.propose(0, text, limits);
    EXPECT_LE(tree.size() - 1, limits.nodes);
    for (int node = 0; node < tree.size(); ++node) {
      EXPECT_LE(tree[node].depth, limits.depth);
      EXPECT_LE(static_cast<int>(tree.children(node).size()), limits.width);
    }
    EXPECT_LE(drafting.backend->counts.forwards, std::max(1, limits.nodes));
  }
}

TEST(ModelDrafter, StopsWhereALevelIsNotWorthIt) {
  const Calibration calibration(1);
  const Calibration::Sequence known = calibration.begin();
  // Without guesses, whose number depends on measured times: each pass decides one level.
  Drafting drafting({}, {.context = 256}, 23, 0);
  const std::vector<Token> text{4, 5};
  drafting.drafter->begin({0});
  drafting.drafter->observe({0}, text);
  const SamplingParams sampling = Drafting::greedy();
  const ChoiceState state(sampling);
  const auto n_passes = [&](double ms_price, double row_price) {
    DraftWorth worth{.calibration = &calibration, .sequence = &known, .ms_price = ms_price};
    for (int n = 0; n <= 16; ++n) worth.row_prices.push_back(n * row_price);
    DraftTree tree(text.back());
    const DraftRequest request{.sequence = {0},
                               .tree = &tree,
                               .drafter = 0,
                               .limits = {.nodes = 16, .depth = 16, .width = 2},
                               .sampling = &sampling,
                               .state = &state,
                               .worth = &worth};
    const long before = drafting.backend->counts.forwards;
    drafting.drafter->propose({&request, 1});
    return drafting.backend->counts.forwards - before;
  };
  EXPECT_EQ(n_passes(1e9, 0), 1);  // more than a token for the least time
  EXPECT_EQ(n_passes(0, 1), 1);    // a token for each row
  EXPECT_GT(n_passes(0, 0.01), 2);
  EXPECT_GE(n_passes(0, 0), 8);  // as long as it brings anything
}

// The accepted path was computed while drafting: it becomes history, and only what is new is
// computed.
TEST(ModelDrafter, ReusesWhatItComputed) {
  Drafting drafting;
  std::vector<Token> text{1, 2, 3, 4, 5};
  drafting.drafter->begin({0});
  drafting.drafter->observe({0}, text);
  const DraftLimits limits{.nodes = 4, .depth = 4, .width = 1};
  for (int accepted = 0; accepted <= 4; ++accepted) {
    SCOPED_TRACE(accepted);
    const DraftTree tree = drafting.propose(0, text, limits);
    ASSERT_EQ(tree.size(), 5);
    std::vector<Token> taken;
    for (int node = 1; node <= accepted; ++node) taken.push_back(tree[node].token);
    taken.push_back(22);  // the target's own, which the draft did not foresee
    ASSERT_TRUE(accepted == 4 || tree[accepted + 1].token != 22);
    text.insert(text.end(), taken.begin(), taken.end());
    drafting.drafter->observe({0}, taken);
    // Nodes at depth 1 to 3 had been computed, the leaf had not.
    const long before = drafting.backend->counts.rows;
    drafting.propose(0, text, {.nodes = 1, .depth = 1, .width = 1});
    EXPECT_EQ(drafting.backend->counts.rows - before, accepted == 4 ? 2 : 1);
  }
}

TEST(ModelDrafter, ReadsALongPromptInPasses) {
  for (const int n_slots : {0, 5}) {
    Drafting drafting({}, {.context = 256, .n_sequences = 2, .n_slots = n_slots, .batch_rows = 16});
    std::vector<Token> text;
    for (int i = 0; i < 100; ++i) text.push_back(i % 23);
    drafting.drafter->begin({0});
    drafting.drafter->observe({0}, text);
    const DraftTree tree = drafting.propose(0, text, {.nodes = 1, .depth = 1, .width = 1});
    EXPECT_EQ(drafting.backend->counts.forwards, n_slots == 0 ? 7 : 20);
    EXPECT_EQ(drafting.backend->counts.rows, 100);
    EXPECT_EQ(drafting.backend->counts.logit_rows, 1);
    EXPECT_EQ(tree[1].token, *choice(drafting.backend->model(), text, Drafting::greedy(), 0).token);
  }
}

TEST(ModelDrafter, DraftsForSeveralSequencesInOnePass) {
  Drafting together, alone;
  const SamplingParams sampling = sampled();
  std::vector<std::vector<Token>> texts{{1, 2, 3}, {9}, {4, 4, 4, 4, 4, 4}};
  std::vector<DraftTree> trees;
  std::vector<ChoiceState> states;
  std::vector<DraftRequest> requests;
  for (int i = 0; i < 3; ++i) {
    together.drafter->begin({i});
    together.drafter->observe({i}, texts[i]);
    trees.emplace_back(texts[i].back());
    states.emplace_back(sampling);
    states.back().advance(texts[i]);
  }
  const DraftLimits limits{.nodes = 8, .depth = 4, .width = 2};
  for (int i = 0; i < 3; ++i)
    requests.push_back({.sequence = {i},
                        .tree = &trees[i],
                        .drafter = 0,
                        .limits = limits,
                        .sampling = &sampling,
                        .state = &states[i]});
  together.drafter->propose(requests);
  for (int i = 0; i < 3; ++i) {
    alone.drafter->begin({i});
    alone.drafter->observe({i}, texts[i]);
    const DraftTree tree = alone.propose(i, texts[i], limits, sampling);
    ASSERT_EQ(tree.size(), trees[i].size());
    for (int node = 1; node < tree.size(); ++node) {
      EXPECT_EQ(tree.path(node), trees[i].path(node));
      EXPECT_EQ(tree[node].proposals[0].confidence, trees[i][node].proposals[0].confidence);
    }
  }
  EXPECT_LT(together.backend->counts.forwards, alone.backend->counts.forwards);
}

// Guesses save passes and change no proposal, whatever became of the texts before.
TEST(ModelDrafter, GuessesChangeNoProposal) {
  const LoadOptions load{.context = 400, .n_sequences = 2, .batch_rows = 256};
  for (const SamplingParams& sampling : {Drafting::greedy(), sampled()}) {
    Drafting guessing({}, load), plain({}, load, 23, 0);
    std::mt19937 random(3);
    std::vector<Token> text{1, 2, 3};
    for (Drafting* each : {&guessing, &plain}) {
      each->drafter->begin({0});
      each->drafter->observe({0}, text);
    }
    while (text.size() < 300) {
      const DraftLimits limits{1 + static_cast<int>(random() % 12),
                               1 + static_cast<int>(random() % 8),
                               1 + static_cast<int>(random() % 4)};
      const DraftTree tree = guessing.propose(0, text, limits, sampling);
      const DraftTree wanted = plain.propose(0, text, limits, sampling);
      ASSERT_EQ(tree.size(), wanted.size());
      for (int node = 1; node < tree.size(); ++node) {
        ASSERT_EQ(tree.path(node), wanted.path(node));
        ASSERT_EQ(tree[node].proposals[0].confidence, wanted[node].proposals[0].confidence);
      }
      // The text goes on along some path, with something else, or loses its end.
      std::vector<Token> taken = tree.path(static_cast<int>(random() % tree.size()));
      if (random() % 3 == 0) taken.push_back(static_cast<Token>(random() % 23));
      text.insert(text.end(), taken.begin(), taken.end());
      const int cut = random() % 8 == 0 ? static_cast<int>(text.size() - random() % 3) : 0;
      if (cut > 0) text.resize(cut);
      for (Drafting* each : {&guessing, &plain}) {
        each->drafter->observe({0}, taken);
        if (cut > 0) each->drafter->truncate({0}, cut);
      }
    }
    EXPECT_EQ(guessing.drafter->n_levels(), plain.drafter->n_levels());
    EXPECT_LT(guessing.drafter->n_passes(), 0.8 * static_cast<double>(plain.drafter->n_passes()));
    guessing.drafter->end({0});
    EXPECT_EQ(guessing.backend->n_alive(), 0);
  }
}

TEST(ModelDrafter, NeverDraftsWhatTheTargetDoesNotHave) {
  Drafting drafting({.vocabulary = 40}, {.context = 256}, 7);
  SamplingParams sampling = sampled();
  sampling.bias.push_back({39, 50.0f});
  sampling.bias.push_back({1000, 50.0f});  // beyond both
  std::vector<Token> text{1};
  drafting.drafter->begin({0});
  drafting.drafter->observe({0}, text);
  const DraftTree tree = drafting.propose(0, text, {.nodes = 32, .depth = 8, .width = 4}, sampling);
  EXPECT_EQ(tree.size(), 33);
  for (int node = 1; node < tree.size(); ++node) EXPECT_LT(tree[node].token, 7);
}

TEST(ModelDrafter, IsSilentAboutTokensItDoesNotKnow) {
  Drafting drafting({.vocabulary = 10}, {.context = 256}, 23);
  std::vector<Token> text{1, 12, 3};
  drafting.drafter->begin({0});
  drafting.drafter->observe({0}, text);
  EXPECT_EQ(drafting.propose(0, text).size(), 1);
  EXPECT_EQ(drafting.backend->counts.forwards, 0);
  text.resize(1);
  drafting.drafter->truncate({0}, 1);
  EXPECT_GT(drafting.propose(0, text).size(), 1);
}

TEST(ModelDrafter, IsSilentBeyondItsContext) {
  Drafting drafting({}, {.context = 8});
  std::vector<Token> text{1, 2, 3, 4, 5, 6};
  drafting.drafter->begin({0});
  for (; text.size() <= 10; text.push_back(7)) {
    drafting.drafter->observe({0}, text.size() == 6 ? std::span<const Token>(text)
                                                    : std::span<const Token>(text).last(1));
    const DraftTree tree = drafting.propose(0, text, {.nodes = 16, .depth = 16, .width = 1});
    // A row at position p gives a child, and positions end at 7.
    EXPECT_EQ(tree.size() - 1, std::max<int>(0, 9 - static_cast<int>(text.size())));
  }
}

TEST(ModelDrafter, AnUnusableRowEndsItsDrafting) {
  FakeModel model;
  model.unusable = [](std::span<const Token> path) { return path.size() == 4; };
  Drafting drafting(model);
  std::vector<Token> text{1, 2};
  drafting.drafter->begin({0});
  drafting.drafter->observe({0}, text);
  const DraftTree tree = drafting.propose(0, text, {.nodes = 16, .depth = 16, .width = 1});
  EXPECT_EQ(tree.size() - 1, 2);  // paths of 2 and 3 tokens could be used
  text.insert(text.end(), {3, 4});
  drafting.drafter->observe({0}, std::vector<Token>{3, 4});
  EXPECT_EQ(drafting.propose(0, text).size(), 1);

  // Other branches end with it: nothing is added after the bad row.
  const std::vector<Token> start{1, 2};
  const DraftLimits limits{.nodes = 4, .depth = 16, .width = 2};
  const Token favourite = *choice(model, start, Drafting::greedy(), 0).token;
  model.unusable = [&](std::span<const Token> path) {
    return path.size() == 3 && path[2] == favourite;
  };
  Drafting wide(model);
  wide.drafter->begin({0});
  wide.drafter->observe({0}, start);
  EXPECT_EQ(wide.propose(0, start, limits).size() - 1, 2);
  EXPECT_EQ(wide.backend->counts.forwards, 2);
}

TEST(ModelDrafter, MeasuresItsCost) {
  Drafting drafting;
  EXPECT_EQ(drafting.drafter->cost(1, 10).fixed_ms, 0);
  const std::vector<Token> text{1, 2};
  drafting.drafter->begin({0});
  drafting.drafter->observe({0}, text);
  drafting.drafter->measure_costs();
  const DraftCost cost = drafting.drafter->cost(1, 10);
  EXPECT_GT(cost.fixed_ms, 0);
  EXPECT_GT(cost.per_depth_ms, 0);
  EXPECT_GE(drafting.drafter->cost(8, 10).fixed_ms, cost.fixed_ms);
  EXPECT_DOUBLE_EQ(cost.ms(3), cost.fixed_ms + 2 * cost.per_depth_ms);
}

// Of a text that it was never asked about it has to read nearly all, or as much of its end as is
// asked for, and once asked nothing.
TEST(ModelDrafter, TellsWhatItHasNotRead) {
  constexpr int kWhole = 1 << 30;
  Drafting drafting;
  const std::vector<Token> text(100, 1);
  drafting.drafter->begin({0});
  drafting.drafter->observe({0}, text);
  EXPECT_EQ(drafting.drafter->n_to_prefill({0}, kWhole), 99);
  EXPECT_EQ(drafting.drafter->n_to_prefill({0}, 30), 29);
  EXPECT_EQ(drafting.drafter->n_to_prefill({0}, 5), 0);
  drafting.propose(0, text);
  EXPECT_EQ(drafting.drafter->n_to_prefill({0}, kWhole), 0);
  drafting.drafter->truncate({0}, 10);
  EXPECT_EQ(drafting.drafter->n_to_prefill({0}, kWhole), 0);
}

// Texts of a scope that begin alike are read once, those of another again.
TEST(ModelDrafter, ReadsWhatTextsShareOnce) {
  constexpr int kWhole = 1 << 30;
  Drafting drafting({}, {.context = 256, .n_sequences = 8, .shares_texts = true});
  std::vector<Token> text(220);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<Token>(i * i % 23);
  drafting.drafter->begin({0});
  drafting.drafter->observe({0}, text);
  const DraftTree first = drafting.propose(0, text, {.nodes = 6, .depth = 3, .width = 2});
  drafting.backend->counts = {};
  drafting.drafter->begin({1});
  drafting.drafter->observe({1}, text);
  EXPECT_EQ(drafting.drafter->n_to_prefill({1}, kWhole), 219 - 192);
  const DraftTree second = drafting.propose(1, text, {.nodes = 6, .depth = 3, .width = 2});
  EXPECT_LT(drafting.backend->counts.rows, 64);
  ASSERT_EQ(second.size(), first.size());
  for (int node = 0; node < first.size(); ++node) EXPECT_EQ(second[node].token, first[node].token);
  drafting.drafter->begin({2}, CacheScope{{0, 1}});
  drafting.drafter->observe({2}, text);
  EXPECT_EQ(drafting.drafter->n_to_prefill({2}, kWhole), 219);
}

// Pages that were free when it drafted may be another text's when the draft has come true.
TEST(ModelDrafter, WithoutPagesForAPathItReadsAgain) {
  const LoadOptions load{.context = 300, .n_sequences = 3, .n_pages = 6, .shares_texts = true};
  const DraftLimits limits{.nodes = 4, .depth = 4, .width = 1};
  Drafting drafting({}, load), other({}, load);
  std::vector<Token> old(257), text;
  for (std::size_t i = 0; i < old.size(); ++i) old[i] = static_cast<Token>(i * i % 23);
  for (int i = 0; i < 62; ++i) text.push_back(static_cast<Token>(i % 7));
  drafting.drafter->begin({0});
  drafting.drafter->observe({0}, old);
  drafting.propose(0, old, {.nodes = 1, .depth = 1, .width = 1});
  drafting.drafter->end({0});

  drafting.drafter->begin({1});
  drafting.drafter->observe({1}, text);
  const DraftTree tree = drafting.propose(1, text, limits);
  ASSERT_EQ(tree.size(), 5);
  drafting.drafter->begin({2});
  drafting.drafter->observe({2}, old);
  EXPECT_EQ(drafting.backend->free_pages(), 0);
  std::vector<Token> accepted;
  for (int node = 1; node < tree.size(); ++node) accepted.push_back(tree[node].token);
  drafting.drafter->observe({1}, accepted);
  drafting.drafter->end({2});

  text.insert(text.end(), accepted.begin(), accepted.end());
  other.drafter->begin({1});
  other.drafter->observe({1}, text);
  const DraftTree again = drafting.propose(1, text, limits), fresh = other.propose(1, text, limits);
  ASSERT_EQ(again.size(), fresh.size());
  for (int node = 0; node < again.size(); ++node) EXPECT_EQ(again[node].token, fresh[node].token);
}

// It may skip to the end of a text, where it drafts as for a text without what it skipped; what
// follows is read on, and the whole once that is wanted. What it had read before the gap stays.
TEST(ModelDrafter, ReadsTheEndOfATextFirst) {
  constexpr int kWhole = 1 << 30;
  Drafting drafting;
  std::vector<Token> text;
  const auto grow = [&](int n) {
    std::vector<Token> more;
    for (int i = 0; i < n; ++i) {
      const int place = static_cast<int>(text.size());
      text.push_back((place * place + place / 7) % 23);
      more.push_back(text.back());
    }
    drafting.drafter->observe({0}, more);
  };
  drafting.drafter->begin({0});
  const DraftLimits one{.nodes = 1, .depth = 1, .width = 1};
  const auto expect = [&](int n_context, int n_rows, Excerpt excerpt) {
    const int n_to_prefill = drafting.drafter->n_to_prefill({0}, n_context);
    EXPECT_EQ(n_to_prefill, n_rows > 8 ? n_rows - 1 : 0);
    const long rows = drafting.backend->counts.rows;
    const DraftTree tree = drafting.propose(0, text, one, Drafting::greedy(), n_context);
    EXPECT_EQ(drafting.backend->counts.rows - rows, n_rows);
    const int size = static_cast<int>(text.size());
    EXPECT_EQ(drafting.drafter->n_known({0}, 0), excerpt.n_known(size));
    std::vector<Token> known(text.begin(), text.begin() + excerpt.kept);
    known.insert(known.end(), text.begin() + excerpt.first, text.end());
    ASSERT_EQ(tree.size(), 2);
    EXPECT_EQ(tree[1].token,
              *choice(drafting.backend->model(), known, Drafting::greedy(), 0).token);
  };
  grow(60);
  expect(20, 20, {0, 40});
  grow(2);
  expect(20, 2, {0, 40});  // knows more than the last 20
  EXPECT_EQ(drafting.drafter->n_to_prefill({0}, kWhole), 62 - 1);
  expect(kWhole, 62, {});
  grow(30);
  expect(10, 10, {62, 82});  // less to read than to go on
  grow(1);
  expect(20, 20, {62, 73});
  expect(kWhole, 31, {});
  grow(20);
  expect(10, 10, {93, 103});
  drafting.drafter->truncate({0}, 104);
  text.resize(104);
  grow(3);
  expect(4, 3, {93, 103});
  drafting.drafter->truncate({0}, 50);
  text.resize(50);
  grow(10);
  expect(kWhole, 10, {});
}

// What it reads of the answer it guesses first.
TEST(ModelDrafter, GuessesWhatItPrefills) {
  Drafting drafting;
  std::vector<Token> text{1, 2, 3, 4, 5, 6};
  const auto chosen = [&](std::size_t n) {
    return *choice(drafting.backend->model(), std::span(text).first(n), Drafting::greedy(), 0)
                .token;
  };
  for (int i = 0; i < 12; ++i) {  // the model's own choices, but for one
    const Token right = chosen(text.size());
    text.push_back(i == 7 ? (right + 1) % 23 : right);
  }
  drafting.drafter->begin({0});
  drafting.drafter->observe({0}, text);
  const SamplingParams sampling = Drafting::greedy();
  const ChoiceState state(sampling);
  std::vector<PrefillGuess> prefill_guesses;
  for (const std::size_t n_expected : {12u, 0u}) {  // the second time nothing is left to read
    prefill_guesses.clear();
    DraftTree tree(text.back());
    const DraftRequest request{.sequence = {0},
                               .tree = &tree,
                               .drafter = 0,
                               .limits = {.nodes = 1, .depth = 1, .width = 1},
                               .sampling = &sampling,
                               .state = &state,
                               .prefill_guesses = &prefill_guesses,
                               .n_prefill_guesses = 12};
    drafting.drafter->propose({&request, 1});
    ASSERT_EQ(prefill_guesses.size(), n_expected);
    for (std::size_t i = 0; i < n_expected; ++i) {
      EXPECT_EQ(prefill_guesses[i].was_right, i != 7);
      EXPECT_GE(prefill_guesses[i].confidence, 0.5f);
    }
  }
}

// Before any text and between texts, with a sequence to spare or none.
TEST(ModelDrafter, MeasuringLeavesTextsAsTheyAre) {
  Drafting drafting({}, {.context = 256, .n_sequences = 1, .batch_rows = 128});
  drafting.drafter->measure_costs();
  EXPECT_EQ(drafting.backend->n_alive(), 0);
  EXPECT_GT(drafting.drafter->cost(1, 10).fixed_ms, 0);
  std::vector<Token> text{1, 2, 3};
  drafting.drafter->begin({0});
  drafting.drafter->observe({0}, text);
  const DraftTree before = drafting.propose(0, text);
  drafting.drafter->measure_costs();
  const DraftTree after = drafting.propose(0, text);
  ASSERT_EQ(before.size(), after.size());
  for (int node = 1; node < before.size(); ++node) EXPECT_EQ(before[node].token, after[node].token);
}

// State equals that of a fresh drafter shown the same text, whatever happened on the way; the cache
// of the fake aborts at any misuse.
TEST(ModelDrafter, StateIsAFunctionOfTheText) {
  std::mt19937 random(10);
  const SamplingParams sampling = sampled();
  Drafting drafting({}, {.context = 64, .n_sequences = 6, .batch_rows = 24});
  std::map<int, std::vector<Token>> texts;
  int next = 0;
  const DraftLimits limits{.nodes = 6, .depth = 4, .width = 2};
  for (int round = 0; round < 1500; ++round) {
    const int action = static_cast<int>(random() % 12);
    if (texts.empty() || (action == 0 && texts.size() < 5)) {
      drafting.drafter->begin({next});
      texts[next++];
      continue;
    }
    auto at = std::next(texts.begin(), random() % texts.size());
    auto& [number, text] = *at;
    if (action == 1 && texts.size() > 1) {
      drafting.drafter->end({number});
      texts.erase(at);
    } else if (action == 2) {
      text.resize(random() % (text.size() + 1));
      drafting.drafter->truncate({number}, static_cast<int>(text.size()));
    } else if (action < 8 || text.empty()) {
      std::vector<Token> more(random() % 6);
      for (Token& token : more) token = static_cast<Token>(random() % 23);
      text.insert(text.end(), more.begin(), more.end());
      drafting.drafter->observe({number}, more);
    } else {
      const DraftTree tree = drafting.propose(number, text, limits, sampling);
      Drafting fresh({}, {.context = 64, .batch_rows = 24});
      fresh.drafter->begin({0});
      fresh.drafter->observe({0}, text);
      const DraftTree wanted = fresh.propose(0, text, limits, sampling);
      ASSERT_EQ(tree.size(), wanted.size());
      for (int node = 1; node < tree.size(); ++node) {
        ASSERT_EQ(tree.path(node), wanted.path(node));
        ASSERT_EQ(tree[node].proposals[0].confidence, wanted[node].proposals[0].confidence);
      }
      // Sometimes the text goes along a drafted path.
      if (tree.size() > 1 && random() % 2 == 0) {
        const std::vector<Token> taken =
            tree.path(1 + static_cast<int>(random() % (tree.size() - 1)));
        text.insert(text.end(), taken.begin(), taken.end());
        drafting.drafter->observe({number}, taken);
      }
    }
  }
}

// A model that counts on, and says after n masks what it would say n tokens later.
TEST(ModelDrafter, GuessesSeveralTokensInOnePass) {
  constexpr Token kMask = 22;
  FakeModel model;
  model.says = [](std::span<const Token> path) {
    Token n_masks = 0;
    while (path.back() == kMask) {
      ++n_masks;
      path = path.first(path.size() - 1);
    }
    return (path.back() + 1 + n_masks) % 20;
  };
  for (const bool draws : {false, true}) {
    FakeBackend* backend = nullptr;
    const auto make = [&] {
      auto owned = std::make_unique<FakeBackend>(model, LoadOptions{.context = 64});
      backend = owned.get();
      auto drafter = std::make_unique<ModelDrafter>(std::move(owned),
                                                    ModelDrafterOptions{.target_vocabulary = 23,
                                                                        .memory_bytes = 0,
                                                                        .mask = kMask,
                                                                        .n_parallel = 4,
                                                                        .name = "parallel"});
      drafter->begin({1});
      return drafter;
    };
    SamplingParams sampling = Drafting::greedy();
    if (draws) sampling.filters = {.top_k = 1, .temperature = 1};
    const auto propose = [&](ModelDrafter& drafter, std::span<const Token> text,
                             DraftLimits limits) {
      ChoiceState state(sampling);
      DraftTree tree(text.back());
      const DraftRequest request{.sequence = {1},
                                 .tree = &tree,
                                 .drafter = 0,
                                 .limits = limits,
                                 .sampling = &sampling,
                                 .state = &state,
                                 .draws = draws};
      drafter.propose({&request, 1});
      tree.check_integrity();
      return tree;
    };
    const auto drafter = make();
    FakeBackend& own = *backend;
    std::vector<Token> text{5, 6, 7};
    drafter->observe({1}, text);
    const DraftTree tree = propose(*drafter, text, {.nodes = 8, .depth = 8, .width = 1});
    EXPECT_EQ(tree.path(tree.size() - 1), (std::vector<Token>{8, 9, 10, 11}));
    EXPECT_EQ(drafter->n_passes(), 1);
    EXPECT_EQ(own.counts.rows, 3 + 3);
    // The masks become no history, whatever of the draft was accepted.
    const std::vector<Token> gained{8, 9, 2};
    text.insert(text.end(), gained.begin(), gained.end());
    drafter->observe({1}, gained);
    EXPECT_EQ(own.committed(SequenceId{0}), 3);
    const DraftTree next = propose(*drafter, text, {.nodes = 8, .depth = 3, .width = 1});
    EXPECT_EQ(next.path(next.size() - 1), (std::vector<Token>{3, 4, 5}));
    EXPECT_EQ(own.counts.rows, 6 + 3 + 2);
    const auto fresh = make();
    fresh->observe({1}, text);
    const DraftTree same = propose(*fresh, text, {.nodes = 8, .depth = 3, .width = 1});
    EXPECT_EQ(same.path(same.size() - 1), next.path(next.size() - 1));
    // A tree: every node has the children that its depth has.
    if (draws) continue;
    const DraftTree wide = propose(*fresh, text, {.nodes = 7, .depth = 2, .width = 2});
    ASSERT_EQ(wide.children(0).size(), 2u);
    std::vector<std::vector<Token>> below;
    for (const int child : wide.children(0)) {
      below.emplace_back();
      for (const int node : wide.children(child)) below.back().push_back(wide[node].token);
    }
    EXPECT_EQ(below[0], below[1]);
    EXPECT_EQ(below[0].size(), 2u);
  }
}

// A draft model of another vocabulary reads two tokens for most of the target's: what it computed,
// cut and read again is as if it had read the text at once, also where it knows its end alone.
TEST(ModelDrafter, ReadsATextInItsOwnVocabulary) {
  std::vector<std::string> pairs, letters;
  for (char first = 'a'; first < 'e'; ++first) {
    pairs.emplace_back(1, first);
    for (char second = 'a'; second < 'e'; ++second) pairs.push_back({first, second});
  }
  for (char letter = 'd'; letter >= 'a'; --letter) letters.emplace_back(1, letter);
  while (letters.size() < 10) letters.push_back("?" + std::to_string(letters.size()));
  const auto vocabulary =
      std::make_shared<VocabularyMap>(FakeTokenizer(pairs), FakeTokenizer(letters));
  LoadOptions load{.context = 512, .n_sequences = 2};
  vocabulary->name_outputs(load);
  FakeModel model;
  model.vocabulary = 10;
  FakeBackend* backend = nullptr;
  const auto make = [&] {
    auto owned = std::make_unique<FakeBackend>(model, load);
    backend = owned.get();
    auto drafter = std::make_unique<ModelDrafter>(
        std::move(owned), ModelDrafterOptions{.target_vocabulary = 20, .vocabulary = vocabulary});
    drafter->begin({1});
    return drafter;
  };
  const SamplingParams sampling = Drafting::greedy();
  const auto paths = [&](ModelDrafter& drafter, std::span<const Token> text, int n_context) {
    ChoiceState state(sampling);
    DraftTree tree(text.back());
    const DraftRequest request{.sequence = {1},
                               .tree = &tree,
                               .drafter = 0,
                               .limits = {.nodes = 5, .depth = 3, .width = 2},
                               .sampling = &sampling,
                               .state = &state,
                               .n_context = n_context};
    drafter.propose({&request, 1});
    tree.check_integrity();
    std::vector<std::vector<Token>> paths;
    for (int node = 1; node < tree.size(); ++node) {
      paths.push_back(tree.path(node));
      EXPECT_TRUE(vocabulary->own(tree[node].token));
    }
    return paths;
  };
  std::mt19937 random(1);
  std::vector<Token> text;
  for (int i = 0; i < 150; ++i) text.push_back(static_cast<Token>(random() % 20));
  const auto drafter = make();
  const FakeBackend& own = *backend;
  drafter->observe({1}, text);
  EXPECT_EQ(paths(*drafter, text, 16).size(), 5u);  // of which it read the end alone
  EXPECT_LT(own.committed(SequenceId{0}), 150);
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE(round);
    const auto fresh = make();
    fresh->observe({1}, text);
    const auto expected = paths(*fresh, text, 1 << 20);
    EXPECT_EQ(paths(*drafter, text, 1 << 20), expected);
    ASSERT_EQ(expected.size(), 5u);
    const auto& longest =
        *std::ranges::max_element(expected, {}, [](const auto& p) { return p.size(); });
    if (round % 3 == 0) {
      const int length = std::ssize(text) - 1 - static_cast<int>(random() % 9);
      drafter->truncate({1}, length);
      text.resize(length);
    }
    // As drafted, then something else.
    std::vector<Token> gained = round % 3 == 0 ? std::vector<Token>{} : longest;
    gained.push_back(static_cast<Token>(random() % 20));
    drafter->observe({1}, gained);
    text.insert(text.end(), gained.begin(), gained.end());
  }
  drafter->truncate({1}, 0);
  drafter->observe({1}, std::vector<Token>{3});
  EXPECT_EQ(paths(*drafter, std::vector<Token>{3}, 1 << 20).size(), 5u);
}

}  // namespace
}  // namespace outrider

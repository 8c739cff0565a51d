// Rejection sampling through the whole engine: every outcome of all random decisions, from the
// draft model's draws over tree, planner, pass and verifier to the last token of several steps,
// adds up to the target's distribution.

#include <gtest/gtest.h>

#include <boost/math/special_functions/gamma.hpp>
#include <cmath>
#include <map>
#include <random>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/plain_decoding_test.h"
#include "model/fake_backend.h"
#include "speculation/drafters/lookahead.h"
#include "speculation/drafters/lookup.h"
#include "speculation/drafters/model.h"
#include "speculation/drafters/prediction.h"
#include "speculation/drafters/self.h"
#include "speculation/enumeration_test.h"
#include "speculation/vocabulary_map.h"

namespace outrider {
namespace {

using Answer = std::vector<Token>;
using AnswerChances = std::map<Answer, double>;

// Draws of drafts are decisions of an enumeration.
class EnumeratedBackend final : public FakeBackend {
 public:
  EnumeratedBackend(Enumeration& enumeration, FakeModel model, const LoadOptions& options)
      : FakeBackend(std::move(model), options), enumeration_(enumeration) {}
  bool is_target = false;
  int length = 0;  // of the text, set before each step

  std::vector<Choice> choose(const Pass& pass, std::span<const ChoiceRequest> requests) override {
    std::vector<Choice> choices = FakeBackend::choose(pass, requests);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const ChoiceRequest& request = requests[i];
      // The target's own, or what a draft model would have guessed for tokens that are there: the
      // planner learns from it.
      if (request.noise.use == NoiseUse::choice) {
        EXPECT_TRUE(is_target || static_cast<int>(request.noise.position) < length);
        continue;
      }
      EXPECT_EQ(request.noise.use, NoiseUse::draft);
      std::vector<double> weights;
      for (const auto& [token, probability] : choices[i].probabilities)
        weights.push_back(probability);
      choices[i].best.clear();
      for (int n = 0; n < request.n_best && n < std::ssize(weights); ++n) {
        const std::size_t drawn =
            enumeration_.pick({NoiseUse::draft, static_cast<int>(request.noise.position),
                               static_cast<int>(request.noise.node), n},
                              weights);
        weights[drawn] = 0;
        const auto& [token, probability] = choices[i].probabilities[drawn];
        choices[i].best.push_back({token, 0, probability});
      }
    }
    return choices;
  }

 private:
  Enumeration& enumeration_;
};

// Rejection with the enumeration's decisions; the plain choice after a leaf is one of them.
class EnumeratedRejection final : public Verifier {
 public:
  explicit EnumeratedRejection(Enumeration& enumeration) : enumeration_(enumeration) {}
  int length = 0;  // of the text, set before each step

  std::string_view name() const override { return "enumerated"; }
  Guarantee guarantee() const override { return Guarantee::same_distribution; }
  bool wants_draws() const override { return true; }
  bool wants_probabilities(const DraftTree&, int) const override { return true; }
  Verdict verify(const DraftTree& tree, std::span<const NodeAnswer> answers,
                 const Chance&) const override {
    Verdict verdict =
        rejection_verifier()->verify(tree, answers, EnumeratedChance(enumeration_, length));
    const int last = verdict.accepted.empty() ? 0 : verdict.accepted.back();
    if (!tree.children(last).empty() || answers[last].probabilities.empty()) return verdict;
    std::vector<double> weights;
    for (const auto& [token, probability] : answers[last].probabilities)
      weights.push_back(probability);
    const DecisionKey key{NoiseUse::choice, length + tree[last].depth, 0, 0};
    verdict.next = answers[last].probabilities[enumeration_.pick(key, weights)].token;
    return verdict;
  }

 private:
  Enumeration& enumeration_;
};

struct RejectionCase {
  const char* name;
  PlannerOptions planner;
  Answer prompt = {3, 4};
  Answer prediction = {};
  bool looks_up = false, looks_ahead = false, skips_layers = false;
  int n_models = 1;
  SamplingParams sampling = {};
  std::size_t guess_bytes = 0;
  std::optional<Token> mask = {};  // of models that guess three tokens in one pass
  bool is_foreign = false;         // the models have another vocabulary
  int n_tokens = 4;
};

// The letters of words() in another order, and some of them missing.
FakeTokenizer foreign_words() {
  std::vector<std::string> entries;
  for (Token token = 0; token < 23; ++token)
    entries.push_back(token % 5 == 2 ? "!" : words().bytes(22 - token, false));
  return FakeTokenizer(entries);
}

SamplingParams top(int k) {
  SamplingParams params;
  params.filters = {.top_k = k, .top_p = 1, .min_p = 0, .temperature = 1};
  return params;
}

struct RejectionRun {
  const RejectionCase& of;
  int n_tokens;
  FakeModel target{.peak = 1, .whole_path = 3};

  AnswerChances expected() const {
    AnswerChances answers{{{}, 1}};
    for (int i = 0; i < n_tokens; ++i) {
      AnswerChances longer;
      for (const auto& [answer, chance] : answers) {
        Answer text = of.prompt;
        text.insert(text.end(), answer.begin(), answer.end());
        ChoiceState state(of.sampling);
        state.advance(text);
        const auto counts = state.counts();
        ChoiceRequest request =
            choice_request(of.sampling, counts, 0, static_cast<int>(text.size()));
        request.wants_probabilities = true;
        Distribution distribution = choose_reference(target.logits(text), request).probabilities;
        if (const auto forced = state.forced()) distribution = {{*forced, 1}};
        double sum = 0;
        for (const auto& [token, p] : distribution) sum += p;
        for (const auto& [token, p] : distribution) {
          Answer next = answer;
          next.push_back(token);
          longer[next] += chance * p / sum;
        }
      }
      answers = std::move(longer);
    }
    return answers;
  }

  AnswerChances found(long* n_drawn, long* n_accepted) const {
    AnswerChances answers;
    Enumeration enumeration;
    FakeTokenizer tokenizer = words();
    tokenizer.end_tokens.clear();
    enumeration.run([&] {
      std::vector<std::unique_ptr<Drafter>> drafters;
      std::vector<EnumeratedBackend*> models;
      const auto backend =
          std::make_shared<EnumeratedBackend>(enumeration, target, LoadOptions{.context = 64});
      backend->is_target = true;
      if (of.looks_up) drafters.push_back(std::make_unique<LookupDrafter>(LookupOptions{}));
      if (of.looks_ahead) drafters.push_back(std::make_unique<LookaheadDrafter>());
      if (!of.prediction.empty()) drafters.push_back(std::make_unique<PredictionDrafter>());
      for (int i = 0; i < of.n_models; ++i) {
        FakeModel draft = target;
        draft.disagreement = 0.5f;
        draft.opinion = static_cast<std::uint64_t>(i);
        LoadOptions load{.context = 64, .n_sequences = 2};
        ModelDrafterOptions options{.target_vocabulary = draft.vocabulary,
                                    .memory_bytes = of.guess_bytes,
                                    .mask = of.mask,
                                    .n_parallel = 3};
        if (of.is_foreign) {
          options.vocabulary = std::make_shared<VocabularyMap>(words(), foreign_words());
          draft.says = [this](std::span<const Token> path) {
            const Token last[] = {22 - path.back()};
            const std::vector<float> logits = target.logits(last);
            return 22 - static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
          };
          options.vocabulary->name_outputs(load);
        }
        auto model = std::make_unique<EnumeratedBackend>(enumeration, draft, load);
        models.push_back(model.get());
        drafters.push_back(std::make_unique<ModelDrafter>(std::move(model), std::move(options)));
      }
      if (of.skips_layers)
        drafters.push_back(std::make_unique<SelfDrafter>(backend, std::vector{1}));
      Engine engine(backend, std::move(drafters), {.planner = of.planner});
      const auto verifier = std::make_shared<EnumeratedRejection>(enumeration);
      const auto generation = engine.begin(of.prompt, of.sampling, StopRules(tokenizer, {}),
                                           {.prediction = of.prediction, .verifier = verifier});
      const auto n_prompt = std::ssize(of.prompt);
      while (std::ssize(generation->tokens) < n_prompt + n_tokens) {
        verifier->length = static_cast<int>(generation->tokens.size());
        for (EnumeratedBackend* model : models) model->length = verifier->length;
        Generation* const all[] = {generation.get()};
        engine.step(all);
        if (generation->error) FAIL() << generation->error->what();
        if (generation->ended()) break;
      }
      *n_drawn += generation->counters.drafted;
      *n_accepted += generation->counters.accepted;
      Answer answer(generation->tokens.begin() + n_prompt, generation->tokens.end());
      answer.resize(static_cast<std::size_t>(n_tokens));
      answers[answer] += enumeration.probability();
    });
    EXPECT_FALSE(enumeration.repeated()) << "noise is used twice";
    return answers;
  }
};

TEST(EngineRejection, GivesTheTargetsDistribution) {
  SamplingParams penalties = top(2);
  penalties.filters.repeat_penalty = 1.5f;
  penalties.filters.temperature = 0.7f;
  penalties.bias = {{5, 0.5f}};
  SamplingParams forced = top(2);
  forced.reasoning = ReasoningLimit{.n_prompt = 2, .n_tokens = 1, .close = 7, .is_begun = true};
  const PlannerOptions chain{.automatic = false, .rows = 2, .depth = 2, .width = 1};
  const RejectionCase cases[] = {
      {.name = "a chain", .planner = chain, .sampling = top(2)},
      {.name = "one level of two",
       .planner = {.automatic = false, .rows = 2, .depth = 1, .width = 2},
       .sampling = top(3)},
      {.name = "a tree",
       .planner = {.automatic = false, .rows = 3, .depth = 2, .width = 2},
       .sampling = top(2)},
      {.name = "two draft models",
       .planner = {.automatic = false, .rows = 4, .depth = 2, .width = 1},
       .n_models = 2,
       .sampling = top(2)},
      {.name = "a prediction beside the model",
       .planner = {.automatic = false, .rows = 3, .depth = 2, .width = 2},
       .prediction = {5, 6, 7},
       .sampling = top(2)},
      {.name = "look-up beside the model",
       .planner = {.automatic = false, .rows = 3, .depth = 2, .width = 1},
       .prompt = {5, 6, 7, 5, 6, 8, 5, 6},
       .looks_up = true,
       .sampling = top(2)},
      {.name = "lookahead beside the model",
       .planner = {.automatic = false, .rows = 4, .depth = 2, .width = 1},
       .looks_ahead = true,
       .sampling = top(2)},
      {.name = "lookahead alone",
       .planner = {.automatic = false, .rows = 8, .depth = 2, .width = 2},
       .looks_ahead = true,
       .n_models = 0,
       .sampling = top(2),
       .n_tokens = 6},
      {.name = "the target's own layers",
       .planner = {.automatic = false, .rows = 3, .depth = 2, .width = 2},
       .skips_layers = true,
       .n_models = 0,
       .sampling = top(2)},
      {.name = "the target's own layers beside the model",
       .planner = {.automatic = false, .rows = 4, .depth = 2, .width = 1},
       .skips_layers = true,
       .sampling = top(2)},
      {.name = "penalties", .planner = chain, .sampling = penalties},
      {.name = "a forced token", .planner = chain, .sampling = forced},
      {.name = "several tokens in one pass", .planner = chain, .sampling = top(2), .mask = 22},
      {.name = "several tokens in one pass, wide",
       .planner = {.automatic = false, .rows = 4, .depth = 3, .width = 2},
       .sampling = top(2),
       .mask = 22,
       .n_tokens = 3},
      {.name = "another vocabulary",
       .planner = {.automatic = false, .rows = 2, .depth = 2, .width = 2},
       .sampling = top(2),
       .is_foreign = true,
       .n_tokens = 3},
      {.name = "guessed rows", .planner = chain, .sampling = top(2), .guess_bytes = 1 << 16},
  };
  for (const RejectionCase& of : cases) {
    SCOPED_TRACE(of.name);
    const RejectionRun run{of, of.n_tokens};
    long n_drawn = 0, n_accepted = 0;
    const AnswerChances found = run.found(&n_drawn, &n_accepted), expected = run.expected();
    EXPECT_GT(n_drawn, 0);
    EXPECT_GT(n_accepted, 0);
    EXPECT_LT(n_accepted, n_drawn);
    EXPECT_EQ(found.size(), expected.size());
    for (const auto& [answer, chance] : found) {
      const auto same = expected.find(answer);
      ASSERT_NE(same, expected.end());
      EXPECT_NEAR(chance, same->second, 1e-12);
    }
  }
}

// The same with real noise, seed by seed: draws, acceptance and what remains must be independent of
// each other, which the enumeration takes for granted.
TEST(EngineRejection, NoiseGivesTheTargetsDistribution) {
  const PlannerOptions chain{.automatic = false, .rows = 4, .depth = 3, .width = 1};
  const PlannerOptions tree{.automatic = false, .rows = 12, .depth = 3, .width = 3};
  const RejectionCase cases[] = {
      {.name = "a model, chains", .planner = chain, .sampling = top(3)},
      {.name = "a model, trees", .planner = tree, .sampling = top(3)},
      {.name = "look-up beside a model, chains",
       .planner = chain,
       .prompt = {5, 6, 7, 5, 6, 8, 5, 6},
       .looks_up = true,
       .sampling = top(3)},
      {.name = "look-up beside a model, trees",
       .planner = tree,
       .prompt = {5, 6, 7, 5, 6, 8, 5, 6},
       .looks_up = true,
       .sampling = top(3)},
      {.name = "a prediction beside two models",
       .planner = tree,
       .prediction = {5, 6, 7},
       .n_models = 2,
       .sampling = top(3)},
      {.name = "own layers beside lookahead",
       .planner = tree,
       .looks_ahead = true,
       .skips_layers = true,
       .n_models = 0,
       .sampling = top(3)},
  };
  constexpr int kSamples = 20000;
  constexpr double kFalseAlarm = 1e-8;
  for (const RejectionCase& of : cases) {
    SCOPED_TRACE(of.name);
    const RejectionRun run{of, of.n_tokens};
    std::vector<std::unique_ptr<Drafter>> drafters;
    const auto backend = std::make_shared<FakeBackend>(run.target, LoadOptions{.context = 64});
    if (of.looks_up) drafters.push_back(std::make_unique<LookupDrafter>(LookupOptions{}));
    if (of.looks_ahead) drafters.push_back(std::make_unique<LookaheadDrafter>());
    if (!of.prediction.empty()) drafters.push_back(std::make_unique<PredictionDrafter>());
    for (int i = 0; i < of.n_models; ++i) {
      FakeModel draft = run.target;
      draft.disagreement = 0.5f;
      draft.opinion = static_cast<std::uint64_t>(i);
      drafters.push_back(std::make_unique<ModelDrafter>(
          std::make_unique<FakeBackend>(draft, LoadOptions{.context = 64, .n_sequences = 2}),
          ModelDrafterOptions{.target_vocabulary = draft.vocabulary, .memory_bytes = 1 << 16}));
    }
    if (of.skips_layers) drafters.push_back(std::make_unique<SelfDrafter>(backend, std::vector{1}));
    Engine engine(backend, std::move(drafters), {.planner = of.planner});
    FakeTokenizer tokenizer = words();
    tokenizer.end_tokens.clear();
    std::map<Answer, int> found;
    long n_accepted = 0;
    for (int i = 0; i < kSamples; ++i) {
      SamplingParams sampling = of.sampling;
      sampling.seed = static_cast<std::uint64_t>(i);
      const auto generation =
          engine.begin(of.prompt, sampling, StopRules(tokenizer, {.n_predict = of.n_tokens}),
                       {.prediction = of.prediction, .verifier = rejection_verifier()});
      Generation* const all[] = {generation.get()};
      while (!generation->ended()) engine.step(all);
      ASSERT_FALSE(generation->error);
      n_accepted += generation->counters.accepted;
      ++found[{generation->tokens.begin() + std::ssize(of.prompt), generation->tokens.end()}];
    }
    double statistic = 0;  // Pearson's
    const AnswerChances expected = run.expected();
    for (const auto& [answer, chance] : expected) {
      const double wanted = chance * kSamples, n = found[answer];
      statistic += (n - wanted) * (n - wanted) / wanted;
    }
    EXPECT_GT(boost::math::gamma_q(static_cast<double>(expected.size() - 1) / 2, statistic / 2),
              kFalseAlarm);
    EXPECT_GT(n_accepted, kSamples / 10);
  }
}

}  // namespace
}  // namespace outrider

// The judge of speculation: whatever is drafted, planned, chunked or batched, the text is the one
// of plain decoding, token by token. The target is a fake whose logits tell every wrong row apart.

#include "engine/engine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <map>
#include <random>

#include "base/error.h"
#include "engine/plain_decoding_test.h"
#include "engine/session.h"
#include "model/fake_backend.h"
#include "sampling/fake_tokenizer.h"
#include "speculation/drafters/lookahead.h"
#include "speculation/drafters/lookup.h"
#include "speculation/drafters/model.h"
#include "speculation/drafters/prediction.h"
#include "speculation/drafters/rest.h"
#include "speculation/drafters/self.h"
#include "speculation/vocabulary_map.h"

namespace outrider {
namespace {

// Proposes what a function of the text says.
class ScriptedDrafter : public Drafter {
 public:
  using Script = std::function<void(std::span<const Token> text, const DraftRequest& request)>;
  explicit ScriptedDrafter(Script script) : script_(std::move(script)) {}

  std::string_view name() const override { return "scripted"; }
  void begin(DraftSequence sequence, CacheScope scope) override {
    CHECK(texts_.try_emplace(sequence).second);
    scopes[sequence] = scope;
  }
  void observe(DraftSequence sequence, std::span<const Token> tokens) override {
    if (before_observe) before_observe();
    auto& text = texts_.at(sequence);
    text.insert(text.end(), tokens.begin(), tokens.end());
  }
  void propose(std::span<const DraftRequest> requests) override {
    for (const DraftRequest& request : requests) {
      const auto& text = texts_.at(request.sequence);
      CHECK((*request.tree)[0].token == text.back());
      script_(text, request);
    }
  }
  void truncate(DraftSequence sequence, int length) override { texts_.at(sequence).resize(length); }
  void end(DraftSequence sequence) override { CHECK(texts_.erase(sequence) == 1); }
  DraftCost cost(int, int) const override { return {}; }

  const std::map<DraftSequence, std::vector<Token>>& texts() const { return texts_; }
  std::function<void()> before_observe = nullptr;  // may throw
  std::map<DraftSequence, CacheScope> scopes;

 private:
  Script script_;
  std::map<DraftSequence, std::vector<Token>> texts_;
};

using Drafters = std::vector<std::unique_ptr<Drafter>>;
using MakeDrafters = std::function<Drafters()>;

struct Setting {
  LoadOptions load{.context = 200, .n_sequences = 8, .batch_rows = 64};
  EngineOptions engine{.planner = {.automatic = false}};
  FakeModel model;
};

// Where there is none, one that drafts with the target's first layer.
Drafters on(const std::shared_ptr<Backend>& target, Drafters drafters) {
  for (std::unique_ptr<Drafter>& drafter : drafters)
    if (!drafter) drafter = std::make_unique<SelfDrafter>(target, std::vector{0});
  return drafters;
}

// Adds up what its steps report.
struct WatchedEngine : Engine {
  WatchedEngine(const Setting& setting, Drafters drafters)
      : WatchedEngine(std::make_shared<FakeBackend>(setting.model, setting.load),
                      std::move(drafters), setting.engine) {}
  WatchedEngine(const std::shared_ptr<Backend>& target, Drafters drafters,
                const EngineOptions& options)
      : Engine(target, on(target, std::move(drafters)), options) {
    on_step([this](const StepReport& report) {
      reports.push_back(report);
      rows += report.rows;
      for (const auto& sequence : report.sequences) {
        drafted += static_cast<long>(sequence.nodes.size());
        accepted += std::ranges::count(sequence.nodes, true, &StepReport::Node::accepted);
        emitted += static_cast<long>(sequence.emitted.size());
      }
    });
  }
  long steps() const { return static_cast<long>(reports.size()); }

  std::vector<StepReport> reports;
  long rows = 0, drafted = 0, accepted = 0, emitted = 0;
};

// The cache holds all but the last token; drafters saw the text up to a step before, and all of an
// answer that has ended.
void check_state(const Engine& engine, const Generation& generation) {
  const auto& backend = dynamic_cast<const FakeBackend&>(engine.target());
  const auto cached = backend.text(generation.sequence);
  ASSERT_LT(cached.size(), generation.tokens.size());
  ASSERT_TRUE(std::equal(cached.begin(), cached.end(), generation.tokens.begin()));
  if (!generation.emitted.empty()) {
    ASSERT_EQ(cached.size() + 1, generation.tokens.size());
  }
  ASSERT_EQ(backend.free_slots(generation.sequence), backend.options().n_slots);
  for (const auto& drafter : engine.drafters())
    if (const auto* scripted = dynamic_cast<const ScriptedDrafter*>(drafter.get())) {
      ASSERT_EQ(scripted->texts().at(generation.draft_sequence),
                std::vector<Token>(generation.tokens.begin(),
                                   generation.tokens.begin() + generation.n_shown));
      if (generation.finish_reason) {
        ASSERT_EQ(generation.n_shown, std::ssize(generation.tokens));
      }
    }
}

// All requests together, each in every step until it is finished; with `stagger` request i joins at
// step 2i.
std::vector<Outcome> generate(Engine& engine, const Tokenizer& tokenizer,
                              const std::vector<Request>& requests, bool stagger = false) {
  std::vector<std::unique_ptr<Generation>> generations(requests.size());
  std::vector<Outcome> outcomes(requests.size());
  for (std::size_t step = 0;; ++step) {
    std::vector<Generation*> alive;
    bool more = false;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (stagger && step < 2 * i) {
        more = true;
        continue;
      }
      if (!generations[i])
        generations[i] = engine.begin(requests[i].prompt, requests[i].sampling,
                                      StopRules(tokenizer, requests[i].stop), requests[i].options);
      outcomes[i].finished = generations[i]->finish_reason;
      if (!generations[i]->ended()) alive.push_back(generations[i].get());
    }
    if (alive.empty() && !more) break;
    if (alive.empty()) continue;
    engine.step(alive);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (!generations[i] || std::ranges::count(alive, generations[i].get()) == 0) continue;
      check_state(engine, *generations[i]);
      for (const Emitted& emitted : generations[i]->emitted) {
        outcomes[i].tokens.push_back(emitted.token);
        outcomes[i].text += emitted.text;
      }
      outcomes[i].finished = generations[i]->finish_reason;
    }
  }
  for (const auto& generation : generations) {
    EXPECT_EQ(generation->counters.emitted,
              static_cast<long>(generation->tokens.size()) - generation->n_prompt);
  }
  generations.clear();
  EXPECT_EQ(dynamic_cast<const FakeBackend&>(engine.target()).n_alive(), 0);
  return outcomes;
}

// A text with a token left out, one put in the place of another, and one added.
std::vector<Token> changed(std::vector<Token> tokens) {
  const auto place = [&](int part) { return tokens.begin() + part * std::ssize(tokens) / 4; };
  if (tokens.size() >= 8) {
    tokens.erase(place(1));
    *place(2) ^= 1;
    tokens.insert(place(3), 11);
  }
  return tokens;
}

std::vector<Request> requests() {
  SamplingParams greedy_with_penalties = sampled(0, true);
  greedy_with_penalties.filters.temperature = 0;
  SamplingParams second_answer = sampled(7, false);
  second_answer.stream = 1;
  std::vector<Request> requests{
      {{1, 2, 3, 1, 2, 3, 1, 2}, greedy(), {.n_predict = 40, .ignore_eos = true}},
      {{4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 4, 5, 6}, sampled(7, false), {.n_predict = 33}},
      {{4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 4, 5, 6}, second_answer, {.n_predict = 33}},
      {{9}, sampled(8, true), {.n_predict = 25, .ignore_eos = true}},
      {{3, 3, 3}, greedy_with_penalties, {.n_predict = 20, .texts = {"qa", "bb", "l"}}},
  };
  for (Request& request : requests)
    request.options.prediction = changed(decode_plainly({}, words(), request, 200).tokens);
  return requests;
}

std::unique_ptr<Drafter> lookup() {
  return std::make_unique<LookupDrafter>(LookupOptions{});
}

std::unique_ptr<Drafter> prediction() {
  return std::make_unique<PredictionDrafter>();
}

// From a datastore of the answers with changes.
std::unique_ptr<Drafter> rest() {
  static const auto datastore = [] {
    const std::filesystem::path file =
        std::filesystem::temp_directory_path() / fmt::format("engine-test-{}", getpid());
    DatastoreBuilder builder(words());
    for (const Request& request : requests()) builder.add(request.options.prediction);
    builder.write(file, {});
    auto opened = std::make_shared<Datastore>(file, vocabulary_fingerprint(words()), 23);
    std::filesystem::remove(file);
    return opened;
  }();
  return std::make_unique<RestDrafter>(datastore);
}

std::unique_ptr<Drafter> self() {
  return nullptr;
}

std::unique_ptr<Drafter> lookahead() {
  return std::make_unique<LookaheadDrafter>();
}

std::unique_ptr<Drafter> model(FakeModel draft, int batch_rows = 64) {
  const LoadOptions load{.context = 150, .n_sequences = 16, .batch_rows = batch_rows};
  return std::make_unique<ModelDrafter>(std::make_unique<FakeBackend>(std::move(draft), load),
                                        ModelDrafterOptions{23});
}

// Has three of four tokens of words(), under other ids, and nothing for the others.
std::unique_ptr<Drafter> foreign_model(FakeModel draft) {
  constexpr Token kLast = 22;
  std::vector<std::string> entries;
  for (Token token = kLast; token >= 0; --token)
    entries.push_back(token % 4 == 3 ? "!" : words().bytes(token, false));
  const auto vocabulary = std::make_shared<VocabularyMap>(words(), FakeTokenizer(entries));
  LoadOptions load{.context = 150, .n_sequences = 16, .batch_rows = 64};
  vocabulary->name_outputs(load);
  // It says what the target would, if it has that.
  draft.says = [](std::span<const Token> path) {
    const Token last[] = {kLast - path.back()};
    const std::vector<float> logits = FakeModel{}.logits(last);
    return kLast - static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
  };
  return std::make_unique<ModelDrafter>(
      std::make_unique<FakeBackend>(std::move(draft), load),
      ModelDrafterOptions{.target_vocabulary = 23, .vocabulary = vocabulary});
}

// Guesses three tokens in a pass, with the target's last token as mask.
std::unique_ptr<Drafter> parallel(FakeModel draft) {
  draft.says = [](std::span<const Token> path) {
    std::size_t n = path.size();
    while (n > 1 && path[n - 1] == 22) --n;
    std::vector<Token> text(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(n));
    Token next = 0;
    for (; n <= path.size(); ++n) {
      const std::vector<float> logits = FakeModel{}.logits(text);
      next = static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
      text.push_back(next);
    }
    return next;
  };
  return std::make_unique<ModelDrafter>(
      std::make_unique<FakeBackend>(
          std::move(draft), LoadOptions{.context = 150, .n_sequences = 16, .batch_rows = 64}),
      ModelDrafterOptions{.target_vocabulary = 23, .memory_bytes = 0, .mask = 22, .n_parallel = 3});
}

template <typename... Each>
Drafters list(Each... drafter) {
  Drafters drafters;
  (drafters.push_back(std::move(drafter)), ...);
  return drafters;
}

struct Draft {
  const char* name;
  MakeDrafters make;
};

std::vector<Draft> drafts() {
  FakeModel nearly, smaller, larger;
  nearly.disagreement = 0.3f;
  smaller.vocabulary = 15;
  larger.vocabulary = 70;
  return {
      {"off", [] { return Drafters{}; }},
      {"lookup", [] { return list(lookup()); }},
      {"model, the target itself", [] { return list(model({})); }},
      {"model, nearly right", [=] { return list(model(nearly)); }},
      {"model, fewer tokens", [=] { return list(model(smaller)); }},
      {"model, more tokens", [=] { return list(model(larger, 20)); }},
      {"prediction", [] { return list(prediction()); }},
      {"lookup+model", [=] { return list(lookup(), model(nearly)); }},
      {"lookup+prediction+model", [=] { return list(lookup(), prediction(), model(nearly)); }},
      {"model+lookup", [=] { return list(model(nearly), lookup()); }},
      {"rest", [] { return list(rest()); }},
      {"self", [] { return list(self()); }},
      {"lookup+self+lookahead", [] { return list(lookup(), self(), lookahead()); }},
      {"model of another vocabulary", [=] { return list(foreign_model(nearly)); }},
      {"parallel", [=] { return list(parallel(nearly)); }},
      {"lookahead", [] { return list(lookahead()); }},
      {"lookahead+lookup+model", [=] { return list(lookahead(), lookup(), model(nearly)); }},
      {"lookup+rest+model", [=] { return list(lookup(), rest(), model(nearly)); }},
  };
}

TEST(Engine, TextIsThatOfPlainDecoding) {
  const FakeTokenizer tokenizer = words();
  const auto all = requests();
  Setting setting;
  std::vector<Outcome> wanted;
  for (const Request& request : all)
    wanted.push_back(decode_plainly(setting.model, tokenizer, request, setting.load.context));

  for (const Draft& draft : drafts())
    for (PlannerOptions planner :
         {PlannerOptions{.rows = 0}, PlannerOptions{.rows = 1},
          PlannerOptions{.rows = 5, .depth = 3, .width = 1}, PlannerOptions{.rows = 16},
          PlannerOptions{.rows = 30, .depth = 5, .width = 8}})
      for (const int chunk : {0, 1, 3})
        for (const bool automatic : {false, true}) {
          planner.automatic = automatic;
          SCOPED_TRACE(fmt::format("{}, {} rows, depth {}, width {}, chunk {}, automatic {}",
                                   draft.name, planner.rows, planner.depth, planner.width, chunk,
                                   automatic));
          setting.engine = {planner, chunk};
          WatchedEngine together(setting, draft.make());
          if (automatic) together.measure_costs();
          EXPECT_EQ(generate(together, tokenizer, all, /*stagger=*/chunk == 3), wanted);
          WatchedEngine alone(setting, draft.make());
          for (std::size_t i = 0; i < all.size(); ++i)
            EXPECT_EQ(generate(alone, tokenizer, {all[i]})[0], wanted[i]);
        }
}

// Answers of all verifiers in one batch. Greedy ones are those of plain decoding under each, and
// coupled ones whatever the others do.
TEST(Engine, VerifiersShareABatch) {
  const FakeTokenizer tokenizer = words();
  std::vector<Request> all = requests();
  for (const auto& verifier : {rejection_verifier(), typical_verifier({})})
    for (const bool everything : {false, true}) {
      all.push_back(
          {{4, 5, 6, 4, 5, 6, 4}, sampled(9, everything), {.n_predict = 40, .ignore_eos = true}});
      all.back().options = {.prediction = {5, 6, 7, 8, 9, 10}, .verifier = verifier};
      all.push_back({{1, 2, 3, 1, 2, 3, 1, 2}, greedy(), {.n_predict = 40, .ignore_eos = true}});
      all.back().options = {.verifier = verifier};
    }
  Setting setting;
  setting.load.n_sequences = static_cast<int>(all.size());
  std::vector<Outcome> plain;
  for (const Request& request : all)
    plain.push_back(decode_plainly(setting.model, tokenizer, request, setting.load.context));
  for (const Draft& draft : drafts())
    for (const bool automatic : {false, true})
      for (const int rows : {5, 16}) {
        SCOPED_TRACE(fmt::format("{}, automatic {}, {} rows", draft.name, automatic, rows));
        setting.engine = {{.automatic = automatic, .rows = rows}};
        WatchedEngine engine(setting, draft.make());
        if (automatic) engine.measure_costs();
        const std::vector<Outcome> outcomes = generate(engine, tokenizer, all, /*stagger=*/true);
        for (std::size_t i = 0; i < all.size(); ++i) {
          const bool is_plain = all[i].sampling.filters.temperature <= 0 ||
                                all[i].options.verifier->guarantee() == Guarantee::same_text ||
                                draft.make().empty();
          if (is_plain)
            EXPECT_EQ(outcomes[i], plain[i]) << i;
          else
            EXPECT_EQ(outcomes[i].tokens.size(), 40u) << i;
        }
      }
}

// Notes what is asked of it.
class AskedBackend final : public FakeBackend {
 public:
  using FakeBackend::FakeBackend;
  std::vector<Choice> choose(const Pass& pass, std::span<const ChoiceRequest> requests) override {
    n_asked = static_cast<long>(requests.size());
    n_with_noise = std::ranges::count_if(
        requests, [](const ChoiceRequest& request) { return request.filters.temperature > 0; });
    return FakeBackend::choose(pass, requests);
  }
  long n_asked = 0, n_with_noise = 0;
};

// Riders' answers are what the target would choose only where the verifier follows its choices:
// elsewhere their noise would be that of later steps. And they take what drafts leave of the rows.
TEST(Engine, RidersTakeNoNoiseOfLaterSteps) {
  const FakeTokenizer tokenizer = words();
  for (const auto& verifier : {coupled_verifier(), rejection_verifier(), typical_verifier({})})
    for (const int rows : {0, 4, 16}) {
      SCOPED_TRACE(fmt::format("{}, {} rows", verifier->name(), rows));
      const auto target = std::make_shared<AskedBackend>(FakeModel{}, Setting{}.load);
      WatchedEngine engine(target, list(lookahead()),
                           {.planner = {.automatic = false, .rows = rows}});
      const Request request{
          {1, 2, 3, 1, 2}, sampled(4, true), {.n_predict = 60, .ignore_eos = true}};
      const auto generation =
          engine.begin(request.prompt, request.sampling, StopRules(tokenizer, request.stop),
                       {.verifier = verifier});
      Generation* const alive[] = {generation.get()};
      long n_riders = 0;
      while (!generation->ended()) {
        engine.step(alive);
        const StepReport& report = engine.reports.back();
        const auto n_nodes = std::ssize(report.sequences[0].nodes);
        if (report.sequences[0].n_tokens > 1) continue;
        n_riders += report.rows - 1 - n_nodes;
        EXPECT_LE(report.rows - 1, rows);
        EXPECT_EQ(target->n_asked, report.rows);
        EXPECT_EQ(target->n_with_noise,
                  verifier->guarantee() == Guarantee::same_text ? report.rows : 1 + n_nodes);
      }
      EXPECT_EQ(n_riders > 0, rows > 0);
    }
}

// The drafters above are no decoration: they are right often enough, and a perfect one always.
TEST(Engine, DraftsAreAccepted) {
  const FakeTokenizer tokenizer = words();
  for (const Draft& draft : drafts()) {
    if (draft.make().empty()) continue;
    SCOPED_TRACE(draft.name);
    WatchedEngine engine({}, draft.make());
    generate(engine, tokenizer, requests(), /*stagger=*/true);
    EXPECT_GT(engine.accepted, 10);
    EXPECT_LE(engine.accepted, engine.drafted);
    // Prompts, answers and drafts of all texts are one pass of a step.
    const auto& backend = dynamic_cast<const FakeBackend&>(engine.target());
    long n_own = 0;
    for (const auto& drafter : engine.drafters())
      if (drafter->name() == "self") n_own += drafter->n_passes();
    EXPECT_EQ(backend.counts.forwards, engine.steps() + n_own);
    if (n_own == 0) {
      EXPECT_EQ(backend.counts.rows, engine.rows);
    }
  }
  // The target as its own draft: after the first token a token more than the depth in every step,
  // sampled or not.
  for (const SamplingParams& sampling : {greedy(), sampled(3, true)})
    for (const auto& verifier : {coupled_verifier(), rejection_verifier()}) {
      Setting setting;
      setting.engine.planner = {.automatic = false, .rows = 4, .depth = 4, .width = 1};
      WatchedEngine engine(setting, list(model({})));
      Request request{{1, 2}, sampling, {.n_predict = 51, .ignore_eos = true}};
      request.options.verifier = verifier;
      generate(engine, tokenizer, {request});
      EXPECT_EQ(engine.steps(), 11);
      EXPECT_EQ(engine.accepted, 40);
    }
}

TEST(Engine, TellsAMisalignedDraftModel) {
  const FakeTokenizer tokenizer = words();
  for (const float disagreement : {0.0f, 1.0f}) {
    FakeModel draft;
    draft.disagreement = disagreement;
    draft.opinion = 1;
    Setting setting;
    setting.load.context = 1000;
    setting.engine.planner = {.automatic = false, .rows = 1, .depth = 1, .width = 1};
    const LoadOptions load{.context = 1000, .n_sequences = 8};
    WatchedEngine engine(
        setting, list(std::unique_ptr<Drafter>(std::make_unique<ModelDrafter>(
                     std::make_unique<FakeBackend>(draft, load), ModelDrafterOptions{23}))));
    const auto generation =
        engine.begin(std::vector<Token>{1, 2}, greedy(),
                     StopRules(tokenizer, {.n_predict = 900, .texts = {}, .ignore_eos = true}));
    DrafterCounts counts;
    while (!generation->ended()) {
      Generation* const all[] = {generation.get()};
      engine.step(all);
      counts = generation->counters.drafters[0];
      EXPECT_EQ(is_misaligned(counts), disagreement == 1 && counts.first >= 200);
    }
    EXPECT_GT(counts.first, 200);
    EXPECT_EQ(counts.first_right, disagreement == 0 ? counts.first : counts.accepted);
  }
}

// A drafter that is right exactly j times in a row, for every j, with wrong siblings before or
// after the right child, or with the right path as one of several branches.
TEST(Engine, AcceptsExactlyWhatIsRight) {
  const FakeTokenizer tokenizer = words();
  constexpr int kDepth = 5;
  for (const SamplingParams& sampling : {greedy(), sampled(5, true)}) {
    const Request request{{1, 2, 3}, sampling, {.n_predict = 61, .ignore_eos = true}};
    Setting setting;
    setting.engine.planner = {.automatic = false, .rows = 64, .depth = kDepth, .width = 8};
    const Outcome wanted = decode_plainly(setting.model, tokenizer, request, 200);
    std::vector<Token> whole = request.prompt;
    whole.insert(whole.end(), wanted.tokens.begin(), wanted.tokens.end());
    for (int right = 0; right <= kDepth; ++right)
      for (const int n_wrong : {0, 1, 3})
        for (const bool wrong_first : {false, true}) {
          SCOPED_TRACE(
              fmt::format("right {}, {} wrong siblings, first {}", right, n_wrong, wrong_first));
          const auto script = [&](std::span<const Token> text, const DraftRequest& draft) {
            int node = 0;
            for (int depth = 0; depth < draft.limits.depth && text.size() + depth < whole.size();
                 ++depth) {
              const Token truth = whole[text.size() + depth];
              const auto wrong = [&] {
                for (int i = 1; i <= n_wrong; ++i)
                  draft.tree->propose(node, (truth + i) % 23, {draft.drafter, 0.5f});
              };
              if (wrong_first) wrong();
              const int next = draft.tree->propose(node, depth < right ? truth : (truth + 11) % 23,
                                                   {draft.drafter, 0.5f});
              if (!wrong_first) wrong();
              node = next;
            }
          };
          WatchedEngine engine(setting, list(std::make_unique<ScriptedDrafter>(script)));
          EXPECT_EQ(generate(engine, tokenizer, {request})[0], wanted);
          EXPECT_EQ(engine.steps(), 1 + 60 / (right + 1));
          EXPECT_EQ(engine.accepted, 60 - 60 / (right + 1));
        }
  }
}

// Chains of three of which the first few are right, until 60 tokens follow the first; the last
// chains are as long as the limit allows.
TEST(Engine, CountsWhatDraftsWereLike) {
  const FakeTokenizer tokenizer = words();
  const Request request{{1, 2, 3}, greedy(), {.n_predict = 61, .ignore_eos = true}};
  const Outcome wanted = decode_plainly({}, tokenizer, request, 200);
  std::vector<Token> whole = request.prompt;
  whole.insert(whole.end(), wanted.tokens.begin(), wanted.tokens.end());
  const auto counters_of = [&](Engine& engine) {
    const auto generation =
        engine.begin(request.prompt, request.sampling, StopRules(tokenizer, request.stop));
    Generation* const generations[] = {generation.get()};
    while (!generation->ended()) engine.step(generations);
    return generation->counters;
  };
  Setting setting;
  setting.engine.planner = {.automatic = false, .rows = 3, .depth = 3, .width = 1};
  for (int right = 0; right <= 3; ++right) {
    SCOPED_TRACE(right);
    const auto script = [&](std::span<const Token> text, const DraftRequest& draft) {
      int node = 0;
      for (int depth = 0; depth < draft.limits.depth; ++depth) {
        const Token truth = whole[text.size() + depth];
        node = draft.tree->propose(node, depth < right ? truth : (truth + 11) % 23,
                                   {draft.drafter, 0.5f});
      }
    };
    WatchedEngine engine(setting, list(std::make_unique<ScriptedDrafter>(script)));
    const Counters counters = counters_of(engine);
    const long steps = 60 / (right + 1);
    EXPECT_EQ(counters.steps, 1 + steps);
    EXPECT_EQ(counters.accepted, steps * right);
    long drafts = 0, draft_depth = 0, tested = 0;
    for (int n_left = 60; n_left > 0; n_left -= right + 1) {
      const int depth = std::min(3, n_left - 1);
      drafts += depth > 0;
      draft_depth += depth;
      tested += std::min(right + 1, depth);
    }
    EXPECT_EQ(counters.drafts, drafts);
    EXPECT_EQ(counters.draft_depth, draft_depth);
    EXPECT_EQ(counters.tested, tested);
    EXPECT_EQ(counters.draft_passes, 0);
    EXPECT_GT(counters.draft_ms, 0);
  }
  WatchedEngine engine(setting, list(model({})));
  const Counters counters = counters_of(engine);
  EXPECT_EQ(counters.draft_levels, 3 * 60 / 4);
  EXPECT_GE(counters.draft_passes, 60 / 4);
  EXPECT_LT(counters.draft_passes, counters.draft_levels);  // guesses decided some
  EXPECT_EQ(engine.draft_work().passes, counters.draft_passes);
  EXPECT_EQ(engine.draft_work().levels, counters.draft_levels);
  EXPECT_NEAR(engine.draft_work().ms, counters.draft_ms, 1e-6 * counters.draft_ms);

  // What texts share is counted once.
  WatchedEngine shared(setting, list(model({})));
  const auto one =
      shared.begin(request.prompt, request.sampling, StopRules(tokenizer, request.stop));
  const auto two =
      shared.begin(request.prompt, request.sampling, StopRules(tokenizer, request.stop));
  Generation* const both[] = {one.get(), two.get()};
  while (!one->ended()) shared.step(both);
  EXPECT_TRUE(two->ended());
  EXPECT_EQ(one->counters.draft_passes, two->counters.draft_passes);
  EXPECT_EQ(shared.draft_work().passes, one->counters.draft_passes);
  EXPECT_EQ(shared.draft_work().levels, one->counters.draft_levels);
  EXPECT_NEAR(shared.draft_work().ms, one->counters.draft_ms, 1e-6 * one->counters.draft_ms);
}

// Random trees around the true continuation, two drafters that overlap, random limits, chunks and
// batch mates.
TEST(Engine, RandomTreesChangeNothing) {
  const FakeTokenizer tokenizer = words();
  std::mt19937 random(11);
  for (int round = 0; round < 150; ++round) {
    Setting setting;
    setting.model.peak = 1 + static_cast<float>(random() % 6);
    setting.load.context = 24 + static_cast<int>(random() % 40);
    setting.load.batch_rows = 6 + static_cast<int>(random() % 30);
    setting.engine.prompt_chunk = static_cast<int>(random() % 5);
    setting.engine.planner = {.automatic = random() % 2 == 1,
                              .rows = static_cast<int>(random() % 20),
                              .depth = static_cast<int>(random() % 8),
                              .width = static_cast<int>(random() % 5)};
    std::vector<Request> all;
    std::vector<Outcome> wanted;
    std::map<std::vector<Token>, std::vector<Token>> truths;  // by prompt
    for (std::size_t i = 0; i < 1 + random() % 4; ++i) {
      Request request{{static_cast<Token>(i)},
                      random() % 3 == 0 ? greedy() : sampled(random(), random() % 2),
                      {}};
      while (random() % 8 != 0 && request.prompt.size() < 20)
        request.prompt.push_back(static_cast<Token>(random() % 23));
      request.stop = {.n_predict = static_cast<int>(random() % 40) - 1,
                      .ignore_eos = random() % 2 == 0};
      for (std::size_t stops = random() % 3; stops > 0; --stops)
        request.stop.texts.push_back(
            {static_cast<char>('a' + random() % 23), static_cast<char>('a' + random() % 23)});
      all.push_back(request);
      wanted.push_back(decode_plainly(setting.model, tokenizer, request, setting.load.context));
      truths[request.prompt] = request.prompt;
      truths[request.prompt].insert(truths[request.prompt].end(), wanted.back().tokens.begin(),
                                    wanted.back().tokens.end());
    }
    const auto script = [&](std::span<const Token> text, const DraftRequest& draft) {
      const std::vector<Token>* truth = nullptr;
      for (const auto& [prompt, whole] : truths)
        if (whole.size() >= text.size() && std::equal(text.begin(), text.end(), whole.begin()))
          truth = &whole;
      CHECK(truth);
      for (int i = 0; i < draft.limits.nodes; ++i) {
        const int parent = static_cast<int>(random() % draft.tree->size());
        if ((*draft.tree)[parent].depth >= draft.limits.depth) continue;
        const std::size_t at = text.size() + (*draft.tree)[parent].depth;
        const bool right = at < truth->size() && random() % 3 != 0;
        draft.tree->propose(parent, right ? (*truth)[at] : static_cast<Token>(random() % 23),
                            {draft.drafter, static_cast<float>(random() % 100) / 100});
      }
    };
    WatchedEngine engine(setting, list(std::make_unique<ScriptedDrafter>(script),
                                       std::make_unique<ScriptedDrafter>(script)));
    if (setting.engine.planner.automatic) engine.measure_costs();
    ASSERT_EQ(generate(engine, tokenizer, all, random() % 2), wanted) << "round " << round;
  }
}

// The first pass over so many rows may touch memory that none had touched, and takes too long.
TEST(Engine, TimesEachPassMoreThanOnce) {
  const auto backend =
      std::make_shared<FakeBackend>(FakeModel{}, LoadOptions{.context = 200, .batch_rows = 128});
  Engine engine(backend, {}, {.always_times_passes = true});
  std::map<long, int> passes;  // by rows
  long rows_before = 0;
  const auto end_pass = [&] {
    ++passes[backend->counts.rows - rows_before];
    rows_before = backend->counts.rows;
  };
  backend->before_forward = end_pass;
  engine.measure_costs();
  end_pass();
  for (const int rows : {2, 16, 17, 48}) EXPECT_EQ(passes[rows], 3) << rows;
  EXPECT_EQ(passes[96], 6);  // with all logits, and with one
}

TEST(Engine, StopsAtAFullContext) {
  const FakeTokenizer tokenizer = words();
  for (const Draft& draft : drafts())
    for (const auto& [context, n_predict] : {std::pair{12, -1}, {13, -1}, {30, -1}, {30, 10'000}}) {
      SCOPED_TRACE(draft.name);
      Setting setting;
      setting.load.context = context;
      WatchedEngine engine(setting, draft.make());
      const Request request{{1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2},
                            greedy(),
                            {.n_predict = n_predict, .ignore_eos = true}};
      const Outcome outcome = generate(engine, tokenizer, {request})[0];
      EXPECT_EQ(outcome, decode_plainly(setting.model, tokenizer, request, context));
      EXPECT_EQ(outcome.tokens.size(), context - request.prompt.size());
      EXPECT_EQ(outcome.finished, FinishReason::length);
    }
}

// No row is spent on a token that could not be emitted: the last one always comes from the model.
TEST(Engine, LeavesDraftersTheRoomThatThereIs) {
  const FakeTokenizer tokenizer = words();
  Setting setting;
  setting.load.context = 20;
  for (const int n_predict : {-1, 5}) {
    int last_depth = 0;
    const auto script = [&](std::span<const Token> text, const DraftRequest& request) {
      const int length = static_cast<int>(text.size());
      last_depth = std::min(16, (n_predict < 0 ? 20 : 3 + n_predict) - length - 1);
      EXPECT_EQ(request.limits.depth, last_depth);
    };
    WatchedEngine engine(setting, list(std::make_unique<ScriptedDrafter>(script)));
    generate(engine, tokenizer,
             {{{1, 2, 3}, greedy(), {.n_predict = n_predict, .ignore_eos = true}}});
    EXPECT_EQ(last_depth, 1);  // with room for a single token nobody is asked
  }
}

// Nothing after a stop is emitted, counted, cached or shown to a drafter; check_state sees to the
// last two.
TEST(Engine, StopRulesCutTheAcceptedPath) {
  const FakeTokenizer tokenizer = words();
  Setting setting;
  Request request{{1, 2, 3}, greedy(), {.n_predict = 12, .ignore_eos = true}};
  const Outcome whole = decode_plainly(setting.model, tokenizer, request, 200);
  for (std::size_t length = 1; length <= whole.tokens.size(); ++length)
    for (const bool by_text : {false, true}) {
      Request cut = request;
      if (by_text)
        cut.stop.texts = {whole.text.substr(0, length)};
      else
        cut.stop.n_predict = static_cast<int>(length);
      WatchedEngine engine(setting, list(model({})));
      const Outcome outcome = generate(engine, tokenizer, {cut})[0];
      EXPECT_EQ(outcome.tokens.size(), length);
      EXPECT_EQ(outcome.text, by_text ? "" : whole.text.substr(0, length));
      EXPECT_EQ(engine.emitted, static_cast<long>(length));
      EXPECT_LE(engine.accepted, static_cast<long>(length));
    }
}

TEST(Engine, NoTokensAskedForNeedNoStep) {
  const FakeTokenizer tokenizer = words();
  WatchedEngine engine({}, {});
  EXPECT_EQ(generate(engine, tokenizer, {{{1}, greedy(), {.n_predict = 0}}})[0],
            (Outcome{{}, "", FinishReason::length}));
  EXPECT_EQ(engine.steps(), 0);
}

// Nothing is chosen, so that it may fill the context, and the logits of its last row do not matter.
TEST(Engine, ReadsAPromptThatHasNoAnswer) {
  const FakeTokenizer tokenizer = words();
  for (const int length : {1, 2, 20})
    for (const int chunk : {0, 7, 1})
      for (const bool scores : {false, true}) {
        SCOPED_TRACE(fmt::format("{} tokens in chunks of {}, scores {}", length, chunk, scores));
        Setting setting;
        setting.load.context = 20;
        setting.engine.prompt_chunk = chunk;
        setting.model.unusable = [=](auto path) { return std::ssize(path) == length; };
        WatchedEngine engine(setting, list(lookup(), model({})));
        const std::vector<Token> prompt(static_cast<std::size_t>(length), 7);
        const auto generation =
            engine.begin(prompt, greedy(), StopRules(tokenizer, {.n_predict = 0}),
                         {.n_logprobs = 2, .prompt_logprobs = scores, .prefills_always = true});
        Generation* const alive[] = {generation.get()};
        while (!generation->ended()) {
          engine.step(alive);
          check_state(engine, *generation);
        }
        EXPECT_FALSE(generation->error);
        EXPECT_EQ(generation->finish_reason, FinishReason::length);
        EXPECT_EQ(generation->tokens, prompt);
        EXPECT_EQ(generation->prompt_scores.size(), scores ? prompt.size() - 1 : 0);
        EXPECT_EQ(engine.target().committed(generation->sequence), length - 1);
        EXPECT_EQ(engine.rows, length);
        EXPECT_EQ(engine.emitted, 0);
      }
}

// Where the prompt's log probabilities are wanted, all of its rows matter.
TEST(Engine, AnUnusableRowOfAScoredPromptEndsItsText) {
  const FakeTokenizer tokenizer = words();
  for (const int n_predict : {0, 5})
    for (const bool scores : {false, true}) {
      Setting setting;
      setting.model.unusable = [](auto path) { return path.size() == 2; };
      WatchedEngine engine(setting, {});
      const std::vector<Token> prompt{1, 2, 3};
      const auto generation =
          engine.begin(prompt, greedy(), StopRules(tokenizer, {.n_predict = n_predict}),
                       {.prompt_logprobs = scores, .prefills_always = true});
      Generation* const alive[] = {generation.get()};
      engine.step(alive);
      check_state(engine, *generation);
      EXPECT_EQ(generation->error.has_value(), scores);
      if (scores) {
        EXPECT_EQ(generation->tokens, prompt);
      }
    }
}

// Prompt rows go in chunks whose last carries the root.
TEST(Engine, ReadsPromptsInChunks) {
  const FakeTokenizer tokenizer = words();
  const std::vector<Token> prompt{1, 2, 3, 4, 1, 2, 3, 4, 1, 2};
  for (const auto& [chunk, steps] : {std::pair{0, 1}, {10, 1}, {4, 3}, {1, 10}}) {
    Setting setting;
    setting.engine.prompt_chunk = chunk;
    WatchedEngine engine(setting, list(lookup()));
    const auto generation = engine.begin(prompt, greedy(), StopRules(tokenizer, {}));
    Generation* const alive[] = {generation.get()};
    int n = 0;
    for (; generation->emitted.empty(); ++n) engine.step(alive);
    EXPECT_EQ(n, steps);
    // Nothing is drafted before the first token.
    EXPECT_EQ(engine.drafted, 0);
    EXPECT_EQ(engine.rows, 10);
  }
}

TEST(Engine, AnUnusableRowMattersOnlyOnThePath) {
  const FakeTokenizer tokenizer = words();
  const Request request{{1, 2, 3}, greedy(), {.n_predict = 30, .ignore_eos = true}};
  Setting setting;
  const Outcome wanted = decode_plainly(setting.model, tokenizer, request, 200);
  std::vector<Token> truth = request.prompt;
  truth.insert(truth.end(), wanted.tokens.begin(), wanted.tokens.end());

  // Wrong siblings everywhere, all of them unusable.
  const auto script = [&](std::span<const Token> text, const DraftRequest& draft) {
    int node = 0;
    for (int depth = 0; depth < draft.limits.depth && text.size() + depth < truth.size(); ++depth) {
      draft.tree->propose(node, (truth[text.size() + depth] + 1) % 23, {draft.drafter, 0.5f});
      node = draft.tree->propose(node, truth[text.size() + depth], {draft.drafter, 0.5f});
    }
  };
  setting.model.unusable = [&](std::span<const Token> path) {
    return path.size() > truth.size() || !std::equal(path.begin(), path.end(), truth.begin());
  };
  WatchedEngine beside(setting, list(std::make_unique<ScriptedDrafter>(script)));
  EXPECT_EQ(generate(beside, tokenizer, {request})[0], wanted);
  EXPECT_GT(beside.accepted, 20);

  // On the path: the text goes up to there, as in plain decoding, then fails, for ever. A batch
  // mate goes on.
  for (const int fails_at : {3, 4, 8, 20}) {
    setting.model.unusable = [&](std::span<const Token> path) {
      return static_cast<int>(path.size()) == fails_at &&
             std::equal(path.begin(), path.end(), truth.begin());
    };
    for (const bool drafted : {false, true}) {
      Drafters drafters;
      if (drafted)
        drafters.push_back(std::make_unique<ScriptedDrafter>(
            [&](std::span<const Token> text, const DraftRequest& draft) {
              if (text[0] == 1) script(text, draft);
            }));
      WatchedEngine engine(setting, std::move(drafters));
      const auto generation =
          engine.begin(request.prompt, request.sampling, StopRules(tokenizer, request.stop));
      const Request other{{5, 6}, greedy(), {.n_predict = 30, .ignore_eos = true}};
      const auto mate =
          engine.begin(other.prompt, other.sampling, StopRules(tokenizer, other.stop));
      Generation* const both[] = {generation.get(), mate.get()};
      while (!generation->ended()) engine.step(both);
      ASSERT_TRUE(generation->error);
      EXPECT_EQ(engine.reports.back().sequences[0].error, generation->error->what());
      EXPECT_EQ(static_cast<int>(generation->tokens.size()), fails_at);
      EXPECT_TRUE(std::equal(generation->tokens.begin(), generation->tokens.end(), truth.begin()));
      EXPECT_FALSE(mate->emitted.empty());  // it went on in that very step
      while (!mate->ended()) engine.step({&both[1], 1});
      EXPECT_EQ(std::vector(mate->tokens.begin() + 2, mate->tokens.end()),
                decode_plainly(setting.model, tokenizer, other, 200).tokens);
    }
  }
}

// A pass that fails ends the texts of its step where they stood; the engine, the other texts and
// the drafters go on.
TEST(Engine, AFailedPassEndsItsStep) {
  const FakeTokenizer tokenizer = words();
  const Request request{{1, 2, 3, 1, 2}, greedy(), {.n_predict = 30, .ignore_eos = true}};
  const Outcome wanted = decode_plainly({}, tokenizer, request, 200);
  for (const Draft& draft : drafts())
    for (const int good_steps : {0, 1, 3})
      for (const bool lacks_memory : {false, true}) {
        SCOPED_TRACE(draft.name);
        auto target = std::make_shared<FakeBackend>(FakeModel{}, Setting{}.load);
        Engine engine(target, on(target, draft.make()),
                      {.planner = {.automatic = false, .rows = 4, .depth = 4}});
        const auto begin = [&] {
          return engine.begin(request.prompt, request.sampling, StopRules(tokenizer, request.stop));
        };
        const auto one = begin(), two = begin(), spared = begin();
        Generation* const both[] = {one.get(), two.get()};
        Generation* const third[] = {spared.get()};
        for (int i = 0; i < good_steps; ++i) engine.step(both);
        const std::vector<Token> before = one->tokens;
        target->before_forward = [&] {
          if (lacks_memory) throw std::bad_alloc();
          throw Error("no room");
        };
        engine.step(both);
        target->before_forward = nullptr;
        for (const Generation* failed : both) {
          ASSERT_TRUE(failed->error);
          EXPECT_FALSE(failed->finish_reason);
          EXPECT_EQ(failed->tokens, before);
          EXPECT_TRUE(failed->emitted.empty());
        }
        while (!spared->ended()) engine.step(third);
        EXPECT_EQ(std::vector(spared->tokens.begin() + 5, spared->tokens.end()), wanted.tokens);
        // The failed one can be taken up again.
        engine.restart(*one, before, request.sampling, StopRules(tokenizer, {.n_predict = 5}));
        while (!one->ended()) engine.step({both, 1});
        ASSERT_FALSE(one->error);
        EXPECT_TRUE(std::equal(one->tokens.begin() + 5, one->tokens.end(), wanted.tokens.begin()));
      }
}

// Whichever stage fails, the texts of the step are as before it, and can be taken up again.
TEST(Engine, AFailureInAnyStageUndoesItsStep) {
  const FakeTokenizer tokenizer = words();
  const Request request{{1, 2, 3}, sampled(3, true), {.n_predict = 30, .ignore_eos = true}};
  const Outcome wanted = decode_plainly({}, tokenizer, request, 200);
  std::vector<Token> whole = request.prompt;
  whole.insert(whole.end(), wanted.tokens.begin(), wanted.tokens.end());
  for (const char* stage : {"show", "draft", "forward", "commit"}) {
    SCOPED_TRACE(stage);
    const std::function<void()> fails = [] { throw std::bad_alloc(); };
    bool drafting_fails = false;
    auto target = std::make_shared<FakeBackend>(FakeModel{}, Setting{}.load);
    auto drafter = std::make_unique<ScriptedDrafter>([&](std::span<const Token> text,
                                                         const DraftRequest& draft) {
      int node = 0;
      for (int i = 0; i < std::min(3, draft.limits.depth) && text.size() + i < whole.size(); ++i)
        node = draft.tree->propose(node, whole[text.size() + i], {draft.drafter, 0.9f});
      if (drafting_fails) throw std::bad_alloc();
    });
    ScriptedDrafter& scripted = *drafter;
    Engine engine(target, list(std::move(drafter)), {.planner = {.automatic = false}});
    const auto generation =
        engine.begin(request.prompt, request.sampling, StopRules(tokenizer, request.stop));
    Generation* const alive[] = {generation.get()};
    for (int i = 0; i < 2; ++i) engine.step(alive);
    const std::vector<Token> before = generation->tokens;
    const std::string_view at = stage;
    drafting_fails = at == "draft";
    if (at == "forward") target->before_forward = fails;
    if (at == "commit") target->before_commit = fails;
    if (at == "show") scripted.before_observe = fails;
    engine.step(alive);
    drafting_fails = false;
    target->before_forward = target->before_commit = scripted.before_observe = nullptr;
    ASSERT_TRUE(generation->error);
    EXPECT_FALSE(generation->finish_reason);
    EXPECT_EQ(generation->tokens, before);
    ASSERT_LE(generation->n_shown, std::ssize(before));
    EXPECT_EQ(scripted.texts().at(generation->draft_sequence),
              std::vector<Token>(before.begin(), before.begin() + generation->n_shown));
    EXPECT_EQ(std::vector<Token>(target->text(generation->sequence).begin(),
                                 target->text(generation->sequence).end()),
              std::vector<Token>(before.begin(), before.end() - 1));

    // A prompt that drafters fail to take in, then one that they take.
    scripted.before_observe = fails;
    engine.restart(*generation, request.prompt, request.sampling,
                   StopRules(tokenizer, request.stop));
    while (!generation->ended()) engine.step(alive);
    EXPECT_TRUE(generation->error);
    scripted.before_observe = nullptr;
    engine.restart(*generation, request.prompt, request.sampling,
                   StopRules(tokenizer, request.stop));
    while (!generation->ended()) engine.step(alive);
    EXPECT_EQ(generation->tokens, whole);
  }
}

TEST(Engine, ADrafterThatCannotBeginLeavesNoSequence) {
  struct NoMemory final : ScriptedDrafter {
    NoMemory() : ScriptedDrafter([](auto, const auto&) {}) {}
    void begin(DraftSequence, CacheScope) override { throw std::bad_alloc(); }
  };
  auto first = std::make_unique<ScriptedDrafter>([](auto, const auto&) {});
  const ScriptedDrafter& begun = *first;
  WatchedEngine engine({}, list(std::move(first), std::make_unique<NoMemory>()));
  const FakeTokenizer tokenizer = words();
  EXPECT_THROW(engine.begin(std::vector<Token>{1, 2}, greedy(), StopRules(tokenizer, {})),
               std::bad_alloc);
  EXPECT_TRUE(begun.texts().empty());
  EXPECT_EQ(dynamic_cast<const FakeBackend&>(engine.target()).n_alive(), 0);
}

TEST(Engine, RefusesPromptsThatCannotWork) {
  const FakeTokenizer tokenizer = words();
  Setting setting;
  setting.load.context = 5;
  WatchedEngine engine(setting, {});
  const auto begin = [&](std::vector<Token> prompt, std::vector<Token> prediction = {}) {
    return engine.begin(prompt, greedy(), StopRules(tokenizer, {}),
                        {.prediction = std::move(prediction)});
  };
  EXPECT_THROW(begin({}), Error);
  EXPECT_THROW(begin({1, 2, 3, 4, 5}), Error);
  const StopRules no_answer(tokenizer, {.n_predict = 0});
  const std::vector<Token> six(6, 1);
  EXPECT_NO_THROW(engine.begin(std::span(six).first(5), greedy(), no_answer));
  EXPECT_THROW(engine.begin(six, greedy(), no_answer), Error);
  EXPECT_THROW(begin({1, 23}), Error);
  EXPECT_THROW(begin({-1}), Error);
  EXPECT_THROW(begin({1}, {22, 23}), Error);
  EXPECT_EQ(begin({1}, std::vector<Token>(100, 7))->options.prediction.size(), 5u);
  const auto generation = begin({1, 2, 3, 4});
  SamplingParams too_cold = greedy();
  too_cold.filters.temperature = 1e-38f;
  EXPECT_THROW(
      engine.restart(*generation, std::vector<Token>{1, 2}, too_cold, StopRules(tokenizer, {})),
      Error);
  EXPECT_THROW(
      engine.restart(*generation, std::vector<Token>{}, greedy(), StopRules(tokenizer, {})), Error);
  EXPECT_EQ(generation->tokens.size(), 4u);
}

TEST(Engine, RestartKeepsTheCommonPrefix) {
  const FakeTokenizer tokenizer = words();
  Setting setting;
  auto all = drafts();
  all.push_back({"scripted", [] {
                   return list(std::make_unique<ScriptedDrafter>(
                       [](std::span<const Token>, const DraftRequest&) {}));
                 }});
  for (const Draft& draft : all) {
    SCOPED_TRACE(draft.name);
    WatchedEngine engine(setting, draft.make());
    const StopParams stop{.n_predict = 10, .ignore_eos = true};
    const auto run = [&](Generation& generation) {
      Generation* const alive[] = {&generation};
      while (!generation.ended()) engine.step(alive);
    };
    const auto begun =
        engine.begin(std::vector<Token>{1, 2, 3}, sampled(1, true), StopRules(tokenizer, stop));
    Generation& generation = *begun;
    run(generation);
    ASSERT_EQ(generation.tokens.size(), 13u);

    std::vector<std::pair<std::vector<Token>, int>> turns;  // prompt, tokens reused
    std::vector<Token> longer = generation.tokens;
    longer.insert(longer.end(), {7, 8, 9});
    turns.emplace_back(longer, 12);                            // the last token was never computed
    turns.emplace_back(std::vector<Token>{1, 2, 3}, 2);        // all but the last
    turns.emplace_back(std::vector<Token>{1, 2, 5, 3, 4}, 2);  // differs from the third on
    turns.emplace_back(std::vector<Token>{6, 1}, 0);
    for (const auto& [prompt, reused] : turns) {
      const Request request{prompt, sampled(2, true), stop};
      engine.restart(generation, prompt, request.sampling, StopRules(tokenizer, stop));
      EXPECT_EQ(generation.cached_tokens, reused);
      check_state(engine, generation);
      run(generation);
      check_state(engine, generation);
      const std::vector<Token> answer(generation.tokens.begin() + generation.n_prompt,
                                      generation.tokens.end());
      EXPECT_EQ(answer, decode_plainly(setting.model, tokenizer, request, 200).tokens);
    }
  }
}

TEST(Engine, DraftersCanChangeInMidText) {
  const FakeTokenizer tokenizer = words();
  const Request request{{1, 2, 3}, sampled(4, true), {.n_predict = 60, .ignore_eos = true}};
  Setting setting;
  for (const bool automatic : {false, true}) {
    setting.engine.planner.automatic = automatic;
    const auto target = std::make_shared<FakeBackend>(setting.model, setting.load);
    WatchedEngine engine(target, {}, setting.engine);
    const auto generation =
        engine.begin(request.prompt, request.sampling, StopRules(tokenizer, request.stop));
    Generation* const alive[] = {generation.get()};
    const auto all = drafts();
    for (std::size_t i = 0; !generation->ended(); ++i) {
      engine.step(alive);
      check_state(engine, *generation);
      engine.set_drafters(on(target, all[i % all.size()].make()));
      if (i % 3 == 0) engine.measure_costs();
    }
    const std::vector<Token> answer(generation->tokens.begin() + 3, generation->tokens.end());
    EXPECT_EQ(answer, decode_plainly(setting.model, tokenizer, request, 200).tokens);
  }
}

// What one user's texts teach a drafter stays theirs.
TEST(Engine, DraftersKnowTheScopeOfEachText) {
  const FakeTokenizer tokenizer = words();
  const auto silent = [] {
    return list(
        std::make_unique<ScriptedDrafter>([](std::span<const Token>, const DraftRequest&) {}));
  };
  WatchedEngine engine({}, silent());
  std::vector<std::unique_ptr<Generation>> texts;
  for (const std::uint64_t user : {3, 4, 3})
    texts.push_back(engine.begin(std::vector<Token>{1, 2}, greedy(), StopRules(tokenizer, {}),
                                 {.scope = {{user, 7}}}));
  for (const bool changed : {false, true}) {
    if (changed) engine.set_drafters(silent());
    auto scopes = dynamic_cast<const ScriptedDrafter&>(*engine.drafters()[0]).scopes;
    ASSERT_EQ(scopes.size(), texts.size());
    for (const auto& text : texts)
      EXPECT_EQ(scopes.at(text->draft_sequence), text->options.scope) << changed;
  }
}

// Texts that wait for a step without rows of it lose time to its drafts like those with rows. Some
// runs, since these passes are so short that a moment's pause misleads a planner.
TEST(Engine, DraftsHaveToPayForTextsThatWait) {
  const FakeTokenizer tokenizer = words();
  const StopParams stop{.n_predict = 150, .ignore_eos = true};
  const std::vector<Token> answer =
      decode_plainly({}, tokenizer, {.prompt = {1, 2, 3}, .sampling = greedy(), .stop = stop}, 200)
          .tokens;
  // In no time: it proposes how the text goes on.
  const auto right = [&](std::span<const Token> text, const DraftRequest& request) {
    int node = 0;
    for (std::size_t i = text.size(); i < std::min(text.size() + 4, 3 + answer.size()); ++i)
      if (request.limits.depth > static_cast<int>(i - text.size()))
        node = request.tree->propose(node, answer[i - 3], {request.drafter, 0.9f});
  };
  std::map<int, long> drafted;
  for (int run = 0; run < 20; ++run) {
    const int n_waiting = run % 2 == 0 ? 0 : 1000;
    Setting setting;
    setting.engine.planner.automatic = true;
    WatchedEngine engine(setting, list(std::make_unique<ScriptedDrafter>(right)));
    Learned learned = engine.learned();
    learned.passes = {{.rows = 1, .ms = 10}, {.rows = 64, .ms = 10.5}};
    ASSERT_TRUE(engine.restore(learned));
    const auto generation =
        engine.begin(std::vector<Token>{1, 2, 3}, greedy(), StopRules(tokenizer, stop));
    while (!generation->ended()) {
      const Engine::Part part{generation.get(), engine.n_to_prefill(*generation)};
      engine.step(std::span(&part, 1), n_waiting);
    }
    drafted[n_waiting] += engine.drafted;
  }
  EXPECT_GT(drafted[0], 200);
  EXPECT_LT(4 * drafted[1000], drafted[0]);
}

// What an answer was like is known as soon as it has ended, while its text goes on living: `run`
// keeps a profile then.
TEST(Engine, LearnsOfAnAnswerWhenItEnds) {
  const FakeTokenizer tokenizer = words();
  Setting setting;
  setting.engine.planner.automatic = true;
  Engine engine(std::make_shared<FakeBackend>(setting.model, setting.load), list(lookup()),
                setting.engine);
  engine.measure_costs();
  const double before = engine.learned().answers;
  const auto generation = engine.begin(std::vector<Token>{1, 2, 3}, greedy(),
                                       StopRules(tokenizer, {.n_predict = 20, .ignore_eos = true}));
  Generation* const all[] = {generation.get()};
  while (!generation->ended()) engine.step(all);
  EXPECT_GT(engine.learned().answers, before);
  EXPECT_LT(engine.learned().answer_tokens, 48);
}

TEST(Engine, SaysWhyNothingWasDrafted) {
  const FakeTokenizer tokenizer = words();
  const auto reasons = [&](WatchedEngine& engine, int n_predict,
                           const AnswerOptions& options = {}) {
    const auto generation =
        engine.begin(std::vector<Token>{1, 2, 3, 1, 2, 3}, greedy(),
                     StopRules(tokenizer, {.n_predict = n_predict, .ignore_eos = true}), options);
    Generation* const alive[] = {generation.get()};
    while (!generation->ended()) engine.step(alive);
    return generation->counters.not_drafted;
  };
  Setting fixed;
  fixed.engine.planner = {.automatic = false, .rows = 3, .depth = 3, .width = 1};
  const auto silent = [](auto, const auto&) {};
  WatchedEngine finds_nothing(fixed, list(std::make_unique<ScriptedDrafter>(silent)));
  // The step that reads the prompt could not draft, the last one has no room for more than a token.
  NotDrafted not_drafted = reasons(finds_nothing, 10);
  EXPECT_EQ(not_drafted.no_match, 8);
  EXPECT_EQ(not_drafted.limit, 1);
  EXPECT_EQ(not_drafted.sum(), 9);
  not_drafted = reasons(finds_nothing, 10, {.draft_rows = 0});
  EXPECT_EQ(not_drafted.off, 9);
  EXPECT_EQ(not_drafted.sum(), 9);

  Setting automatic;
  automatic.engine.planner.automatic = true;
  WatchedEngine is_dear(automatic, list(lookup()));
  Learned learned = is_dear.learned();
  learned.passes = {{.rows = 1, .ms = 10}, {.rows = 2, .ms = 1000}, {.rows = 64, .ms = 90'000}};
  ASSERT_TRUE(is_dear.restore(learned));
  not_drafted = reasons(is_dear, 150);
  EXPECT_GT(not_drafted.does_not_pay, 100);
  EXPECT_EQ(not_drafted.off + not_drafted.no_match, 0);
}

// What they do with a prompt may take as long as many rows.
TEST(Engine, TheFirstTokenDoesNotWaitForDrafters) {
  const FakeTokenizer tokenizer = words();
  auto drafter = std::make_unique<ScriptedDrafter>([](auto, const auto&) {});
  ScriptedDrafter& scripted = *drafter;
  WatchedEngine engine({}, {});
  Drafters drafters;
  drafters.push_back(std::move(drafter));
  engine.set_drafters(std::move(drafters));
  const auto generation = engine.begin(std::vector<Token>{1, 2, 3}, greedy(),
                                       StopRules(tokenizer, {.n_predict = 9, .ignore_eos = true}));
  Generation* const alive[] = {generation.get()};
  engine.step(alive);
  EXPECT_EQ(generation->emitted.size(), 1u);
  EXPECT_TRUE(scripted.texts().at(generation->draft_sequence).empty());
  engine.step(alive);
  EXPECT_EQ(scripted.texts().at(generation->draft_sequence).size(), 4u);
  while (!generation->ended()) engine.step(alive);
  EXPECT_EQ(scripted.texts().at(generation->draft_sequence), generation->tokens);
}

// Beside a text for which all are asked.
TEST(Engine, ATextHasTheDraftersThatItAsksFor) {
  const FakeTokenizer tokenizer = words();
  WatchedEngine engine({}, list(lookup(), model({})));
  const std::vector<Token> prompt{1, 2, 3, 1, 2};
  const StopParams stop{.n_predict = 30, .ignore_eos = true};
  const auto all = engine.begin(prompt, greedy(), StopRules(tokenizer, stop));
  const auto one =
      engine.begin(prompt, greedy(), StopRules(tokenizer, stop), {.drafters = {{"model"}}});
  while (!all->ended()) {
    std::vector<Generation*> running{all.get()};
    if (!one->ended()) running.push_back(one.get());
    engine.step(running);
  }
  EXPECT_GT(all->counters.drafters[0].proposed, 0);
  EXPECT_EQ(one->counters.drafters[0].proposed, 0);
  EXPECT_GT(one->counters.drafters[1].proposed, 0);
  EXPECT_EQ(one->tokens, all->tokens);
}

TEST(Engine, ReportsEachStep) {
  const FakeTokenizer tokenizer = words();
  WatchedEngine engine({}, list(lookup(), model({})));
  const Outcome outcome = generate(
      engine, tokenizer, {{{1, 2, 3, 1, 2}, greedy(), {.n_predict = 20, .ignore_eos = true}}})[0];
  std::vector<Token> emitted;
  for (const StepReport& report : engine.reports) {
    EXPECT_EQ(report.drafters, (std::vector<std::string>{"lookup", "model"}));
    ASSERT_EQ(report.sequences.size(), 1u);
    const StepReport::Sequence& sequence = report.sequences[0];
    EXPECT_EQ(sequence.position + sequence.n_tokens, 5 + static_cast<int>(emitted.size()));
    EXPECT_EQ(report.rows, sequence.n_tokens + static_cast<int>(sequence.nodes.size()));
    // The accepted nodes are a path, and its tokens the ones that were emitted first.
    // The target had chosen each of them, and what came after.
    int last = 0;
    std::size_t n_accepted = 0;
    if (!sequence.emitted.empty()) {
      ASSERT_EQ(sequence.choices.size(), sequence.nodes.size() + 1);
    }
    for (std::size_t i = 0; i < sequence.nodes.size(); ++i) {
      const StepReport::Node& node = sequence.nodes[i];
      EXPECT_FALSE(node.proposals.empty());
      if (!node.accepted) continue;
      EXPECT_EQ(node.parent, last);
      EXPECT_EQ(node.token, sequence.emitted[n_accepted++]);
      EXPECT_EQ(node.token, sequence.choices[last]);
      last = static_cast<int>(i) + 1;
    }
    if (n_accepted < sequence.emitted.size()) {
      EXPECT_EQ(sequence.emitted.back(), sequence.choices[last]);
    }
    emitted.insert(emitted.end(), sequence.emitted.begin(), sequence.emitted.end());
  }
  EXPECT_EQ(emitted, outcome.tokens);
  EXPECT_GT(engine.accepted, 5);
  EXPECT_EQ(engine.reports.back().sequences[0].finish_reason, FinishReason::length);
}

}  // namespace
}  // namespace outrider

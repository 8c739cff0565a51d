#include "engine/session.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/stopwatch.h"
#include "model/fake_backend.h"
#include "sampling/fake_tokenizer.h"
#include "speculation/drafters/lookup.h"
#include "speculation/drafters/model.h"

namespace outrider {
namespace {

std::shared_ptr<FakeTokenizer> letters() {
  std::vector<std::string> entries;
  for (char letter = 'a'; letter < 'a' + 23; ++letter) entries.emplace_back(1, letter);
  auto tokenizer = std::make_shared<FakeTokenizer>(entries);
  tokenizer->end_tokens = {0};
  return tokenizer;
}

std::vector<std::unique_ptr<Drafter>> perfect_drafter() {
  std::vector<std::unique_ptr<Drafter>> drafters;
  drafters.push_back(std::make_unique<LookupDrafter>(LookupOptions{}));
  drafters.push_back(std::make_unique<ModelDrafter>(
      std::make_unique<FakeBackend>(FakeModel{}, LoadOptions{.context = 100}),
      ModelDrafterOptions{23}));
  return drafters;
}

struct Talk {
  explicit Talk(std::vector<std::unique_ptr<Drafter>> drafters, bool automatic = false,
                const FakeModel& model = {})
      : engine(std::make_shared<FakeBackend>(model, LoadOptions{.context = 100}),
               std::move(drafters), {.planner = {.automatic = automatic}}) {
    engine.measure_costs();
  }
  std::shared_ptr<FakeTokenizer> tokenizer = letters();
  Engine engine;
  Session session{engine, *tokenizer, nullptr};
};

// Takes its time to index a text, and proposes nothing.
class SlowReader final : public Drafter {
 public:
  static constexpr int kMs = 5;
  std::string_view name() const override { return "slow"; }
  void begin(DraftSequence, CacheScope) override {}
  void observe(DraftSequence, std::span<const Token> tokens) override {
    if (tokens.size() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(kMs));
  }
  void propose(std::span<const DraftRequest>) override {}
  void truncate(DraftSequence, int) override {}
  void end(DraftSequence) override {}
  DraftCost cost(int, int) const override { return {}; }
};

SamplingParams sampled() {
  SamplingParams params;
  params.seed = 5;
  return params;
}

TEST(Session, CompletesAlikeWithAndWithoutDrafts) {
  for (const bool automatic : {false, true}) {
    Talk plain({}, automatic), drafting(perfect_drafter(), automatic);
    const std::vector<Token> prompt{1, 2, 3, 1, 2};
    std::string shown;
    bool any_draft = false;
    const auto show = [&](std::string_view text, bool was_draft) {
      EXPECT_FALSE(text.empty());
      shown += text;
      any_draft |= was_draft;
    };
    const StopParams stop{.n_predict = 30, .ignore_eos = true};
    const Completion a = plain.session.complete({prompt, sampled(), stop});
    const Completion b = drafting.session.complete({prompt, sampled(), stop}, show);
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(a.text, b.text);
    EXPECT_EQ(b.text, shown);
    EXPECT_EQ(a.completion_tokens, 30);
    EXPECT_EQ(b.finish_reason, FinishReason::length);
    EXPECT_EQ(b.prompt_tokens, 5);
    EXPECT_EQ(b.cached_tokens, 0);
    EXPECT_GT(b.prompt_ms, 0);
    EXPECT_GE(b.first_tokens, 1);
    EXPECT_EQ(a.first_tokens, 1);
    EXPECT_GT(a.tokens_per_second(), 0);
    ASSERT_EQ(b.draft.size(), 2u);
    EXPECT_EQ(b.draft[1].name, "model");
    if (!automatic) {
      EXPECT_TRUE(any_draft);
      EXPECT_GT(b.draft[1].counts.accepted, 10);
      EXPECT_LT(b.counters.steps, 20);
    }
  }
}

// Each turn's answer is the one that a fresh session gives to the same text.
TEST(Session, ATurnReusesWhatItShares) {
  Talk talk(perfect_drafter());
  const StopParams stop{.n_predict = 8, .ignore_eos = true};
  std::vector<Token> text{1, 2, 3};
  for (int turn = 0; turn < 4; ++turn) {
    const Completion answer = talk.session.complete({text, sampled(), stop});
    Talk fresh({});
    EXPECT_EQ(answer.tokens, fresh.session.complete({text, sampled(), stop}).tokens);
    EXPECT_EQ(answer.cached_tokens, turn == 0 ? 0 : static_cast<int>(text.size()) - 3);
    text.insert(text.end(), answer.tokens.begin(), answer.tokens.end());
    EXPECT_EQ(talk.session.n_tokens(), static_cast<int>(text.size()));
    text.insert(text.end(), {static_cast<Token>(10 + turn), 11});
  }
  text.resize(2);  // another conversation that begins alike
  text.insert(text.end(), {7, 8, 9});
  EXPECT_EQ(talk.session.complete({text, sampled(), stop}).cached_tokens, 2);
}

// Two engines on one target, step by step in turn: the same answers, and no time but their own.
TEST(Session, StepsMayTakeTurnsWithAnother) {
  const auto target =
      std::make_shared<FakeBackend>(FakeModel{}, LoadOptions{.context = 100, .n_sequences = 2});
  const auto tokenizer = letters();
  Engine plain(target, {}, {}), drafting(target, perfect_drafter(), {.planner = {}});
  Session sessions[] = {{plain, *tokenizer, nullptr}, {drafting, *tokenizer, nullptr}};
  const std::vector<Token> prompt{1, 2, 3};
  const StopParams stop{.n_predict = 30, .ignore_eos = true};
  std::string shown;
  for (Session& session : sessions)
    session.begin({prompt, sampled(), stop}, [&](std::string_view text, bool) { shown += text; });
  EXPECT_EQ(sessions[0].n_computed(), 0);
  const Stopwatch watch;
  double away_ms = 0;
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (Session& session : sessions) goes_on |= session.step();
    const Stopwatch away;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    away_ms += away.ms();
  }
  EXPECT_EQ(sessions[0].n_computed(), 32);
  const double all_ms = watch.ms();
  const Completion a = sessions[0].finish(), b = sessions[1].finish();
  EXPECT_LE(a.generation_ms + b.generation_ms + away_ms, all_ms);
  EXPECT_LT(b.counters.steps, a.counters.steps);
  EXPECT_FALSE(sessions[0].step());
  EXPECT_EQ(shown.size(), a.text.size() + b.text.size());
  Talk alone({});
  const Completion expected = alone.session.complete({prompt, sampled(), stop});
  EXPECT_EQ(a.tokens, expected.tokens);
  EXPECT_EQ(b.tokens, expected.tokens);
  EXPECT_EQ(b.text, expected.text);
}

TEST(Session, EndTokensEndUnlessIgnored) {
  SamplingParams eager = sampled();
  eager.bias = {{0, 30.0f}};
  Talk talk({});
  const Completion ended = talk.session.complete({{1}, eager});
  EXPECT_EQ(ended.tokens, (std::vector<Token>{0}));
  EXPECT_EQ(ended.finish_reason, FinishReason::stop);
  const Completion ignored =
      talk.session.complete({{1}, eager, {.n_predict = 20, .ignore_eos = true}});
  EXPECT_EQ(std::ranges::count(ignored.tokens, 0), 0);
  EXPECT_EQ(ignored.completion_tokens, 20);
}

TEST(Session, StopsWhenInterruptedAndGoesOn) {
  Talk talk(perfect_drafter());
  std::atomic<bool> interrupted = true;
  const std::vector<Token> prompt{1, 2, 3};
  const StopParams stop{.n_predict = 30, .ignore_eos = true};
  const Completion none = talk.session.complete({prompt, sampled(), stop}, {}, &interrupted);
  EXPECT_EQ(none.completion_tokens, 0);
  EXPECT_EQ(none.finish_reason, std::nullopt);
  interrupted = false;
  // From within the answer: what was held back for a stop string is shown.
  Talk fresh({});
  const Completion whole = fresh.session.complete({prompt, sampled(), stop});
  StopParams holding = stop;
  holding.texts = {whole.text.substr(0, 29) + "!"};
  holding.texts[0].erase(0, 1);
  const Completion part = talk.session.complete(
      {prompt, sampled(), holding}, [&](std::string_view, bool) { interrupted = true; },
      &interrupted);
  EXPECT_EQ(part.finish_reason, std::nullopt);
  EXPECT_GT(part.completion_tokens, 0);
  EXPECT_LT(part.completion_tokens, 30);
  EXPECT_EQ(part.text, whole.text.substr(0, part.completion_tokens));
  interrupted = false;
  EXPECT_EQ(talk.session.complete({prompt, sampled(), stop}, {}, &interrupted).text, whole.text);
}

TEST(Session, AnErrorLeavesItUsable) {
  FakeModel model;
  model.unusable = [](std::span<const Token> path) { return path.size() == 10; };
  Talk talk(perfect_drafter(), false, model);
  const std::vector<Token> prompt{1, 2, 3};
  const StopParams stop{.n_predict = 30, .ignore_eos = true};
  EXPECT_THROW(talk.session.complete({prompt, sampled(), stop}), Error);
  EXPECT_THROW(talk.session.complete({{}, sampled(), stop}), Error);
  EXPECT_THROW(talk.session.complete({prompt, sampled(), {.texts = {""}}}), Error);
  EXPECT_EQ(talk.session.complete({prompt, sampled(), {.n_predict = 7, .ignore_eos = true}})
                .completion_tokens,
            7);
}

TEST(Session, BosIsNeverDoubled) {
  const auto tokenizer = letters();
  tokenizer->bos = 2;
  tokenizer->add_bos = true;
  Engine engine(std::make_shared<FakeBackend>(FakeModel{}, LoadOptions{}), {}, {});
  const Session session(engine, *tokenizer, nullptr);
  const auto tokens = [&](std::string text) {
    const TextPiece piece{std::move(text), true};
    return session.tokens_of({&piece, 1});
  };
  EXPECT_EQ(tokens("ab"), (std::vector<Token>{2, 0, 1}));
  EXPECT_EQ(tokens("cab"), (std::vector<Token>{2, 0, 1}));
  EXPECT_EQ(tokens(""), (std::vector<Token>{2}));
  const Message message{"user", "hello"};
  EXPECT_THROW(session.tokens_of({&message, 1}), Error);
}

TEST(Session, DraftersCanChangeBetweenTurns) {
  Talk talk({}), plain({});
  const StopParams stop{.n_predict = 12, .ignore_eos = true};
  std::vector<Token> text{1, 2, 3};
  for (int turn = 0; turn < 2; ++turn) {
    const Completion answer = talk.session.complete({text, sampled(), stop});
    EXPECT_EQ(answer.tokens, plain.session.complete({text, sampled(), stop}).tokens);
    text.insert(text.end(), answer.tokens.begin(), answer.tokens.end());
    text.push_back(4);
    talk.engine.set_drafters(perfect_drafter());
  }
  const Completion last = talk.session.complete({text, sampled(), stop});
  EXPECT_EQ(last.cached_tokens, static_cast<int>(text.size()) - 2);
  EXPECT_GT(last.draft[1].counts.accepted, 5);
  EXPECT_EQ(last.tokens, plain.session.complete({text, sampled(), stop}).tokens);
}

TEST(Session, WholeTimeHoldsWhatDraftersIndex) {
  std::vector<std::unique_ptr<Drafter>> drafters;
  drafters.push_back(std::make_unique<SlowReader>());
  Talk talk(std::move(drafters));
  for (int turn = 0; turn < 2; ++turn) {  // begun and restarted
    const Stopwatch watch;
    const Completion answer =
        talk.session.complete({{1 + turn, 2, 3}, sampled(), {.n_predict = 3}});
    EXPECT_GE(answer.whole_ms(), SlowReader::kMs);
    EXPECT_LE(answer.whole_ms(), watch.ms());
  }
}

}  // namespace
}  // namespace outrider

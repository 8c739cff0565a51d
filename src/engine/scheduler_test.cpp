#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <thread>

#include "base/error.h"
#include "cache/cache.h"
#include "engine/plain_decoding_test.h"
#include "speculation/drafters/lookup.h"
#include "speculation/drafters/model.h"
#include "speculation/drafters/prediction.h"

namespace outrider {
namespace {

constexpr int kContext = 400;

struct SchedulerSetting {
  LoadOptions load{.context = kContext,
                   .n_sequences = 4,
                   .n_pages = 16,
                   .shares_texts = true,
                   .batch_rows = 128};
  BudgetOptions budget{.automatic = false, .rows = 6, .depth = 4, .width = 2};
  std::string drafters = "lookup model prediction";
  FakeModel model = {};
  SchedulerOptions scheduler{.n_running = 4, .n_waiting = 100};
};

// A scheduler, and what its listeners heard.
struct Served {
  struct Heard {
    std::vector<Token> tokens;
    std::string text;
    std::vector<ScoredToken> prompt, scores;
    std::optional<AnswerEnd> end;
  };

  explicit Served(const SchedulerSetting& setting)
      : target(std::make_shared<FakeBackend>(setting.model, setting.load)) {
    const auto names = [&](const char* name) {
      return setting.drafters.find(name) != std::string::npos;
    };
    std::vector<std::unique_ptr<Drafter>> drafters;
    if (names("lookup")) drafters.push_back(std::make_unique<LookupDrafter>(LookupOptions{}));
    if (names("prediction")) drafters.push_back(std::make_unique<PredictionDrafter>());
    if (names("model")) {
      FakeModel model;
      model.disagreement = 0.3f;
      draft = std::make_shared<FakeBackend>(model, setting.load);
      drafters.push_back(std::make_unique<ModelDrafter>(draft, ModelDrafterOptions{23}));
    }
    engine.emplace(
        target, std::move(drafters),
        EngineOptions{.budget = setting.budget, .prompt_chunk = 100, .knows_passes = true});
    engine->measure_costs();
    target->counts = {};
    n_pages = target->free_pages();
    scheduler.emplace(*engine, tokenizer, setting.scheduler);
  }

  AnswerId submit(AnswerRequest request) {
    const auto heard = std::make_shared<Heard>();
    const AnswerId id = scheduler->submit(std::move(request), [heard](const AnswerEvent& event) {
      EXPECT_FALSE(heard->end);
      for (const AnswerToken& token : event.tokens) {
        heard->tokens.push_back(token.token);
        heard->text += token.text;
        if (token.score) heard->scores.push_back(*token.score);
      }
      heard->text += event.held_text;
      heard->prompt.insert(heard->prompt.end(), event.prompt.begin(), event.prompt.end());
      heard->end = event.end;
    });
    all[id] = heard;
    return id;
  }
  void finish() {
    while (scheduler->turn()) {
    }
  }
  Outcome outcome(AnswerId id) const {
    const Heard& heard = *all.at(id);
    EXPECT_TRUE(heard.end);
    return {heard.tokens, heard.text, heard.end ? heard.end->reason : std::nullopt};
  }
  const AnswerFigures& figures(AnswerId id) const { return all.at(id)->end->figures; }

  const FakeTokenizer tokenizer = words();
  std::shared_ptr<FakeBackend> target, draft;
  std::optional<Engine> engine;
  std::optional<Scheduler> scheduler;
  int n_pages = 0;
  std::map<AnswerId, std::shared_ptr<Heard>> all;
};

std::vector<Token> text(unsigned seed, int size) {
  std::mt19937 random(seed);
  std::vector<Token> tokens(size);
  for (Token& token : tokens) token = static_cast<Token>(1 + random() % 22);
  return tokens;
}

AnswerRequest ask(std::vector<Token> prompt, int n_predict, SamplingParams sampling = greedy()) {
  return {.request = {std::move(prompt),
                      std::move(sampling),
                      {.n_predict = n_predict, .ignore_eos = true}}};
}

// Whatever runs beside an answer, shares its pages or takes them away, it is the one of plain
// decoding.
TEST(Scheduler, AnswersAreThoseOfPlainDecoding) {
  long n_preempted = 0, n_cached = 0, n_cancelled = 0, n_accepted = 0;
  for (const char* drafters : {"", "lookup", "model", "lookup model prediction"})
    for (unsigned seed = 1; seed <= 8; ++seed) {
      SCOPED_TRACE(fmt::format("drafters '{}', seed {}", drafters, seed));
      std::mt19937 random(seed);
      const auto below = [&](int n) { return static_cast<int>(random() % n); };
      SchedulerSetting setting;
      setting.drafters = drafters;
      setting.budget.automatic = seed % 3 == 0;
      setting.load.n_pages = 11 + below(3);
      Served served(setting);
      const std::vector<Token> common = text(seed, 250);
      std::map<AnswerId, Request> asked;
      std::set<AnswerId> cancelled;
      for (int round = 0; round < 120; ++round) {
        if (round < 60 && below(3) == 0) {
          std::vector<Token> prompt(common.begin(), common.begin() + below(140));
          const std::vector<Token> own = text(seed * 1000 + round, 1 + below(40));
          prompt.insert(prompt.end(), own.begin(), own.end());
          AnswerRequest request = ask(prompt, 1 + below(below(2) == 0 ? 40 : 250),
                                      sampled(seed + round, below(2) == 0));
          if (below(2) == 0) request.request.sampling.filters.temperature = 0;
          request.request.stop.ignore_eos = below(2) == 0;
          if (below(4) == 0) request.request.stop.texts = {"ab", "cde", "q"};
          if (below(2) == 0) request.request.options.prediction = text(seed, 30);
          if (below(4) == 0) request.request.options.draft_rows = below(4);
          if (below(4) == 0) request.request.options.drafters = {{"lookup"}};
          if (below(3) == 0) request.request.options.n_logprobs = below(3);
          if (below(3) == 0)
            request.request.sampling.reasoning = {.n_prompt = static_cast<int>(prompt.size()),
                                                  .n_tokens = below(30),
                                                  .open = below(5),
                                                  .close = 5 + below(5),
                                                  .is_begun = below(2) == 0};
          request.request.options.scope.value[0] = below(2);
          request.priority = below(3) - 1;
          const Request plain = request.request;
          const int n = 1 + below(3);
          for (int stream = 0; stream < n; ++stream) {
            request.request.sampling.stream = static_cast<std::uint32_t>(stream);
            const AnswerId id = served.submit(request);
            asked[id] = plain;
            asked[id].sampling.stream = static_cast<std::uint32_t>(stream);
          }
        }
        if (below(20) == 0 && !asked.empty()) {
          auto at = asked.begin();
          std::advance(at, below(static_cast<int>(asked.size())));
          served.scheduler->cancel(at->first);
          cancelled.insert(at->first);
        }
        served.scheduler->turn();
      }
      served.finish();
      for (const auto& [id, request] : asked) {
        const Outcome alone = decode_plainly(
            setting.model, served.tokenizer,
            {request.prompt, sampling_of(request, served.tokenizer), request.stop}, kContext);
        Outcome heard = served.outcome(id);
        n_preempted += served.figures(id).n_preempted;
        n_cached += served.figures(id).cached_tokens;
        n_accepted += served.figures(id).counters.accepted;
        EXPECT_EQ(served.figures(id).completion_tokens, std::ssize(heard.tokens));
        if (!heard.finished) {
          EXPECT_TRUE(cancelled.contains(id));
          ++n_cancelled;
          ASSERT_LE(heard.tokens.size(), alone.tokens.size());
          EXPECT_TRUE(std::equal(heard.tokens.begin(), heard.tokens.end(), alone.tokens.begin()));
          continue;
        }
        EXPECT_EQ(heard, alone);
      }
      EXPECT_EQ(served.target->n_alive(), 0);
      EXPECT_EQ(served.target->free_pages(), served.n_pages);
      if (served.draft) {
        EXPECT_EQ(served.draft->n_alive(), 0);
      }
    }
  EXPECT_GT(n_preempted, 10);
  EXPECT_GT(n_cached, 5000);
  EXPECT_GT(n_cancelled, 10);
  EXPECT_GT(n_accepted, 500);
}

TEST(Scheduler, ParallelAnswersReadTheirPromptOnce) {
  SchedulerSetting setting;
  setting.drafters = "";
  Served served(setting);
  const std::vector<Token> prompt = text(1, 300);
  std::vector<AnswerId> ids;
  for (int stream = 0; stream < 3; ++stream) {
    SamplingParams sampling = sampled(5, false);
    sampling.filters = {.top_k = 0, .top_p = 1, .min_p = 0, .temperature = 3};
    sampling.stream = static_cast<std::uint32_t>(stream);
    ids.push_back(served.submit(ask(prompt, 10, sampling)));
  }
  served.finish();
  EXPECT_EQ(served.figures(ids[0]).cached_tokens, 0);
  EXPECT_EQ(served.figures(ids[1]).cached_tokens, 256);
  EXPECT_EQ(served.figures(ids[2]).cached_tokens, 256);
  // Each answer's last token is never computed; two read what lies beyond whole pages.
  EXPECT_EQ(served.target->counts.rows, 300 + 2 * (300 - 256) + 3 * 9);
  EXPECT_NE(served.outcome(ids[0]).tokens, served.outcome(ids[1]).tokens);

  // Another scope reads it again; the same one does not.
  AnswerRequest stranger = ask(prompt, 1);
  stranger.request.options.scope.value[1] = 1;
  const AnswerId other = served.submit(stranger), same = served.submit(ask(prompt, 1));
  served.finish();
  EXPECT_EQ(served.figures(other).cached_tokens, 0);
  EXPECT_EQ(served.figures(same).cached_tokens, 256);
}

TEST(Scheduler, FirstComeFirstServedWithinAPriority) {
  SchedulerSetting setting;
  setting.scheduler.n_running = 1;
  Served served(setting);
  std::vector<int> order;
  const auto submit = [&](int name, int priority) {
    AnswerRequest request = ask({1, 2, 3}, 2);
    request.priority = priority;
    served.scheduler->submit(request, [&order, name](const AnswerEvent& event) {
      if (event.end) order.push_back(name);
    });
  };
  submit(0, 0);
  submit(1, 0);
  served.scheduler->turn();
  submit(2, 1);
  submit(3, -1);
  submit(4, 0);
  submit(5, -1);
  served.finish();
  EXPECT_EQ(order, (std::vector{0, 3, 5, 1, 4, 2}));
}

TEST(Scheduler, RefusesAtOnceWhatCannotBeAnswered) {
  SchedulerSetting setting;
  setting.scheduler.n_running = 1;
  setting.scheduler.n_waiting = 2;
  Served served(setting);
  EXPECT_THROW(served.submit(ask({}, 1)), Error);
  EXPECT_THROW(served.submit(ask(std::vector<Token>(kContext, 1), 1)), Error);
  EXPECT_THROW(served.submit(ask({99}, 1)), Error);
  AnswerRequest wrong = ask({1}, 1);
  wrong.request.stop.texts = {""};
  EXPECT_THROW(served.submit(wrong), Error);
  for (int i = 0; i < 3; ++i) served.submit(ask({1, 2}, 5));
  EXPECT_THROW(served.submit(ask({1, 2}, 5)), Overloaded);
  served.finish();
  EXPECT_NO_THROW(served.submit(ask({1, 2}, 0)));
  served.finish();
  EXPECT_EQ(served.scheduler->status().reached_length, 4);
}

// A chunk of a prompt leaves the rows to those that generate.
TEST(Scheduler, PromptsAreReadInChunksBesideOthers) {
  SchedulerSetting setting;
  setting.drafters = "";
  Served served(setting);
  const AnswerId first = served.submit(ask({1, 2, 3}, 60));
  served.scheduler->turn();
  const AnswerId reader = served.submit(ask(text(2, 200), 5));
  int n_turns = 0;
  for (; !served.all.at(reader)->end; ++n_turns) {
    const std::size_t before = served.all.at(first)->tokens.size();
    served.scheduler->turn();
    if (!served.all.at(first)->end) {
      EXPECT_EQ(served.all.at(first)->tokens.size(), before + 1);
    }
  }
  EXPECT_GE(n_turns, 200 / 9);  // costs are not known here, so it reads the least beside others
  served.finish();
}

// A step beside one that generates reads what keeps its expected time below 1.6 times that without,
// and so less and less of a long prompt, as its attention grows.
TEST(Scheduler, LongPromptsAreReadInSmallerParts) {
  SchedulerSetting setting;
  setting.drafters = "";
  setting.load.context = 4000;
  setting.load.n_pages = 80;
  Served served(setting);
  Learned learned = served.engine->learned();
  learned.passes = {{.rows = 1, .ms = 100}, {.rows = 101, .ms = 200}};
  learned.attention_ms = 0.001;
  ASSERT_TRUE(served.engine->restore(learned));
  std::vector<int> read;
  served.engine->on_step([&](const StepReport& report) {
    if (report.sequences.size() < 2) return;
    const auto ms = [&](int n) {
      const int first = report.sequences[1].position, length = report.sequences[0].position;
      return 100 + n + 0.001 * (2.5 * length + n * (first + n / 2.0) + 1.5 * first);
    };
    const int n = report.sequences[1].n_tokens;
    const double most = 1.6 * (ms(0) - 0.0015 * report.sequences[1].position);
    EXPECT_LE(ms(n), most + 0.01) << report.step;
    if (report.sequences[1].emitted.empty()) {
      EXPECT_GT(ms(n + 1), most - 0.01) << report.step;
      read.push_back(n);
    }
  });
  served.submit(ask({1, 2, 3}, 300));
  served.scheduler->turn();
  served.submit(ask(text(2, 3000), 5));
  served.finish();
  ASSERT_GT(read.size(), 3u);
  EXPECT_GT(read.front(), 50);
  EXPECT_LT(read.back(), 20);
  EXPECT_TRUE(std::ranges::is_sorted(read, std::greater<>()));
}

// A step may be as long as one in which all of them generate.
TEST(Scheduler, WhereManyReadTheirPromptsStepsAreLonger) {
  const auto rows = [](int n_readers) {
    SchedulerSetting setting;
    setting.drafters = "";
    setting.load.n_sequences = setting.scheduler.n_running = 1 + n_readers;
    setting.load.n_pages = 60;
    Served served(setting);
    Learned learned = served.engine->learned();
    learned.passes = {{.rows = 1, .ms = 100}, {.rows = 101, .ms = 2100}};
    EXPECT_TRUE(served.engine->restore(learned));
    served.submit(ask({1, 2, 3}, 300));
    served.scheduler->turn();
    for (int i = 0; i < n_readers; ++i) served.submit(ask(text(4 + i, 200), 5));
    int rows = 0;
    served.engine->on_step([&](const StepReport& report) { rows = report.rows; });
    served.scheduler->turn();
    served.engine->on_step({});
    return rows;
  };
  EXPECT_EQ(rows(1), 4);  // 160 ms
  EXPECT_EQ(rows(3), 4);  // 160 ms
  EXPECT_GE(rows(7), 7);  // 240 ms
}

TEST(Scheduler, OneFailureEndsOneAnswer) {
  SchedulerSetting setting;
  setting.model.unusable = [](std::span<const Token> path) {
    return path.front() == 7 && path.size() > 5;
  };
  Served served(setting);
  const AnswerId good = served.submit(ask({1, 2, 3}, 20)), bad = served.submit(ask({7, 2, 3}, 20));
  served.finish();
  EXPECT_EQ(served.outcome(good).finished, FinishReason::length);
  EXPECT_TRUE(served.all.at(bad)->end->error);
  EXPECT_EQ(served.all.at(bad)->tokens.size(), 3u);

  // A step that fails as a whole is tried again for each alone.
  int n_forwards = 0;
  served.target->before_forward = [&] {
    if (++n_forwards == 3) throw Error("too much");
  };
  const AnswerId one = served.submit(ask({1, 2, 3}, 20)), two = served.submit(ask({4, 5}, 20));
  served.finish();
  EXPECT_EQ(served.outcome(one), served.outcome(good));
  EXPECT_EQ(served.outcome(two).finished, FinishReason::length);
  served.target->before_forward = [&] { throw Error("no more"); };
  const AnswerId three = served.submit(ask({1, 2, 3}, 20));
  served.finish();
  EXPECT_STREQ(served.all.at(three)->end->error->what(), "no more");
  EXPECT_EQ(served.scheduler->status().failed, 2);
  EXPECT_EQ(served.target->free_pages(), served.n_pages);
}

TEST(Scheduler, SaysWhichStopStringEndedAnAnswer) {
  Served served(SchedulerSetting{});
  AnswerRequest request = ask({1, 2, 3}, 30);
  const AnswerId whole = served.submit(request);
  served.finish();
  EXPECT_EQ(served.all.at(whole)->end->stop_text, std::nullopt);
  request.request.stop.texts = {"nowhere", served.all.at(whole)->text.substr(4, 3)};
  const AnswerId id = served.submit(request);
  served.finish();
  EXPECT_EQ(served.all.at(id)->end->stop_text, request.request.stop.texts[1]);
  EXPECT_EQ(served.all.at(id)->end->reason, FinishReason::stop);
}

TEST(Scheduler, AnswersWithNoTokensReadThePrompt) {
  Served served(SchedulerSetting{});
  const std::vector<Token> prompt = text(5, 150);
  const AnswerId id = served.submit(ask(prompt, 0));
  served.finish();
  EXPECT_TRUE(served.all.at(id)->tokens.empty());
  EXPECT_EQ(served.all.at(id)->text, "");
  EXPECT_EQ(served.all.at(id)->end->reason, FinishReason::length);
  EXPECT_EQ(served.figures(id).completion_tokens, 0);
  const AnswerId next = served.submit(ask(prompt, 1));
  served.finish();
  EXPECT_GE(served.figures(next).cached_tokens, 64);
}

TEST(Scheduler, TellsLogProbabilities) {
  for (const char* drafters : {"", "lookup model"}) {
    SCOPED_TRACE(drafters);
    SchedulerSetting setting;
    setting.drafters = drafters;
    Served served(setting);
    const std::vector<Token> prompt = text(3, 150);
    AnswerRequest request = ask(prompt, 30);
    request.request.options.n_logprobs = 2;
    const AnswerId warm = served.submit(request);
    served.finish();
    request.request.options.prompt_logprobs = true;
    const AnswerId id = served.submit(request);
    request.request.stop.n_predict = 0;
    const AnswerId prompt_alone = served.submit(request);
    served.finish();
    EXPECT_EQ(served.figures(id).cached_tokens, 0);
    const auto& heard = *served.all.at(id);
    EXPECT_EQ(heard.tokens, served.all.at(warm)->tokens);
    ASSERT_EQ(heard.prompt.size(), prompt.size() - 1);
    ASSERT_EQ(heard.scores.size(), 30u);
    std::vector<Token> whole = prompt;
    whole.insert(whole.end(), heard.tokens.begin(), heard.tokens.end());
    for (std::size_t i = 1; i < whole.size(); ++i) {
      const auto logits = setting.model.logits(std::span(whole).first(i));
      const ScoredToken expected = score(logits, whole[i], 2);
      const ScoredToken& told =
          i < prompt.size() ? heard.prompt[i - 1] : heard.scores[i - prompt.size()];
      ASSERT_EQ(told.logprob, expected.logprob);
      ASSERT_EQ(told.best.size(), 2u);
      ASSERT_EQ(told.best[0].token, expected.best[0].token);
    }
    EXPECT_EQ(served.all.at(prompt_alone)->prompt.size(), prompt.size() - 1);
    EXPECT_TRUE(served.all.at(prompt_alone)->tokens.empty());
  }
}

TEST(Scheduler, SaysWhatItDoes) {
  Served served({});
  const AnswerId id = served.submit(ask({1, 2, 3, 1, 2, 3}, 30));
  AnswerRequest without = ask({4, 5}, 10);
  without.request.options.draft_rows = 0;
  const AnswerId plain = served.submit(without);
  served.scheduler->turn();
  SchedulerStatus status = served.scheduler->status();
  EXPECT_EQ(status.count(SchedulerStatus::State::generating), 2);
  served.finish();
  status = served.scheduler->status();
  EXPECT_TRUE(status.answers.empty());
  EXPECT_EQ(status.completion_tokens, 40);
  EXPECT_EQ(status.counters.emitted, 40);
  EXPECT_EQ(served.figures(plain).counters.not_drafted.off, 9);
  const Counters& counters = served.figures(id).counters;
  long n_accepted = 0, n_drafts = 0;
  for (std::size_t n = 0; n < counters.accepted_lengths.size(); ++n) {
    n_accepted += static_cast<long>(n) * counters.accepted_lengths[n];
    n_drafts += counters.accepted_lengths[n];
  }
  EXPECT_EQ(n_accepted, counters.accepted);
  EXPECT_EQ(n_drafts, counters.drafts);
  EXPECT_EQ(counters.drafts + counters.not_drafted.sum(), counters.generating - 1);
}

TEST(Scheduler, StoppingFailsWhatHasNotEnded) {
  Served served(SchedulerSetting{});
  const AnswerId id = served.submit(ask({1, 2, 3}, 300));
  served.scheduler->turn();
  served.scheduler->stop();
  served.scheduler->run();
  ASSERT_TRUE(served.all.at(id)->end);
  EXPECT_TRUE(served.all.at(id)->end->error);
  EXPECT_THROW(served.submit(ask({1}, 1)), Overloaded);
  EXPECT_EQ(served.target->n_alive(), 0);
}

TEST(Scheduler, ManyThreadsAskOneThatWorks) {
  Served served({});
  std::thread works([&] { served.scheduler->run(); });
  std::atomic<int> n_ended = 0, n_refused = 0;
  std::vector<std::thread> users;
  for (int user = 0; user < 4; ++user)
    users.emplace_back([&, user] {
      for (int i = 0; i < 40; ++i) try {
          const AnswerId id = served.scheduler->submit(
              ask(text(user, 5 + i), 5),
              [&](const AnswerEvent& event) { n_ended += event.end.has_value(); });
          if (i % 5 == 0) served.scheduler->cancel(id);
          served.scheduler->status();
        } catch (const Overloaded&) {
          ++n_refused;
          std::this_thread::yield();
        }
    });
  for (std::thread& user : users) user.join();
  while (!served.scheduler->status().answers.empty() || n_ended + n_refused < 160)
    std::this_thread::yield();
  served.scheduler->stop();
  works.join();
  EXPECT_EQ(n_ended + n_refused, 160);
}

}  // namespace
}  // namespace outrider

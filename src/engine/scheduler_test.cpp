#include "engine/scheduler.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <ctime>
#include <map>
#include <memory>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/sanitizers.h"
#include "cache/cache.h"
#include "engine/plain_decoding_test.h"
#include "speculation/drafters/lookahead.h"
#include "speculation/drafters/lookup.h"
#include "speculation/drafters/model.h"
#include "speculation/drafters/prediction.h"
#include "speculation/drafters/self.h"

namespace outrider {
namespace {

constexpr int kContext = 400;

struct SchedulerSetting {
  LoadOptions load{.context = kContext,
                   .n_sequences = 4,
                   .n_pages = 16,
                   .shares_texts = true,
                   .batch_rows = 128};
  PlannerOptions planner{.automatic = false, .rows = 6, .depth = 4, .width = 2};
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
    if (names("history"))
      drafters.push_back(std::make_unique<LookupDrafter>(
          LookupOptions{.earlier = std::make_shared<EarlierAnswers>(EarlierAnswers::Options{})}));
    if (names("prediction")) drafters.push_back(std::make_unique<PredictionDrafter>());
    if (names("lookahead")) drafters.push_back(std::make_unique<LookaheadDrafter>());
    if (names("self")) drafters.push_back(std::make_unique<SelfDrafter>(target, std::vector{1}));
    if (names("model")) {
      FakeModel model;
      model.disagreement = 0.3f;
      draft = std::make_shared<FakeBackend>(model, setting.load);
      drafters.push_back(std::make_unique<ModelDrafter>(draft, ModelDrafterOptions{23}));
    }
    engine.emplace(
        target, std::move(drafters),
        EngineOptions{
            .planner = setting.planner, .prompt_chunk = 100, .always_times_passes = true});
    if (setting.planner.automatic) engine->measure_costs();
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
  // Nothing: it has ended, or came after the last turn.
  std::optional<SchedulerStatus::State> state(AnswerId id) const {
    for (const SchedulerStatus::Answer& answer : scheduler->status().answers)
      if (answer.id == id) return answer.state;
    return std::nullopt;
  }
  // As if passes took this long.
  void learn(std::vector<CostCurve::Point> passes, double attention_ms = 0) {
    Learned learned = engine->learned();
    learned.passes = std::move(passes);
    learned.attention_ms = attention_ms;
    ASSERT_TRUE(engine->restore(learned));
  }

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
  // A sanitizer looks at memory and threads, which the first seeds show.
  constexpr unsigned kSeeds = OUTRIDER_SANITIZES_MEMORY ? 3 : 8;
  long n_preempted = 0, n_cached = 0, n_cancelled = 0, n_accepted = 0, n_mixed = 0;
  for (const char* drafters : {"", "lookup", "history", "prediction", "model", "self", "lookahead",
                               "lookup model prediction lookahead self"})
    for (unsigned seed = 1; seed <= kSeeds; ++seed) {
      SCOPED_TRACE(fmt::format("drafters '{}', seed {}", drafters, seed));
      std::mt19937 random(seed);
      const auto below = [&](int n) { return static_cast<int>(random() % n); };
      SchedulerSetting setting;
      setting.drafters = drafters;
      setting.planner.automatic = seed % 3 == 0;
      setting.load.n_pages = 11 + below(3);
      Served served(setting);
      // Steps that read of a prompt, generate without drafts and check drafts in one pass.
      served.engine->on_step([&](const StepReport& report) {
        const auto any = [&](auto has) { return std::ranges::any_of(report.sequences, has); };
        n_mixed += any([](const auto& part) { return part.emitted.empty(); }) &&
                   any([](const auto& part) { return !part.nodes.empty(); }) &&
                   any([](const auto& part) {
                     return part.n_tokens == 1 && part.nodes.empty() && !part.emitted.empty();
                   });
      });
      const std::vector<Token> common = text(seed, 250);
      std::map<AnswerId, Request> asked;
      std::set<AnswerId> scored;
      std::set<AnswerId> cancelled;
      for (int round = 0; round < 120; ++round) {
        if (round < 60 && below(3) == 0) {
          std::vector<Token> prompt(common.begin(), common.begin() + below(140));
          const std::vector<Token> own = text(seed * 1000 + round, 1 + below(40));
          prompt.insert(prompt.end(), own.begin(), own.end());
          // Some only read their prompt.
          const int n_predict = 1 + below(below(2) == 0 ? 40 : 250);
          AnswerRequest request = ask(prompt, n_predict % 16 == 0 ? 0 : n_predict,
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
          request.request.options.prompt_logprobs = below(8) == 0;
          request.request.options.scope.value[0] = below(2);
          request.priority = below(3) - 1;
          const Request plain = request.request;
          const int n = 1 + below(3);
          for (int stream = 0; stream < n; ++stream) {
            request.request.sampling.stream = static_cast<std::uint32_t>(stream);
            const AnswerId id = served.submit(request);
            asked[id] = plain;
            asked[id].sampling.stream = static_cast<std::uint32_t>(stream);
            if (request.request.options.prompt_logprobs) scored.insert(id);
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
        if (scored.contains(id)) {
          const std::vector<ScoredToken>& told = served.all.at(id)->prompt;
          ASSERT_EQ(told.size(), request.prompt.size() - 1);
          for (std::size_t i = 0; i < told.size(); ++i) {
            const auto logits = setting.model.logits(std::span(request.prompt).first(i + 1));
            ASSERT_EQ(told[i].logprob, score(logits, request.prompt[i + 1], 0).logprob);
          }
        }
      }
      EXPECT_EQ(served.target->n_alive(), 0);
      EXPECT_EQ(served.target->free_pages(), served.n_pages);
      if (served.draft) {
        EXPECT_EQ(served.draft->n_alive(), 0);
      }
    }
  EXPECT_GT(n_preempted, kSeeds);
  EXPECT_GT(n_cached, 600 * kSeeds);
  EXPECT_GT(n_cancelled, 2 * kSeeds);
  EXPECT_GT(n_accepted, 60 * kSeeds);
  EXPECT_GT(n_mixed, kSeeds);
}

// What it knew of its pages when it asked for room is given back if there is none: the pool is for
// those that run.
TEST(Scheduler, ASuspendedAnswerHoldsNoPages) {
  for (const char* drafters : {"", "lookup", "model"}) {
    SCOPED_TRACE(drafters);
    SchedulerSetting setting;
    setting.drafters = drafters;
    setting.load.n_pages = 11;
    Served served(setting);
    AnswerRequest requests[] = {ask(text(1, 10), 380), ask(text(2, 250), 140)};
    requests[1].request.options.prompt_logprobs = true;
    const AnswerId ids[] = {served.submit(requests[0]), served.submit(requests[1])};
    while (served.scheduler->turn())
      for (const SchedulerStatus::Answer& answer : served.scheduler->status().answers)
        if (answer.state == SchedulerStatus::State::suspended) {
          ASSERT_EQ(answer.read_tokens, 0);
        }
    EXPECT_EQ(served.figures(ids[0]).n_preempted, 0);
    EXPECT_GT(served.figures(ids[1]).n_preempted, 0);
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(served.outcome(ids[i]),
                decode_plainly({}, served.tokenizer, requests[i].request, kContext));
    EXPECT_EQ(served.all.at(ids[1])->prompt.size(), 249u);  // told once
  }
}

// The last in the order of all, not the last that came.
TEST(Scheduler, TheLastInOrderGivesWay) {
  SchedulerSetting setting;
  setting.load.n_pages = 11;
  Served served(setting);
  AnswerRequest later = ask(text(2, 250), 140);
  later.priority = 1;
  const AnswerId low = served.submit(later), high = served.submit(ask(text(1, 10), 380));
  while (served.state(low) != SchedulerStatus::State::suspended)
    ASSERT_TRUE(served.scheduler->turn());
  // One that comes before it and fits does not wait for it.
  AnswerRequest urgent = ask({1, 2, 3}, 10);
  urgent.priority = -1;
  const AnswerId first = served.submit(urgent);
  served.scheduler->turn();
  EXPECT_EQ(served.state(first), SchedulerStatus::State::generating);
  EXPECT_EQ(served.state(low), SchedulerStatus::State::suspended);
  served.finish();
  EXPECT_GT(served.figures(low).n_preempted, 0);
  EXPECT_EQ(served.figures(high).n_preempted, 0);
  EXPECT_EQ(served.figures(first).n_preempted, 0);
}

TEST(Scheduler, BeginsWhatItHasPagesFor) {
  SchedulerSetting setting;
  setting.load.n_pages = 12;
  Served served(setting);
  for (unsigned seed = 1; seed <= 3; ++seed) served.submit(ask(text(seed, 300), 20));
  while (served.scheduler->turn()) {
    using enum SchedulerStatus::State;
    const SchedulerStatus status = served.scheduler->status();
    EXPECT_LE(status.count(prefilling) + status.count(generating), 1);
  }
  EXPECT_EQ(served.scheduler->status().preemptions, 0);
  EXPECT_EQ(served.scheduler->status().reached_length, 3);
}

// Whatever an answer is doing, no step follows its cancellation before its end.
TEST(Scheduler, CancellingFreesPagesBeforeTheNextStep) {
  using enum SchedulerStatus::State;
  for (const SchedulerStatus::State state : {waiting, prefilling, generating, suspended}) {
    SCOPED_TRACE(static_cast<int>(state));
    SchedulerSetting setting;
    setting.load.n_pages = 11;
    if (state == waiting) setting.scheduler.n_running = 1;
    Served served(setting);
    std::optional<AnswerId> other;
    if (state == waiting || state == suspended) other = served.submit(ask(text(1, 10), 380));
    const AnswerId id = served.submit(ask(text(2, 250), 140));
    while (served.state(id) != state) ASSERT_TRUE(served.scheduler->turn());
    const std::size_t n_told = served.all.at(id)->tokens.size();
    int n_sequences = 0;
    served.engine->on_step([&](const StepReport& report) {
      n_sequences += static_cast<int>(report.sequences.size());
    });
    served.scheduler->cancel(id);
    served.scheduler->turn();
    ASSERT_TRUE(served.all.at(id)->end);
    EXPECT_FALSE(served.all.at(id)->end->reason);
    EXPECT_EQ(served.all.at(id)->tokens.size(), n_told);
    EXPECT_EQ(n_sequences, other ? 1 : 0);
    EXPECT_EQ(served.target->n_alive(), other ? 1 : 0);
    if (!other) {
      EXPECT_EQ(served.target->free_pages(), served.n_pages);
    }
  }
}

// What it has by then is its answer.
TEST(Scheduler, AnAnswerMayTakeSoLong) {
  SchedulerSetting setting;
  setting.scheduler.n_running = 1;
  setting.scheduler.time_max = std::chrono::seconds(1);
  Served served(setting);
  const AnswerId id = served.submit(ask({1, 2, 3}, 100)), waits = served.submit(ask({1, 2}, 100));
  served.scheduler->turn();
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  const AnswerId next = served.submit(ask({1, 2, 3}, 5));
  served.finish();
  EXPECT_EQ(served.outcome(id).finished, FinishReason::length);
  EXPECT_EQ(served.outcome(id).tokens.size(), 1u);
  EXPECT_EQ(served.outcome(waits).finished, std::nullopt);
  EXPECT_FALSE(served.all.at(waits)->end->error);
  EXPECT_EQ(served.outcome(next).tokens.size(), 5u);
  EXPECT_EQ(served.target->free_pages(), served.n_pages);
}

TEST(Scheduler, SleepsWhenThereIsNothingToDo) {
  Served served({});
  const AnswerId id = served.submit(ask({1, 2, 3}, 5));
  std::thread works([&] { served.scheduler->run(); });
  while (served.scheduler->status().reached_length == 0) std::this_thread::yield();
  clockid_t clock;
  ASSERT_EQ(::pthread_getcpuclockid(works.native_handle(), &clock), 0);
  const auto ms = [&] {
    timespec time;
    ::clock_gettime(clock, &time);
    return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
  };
  const double before = ms();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(ms() - before, 20);
  served.scheduler->stop();
  works.join();
  EXPECT_TRUE(served.all.at(id)->end);
}

TEST(Scheduler, ParallelAnswersReadTheirPromptOnce) {
  for (const char* drafters : {"", "lookup model prediction"}) {
    SCOPED_TRACE(drafters);
    SchedulerSetting setting;
    setting.drafters = drafters;
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
    if (setting.drafters.empty()) {
      EXPECT_EQ(served.target->counts.rows, 300 + 2 * (300 - 256) + 3 * 9);
    }
    EXPECT_NE(served.outcome(ids[0]).tokens, served.outcome(ids[1]).tokens);

    // Another scope reads it again; the same one does not.
    AnswerRequest stranger = ask(prompt, 1);
    stranger.request.options.scope.value[1] = 1;
    const AnswerId other = served.submit(stranger), same = served.submit(ask(prompt, 1));
    served.finish();
    EXPECT_EQ(served.figures(other).cached_tokens, 0);
    EXPECT_EQ(served.figures(same).cached_tokens, 256);
  }
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

// Where a pass has few rows, those that drafts were given stay theirs.
TEST(Scheduler, PromptsTakeNoRowsOfDrafts) {
  SchedulerSetting setting;
  setting.drafters = "prediction";
  setting.load.batch_rows = 14;
  setting.planner = {.automatic = false, .rows = 6, .depth = 6, .width = 1};
  Served served(setting);
  served.learn({{.rows = 1, .ms = 100}, {.rows = 101, .ms = 101}});
  AnswerRequest request = ask({1, 2, 3}, 200);
  request.request.options.prediction =
      decode_plainly({}, served.tokenizer, request.request, kContext).tokens;
  const AnswerId first = served.submit(request);
  served.scheduler->turn();
  int n_beside = 0;
  served.engine->on_step([&](const StepReport& report) {
    if (report.sequences.size() < 2 || !report.sequences[1].emitted.empty()) return;
    EXPECT_EQ(report.sequences[0].nodes.size(), 6u);
    EXPECT_EQ(report.rows, 14);
    ++n_beside;
  });
  served.submit(ask(text(2, 150), 1));
  served.finish();
  EXPECT_GT(n_beside, 10);
  EXPECT_EQ(served.outcome(first).tokens, request.request.options.prediction);
}

// A step beside one that generates reads what keeps its expected time below 1.6 times that without,
// or below the pause that is allowed, and so less and less of a long prompt, as its attention
// grows; always something.
TEST(Scheduler, LongPromptsAreReadInSmallerParts) {
  struct Case {
    std::optional<double> pause_ms;
    int first, last;  // tokens, at least and at most
  };
  for (const Case& example : {Case{std::nullopt, 50, 20}, Case{130, 20, 10}, Case{50, 2, 2}}) {
    SCOPED_TRACE(example.first);
    SchedulerSetting setting;
    setting.drafters = "";
    setting.load.context = 4000;
    setting.load.n_pages = 80;
    setting.scheduler.max_pause_ms = example.pause_ms;
    Served served(setting);
    served.learn({{.rows = 1, .ms = 100}, {.rows = 101, .ms = 200}}, 0.001);
    std::vector<int> read;
    served.engine->on_step([&](const StepReport& report) {
      if (report.sequences.size() < 2) return;
      const auto ms = [&](int n) {
        const int first = report.sequences[1].position, length = report.sequences[0].position;
        return 100 + n + 0.001 * (2.5 * length + n * (first + n / 2.0) + 1.5 * first);
      };
      const int n = report.sequences[1].n_tokens;
      const double usual = 1.6 * (ms(0) - 0.0015 * report.sequences[1].position);
      const double most = example.pause_ms.value_or(usual);
      if (n > 2) {  // the least
        EXPECT_LE(ms(n), most + 0.01) << report.step;
      }
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
    EXPECT_GE(read.front(), example.first);
    EXPECT_LE(read.back(), example.last);
    EXPECT_TRUE(std::ranges::is_sorted(read, std::greater<>()));
  }
}

// A step reads up to where another row would cost a tile of kernels that take rows by sixteens,
// but not where a row costs what it does elsewhere, or where little more than half would be read.
TEST(Scheduler, StepsEndWhereTilesDo) {
  struct Case {
    double tile_ms;   // that the 17th row costs more
    double plain_ms;  // of a step without the prompt; it reads what fits into 1.6 times that
    int n_prefill;
  };
  for (const Case& example : {Case{15, 60, 15}, Case{1, 60, 35}, Case{15, 75, 30}}) {
    SCOPED_TRACE(example.n_prefill);
    SchedulerSetting setting;
    setting.drafters = "";
    Served served(setting);
    const double tile = example.plain_ms + 15, next = tile + example.tile_ms;
    served.learn({{.rows = 1, .ms = example.plain_ms},
                  {.rows = 16, .ms = tile},
                  {.rows = 17, .ms = next},
                  {.rows = 97, .ms = next + 80}});
    served.submit(ask({1, 2, 3}, 100));
    served.scheduler->turn();
    served.submit(ask(text(2, 150), 1));
    std::vector<int> rows;
    served.engine->on_step([&](const StepReport& report) { rows.push_back(report.rows); });
    served.scheduler->turn();
    EXPECT_EQ(rows, (std::vector<int>{1 + example.n_prefill}));
  }
}

// Who waits for pages and has computed nothing leaves its place to another who goes before it.
TEST(Scheduler, WhoGoesFirstTakesThePlaceOfOneThatWaits) {
  using State = SchedulerStatus::State;
  SchedulerSetting setting;
  setting.drafters = "";
  setting.load.n_pages = 11;
  setting.scheduler.n_running = 2;
  Served served(setting);
  const AnswerId running = served.submit(ask(text(1, 250), 100));
  served.scheduler->turn();
  const AnswerId large = served.submit(ask(text(2, 350), 20));
  served.scheduler->turn();
  EXPECT_EQ(served.state(large), State::suspended);
  AnswerRequest urgent = ask(text(3, 10), 5);
  urgent.priority = -1;
  const AnswerId small = served.submit(urgent);
  while (!served.all.at(small)->end) ASSERT_TRUE(served.scheduler->turn());
  EXPECT_EQ(served.state(running), State::generating);
  EXPECT_EQ(served.state(large), State::waiting);
  served.finish();
  EXPECT_EQ(served.scheduler->status().prompt_tokens, 250 + 350 + 10);
  EXPECT_EQ(served.figures(large).n_preempted, 0);
}

// Nor has it begun: it computed nothing.
TEST(Scheduler, WhoIsCancelledBeforeItsFirstStepHasNoPrompt) {
  SchedulerSetting setting;
  setting.drafters = "";
  setting.load.n_pages = 11;
  Served served(setting);
  served.submit(ask(text(1, 250), 100));
  served.scheduler->turn();
  const AnswerId large = served.submit(ask(text(2, 350), 20));
  served.scheduler->turn();
  EXPECT_EQ(served.state(large), SchedulerStatus::State::suspended);
  served.scheduler->cancel(large);
  served.scheduler->turn();
  EXPECT_EQ(served.figures(large).prompt_tokens, 0);
  EXPECT_EQ(served.figures(large).prompt_ms, 0);
  served.finish();
  EXPECT_EQ(served.scheduler->status().prompt_tokens, 250);
}

// While nobody generates, a step has as many rows as a chunk, each text's own among them: kernels
// take rows by sixteens, and one more would cost as much as sixteen.
TEST(Scheduler, AStepThatOnlyReadsIsAChunk) {
  SchedulerSetting setting;
  setting.drafters = "";
  setting.load.n_pages = 40;
  Served served(setting);
  std::vector<int> rows;
  served.engine->on_step([&](const StepReport& report) { rows.push_back(report.rows); });
  for (const int n : {250, 30, 40}) served.submit(ask(text(n, n), 1));
  served.finish();
  EXPECT_EQ(rows, (std::vector<int>{100, 100, 100, 20}));
}

// Scored rows take memory and time: a step has few of them, and others read what they leave of it.
TEST(Scheduler, ScoredPromptsLeaveRoomForOthers) {
  SchedulerSetting setting;
  setting.drafters = "";
  setting.load.n_pages = 40;
  Served served(setting);
  std::vector<std::vector<int>> read;
  served.engine->on_step([&](const StepReport& report) {
    read.emplace_back();
    for (const auto& part : report.sequences) read.back().push_back(part.n_tokens);
  });
  AnswerRequest scored[] = {ask(text(1, 200), 5), ask(text(2, 200), 5)};
  for (AnswerRequest& request : scored) {
    request.request.options.prompt_logprobs = true;
    served.submit(request);
  }
  served.submit(ask(text(3, 200), 5));
  served.scheduler->turn();
  EXPECT_EQ(read.back(), (std::vector<int>{32, 68}));
  served.finish();
  for (const std::vector<int>& step : read)
    EXPECT_LE(std::ranges::count(step, 32), 1);  // of the two that are scored

  Learned learned = served.engine->learned();
  learned.passes = {{.rows = 1, .ms = 100}, {.rows = 101, .ms = 200}};
  learned.logits_ms = 0.5;
  ASSERT_TRUE(served.engine->restore(learned));
  const auto pass_ms = [&](bool prompt_logprobs) {
    const auto generation =
        served.engine->begin(text(4, 200), greedy(), StopRules(served.tokenizer, {}),
                             {.prompt_logprobs = prompt_logprobs});
    const Engine::Part part{generation.get(), 20};
    return served.engine->pass_ms({&part, 1}).value();
  };
  EXPECT_NEAR(pass_ms(true) - pass_ms(false), 21 * 0.5, 1e-6);
}

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
  EXPECT_EQ(rows(1), 4);   // 160 ms
  EXPECT_EQ(rows(3), 11);  // 320 ms, with attention
  EXPECT_EQ(rows(7), 27);  // 640 ms
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

// A step that fails in a late stage has changed nothing: penalties, limits and stop strings go on
// from where they were.
TEST(Scheduler, AStepThatIsTriedAgainCountsOnce) {
  for (int failing = 1; failing <= 12; ++failing) {
    SCOPED_TRACE(failing);
    Served served({});
    int n_commits = 0;
    served.target->before_commit = [&] {
      if (++n_commits == failing) throw std::bad_alloc();
    };
    std::map<AnswerId, Request> asked;
    for (unsigned seed = 1; seed <= 2; ++seed) {
      AnswerRequest request = ask({1, 2, 3}, 30, sampled(seed, true));
      request.request.stop.texts = {"abcabc", "qrst"};
      request.request.options.n_logprobs = 1;
      asked[served.submit(request)] = request.request;
    }
    served.finish();
    EXPECT_GT(n_commits, failing);
    for (const auto& [id, request] : asked) {
      EXPECT_EQ(served.outcome(id), decode_plainly({}, served.tokenizer, request, kContext));
      EXPECT_EQ(served.all.at(id)->scores.size(), served.all.at(id)->tokens.size());
    }
  }
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

// Those of the model, whatever temperature, filters, penalties and biases make of them.
TEST(Scheduler, TellsLogProbabilities) {
  SamplingParams changed = sampled(5, true);
  changed.filters.top_k = 2;
  for (const char* drafters : {"", "lookup model"})
    for (const SamplingParams& sampling : {greedy(), changed}) {
      SCOPED_TRACE(drafters);
      SchedulerSetting setting;
      setting.drafters = drafters;
      Served served(setting);
      const std::vector<Token> prompt = text(3, 150);
      AnswerRequest request = ask(prompt, 30, sampling);
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

TEST(Scheduler, CountsWhatBecameOfAPrediction) {
  SchedulerSetting setting;
  setting.drafters = "prediction";
  Served served(setting);
  AnswerRequest request = ask({1, 2, 3}, 60);
  const AnswerId without = served.submit(request);
  std::vector<Token>& prediction = request.request.options.prediction;
  prediction = decode_plainly({}, served.tokenizer, request.request, kContext).tokens;
  for (const int place : {20, 40}) prediction[place] = prediction[place] % 22 + 1;
  const AnswerId id = served.submit(request);
  served.finish();
  EXPECT_EQ(served.figures(without).prediction_accepted, 0);
  EXPECT_EQ(served.figures(without).prediction_rejected, 0);
  const AnswerFigures& figures = served.figures(id);
  EXPECT_GT(figures.prediction_accepted, 20);
  EXPECT_GE(figures.prediction_rejected, 2);
  EXPECT_EQ(figures.prediction_accepted, figures.counters.accepted);
  EXPECT_EQ(figures.prediction_accepted + figures.prediction_rejected, figures.counters.drafted);
}

TEST(Scheduler, StoppingCancelsWhatHasNotEnded) {
  Served served(SchedulerSetting{});
  const AnswerId id = served.submit(ask({1, 2, 3}, 300));
  served.scheduler->turn();
  served.scheduler->stop();
  served.scheduler->run();
  ASSERT_TRUE(served.all.at(id)->end);
  EXPECT_FALSE(served.all.at(id)->end->reason);
  EXPECT_FALSE(served.all.at(id)->end->error);
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

// The promise to every user of a server: an answer's tokens are those of plain decoding, one row at
// a time, whatever runs beside it, shares its pages, or makes it give them back.

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/scheduler.h"
#include "formats/gguf.h"
#include "speculation/drafters/lookup.h"
#include "speculation/drafters/model.h"
#include "speculation/drafters/prediction.h"
#include "support/decoding.h"
#include "support/tiny_model.h"

namespace outrider::testing {
namespace {

struct Models {
  const Model* target = nullptr;
  const Model* draft = nullptr;
  const Tokenizer* tokenizer = nullptr;
};

struct Load {
  Isa isa;
  int n_threads = 2;
  CacheType cache_type = CacheType::f16;
  int n_requests, n_running, n_pages, context;
  int n_predict, n_predict_least = 1;
  bool automatic;
  int n_arriving = 3;     // requests between two steps
  int prompt_chunk = 64;  // tokens of prompts in a step at most
  std::optional<double> max_pause_ms = {};
};

// A third of the requests begin alike, some ask for several answers.
std::vector<AnswerRequest> mix(const Load& load, int vocabulary, unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  std::vector<Token> common(150);
  for (std::size_t i = 0; i < common.size(); ++i)
    common[i] = static_cast<Token>((i % 13 * 31 + (i % 29 == 0) * 7 + 30) % vocabulary);
  std::vector<AnswerRequest> requests;
  while (std::ssize(requests) < load.n_requests) {
    std::vector<Token> prompt(common.begin(), common.begin() + (below(3) == 0 ? 140 : below(90)));
    for (int i = 1 + below(20); i > 0; --i) prompt.push_back(below(vocabulary));
    AnswerRequest request{
        .request = {
            std::move(prompt),
            {},
            {.n_predict = load.n_predict_least + below(load.n_predict - load.n_predict_least + 1),
             .ignore_eos = true}}};
    SamplingParams& sampling = request.request.sampling;
    sampling.seed = random();
    switch (below(3)) {
      case 0: sampling.filters.temperature = 0; break;
      case 1: break;
      default:
        sampling.filters = {.top_k = 50,
                            .typical_p = 0.97f,
                            .top_p = 0.9f,
                            .min_p = 0.02f,
                            .repeat_penalty = 1.1f,
                            .frequency_penalty = 0.1f,
                            .presence_penalty = 0.2f,
                            .temperature = 1.1f};
        sampling.bias = {{17, 2.5f}, {40, -1.0f}};
        sampling.repeat_last_n = below(100);
    }
    if (below(3) == 0) request.request.options.prediction.assign(common.begin() + 60, common.end());
    if (below(5) == 0) request.request.options.draft_rows = below(3);
    if (below(4) == 0) request.request.options.n_logprobs = 1;
    for (int stream = below(4) == 0 ? 2 : 0; stream >= 0; --stream) {
      sampling.stream = static_cast<std::uint32_t>(stream);
      requests.push_back(request);
    }
  }
  return requests;
}

struct Sums {
  long cached = 0, preempted = 0, accepted = 0;
  int most_at_once = 0;  // answers in one step
};

// Serves the mix and compares each answer with the one that it is alone.
Sums serve_and_compare(const Models& models, const Load& load, unsigned seed) {
  const LoadOptions options{.context = load.context,
                            .n_sequences = load.n_running,
                            .n_pages = load.n_pages,
                            .shares_texts = true,
                            .batch_rows = load.prompt_chunk + 9 * load.n_running,
                            .cache_type = load.cache_type,
                            .n_threads = load.n_threads};
  std::vector<std::unique_ptr<Drafter>> drafters;
  constexpr std::size_t kMemory = std::size_t{1} << 24;
  drafters.push_back(std::make_unique<LookupDrafter>(LookupOptions{
      .memory_bytes = kMemory,
      .earlier = std::make_shared<EarlierAnswers>(EarlierAnswers::Options{kMemory})}));
  drafters.push_back(std::make_unique<PredictionDrafter>());
  drafters.push_back(
      std::make_unique<ModelDrafter>(load_cpu(*models.draft, options, load.isa),
                                     ModelDrafterOptions{models.target->spec.vocabulary}));
  Engine engine(load_cpu(*models.target, options, load.isa), std::move(drafters),
                {.planner = {.automatic = load.automatic, .rows = 8, .depth = 6},
                 .prompt_chunk = load.prompt_chunk,
                 .always_times_passes = true});
  engine.measure_costs();
  const int n_pages = engine.target().free_pages();
  Scheduler scheduler(
      engine, *models.tokenizer,
      {.n_running = load.n_running, .n_waiting = 1000, .max_pause_ms = load.max_pause_ms});
  const std::vector<AnswerRequest> requests = mix(load, models.tokenizer->size() - 10, seed);
  std::vector<std::vector<Token>> answers(requests.size());
  Sums sums;
  engine.on_step([&](const StepReport& report) {
    sums.most_at_once = std::max(sums.most_at_once, static_cast<int>(report.sequences.size()));
  });
  for (std::size_t i = 0; i < requests.size(); ++i) {
    scheduler.submit(requests[i], [&, i](const AnswerEvent& event) {
      for (const AnswerToken& token : event.tokens) answers[i].push_back(token.token);
      if (!event.end) return;
      EXPECT_EQ(event.end->reason, FinishReason::length);
      sums.cached += event.end->figures.cached_tokens;
      sums.preempted += event.end->figures.n_preempted;
      sums.accepted += event.end->figures.counters.accepted;
    });
    if (static_cast<int>(i) % load.n_arriving == 0) scheduler.turn();
  }
  while (scheduler.turn()) {
  }
  EXPECT_EQ(engine.target().free_pages(), n_pages);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(fmt::format("request {} of seed {}", i, seed));
    const Decoded alone = decode({.target = models.target,
                                  .draft = models.draft,
                                  .tokenizer = models.tokenizer,
                                  .prompt = requests[i].request.prompt,
                                  .sampling = sampling_of(requests[i].request, *models.tokenizer),
                                  .n_predict = requests[i].request.stop.n_predict,
                                  .cache_type = load.cache_type},
                                 {.isa = chosen_isa()});
    EXPECT_EQ(answers[i], alone.tokens);
    if (::testing::Test::HasFailure()) break;
  }
  return sums;
}

TEST(Serving, AnswersAreThoseOfPlainDecoding) {
  for (const char* family : {"llama", "gemma3"}) {
    const TinyOptions tiny{.family = family,
                           .types = {TensorType::q4_0, TensorType::q8_0},
                           .n_layers = 2,
                           .embedding = 64};
    TinyOptions perturbed = tiny;
    perturbed.perturbation = 0.05;
    const Model target = tiny_model(tiny), draft = tiny_model(perturbed);
    const auto tokenizer = make_tokenizer(target.checkpoint->metadata);
    Sums sums;
    unsigned seed = 0;
    for (const Isa isa : {Isa::reference, chosen_isa()})
      for (const bool automatic : {false, true}) {
        SCOPED_TRACE(fmt::format("family {} isa {} {}", family, name(isa),
                                 automatic ? "automatic" : "fixed"));
        const CacheType type = ++seed % 3 == 0 ? CacheType::q8_0 : CacheType::f16;
        const Sums more = serve_and_compare({&target, &draft, tokenizer.get()},
                                            {.isa = isa,
                                             .cache_type = type,
                                             .n_requests = 14,
                                             .n_running = 8,
                                             .n_pages = 14,
                                             .context = 512,
                                             .n_predict = 300,
                                             .n_predict_least = 150,
                                             .automatic = automatic},
                                            seed);
        sums.cached += more.cached;
        sums.preempted += more.preempted;
        sums.accepted += more.accepted;
        if (::testing::Test::HasFailure()) return;
      }
    EXPECT_GT(sums.cached, 500);
    EXPECT_GT(sums.preempted, 0);
    EXPECT_GT(sums.accepted, 100);
  }
}

// Alone and among 32 others. An answer of 70 tokens takes ten steps at least, of seven tokens each;
// by then all prompts are read, whatever a pass takes.
TEST(Serving, ThirtyTwoAtOnce) {
  const TinyOptions tiny{.types = {TensorType::q4_k, TensorType::q6_k}, .n_layers = 2};
  TinyOptions perturbed = tiny;
  perturbed.perturbation = 0.05;
  const Model target = tiny_model(tiny), draft = tiny_model(perturbed);
  const auto tokenizer = make_tokenizer(target.checkpoint->metadata);
  const Sums sums = serve_and_compare({&target, &draft, tokenizer.get()},
                                      {.isa = chosen_isa(),
                                       .n_requests = 40,
                                       .n_running = 33,
                                       .n_pages = 250,
                                       .context = 256,
                                       .n_predict = 75,
                                       .n_predict_least = 70,
                                       .automatic = true,
                                       .n_arriving = 11,
                                       .prompt_chunk = 1024,
                                       .max_pause_ms = 1e6},
                                      7);
  EXPECT_GT(sums.cached, 500);
  EXPECT_EQ(sums.most_at_once, 33);
}

TEST(Serving, ARealModelsAnswersAreThoseOfPlainDecoding) {
  const auto path = cached_model("smollm2-135m.gguf");
  if (!path) GTEST_SKIP() << "smollm2:135m is not in OUTRIDER_CACHE";
  const Model target = interpret_checkpoint(std::make_shared<Checkpoint>(read_gguf(*path))),
              draft = perturbed_copy(*path, 0.01);
  const auto tokenizer = make_tokenizer(target.checkpoint->metadata);
  const Sums sums = serve_and_compare({&target, &draft, tokenizer.get()},
                                      {.isa = chosen_isa(),
                                       .n_requests = 8,
                                       .n_running = 4,
                                       .n_pages = 14,
                                       .context = 256,
                                       .n_predict = 16,
                                       .automatic = true},
                                      3);
  EXPECT_GT(sums.cached, 100);
}

}  // namespace
}  // namespace outrider::testing

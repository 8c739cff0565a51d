#include "support/decoding.h"

#include <set>

#include "base/error.h"
#include "engine/engine.h"
#include "speculation/datastore_test.h"
#include "speculation/drafters/block.h"
#include "speculation/drafters/eagle.h"
#include "speculation/drafters/lookahead.h"
#include "speculation/drafters/lookup.h"
#include "speculation/drafters/medusa.h"
#include "speculation/drafters/model.h"
#include "speculation/drafters/prediction.h"
#include "speculation/drafters/rest.h"
#include "speculation/drafters/self.h"

namespace outrider::testing {

std::string Way::name() const {
  return fmt::format(
      "draft {} rows {} width {} depth {} planner {} threads {} chunk {} mates {} isa {}", draft,
      rows, width, depth, planner_automatic ? "auto" : "fixed", n_threads, prompt_chunk, n_mates,
      outrider::name(isa));
}

Decoded decode(const Task& task, const Way& way) {
  const int context = static_cast<int>(task.prompt.size()) + task.n_predict + 64;
  const auto load = [&](const Model& model, LoadOptions options) {
    options.context = context;
    options.n_sequences = 1 + way.n_mates;
    options.batch_rows = 256;
    options.cache_type = task.cache_type;
    options.n_threads = way.n_threads;
    return load_cpu(model, options, way.isa);
  };
  std::vector<std::unique_ptr<Drafter>> drafters;
  const auto names = [&](const char* drafter) { return way.draft.find(drafter) != way.draft.npos; };
  LoadOptions target_options;
  for (const char* const kind : {"eagle", "mtp", "dflash", "dspark"})
    if (names(kind)) target_options.head = task.head;
  if (names("medusa")) target_options.head = task.medusa;
  const std::shared_ptr<Backend> target = load(*task.target, target_options);
  constexpr std::size_t kMemory = std::size_t{1} << 24;
  if (names("lookup")) {
    drafters.push_back(std::make_unique<LookupDrafter>(LookupOptions{.memory_bytes = kMemory}));
  }
  if (names("history")) {
    const auto earlier = std::make_shared<EarlierAnswers>(EarlierAnswers::Options{
        .memory_bytes = kMemory,
        .load = [&](std::size_t) { return std::vector<EarlierAnswers::Answer>{task.prediction}; },
    });
    earlier->load();
    earlier->wait();
    drafters.push_back(std::make_unique<LookupDrafter>(LookupOptions{kMemory, earlier}));
  }
  if (names("rest"))
    drafters.push_back(
        std::make_unique<RestDrafter>(datastore_of(task.prediction, *task.tokenizer)));
  if (names("lookahead")) drafters.push_back(std::make_unique<LookaheadDrafter>());
  if (names("prediction")) drafters.push_back(std::make_unique<PredictionDrafter>());
  if (names("self")) {
    const int left_out[] = {task.target->spec.n_layers() / 2};
    drafters.push_back(std::make_unique<SelfDrafter>(
        target, layers_without(left_out, task.target->spec.n_layers())));
  }
  for (const bool is_parallel : {false, true}) {
    if (!names(is_parallel ? "parallel" : "model")) continue;
    ModelDrafterOptions options{.target_vocabulary = task.target->spec.vocabulary};
    if (is_parallel) options.mask = 0, options.n_parallel = 3;
    drafters.push_back(
        std::make_unique<ModelDrafter>(load(*task.draft, task.draft_options), options));
  }
  for (const char* const kind : {"eagle", "mtp"})
    if (names(kind)) drafters.push_back(std::make_unique<EagleDrafter>(target, kind));
  for (const char* const kind : {"dflash", "dspark"})
    if (names(kind)) drafters.push_back(std::make_unique<BlockDrafter>(target, kind));
  if (names("medusa")) drafters.push_back(std::make_unique<MedusaDrafter>(target));
  CHECK(!drafters.empty() || way.draft == "off");
  Engine engine(target, std::move(drafters),
                {.planner = {.automatic = way.planner_automatic,
                             .rows = way.rows,
                             .depth = way.depth,
                             .width = way.width},
                 .prompt_chunk = way.prompt_chunk});
  const auto begin = [&](std::span<const Token> prompt, std::uint64_t seed) {
    SamplingParams sampling = task.sampling;
    sampling.seed = seed;
    return engine.begin(
        prompt, sampling,
        StopRules(*task.tokenizer, {.n_predict = task.n_predict, .ignore_eos = true}),
        {.prediction = task.prediction});
  };
  std::vector<std::unique_ptr<Generation>> generations;
  const int place = way.n_mates / 2;  // mates on both sides
  for (int i = 0; i <= way.n_mates; ++i) {
    // Mates have texts of other lengths, so the number and place of their rows in the batch change.
    const std::size_t skipped =
        i == place ? 0 : std::min<std::size_t>(3 * (i + 1), task.prompt.size() - 1);
    generations.push_back(begin(std::span(task.prompt).subspan(skipped),
                                task.sampling.seed + (i == place ? 0 : i + 1)));
  }
  while (!generations[place]->ended()) {
    std::vector<Generation*> alive;
    for (const auto& generation : generations) {
      if (!generation->ended()) alive.push_back(generation.get());
    }
    engine.step(alive);
  }
  const Generation& generation = *generations[place];
  return {{generation.tokens.begin() + generation.n_prompt, generation.tokens.end()},
          generation.counters.accepted,
          generation.counters.drafted};
}

std::vector<std::vector<int>> pairwise(const std::vector<int>& n_values) {
  struct Pair {
    int a, a_value, b, b_value;
    auto operator<=>(const Pair&) const = default;
  };
  const int n = static_cast<int>(n_values.size());
  std::set<Pair> open;
  for (int a = 0; a < n; ++a) {
    for (int b = a + 1; b < n; ++b) {
      for (int i = 0; i < n_values[a]; ++i) {
        for (int j = 0; j < n_values[b]; ++j) open.insert({a, i, b, j});
      }
    }
  }
  // Greedy: begin with an open pair, give each further parameter the value that closes most pairs
  // with those before.
  std::vector<std::vector<int>> rows;
  while (!open.empty()) {
    std::vector<int> row(n, -1);
    row[open.begin()->a] = open.begin()->a_value;
    row[open.begin()->b] = open.begin()->b_value;
    const auto closed = [&](int parameter, int value) {
      int count = 0;
      for (int other = 0; other < n; ++other) {
        if (other == parameter || row[other] < 0) continue;
        count += other < parameter ? open.contains({other, row[other], parameter, value})
                                   : open.contains({parameter, value, other, row[other]});
      }
      return count;
    };
    for (int parameter = 0; parameter < n; ++parameter) {
      if (row[parameter] >= 0) continue;
      // Ties rotate with the number of rows, so that no value is used far more often than others.
      int best = static_cast<int>(rows.size()) % n_values[parameter];
      for (int value = 0; value < n_values[parameter]; ++value) {
        if (closed(parameter, value) > closed(parameter, best)) best = value;
      }
      row[parameter] = best;
    }
    for (int a = 0; a < n; ++a) {
      for (int b = a + 1; b < n; ++b) open.erase({a, row[a], b, row[b]});
    }
    rows.push_back(row);
  }
  return rows;
}

}  // namespace outrider::testing

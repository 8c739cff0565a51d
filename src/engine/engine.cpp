// An engine's texts, how they begin, change and end; what a step does with them is in step.cpp.

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"
#include "engine/step.h"
#include "speculation/time_pass.h"

namespace outrider {
namespace {

int committed_prefix(const Generation& generation, std::span<const Token> prompt, int committed) {
  const auto end = std::ranges::mismatch(generation.text, prompt).in2;
  const int common = static_cast<int>(end - prompt.begin());
  return std::min({common, committed, static_cast<int>(prompt.size()) - 1});
}

}  // namespace

Engine::Engine(std::unique_ptr<Backend> target, std::vector<std::unique_ptr<Drafter>> drafters,
               EngineOptions options)
    : target_(std::move(target)),
      drafters_(std::move(drafters)),
      options_(options),
      budget_(options.budget, static_cast<int>(drafters_.size())) {}

Engine::~Engine() = default;

Generation Engine::begin(std::span<const Token> prompt, SamplingParams sampling, StopRules stop) {
  check(prompt);
  const ProcessorState state(sampling);
  Generation generation{.sequence = target_->begin(),
                        .draft_sequence = {next_draft_sequence_++},
                        .text = {},
                        .sampling = {},
                        .state = state,
                        .stop = stop,
                        .finished = std::nullopt,
                        .emitted = {},
                        .counters = {}};
  for (const auto& drafter : drafters_) drafter->begin(generation.draft_sequence);
  restart(generation, prompt, std::move(sampling), std::move(stop));
  return generation;
}

void Engine::restart(Generation& generation, std::span<const Token> prompt, SamplingParams sampling,
                     StopRules stop) {
  check(prompt);
  const int kept = committed_prefix(generation, prompt, target_->committed(generation.sequence));
  target_->truncate(generation.sequence, kept);
  for (const auto& drafter : drafters_) {
    drafter->truncate(generation.draft_sequence, kept);
    drafter->observe(generation.draft_sequence, prompt.subspan(kept));
  }
  budget_.begin_text();
  generation.text.assign(prompt.begin(), prompt.end());
  generation.n_prompt = static_cast<int>(prompt.size());
  generation.n_reused = kept;
  generation.state = ProcessorState(sampling);
  generation.state.advance(prompt);
  generation.sampling = std::move(sampling);
  generation.stop = std::move(stop);
  generation.finished.reset();
  if (generation.stop.n_left() == 0) generation.finished = FinishReason::length;
  generation.emitted.clear();
  generation.counters = {};
  generation.counters.drafters.resize(drafters_.size());
}

void Engine::end(const Generation& generation) {
  for (const auto& drafter : drafters_) drafter->end(generation.draft_sequence);
  target_->end(generation.sequence);
}

void Engine::check(std::span<const Token> prompt) const {
  if (prompt.empty()) throw Error("the prompt is empty; give at least one token");
  const std::size_t context = target_->options().context;
  if (prompt.size() >= context)
    throw Error(
        "the prompt has {} tokens, but the context of {} has room for {} and an answer; "
        "shorten it or raise --ctx-size",
        prompt.size(), context, context - 1);
  for (Token token : prompt)
    if (token < 0 || token >= target_->spec().vocabulary)
      throw Error("the prompt holds token {}, but the model's vocabulary has {}", token,
                  target_->spec().vocabulary);
}

void Engine::set_drafters(std::vector<std::unique_ptr<Drafter>> drafters, BudgetOptions budget,
                          std::span<Generation* const> alive) {
  for (Generation* generation : alive) {
    for (const auto& drafter : drafters_) drafter->end(generation->draft_sequence);
    for (const auto& drafter : drafters) {
      drafter->begin(generation->draft_sequence);
      drafter->observe(generation->draft_sequence, generation->text);
    }
    generation->counters = {};
  }
  drafters_ = std::move(drafters);
  options_.budget = budget;
  CostCurve curve = budget_.curve();
  budget_ = Budget(budget, static_cast<int>(drafters_.size()));
  budget_.curve() = std::move(curve);
  counters_ = {};
}

void Engine::measure_costs(const Generation* generation) {
  for (const auto& drafter : drafters_) drafter->measure_costs();
  if (!budget_.curve().empty()) return;
  // Slow machines get fewer points; the curve goes on beyond them and is refined by every step.
  constexpr double kEnoughMs = 1000;
  const Stopwatch watch;
  const SequenceId sequence = generation ? generation->sequence : target_->begin();
  const int first = target_->committed(sequence);
  const int rows_max = std::min({1 + options_.budget.rows, target_->options().batch_rows,
                                 target_->options().n_slots, target_->options().context - first});
  time_pass(*target_, sequence, 1, 1);  // first touches of memory
  for (int rows : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 65}) {
    if (watch.ms() > kEnoughMs) break;
    const int n = std::min(rows, rows_max);
    budget_.curve().measure(n, time_pass(*target_, sequence, n, n));
    if (rows >= rows_max) break;
  }
  if (!generation) target_->end(sequence);
}

}  // namespace outrider

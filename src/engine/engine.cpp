#include "engine/engine.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/stopwatch.h"
#include "engine/step.h"
#include "speculation/time_pass.h"

namespace outrider {
namespace {

int committed_prefix(const Generation& generation, std::span<const Token> prompt, int committed) {
  const auto end = std::ranges::mismatch(generation.tokens, prompt).in2;
  const int common = static_cast<int>(end - prompt.begin());
  return std::min({common, committed, static_cast<int>(prompt.size()) - 1});
}

}  // namespace

Counters& Counters::operator+=(const Counters& other) {
  steps += other.steps;
  generating += other.generating;
  rows += other.rows;
  drafted += other.drafted;
  accepted += other.accepted;
  emitted += other.emitted;
  drafts += other.drafts;
  draft_depth += other.draft_depth;
  tested += other.tested;
  draft_passes += other.draft_passes;
  draft_levels += other.draft_levels;
  draft_ms += other.draft_ms;
  return *this;
}

Generation::Generation(Engine& engine, DraftSequence draft_sequence, SamplingParams sampling,
                       StopRules stop)
    : engine(engine),
      owned_sequence(*engine.target_),
      draft_sequence(draft_sequence),
      sampling(std::move(sampling)),
      state(this->sampling),
      stop(std::move(stop)) {
  engine.living_.reserve(engine.living_.size() + 1);
  std::size_t n_begun = 0;
  try {
    for (; n_begun < engine.drafters_.size(); ++n_begun)
      engine.drafters_[n_begun]->begin(draft_sequence);
  } catch (...) {
    while (n_begun > 0) engine.drafters_[--n_begun]->end(draft_sequence);
    throw;
  }
  engine.living_.push_back(this);
}

Generation::~Generation() {
  std::erase(engine.living_, this);
  for (const auto& drafter : engine.drafters_) drafter->end(draft_sequence);
}

Engine::Engine(std::shared_ptr<Backend> target, std::vector<std::unique_ptr<Drafter>> drafters,
               EngineOptions options)
    : target_(std::move(target)),
      drafters_(std::move(drafters)),
      options_(options),
      budget_(options.budget, static_cast<int>(drafters_.size())) {}

Engine::~Engine() {
  CHECK(living_.empty());
}

std::unique_ptr<Generation> Engine::begin(std::span<const Token> prompt, SamplingParams sampling,
                                          StopRules stop, std::vector<Token> prediction) {
  check(prompt, prediction);
  check_sampling(sampling);
  auto generation = std::make_unique<Generation>(*this, DraftSequence{next_draft_sequence_++},
                                                 std::move(sampling), std::move(stop));
  start(*generation, prompt, std::move(prediction));
  return generation;
}

void Engine::restart(Generation& generation, std::span<const Token> prompt, SamplingParams sampling,
                     StopRules stop, std::vector<Token> prediction) {
  check(prompt, prediction);
  check_sampling(sampling);
  generation.sampling = std::move(sampling);
  generation.stop = std::move(stop);
  start(generation, prompt, std::move(prediction));
}

// Reads nothing yet: what the cache lacks of the prompt is left to the steps.
void Engine::start(Generation& generation, std::span<const Token> prompt,
                   std::vector<Token> prediction) {
  prediction.resize(std::min<std::size_t>(prediction.size(), target_->options().context));
  const int kept = committed_prefix(generation, prompt, target_->committed(generation.sequence));
  // Stands if drafters fail: what all have in common is the part that is kept.
  generation.error = Error("the prompt could not be taken in");
  generation.tokens.resize(kept);
  target_->truncate(generation.sequence, kept);
  for (const auto& drafter : drafters_) {
    drafter->truncate(generation.draft_sequence, kept);
    drafter->observe(generation.draft_sequence, prompt.subspan(kept));
    drafter->expect(generation.draft_sequence, prediction);
  }
  generation.prediction = std::move(prediction);
  generation.tokens.assign(prompt.begin(), prompt.end());
  generation.n_prompt = static_cast<int>(prompt.size());
  generation.n_reused = kept;
  generation.state = ProcessorState(generation.sampling);
  generation.state.advance(prompt);
  generation.finish_reason.reset();
  generation.budget = budget_.begin_text(generation.n_prompt - kept, generation.stop.n_left());
  if (generation.stop.n_left() == 0) generation.finish_reason = FinishReason::length;
  generation.error.reset();
  generation.emitted.clear();
  generation.counters = {};
  generation.counters.drafters.resize(drafters_.size());
}

void Engine::check(std::span<const Token> prompt, std::span<const Token> prediction) const {
  if (prompt.empty()) throw Error("the prompt is empty; give at least one token");
  const std::size_t context = target_->options().context;
  if (prompt.size() >= context)
    throw Error(Remedy::context,
                "the prompt has {} tokens, but the context of {} has room for {} and an answer; "
                "shorten it or choose a longer context",
                prompt.size(), context, context - 1);
  const auto check_tokens = [&](const char* name, std::span<const Token> tokens) {
    for (const Token token : tokens)
      if (token < 0 || token >= target_->spec().vocabulary)
        throw Error("the {} holds token {}, but the model's vocabulary has {}", name, token,
                    target_->spec().vocabulary);
  };
  check_tokens("prompt", prompt);
  check_tokens("prediction", prediction);
}

void Engine::step(std::span<Generation* const> generations) {
  Step(*this, generations).run();
}

void Engine::set_drafters(std::vector<std::unique_ptr<Drafter>> drafters) {
  for (const auto& drafter : drafters_)
    for (const Generation* generation : living_) drafter->end(generation->draft_sequence);
  drafters_.clear();
  for (Generation* generation : living_) {
    for (const auto& drafter : drafters) {
      const std::span<const Token> text = generation->tokens;
      drafter->begin(generation->draft_sequence);
      drafter->observe(generation->draft_sequence, text.first(generation->n_prompt));
      drafter->expect(generation->draft_sequence, generation->prediction);
      drafter->observe(generation->draft_sequence, text.subspan(generation->n_prompt));
    }
    generation->counters = {};
    generation->counters.drafters.resize(drafters.size());
  }
  drafters_ = std::move(drafters);
  CostCurve curve = budget_.curve();
  budget_ = Budget(options_.budget, static_cast<int>(drafters_.size()));
  budget_.curve() = std::move(curve);
  for (Generation* generation : living_)
    generation->budget = budget_.begin_text(0, generation->stop.n_left());
}

Learned Engine::learned() const {
  Learned learned = budget_.learned();
  for (std::size_t i = 0; i < drafters_.size(); ++i)
    learned.drafters[i].passes = drafters_[i]->costs();
  return learned;
}

bool Engine::restore(const Learned& learned) {
  const Learned own = budget_.learned();
  if (learned.passes.empty() || learned.drafters.size() != drafters_.size()) return false;
  for (std::size_t i = 0; i < drafters_.size(); ++i) {
    const Calibration::OfDrafter& known = learned.drafters[i].acceptance;
    if (known.confidences.size() != own.drafters[i].acceptance.confidences.size() ||
        known.levels.size() != own.drafters[i].acceptance.levels.size())
      return false;
  }
  budget_.restore(learned);
  for (std::size_t i = 0; i < drafters_.size(); ++i)
    drafters_[i]->restore_costs(learned.drafters[i].passes);
  return true;
}

void Engine::forget_texts() {
  for (const auto& drafter : drafters_) drafter->forget();
}

void Engine::measure_costs() {
  if (!options_.budget.automatic || options_.budget.rows == 0 || drafters_.empty()) return;
  for (const auto& drafter : drafters_) drafter->measure_costs();
  if (!budget_.curve().empty()) return;
  // In rounds, since a shared machine is slow for moments. Slow machines get fewer of them, or
  // fewer points; the curve goes on beyond them and is refined by every step.
  constexpr int kRounds = 3;
  constexpr double kEnoughMs = 600;
  const Stopwatch watch;
  std::optional<OwnedSequence> own;
  if (living_.empty()) own.emplace(*target_);
  const SequenceId sequence = own ? own->id() : living_.front()->sequence;
  const int first = target_->committed(sequence);
  const int rows_max = std::min({1 + options_.budget.rows, target_->options().batch_rows,
                                 target_->options().n_slots, target_->options().context - first});
  time_pass(*target_, sequence, 1, 1);  // first touches of memory
  std::map<int, std::vector<double>> times;
  std::vector<double> one_logit_row;  // passes over rows_max rows
  for (int round = 0; round < kRounds; ++round) {
    for (const int rows : timed_rows(rows_max))
      if (watch.ms() < kEnoughMs) times[rows].push_back(time_pass(*target_, sequence, rows, rows));
    if (watch.ms() < kEnoughMs) one_logit_row.push_back(time_pass(*target_, sequence, rows_max, 1));
  }
  const auto median = [](std::vector<double> ms) {
    std::ranges::sort(ms);
    return ms[(ms.size() - 1) / 2];
  };
  for (const auto& [rows, ms] : times) budget_.curve().measure(rows, median(ms));
  if (!one_logit_row.empty())
    budget_.curve().measure_one_logit_row(rows_max, median(one_logit_row));
}

}  // namespace outrider

#include "engine/engine.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/stopwatch.h"
#include "cache/cache.h"
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
  not_drafted.off += other.not_drafted.off;
  not_drafted.limit += other.not_drafted.limit;
  not_drafted.no_match += other.not_drafted.no_match;
  not_drafted.does_not_pay += other.not_drafted.does_not_pay;
  not_drafted.measured += other.not_drafted.measured;
  if (accepted_lengths.size() < other.accepted_lengths.size())
    accepted_lengths.resize(other.accepted_lengths.size());
  for (std::size_t n = 0; n < other.accepted_lengths.size(); ++n)
    accepted_lengths[n] += other.accepted_lengths[n];
  return *this;
}

DrafterCounts& DrafterCounts::operator+=(const DrafterCounts& other) {
  proposed += other.proposed;
  accepted += other.accepted;
  first += other.first;
  first_right += other.first_right;
  return *this;
}

bool is_misaligned(const DrafterCounts& counts) {
  constexpr long kSteps = 200;
  constexpr double kShare = 0.4;
  return counts.first >= kSteps &&
         static_cast<double>(counts.first_right) < kShare * static_cast<double>(counts.first);
}

Generation::Generation(Engine& engine, DraftSequence draft_sequence, SamplingParams sampling,
                       StopRules stop, AnswerOptions options)
    : engine(engine),
      owned_sequence(*engine.target_, options.scope),
      draft_sequence(draft_sequence),
      options(std::move(options)),
      sampling(std::move(sampling)),
      state(this->sampling),
      stop(std::move(stop)) {
  engine.living_.reserve(engine.living_.size() + 1);
  if (engine.uses_head()) engine.target_->use_head(sequence, true);
  std::size_t n_begun = 0;
  try {
    for (; n_begun < engine.drafters_.size(); ++n_begun)
      engine.drafters_[n_begun]->begin(draft_sequence, this->options.scope);
    for (const auto& drafter : engine.drafters_) drafter->bind(draft_sequence, sequence);
  } catch (...) {
    while (n_begun > 0) engine.drafters_[--n_begun]->end(draft_sequence);
    throw;
  }
  engine.living_.push_back(this);
}

Generation::~Generation() {
  engine.planner_->end(draft_sequence);
  std::erase(engine.living_, this);
  for (const auto& drafter : engine.drafters_) drafter->end(draft_sequence);
}

Engine::Engine(std::shared_ptr<Backend> target, std::vector<std::unique_ptr<Drafter>> drafters,
               EngineOptions options)
    : target_(std::move(target)),
      drafters_(std::move(drafters)),
      options_(options),
      planner_(std::make_unique<Planner>(options.planner, passes_,
                                         static_cast<int>(drafters_.size()))) {}

Engine::~Engine() {
  CHECK(living_.empty());
}

bool Engine::uses_head() const {
  return std::ranges::any_of(drafters_, [](const auto& drafter) { return drafter->uses_head(); });
}

std::unique_ptr<Generation> Engine::begin(std::span<const Token> prompt, SamplingParams sampling,
                                          StopRules stop, AnswerOptions options) {
  check(prompt, options.prediction, stop.n_left());
  check_sampling(sampling);
  auto generation = std::make_unique<Generation>(*this, DraftSequence{next_draft_sequence_++},
                                                 std::move(sampling), std::move(stop), options);
  start(*generation, prompt, std::move(options));
  return generation;
}

void Engine::restart(Generation& generation, std::span<const Token> prompt, SamplingParams sampling,
                     StopRules stop, AnswerOptions options) {
  check(prompt, options.prediction, stop.n_left());
  check_sampling(sampling);
  generation.sampling = std::move(sampling);
  generation.stop = std::move(stop);
  options.scope = generation.options.scope;
  start(generation, prompt, std::move(options));
}

// Computes nothing yet: what the cache lacks of the prompt is left to the steps.
void Engine::start(Generation& generation, std::span<const Token> prompt, AnswerOptions options) {
  std::vector<Token>& prediction = options.prediction;
  prediction.resize(std::min<std::size_t>(prediction.size(), target_->options().context));
  int kept = committed_prefix(generation, prompt, target_->committed(generation.sequence));
  if (options.prompt_logprobs) kept = 0;
  // Stands if drafters fail: what all have in common is the part that is kept.
  generation.error = Error("the prompt could not be taken in");
  generation.tokens.resize(kept);
  target_->truncate(generation.sequence, kept);
  generation.n_shown = std::min(generation.n_shown, kept);
  for (const auto& drafter : drafters_)
    drafter->truncate(generation.draft_sequence, generation.n_shown);
  generation.options = std::move(options);
  generation.tokens.assign(prompt.begin(), prompt.end());
  generation.n_prompt = static_cast<int>(prompt.size());
  kept = generation.n_prompt - 1 - n_to_prefill(generation);
  generation.cached_tokens = kept;
  generation.state = ChoiceState(generation.sampling);
  generation.state.advance(prompt);
  generation.finish_reason.reset();
  planner_->begin(generation.draft_sequence, generation.n_prompt - kept);
  if (generation.stop.n_left() == 0 && !generation.options.prefills_always)
    generation.finish_reason = FinishReason::length;
  generation.error.reset();
  generation.emitted.clear();
  generation.prompt_scores.clear();
  generation.counters = {};
  generation.counters.drafters.resize(drafters_.size());
}

void Engine::check(std::span<const Token> prompt, std::span<const Token> prediction,
                   std::optional<int> n_left) const {
  if (prompt.empty()) throw Error("the prompt is empty; give at least one token");
  const std::size_t context = target_->options().context;
  const bool has_answer = n_left != 0;
  if (const std::size_t room = has_answer ? context - 1 : context; prompt.size() > room)
    throw Error(Remedy::context,
                "the prompt has {} tokens, but the context of {} has room for {}{}; shorten it or "
                "choose a longer context",
                prompt.size(), context, room, has_answer ? " and an answer" : "");
  const auto check_tokens = [&](const char* name, std::span<const Token> tokens) {
    for (const Token token : tokens)
      if (token < 0 || token >= target_->spec().vocabulary)
        throw Error("the {} holds token {}, but the model's vocabulary has {}", name, token,
                    target_->spec().vocabulary);
  };
  check_tokens("prompt", prompt);
  check_tokens("prediction", prediction);
}

void Engine::suspend(Generation& generation) {
  target_->truncate(generation.sequence, 0);
  for (const auto& drafter : drafters_) drafter->suspend(generation.draft_sequence);
}

int Engine::n_to_prefill(Generation& generation) {
  const int n_before_last = static_cast<int>(generation.tokens.size()) - 1;
  const int n_computed = target_->committed(generation.sequence);
  if (generation.scores_prompt() || n_before_last - n_computed < kPagePositions)
    return n_before_last - n_computed;
  return n_before_last - target_->reuse_prefix(generation.sequence,
                                               std::span(generation.tokens).first(n_before_last));
}

int Engine::pages_wanted(const Generation& generation, int n_prefill) const {
  const int n_drafted = drafters_.empty() ? 0 : draft_rows_max(generation);
  const int chunk =
      options_.prompt_chunk > 0 ? std::min(n_prefill, options_.prompt_chunk) : n_prefill;
  const int n_of_head = uses_head() ? 1 : 0;  // beside the rows of the target
  return target_->pages_wanted(generation.sequence, 1 + chunk + n_drafted + n_of_head,
                               1 + n_prefill + n_drafted);
}

int Engine::draft_rows_max(const Generation& generation) const {
  const int rows = options_.planner.rows;
  return std::min(rows, generation.options.draft_rows.value_or(rows));
}

int Engine::drawers(const Generation& generation) const {
  if (!generation.options.verifier->wants_draws() || generation.sampling.filters.temperature <= 0)
    return 0;
  return static_cast<int>(std::ranges::count_if(drafters_, [&](const auto& drafter) {
    return drafter->can_draw() && generation.options.allows_drafter(drafter->name());
  }));
}

// That may take as long as many rows, so that it happens no earlier than drafters are asked, after
// the answer's first token.
void Engine::show(Generation& generation) {
  const std::span<const Token> text = generation.tokens;
  const int first = generation.n_shown, n_prompt = generation.n_prompt;
  for (const auto& drafter : drafters_) {
    if (first < n_prompt) {
      drafter->observe(generation.draft_sequence, text.subspan(first, n_prompt - first));
      drafter->expect(generation.draft_sequence, generation.options.prediction);
    }
    drafter->observe(generation.draft_sequence, text.subspan(std::max(first, n_prompt)));
  }
  generation.n_shown = static_cast<int>(text.size());
}

void Engine::step(std::span<const Part> parts, int n_waiting) {
  Step(*this, parts, n_waiting).run();
}

void Engine::step(std::span<Generation* const> generations) {
  const LoadOptions& target = target_->options();
  const int rows_max = std::min(target.batch_rows, target.n_slots);
  const int chunk = options_.prompt_chunk > 0 ? options_.prompt_chunk : rows_max;
  PrefillRoom prefill_room(rows_max - static_cast<int>(generations.size()));
  std::vector<Part> parts;
  for (Generation* generation : generations)
    parts.push_back({generation, prefill_room.take(
                                     *generation, std::min(n_to_prefill(*generation), chunk - 1))});
  step(parts);
}

int Engine::PrefillRoom::take(const Generation& generation, int n_to_prefill) {
  int n = std::min(n_to_prefill, n_left_);
  if (generation.scores_prompt()) {
    n = std::min(n, std::max(0, n_scored_left_ - 1));
    n_scored_left_ -= 1 + n;
  }
  n_left_ -= n;
  return n;
}

std::optional<double> Engine::pass_ms(std::span<const Part> parts) const {
  if (passes_.empty()) return std::nullopt;
  PassWork work{.rows = 0};
  for (const auto& [generation, n_prefill] : parts) {
    const int first = target_->committed(generation->sequence);
    const int n_rows = 1 + n_prefill;
    work.rows += n_rows;
    if (!generation->scores_prompt())
      work.without_logits += n_rows - (first + n_rows == std::ssize(generation->tokens) ? 1 : 0);
    work.attended += attended(target_->spec(), first, n_rows);
  }
  return passes_.ms(work);
}

void Engine::set_drafters(std::vector<std::unique_ptr<Drafter>> drafters) {
  // What is computed with a head and what is without go on apart: it is computed again.
  const auto begin_again = [&](bool with_head) {
    for (const Generation* generation : living_) {
      target_->truncate(generation->sequence, 0);
      target_->use_head(generation->sequence, with_head);
    }
  };
  if (uses_head()) begin_again(false);
  for (const auto& drafter : drafters_)
    for (const Generation* generation : living_) drafter->end(generation->draft_sequence);
  drafters_.clear();
  for (Generation* generation : living_) {
    for (const auto& drafter : drafters) {
      drafter->begin(generation->draft_sequence, generation->options.scope);
      drafter->bind(generation->draft_sequence, generation->sequence);
    }
    generation->n_shown = 0;
    generation->counters = {};
    generation->counters.drafters.resize(drafters.size());
  }
  drafters_ = std::move(drafters);
  if (uses_head()) begin_again(true);
  for (Generation* generation : living_) show(*generation);
  planner_ =
      std::make_unique<Planner>(options_.planner, passes_, static_cast<int>(drafters_.size()));
  for (const Generation* generation : living_) planner_->begin(generation->draft_sequence, 0);
}

Learned Engine::learned() const {
  Learned learned = planner_->learned();
  learned.passes = passes_.points();
  learned.logits_ms = passes_.logits_ms();
  learned.attention_ms = passes_.attention_ms();
  for (std::size_t i = 0; i < drafters_.size(); ++i)
    learned.drafters[i].passes = drafters_[i]->costs();
  return learned;
}

bool Engine::restore(const Learned& learned) {
  const Learned own = this->learned();
  if (learned.passes.empty() || learned.drafters.size() != own.drafters.size()) return false;
  for (std::size_t i = 0; i < own.drafters.size(); ++i) {
    const Calibration::OfDrafter& known = learned.drafters[i].acceptance;
    if (known.confidences.size() != own.drafters[i].acceptance.confidences.size() ||
        known.best_guesses.size() != own.drafters[i].acceptance.best_guesses.size())
      return false;
  }
  passes_.restore(learned.passes, learned.logits_ms, learned.attention_ms);
  planner_->restore(learned);
  for (std::size_t i = 0; i < drafters_.size(); ++i)
    drafters_[i]->restore_costs(learned.drafters[i].passes);
  return true;
}

void Engine::forget_ended_sequences() {
  for (const auto& drafter : drafters_) drafter->forget();
}

void Engine::measure_costs() {
  const PlannerOptions& planner = options_.planner;
  const bool drafts = planner.automatic && planner.rows > 0 && !drafters_.empty();
  if (!drafts && !options_.always_times_passes) return;
  if (planner.automatic)
    for (const auto& drafter : drafters_) drafter->measure_costs();
  if (!passes_.empty()) return;
  // In rounds, of which the fastest counts, since a shared machine is slow for moments, and so is
  // the first pass that touches some memory. Slow machines get fewer rounds, or fewer points; the
  // curve goes on beyond them and is refined by every step.
  constexpr int kRounds = 3;
  constexpr int kRowsOfMany = 96;  // beyond them a row takes what it takes
  const double enough_ms = options_.always_times_passes ? 3000 : 600;  // there are more points then
  const Stopwatch watch;
  std::optional<OwnedSequence> own;
  if (living_.empty()) own.emplace(*target_);
  const SequenceId sequence = own ? own->id() : living_.front()->sequence;
  const int first = target_->committed(sequence);
  const int rows_of_one = options_.always_times_passes ? kRowsOfMany : 1 + planner.rows;
  const int rows_max = std::min({rows_of_one, target_->options().batch_rows,
                                 target_->options().n_slots, target_->options().context - first});
  time_pass(*target_, sequence, 1, 1);             // first touches of memory
  std::map<std::pair<int, int>, double> least_ms;  // by rows, and those of them with logits
  for (int round = 0; round < kRounds; ++round) {
    const auto time = [&](int rows, int n_logits) {
      if (watch.ms() >= enough_ms) return;
      const double ms = time_pass(*target_, sequence, rows, n_logits);
      double& least = least_ms.try_emplace({rows, n_logits}, ms).first->second;
      least = std::min(least, ms);
    };
    for (const int rows : timed_rows(rows_max)) time(rows, rows);
    time(rows_max, 1);
  }
  for (const auto& [pass, ms] : least_ms)
    if (pass.first == pass.second) passes_.measure(pass.first, ms);
  if (const auto one = least_ms.find({rows_max, 1}); one != least_ms.end() && rows_max > 1)
    passes_.measure_one_logit_row(rows_max, one->second);
}

}  // namespace outrider

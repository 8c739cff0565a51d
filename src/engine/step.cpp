#include "engine/step.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"

namespace outrider {
namespace {

Error unusable_logits(int position) {
  return Error(Remedy::logit_bias,
               "the model gave no usable logits at position {} (NaN, infinite, or every token "
               "forbidden); the file may be damaged, or a bias forbids everything",
               position);
}

// FNV-1a, 32 bits at a time.
std::uint64_t fingerprint(std::span<const float> logits) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const float logit : logits)
    hash = (hash ^ std::bit_cast<std::uint32_t>(logit)) * 0x100000001b3;
  return hash;
}

}  // namespace

void Step::run() {
  try {
    draft();
    plan();
    forward();
    verify();
    emit();
    run_head();
    commit();
    learn();
  } catch (const Error& error) {
    fail(error);
  } catch (const std::bad_alloc&) {
    fail(Error("out of memory in a step of {} texts", sequences_.size()));
  }
  report();
}

// Shares out the pass: a row for every sequence, then prompt rows as far as they fit.
Step::Step(Engine& engine, std::span<const Engine::Part> parts, int n_waiting) : engine_(engine) {
  const LoadOptions& target = engine_.target_->options();
  load_.rows_max = std::min(target.batch_rows, target.n_slots);
  const int room = load_.rows_max - static_cast<int>(parts.size());
  CHECK(!parts.empty() && room >= 0);
  Engine::PrefillRoom prefill_room(room);
  for (const auto& [generation, n_prefill] : parts) {
    CHECK(!generation->ended());
    const int length = static_cast<int>(generation->tokens.size());
    const int first = engine_.target_->committed(generation->sequence);
    CHECK(first < length);
    const int more = prefill_room.take(*generation, std::min(length - first - 1, n_prefill));

    // The text goes on by a token after the last accepted draft; neither it nor the limit may be
    // passed.
    int depth_max = target.context - length - 1;
    if (const auto left = generation->stop.n_left()) depth_max = std::min(depth_max, *left - 1);

    const bool is_prefilled = first + 1 + more == length;
    const DraftTree root(generation->tokens.back());
    sequences_.push_back({.generation = generation,
                          .length = length,
                          .first = first,
                          .n_tokens = 1 + more,
                          .is_prefilled = is_prefilled,
                          .generates = is_prefilled && generation->stop.n_left() != 0,
                          .drafts = length > generation->n_prompt && more == 0,
                          .rows_max = engine_.draft_rows_max(*generation),
                          .depth_max = depth_max,
                          .drawers = engine_.drawers(*generation),
                          .drafted = root,
                          .chosen = root,
                          .checked = root,
                          .riders = {},
                          .token_rows = {},
                          .node_rows = {},
                          .answers = {},
                          .verdict = {},
                          .state_before = {},
                          .stop_before = {}});
    load_.rows += sequences_.back().n_tokens;
    const int prompt_rows = sequences_.back().n_tokens - (sequences_.back().generates ? 1 : 0);
    load_.prompt_rows += prompt_rows;
    if (generation->scores_prompt()) load_.scored_rows += prompt_rows;
    const ModelSpec& spec = engine_.target_->spec();
    load_.attended += attended(spec, first, sequences_.back().n_tokens);
    if (prompt_rows > 0) load_.prompt_attended += attended(spec, first, prompt_rows);
    const double of_node = attended(spec, length, 1) - attended(spec, length, 0);
    load_.node_attended += of_node / static_cast<double>(parts.size());
  }
  load_.sequences = static_cast<int>(sequences_.size()) + n_waiting;
}

std::vector<Step::SequenceStep*> Step::generating() {
  std::vector<SequenceStep*> generating;
  for (SequenceStep& sequence : sequences_)
    if (sequence.generates) generating.push_back(&sequence);
  return generating;
}

std::vector<Step::SequenceStep*> Step::drafting() {
  std::vector<SequenceStep*> drafting;
  for (SequenceStep& sequence : sequences_)
    if (sequence.generates && sequence.drafts) drafting.push_back(&sequence);
  return drafting;
}

PlannedSequence Step::planned_sequence(const SequenceStep& sequence, DraftTree& tree) {
  Generation& generation = *sequence.generation;
  return {.sequence = generation.draft_sequence,
          .tree = &tree,
          .length = sequence.length,
          .n_answered = sequence.length - generation.n_prompt,
          .n_left = generation.stop.n_left(),
          .rows_max = sequence.rows_max,
          .depth_max = sequence.depth_max,
          .drawers = sequence.drawers,
          .n_riders = sequence.n_riders()};
}

// Drafters are asked in order; each sees what those before it proposed. Where sequences draw, those
// that cannot come first and are pruned, because nothing may be pruned afterwards.
void Step::draft() {
  const Stopwatch watch;
  const std::vector<SequenceStep*> sequences = drafting();
  is_measured_ = !sequences.empty() && engine_.planner_->plain_step_is_due(load_);
  if (sequences.empty() || is_measured_) return;
  std::vector<SequenceStep*> drawing;
  for (SequenceStep* sequence : sequences) {
    engine_.show(*sequence->generation);
    if (sequence->drawers > 0) drawing.push_back(sequence);
  }
  const int n = static_cast<int>(engine_.drafters_.size());
  const auto draws = [&](int i) { return !drawing.empty() && engine_.drafters_[i]->can_draw(); };
  for (int i = 0; i < n; ++i)
    if (!draws(i)) ask(i, sequences);
  settle_chosen(drawing);
  for (int i = 0; i < n; ++i)
    if (draws(i)) ask(i, sequences);
  for (SequenceStep* sequence : drawing) add_draws(*sequence);
  draft_ms_ = watch.ms();
}

// What was chosen gets half of the rows at most; draws get the others.
void Step::settle_chosen(std::span<SequenceStep* const> drawing) {
  if (drawing.empty()) return;
  std::vector<PlannedSequence> planned;
  for (SequenceStep* sequence : drawing) {
    sequence->checked = sequence->drafted;
    planned.push_back(planned_sequence(*sequence, sequence->checked));
    planned.back().drawers = 0;
    planned.back().rows_max = (sequence->rows_max + 1) / 2;
  }
  engine_.planner_->prune(planned, load_);
  for (SequenceStep* sequence : drawing) sequence->chosen = sequence->checked;
}

// To what was proposed, pruned or not.
void Step::add_draws(SequenceStep& sequence) {
  const DraftTree& checked = sequence.checked;
  std::vector<int> numbers(checked.size(), 0);  // in `drafted`
  for (int node = 1; node < checked.size(); ++node)
    for (const Proposal& proposal : checked[node].proposals)
      numbers[node] =
          sequence.drafted.propose(numbers[checked[node].parent], checked[node].token, proposal);
}

void Step::ask(int index, std::span<SequenceStep* const> sequences) {
  Drafter& drafter = *engine_.drafters_[index];
  // How much is drawn must not depend on what another drafter drew.
  const auto draws = [&](const SequenceStep& sequence) {
    return sequence.drawers > 0 && drafter.can_draw();
  };
  std::vector<PlannedSequence> planned;
  for (SequenceStep* sequence : sequences) {
    planned.push_back(
        planned_sequence(*sequence, draws(*sequence) ? sequence->chosen : sequence->drafted));
    if (!sequence->generation->options.allows_drafter(drafter.name())) planned.back().rows_max = 0;
  }
  const std::vector<Planner::Ask> asks = engine_.planner_->ask(index, drafter, planned, load_);
  const long passes_before = drafter.n_passes(), levels_before = drafter.n_levels();
  std::vector<DraftRequest> requests;
  std::vector<std::vector<PrefillGuess>> prefill_guesses(sequences.size());
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    Generation& generation = *sequences[i]->generation;
    const Planner::Ask& ask = asks[i];
    if (!ask.limits) continue;
    sequences[i]->was_asked_for = true;
    requests.push_back(
        {.sequence = generation.draft_sequence,
         .tree = draws(*sequences[i]) ? &sequences[i]->checked : &sequences[i]->drafted,
         .drafter = index,
         .limits = *ask.limits,
         .sampling = &generation.sampling,
         .state = &generation.state,
         .n_context = ask.n_context,
         .worth = &ask.worth,
         .prefill_guesses = &prefill_guesses[i],
         .n_prefill_guesses = planned[i].n_answered,
         .draws = draws(*sequences[i])});
  }
  if (!requests.empty()) drafter.propose(requests);
  draft_passes_ += drafter.n_passes() - passes_before;
  draft_levels_ += drafter.n_levels() - levels_before;
  int levels = 0;
  for (const DraftRequest& request : requests) {
    levels = std::max(levels, request.tree->depth(index));
    CHECK(request.tree->depth(index) <= request.limits.depth);
  }
  for (std::size_t i = 0; i < sequences.size(); ++i)
    engine_.planner_->learn(index, sequences[i]->generation->draft_sequence, levels,
                            prefill_guesses[i]);
}

void Step::plan() {
  std::vector<PlannedSequence> planned;
  for (SequenceStep* sequence : drafting()) {
    if (sequence->drawers == 0) sequence->checked = sequence->drafted;
    planned.push_back(planned_sequence(*sequence, sequence->checked));
  }
  engine_.planner_->prune(planned, load_);
  add_riders();
}

// Drafters that look ahead get rows beside the checked nodes.
void Step::add_riders() {
  if (is_measured_) return;
  const std::vector<SequenceStep*> sequences = drafting();
  for (int i = 0; i < std::ssize(engine_.drafters_); ++i) {
    Drafter& drafter = *engine_.drafters_[i];
    if (drafter.riders_max() == 0 || sequences.empty()) continue;
    std::vector<PlannedSequence> planned;
    for (SequenceStep* sequence : sequences) {
      planned.push_back(planned_sequence(*sequence, sequence->checked));
      if (!sequence->generation->options.allows_drafter(drafter.name()))
        planned.back().rows_max = 0;
    }
    const std::vector<int> limits = engine_.planner_->riders(i, drafter, planned, load_);
    for (std::size_t at = 0; at < sequences.size(); ++at) {
      SequenceStep& sequence = *sequences[at];
      if (limits[at] == 0 || sequence.depth_max < 1) continue;
      const std::vector<Rider> riders =
          drafter.riders(sequence.generation->draft_sequence, limits[at], sequence.depth_max);
      CHECK(std::ssize(riders) <= limits[at]);
      std::vector<SequenceStep::RidingRow>& rows = sequence.riders[i];
      for (const auto& [token, parent] : riders) {
        CHECK(parent < std::ssize(rows));
        std::vector<Token> path = parent < 0 ? std::vector<Token>() : rows[parent].path;
        path.push_back(token);
        CHECK(std::ssize(path) <= sequence.depth_max);
        rows.push_back({parent, std::move(path)});
      }
    }
  }
}

int Step::SequenceStep::n_riders() const {
  int n = 0;
  for (const auto& [drafter, rows] : riders) n += static_cast<int>(rows.size());
  return n;
}

void Step::forward() {
  const std::vector<Row> rows = lay_out_rows();
  rows_ = static_cast<int>(rows.size());

  // What the target is asked: its choice after each node and rider, with the penalties of its own
  // path, and what the verifier wants beside it.
  struct Question {
    SequenceStep* sequence;
    int row;
    std::vector<Token> path;
    std::optional<int> node;  // nothing: a rider
    std::vector<TokenCount> counts;
    std::optional<Token> forced;
  };
  std::vector<Question> questions;
  for (SequenceStep* sequence : generating()) {
    const auto ask = [&](int row, std::vector<Token> path, std::optional<int> node) {
      const ChoiceState& state = sequence->generation->state;
      auto counts = state.counts(path);
      const auto forced = state.forced(path);
      questions.push_back({sequence, row, std::move(path), node, std::move(counts), forced});
    };
    for (int node = 0; node < sequence->checked.size(); ++node)
      ask(sequence->node_rows[node], sequence->checked.path(node), node);
    for (const auto& [drafter, riders] : sequence->riders)
      for (const SequenceStep::RidingRow& rider : riders) ask(rider.row, rider.path, {});
  }
  std::vector<ChoiceRequest> requests;
  for (const Question& question : questions) {
    const Generation& generation = *question.sequence->generation;
    const Verifier& verifier = *generation.options.verifier;
    ChoiceRequest& request = requests.emplace_back(
        choice_request(generation.sampling, question.counts, question.row,
                       question.sequence->length + static_cast<int>(question.path.size())));
    if (question.node)
      request.wants_probabilities =
          request.filters.temperature > 0 && !question.forced &&
          verifier.wants_probabilities(question.sequence->checked, *question.node);
    else if (verifier.guarantee() != Guarantee::same_text)
      request.filters.temperature = 0;
  }

  const Stopwatch watch;
  pass_ = engine_.target_->forward(rows, {.layers = {}, .taps = engine_.watched_taps_});
  std::vector<Choice> choices = engine_.target_->choose(pass_, requests);
  forward_ms_ = watch.ms();

  std::vector<std::optional<Token>> said;  // of questions
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const std::optional<Token>& token = choices[i].token;
    said.push_back(token && questions[i].forced ? questions[i].forced : token);
    if (questions[i].node)
      questions[i].sequence->answers.push_back(
          {.choice = said.back(), .probabilities = std::move(choices[i].probabilities)});
  }
  std::size_t next = 0;
  for (const SequenceStep* sequence : generating()) {
    next += static_cast<std::size_t>(sequence->checked.size());
    for (const auto& [drafter, riders] : sequence->riders) {
      engine_.drafters_[drafter]->answered(sequence->generation->draft_sequence,
                                           std::span(said).subspan(next, riders.size()));
      next += riders.size();
    }
  }
}

// A sequence's rows: a chain of its text's tokens, then the drafted nodes, parents first, then
// riders.
std::vector<Row> Step::lay_out_rows() {
  std::vector<Row> rows;
  for (SequenceStep& sequence : sequences_) {
    const Generation& generation = *sequence.generation;
    for (int i = 0; i < sequence.n_tokens; ++i) {
      const Parent parent =
          i == 0 ? Parent{CommittedEnd{}} : Parent{EarlierRow{sequence.token_rows[i - 1]}};
      sequence.token_rows.push_back(static_cast<int>(rows.size()));
      rows.push_back({.sequence = generation.sequence,
                      .token = generation.tokens[sequence.first + i],
                      .position = sequence.first + i,
                      .parent = parent,
                      .wants_logits = generation.scores_prompt() &&
                                      sequence.first + i + 1 < generation.n_prompt});
    }
    if (!sequence.generates) continue;
    sequence.node_rows.push_back(sequence.token_rows.back());
    rows.back().wants_logits = true;
    for (int node = 1; node < sequence.checked.size(); ++node) {
      const DraftNode& drafted = sequence.checked[node];
      sequence.node_rows.push_back(static_cast<int>(rows.size()));
      rows.push_back({.sequence = generation.sequence,
                      .token = drafted.token,
                      .position = static_cast<int>(generation.tokens.size()) - 1 + drafted.depth,
                      .parent = EarlierRow{sequence.node_rows[drafted.parent]},
                      .wants_logits = true});
    }
    for (auto& [drafter, riders] : sequence.riders)
      for (SequenceStep::RidingRow& rider : riders) {
        rider.row = static_cast<int>(rows.size());
        rows.push_back({.sequence = generation.sequence,
                        .token = rider.path.back(),
                        .position = sequence.length - 1 + static_cast<int>(rider.path.size()),
                        .parent = EarlierRow{rider.parent < 0 ? sequence.node_rows[0]
                                                              : riders[rider.parent].row},
                        .wants_logits = true});
      }
  }
  return rows;
}

void Step::verify() {
  for (SequenceStep* sequence : generating()) {
    const Generation& generation = *sequence->generation;
    const PhiloxChance chance(generation.sampling.seed, generation.sampling.stream,
                              sequence->length);
    sequence->verdict =
        generation.options.verifier->verify(sequence->checked, sequence->answers, chance);
  }
}

// Texts grow by what was accepted and one token more; the stop rules, token by token, cut that.
void Step::emit() {
  for (SequenceStep& sequence : sequences_) {
    Generation& generation = *sequence.generation;
    generation.emitted.clear();
    score_prompt(sequence);
    if (generation.error) continue;
    if (!sequence.generates) {
      if (sequence.is_prefilled) generation.finish_reason = FinishReason::length;
      continue;
    }
    sequence.state_before = generation.state;
    sequence.stop_before = generation.stop;
    const auto take = [&](Token token, std::optional<int> drafter) {
      generation.tokens.push_back(token);
      generation.finish_reason = generation.stop.push(token);
      if (!generation.ended() &&
          static_cast<int>(generation.tokens.size()) == engine_.target_->options().context) {
        generation.stop.finish();
        generation.finish_reason = FinishReason::length;
      }
      generation.emitted.push_back({token, drafter, generation.stop.take_text()});
    };
    auto& [accepted, next] = sequence.verdict;
    for (std::size_t i = 0; i < accepted.size(); ++i) {
      const DraftNode& node = sequence.checked[accepted[i]];
      take(node.token, node.proposals[0].drafter);
      if (generation.ended()) accepted.resize(i + 1);
    }
    if (next && !generation.ended()) take(*next, std::nullopt);
    generation.state.advance(std::span(generation.tokens).last(generation.emitted.size()));
    score_answer(sequence);
    if (generation.emitted.empty())
      generation.error = unusable_logits(static_cast<int>(generation.tokens.size()) - 1);
  }
}

// Without bias and filters.
Choice Step::logits_of(int row) {
  const ChoiceRequest request{.row = row, .wants_logits = true};
  return engine_.target_->choose(pass_, {&request, 1})[0];
}

// Log probabilities of the prompt's tokens that were computed, from the rows before them.
void Step::score_prompt(SequenceStep& sequence) {
  Generation& generation = *sequence.generation;
  if (!generation.scores_prompt()) return;
  for (int i = 0; i < sequence.n_tokens; ++i) {
    const int next = sequence.first + i + 1;  // place in the prompt
    if (next >= generation.n_prompt || next <= std::ssize(generation.prompt_scores)) continue;
    const Choice choice = logits_of(sequence.token_rows[i]);
    if (!choice.token) {
      generation.error = unusable_logits(sequence.first + i);
      return;
    }
    generation.prompt_scores.push_back(
        score(choice.logits, generation.tokens[next], generation.options.n_logprobs.value_or(0)));
  }
}

// The same for the tokens that the text gained, and fingerprints.
void Step::score_answer(SequenceStep& sequence) {
  Generation& generation = *sequence.generation;
  const std::optional<int> n_logprobs = generation.options.n_logprobs;
  const bool fingerprints = generation.options.fingerprints;
  if (!n_logprobs && !fingerprints) return;
  for (std::size_t i = 0; i < generation.emitted.size(); ++i) {
    const int node = i == 0 ? 0 : sequence.verdict.accepted[i - 1];
    Emitted& emitted = generation.emitted[i];
    const std::vector<float> logits = logits_of(sequence.node_rows[node]).logits;
    if (n_logprobs) emitted.score = score(logits, emitted.token, *n_logprobs);
    if (fingerprints) emitted.fingerprint = fingerprint(logits);
  }
}

// The rows of the text that was computed: all but the last token's.
std::vector<int> Step::history_rows(const SequenceStep& sequence) {
  const Generation& generation = *sequence.generation;
  if (generation.error) return {};
  std::vector<int> rows = sequence.token_rows;
  if (generation.finish_reason && !sequence.generates) rows.pop_back();
  for (std::size_t i = 0; i + 1 < generation.emitted.size(); ++i)
    rows.push_back(sequence.node_rows[sequence.verdict.accepted[i]]);
  return rows;
}

// A head of the target goes on from what the pass computed, which cannot be had later; so does
// whoever watches.
void Step::run_head() {
  const auto is_wanted = [](const auto& drafter) { return drafter->uses_head(); };
  if (!engine_.watch_computed_ && std::ranges::none_of(engine_.drafters_, is_wanted)) return;
  const Stopwatch watch;
  std::vector<std::vector<int>> rows;
  for (const SequenceStep& sequence : sequences_) rows.push_back(history_rows(sequence));
  std::vector<ComputedText> texts;
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    const SequenceStep& sequence = sequences_[i];
    const Generation& generation = *sequence.generation;
    if (rows[i].empty()) continue;
    const std::span<const Token> tokens = generation.tokens;
    const std::size_t end = static_cast<std::size_t>(sequence.first) + rows[i].size();
    const bool is_last = end + 1 == tokens.size() && !generation.ended();
    texts.push_back(
        {.sequence = generation.draft_sequence,
         .first = sequence.first,
         .tokens = tokens.subspan(static_cast<std::size_t>(sequence.first), rows[i].size()),
         .rows = rows[i],
         .next = is_last ? std::optional(tokens.back()) : std::nullopt});
  }
  if (texts.empty()) return;
  for (const auto& drafter : engine_.drafters_)
    if (is_wanted(drafter)) drafter->computed(pass_, texts);
  forward_ms_ += watch.ms();
  if (engine_.watch_computed_) engine_.watch_computed_(pass_, texts);
}

// The text that was computed becomes history.
void Step::commit() {
  for (const SequenceStep& sequence : sequences_) {
    std::vector<SlotId> path;
    for (const int row : history_rows(sequence)) path.push_back(pass_.slots[row]);
    engine_.target_->commit(sequence.generation->sequence, path);
  }
}

// The planner sees what drafts cost and what became of them, drafters what an answer ended with.
void Step::learn() {
  std::vector<DraftOutcome> outcomes;
  for (const SequenceStep& sequence : sequences_) {
    Generation& generation = *sequence.generation;
    const auto taken = std::span(generation.tokens).last(generation.emitted.size());
    if (generation.ended()) engine_.show(generation);
    if (!sequence.generates) continue;
    std::vector<int> riders;
    if (!sequence.riders.empty()) riders.resize(engine_.drafters_.size());
    for (const auto& [drafter, rows] : sequence.riders)
      riders[drafter] = static_cast<int>(rows.size());
    outcomes.push_back({.sequence = generation.draft_sequence,
                        .drafted = &sequence.drafted,
                        .checked = &sequence.checked,
                        .taken = taken,
                        .riders = std::move(riders)});
  }
  engine_.planner_->observe(outcomes, load_, forward_ms_);
  for (const SequenceStep& sequence : sequences_)
    if (sequence.generation->ended()) engine_.planner_->end(sequence.generation->draft_sequence);
  for (const SequenceStep& sequence : sequences_)
    count(sequence);  // last, as a step that fails counts nothing
  engine_.draft_work_.passes += draft_passes_;
  engine_.draft_work_.levels += draft_levels_;
  engine_.draft_work_.ms += draft_ms_;
}

// All texts of the step are as they were before it, and none goes on.
void Step::fail(const Error& error) {
  for (SequenceStep& sequence : sequences_) {
    Generation& generation = *sequence.generation;
    generation.tokens.resize(sequence.length);
    if (sequence.state_before) generation.state = std::move(*sequence.state_before);
    if (sequence.stop_before) generation.stop = std::move(*sequence.stop_before);
    engine_.target_->truncate(generation.sequence, sequence.first);  // drops scratch rows, too
    generation.n_shown = std::min(generation.n_shown, sequence.length);
    for (const auto& drafter : engine_.drafters_)
      drafter->truncate(generation.draft_sequence, generation.n_shown);
    generation.emitted.clear();
    generation.finish_reason.reset();
    generation.error = error;
    sequence.verdict = {};
  }
}

}  // namespace outrider

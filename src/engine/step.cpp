#include "engine/step.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"
#include "engine/trace.h"
#include "engine/turn.h"
#include "speculation/verify.h"

namespace outrider {

struct Engine::Step {
  std::vector<Turn> turns;
  PassLoad load;
  StepCost cost;        // as the budget sees it
  double draft_ms = 0;  // by the clock
  Pass pass;

  std::vector<Turn*> generating() {
    std::vector<Turn*> generating;
    for (Turn& turn : turns)
      if (turn.generates) generating.push_back(&turn);
    return generating;
  }
};

void Engine::step(std::span<Generation* const> generations) {
  Step step = open(generations);
  draft(step);
  plan(step);
  forward(step);
  verify(step);
  commit(step);
  emit(step);
}

// Shares out the pass: a row for every sequence, then prompt rows as far as they fit.
Engine::Step Engine::open(std::span<Generation* const> generations) const {
  Step step;
  step.load.rows_max = std::min(target_->options().batch_rows, target_->options().n_slots);
  int room = step.load.rows_max - static_cast<int>(generations.size());
  CHECK(!generations.empty() && room >= 0);
  const int chunk = options_.prompt_chunk > 0 ? options_.prompt_chunk : step.load.rows_max;
  for (Generation* generation : generations) {
    CHECK(!generation->finished);
    const int length = static_cast<int>(generation->text.size());
    const int first = target_->committed(generation->sequence);
    CHECK(first < length);
    const int more = std::min({length - first - 1, chunk - 1, room});
    room -= more;

    // The text goes on by a token after the last accepted draft; neither it nor the limit may be
    // passed.
    int depth_max = target_->options().context - length - 1;
    if (const auto left = generation->stop.n_left()) depth_max = std::min(depth_max, *left - 1);

    const DraftTree node_0(generation->text.back());
    step.turns.push_back({.generation = generation,
                          .first = first,
                          .n_text = 1 + more,
                          .generates = first + 1 + more == length,
                          .depth_max = depth_max,
                          .drafted = node_0,
                          .checked = node_0,
                          .text_rows = {},
                          .node_rows = {},
                          .choices = {},
                          .accepted = {},
                          .taken = {}});
    step.load.rows += step.turns.back().n_text;
    step.cost.with_prompt_rows |= more > 0;
  }
  return step;
}

void Engine::draft(Step& step) {
  const std::vector<Turn*> turns = step.generating();
  std::vector<const DraftTree*> trees;
  for (const Turn* turn : turns) trees.push_back(&turn->drafted);
  step.cost.draft_ms.resize(drafters_.size());
  if (turns.empty()) return;

  const Stopwatch watch;
  for (int i = 0; i < static_cast<int>(drafters_.size()); ++i) {
    Drafter& drafter = *drafters_[i];
    const auto limits = budget_.limits(i, drafter.cost(), trees, step.load);
    if (!limits) continue;
    std::vector<DraftRequest> requests;
    for (Turn* turn : turns) {
      const Generation& generation = *turn->generation;
      DraftLimits here = *limits;
      here.depth = std::min(here.depth, turn->depth_max);
      const int n_answered = static_cast<int>(generation.text.size()) - generation.n_prompt;
      if (here.depth > 0 &&
          budget_.worth_reading(i, drafter.cost(), drafter.unread(generation.draft_sequence),
                                n_answered, generation.stop.n_left()))
        requests.push_back({turn->generation->draft_sequence, &turn->drafted, i, here,
                            &turn->generation->sampling, &turn->generation->state});
    }
    if (requests.empty()) continue;
    drafter.propose(requests);

    int deepest = 0;
    for (const DraftRequest& request : requests)
      for (int node = 1; node < request.tree->size(); ++node) {
        const auto& proposals = (*request.tree)[node].proposals;
        if (std::ranges::find(proposals, i, &Proposal::drafter) == proposals.end()) continue;
        CHECK((*request.tree)[node].depth <= request.limits.depth);
        deepest = std::max(deepest, (*request.tree)[node].depth);
      }
    step.cost.draft_ms[i] = drafter.cost().ms(deepest);
  }
  step.draft_ms = watch.ms();
}

void Engine::plan(Step& step) {
  std::vector<DraftTree*> trees;
  for (Turn* turn : step.generating()) {
    turn->checked = turn->drafted;
    trees.push_back(&turn->checked);
  }
  double draft_ms = 0;
  for (const auto& ms : step.cost.draft_ms) draft_ms += ms.value_or(0);
  budget_.plan(trees, step.load, draft_ms);
}

void Engine::forward(Step& step) {
  std::vector<Row> rows;
  std::vector<ChoiceRequest> requests;
  for (Turn& turn : step.turns) {
    const Generation& generation = *turn.generation;
    const int length = static_cast<int>(generation.text.size());
    for (int i = 0; i < turn.n_text; ++i) {
      turn.text_rows.push_back(static_cast<int>(rows.size()));
      const Parent parent =
          i == 0 ? Parent{CommittedText{}} : Parent{EarlierRow{turn.text_rows[i - 1]}};
      rows.push_back({.sequence = generation.sequence,
                      .token = generation.text[turn.first + i],
                      .position = turn.first + i,
                      .parent = parent});
    }
    if (!turn.generates) continue;
    turn.node_rows.push_back(turn.text_rows.back());
    rows.back().wants_logits = true;
    for (int node = 1; node < turn.checked.size(); ++node) {
      turn.node_rows.push_back(static_cast<int>(rows.size()));
      rows.push_back({.sequence = generation.sequence,
                      .token = turn.checked[node].token,
                      .position = length - 1 + turn.checked[node].depth,
                      .parent = EarlierRow{turn.node_rows[turn.checked[node].parent]},
                      .wants_logits = true});
    }
  }

  // The questions: each node's choice, with the penalties of its own path.
  std::vector<std::vector<TokenCount>> counts;
  for (const Turn& turn : step.turns)
    for (int node = 0; node < static_cast<int>(turn.node_rows.size()); ++node)
      counts.push_back(turn.generation->state.counts(turn.checked.path(node)));
  for (const Turn& turn : step.turns)
    for (std::size_t node = 0; node < turn.node_rows.size(); ++node) {
      const int position =
          static_cast<int>(turn.generation->text.size()) + turn.checked[node].depth;
      requests.push_back(choice_request(turn.generation->sampling, counts[requests.size()],
                                        turn.node_rows[node], position));
    }

  const Stopwatch watch;
  step.pass = target_->forward(rows);
  const std::vector<Choice> choices = target_->choose(step.pass, requests);
  step.cost.forward_ms = watch.ms();
  step.cost.rows = static_cast<int>(rows.size());

  std::size_t next = 0;
  for (Turn& turn : step.turns)
    for (std::size_t node = 0; node < turn.node_rows.size(); ++node)
      turn.choices.push_back(choices[next++].token);
}

// Walks each tree by the model's own choices; the stop rules, token by token, cut the walk.
void Engine::verify(Step& step) {
  for (Turn& turn : step.turns) {
    Generation& generation = *turn.generation;
    generation.emitted.clear();
    if (!turn.generates) continue;
    const Verdict verdict = verify_coupled(turn.checked, turn.choices);
    const auto take = [&](Token token, std::optional<int> drafter) {
      turn.taken.push_back(token);
      generation.finished = generation.stop.push(token);
      const std::size_t length = generation.text.size() + turn.taken.size();
      if (!generation.finished && static_cast<int>(length) == target_->options().context) {
        generation.stop.finish();
        generation.finished = FinishReason::length;
      }
      generation.emitted.push_back({token, drafter, generation.stop.take_text()});
    };
    for (int node : verdict.accepted) {
      if (generation.finished) break;
      turn.accepted.push_back(node);
      take(turn.checked[node].token, turn.checked[node].proposals[0].drafter);
    }
    if (verdict.next && !generation.finished) take(*verdict.next, std::nullopt);
  }
}

// The text that was computed becomes history: all but the last token taken.
void Engine::commit(Step& step) {
  for (Turn& turn : step.turns) {
    std::vector<SlotId> path;
    if (!turn.generates || !turn.taken.empty())
      for (int row : turn.text_rows) path.push_back(step.pass.slots[row]);
    for (std::size_t i = 0; i + 1 < turn.taken.size(); ++i)
      path.push_back(step.pass.slots[turn.node_rows[turn.accepted[i]]]);
    target_->commit(turn.generation->sequence, path);
  }
}

void Engine::emit(Step& step) {
  std::vector<DraftOutcome> outcomes;
  for (Turn& turn : step.turns) {
    Generation& generation = *turn.generation;
    generation.text.insert(generation.text.end(), turn.taken.begin(), turn.taken.end());
    generation.state.advance(turn.taken);
    if (!turn.taken.empty())
      for (const auto& drafter : drafters_) drafter->observe(generation.draft_sequence, turn.taken);
    if (turn.generates) outcomes.push_back({&turn.drafted, &turn.checked, turn.taken});

    for (Counters* counters : {&generation.counters, &counters_}) {
      counters->drafters.resize(drafters_.size());
      counters->rows += turn.n_text + turn.checked.size() - 1;
      counters->drafted += turn.checked.size() - 1;
      counters->accepted += static_cast<long>(turn.accepted.size());
      counters->emitted += static_cast<long>(turn.taken.size());
      for (int node = 1; node < turn.checked.size(); ++node)
        for (const Proposal& proposal : turn.checked[node].proposals)
          ++counters->drafters[proposal.drafter].proposed;
      for (int node : turn.accepted)
        for (const Proposal& proposal : turn.checked[node].proposals)
          ++counters->drafters[proposal.drafter].accepted;
    }
    ++generation.counters.steps;
  }
  budget_.observe(outcomes, step.cost);
  ++counters_.steps;
  forward_ms_ += step.cost.forward_ms;
  draft_ms_ += step.draft_ms;
  if (trace_)
    trace_(trace_line(step.turns,
                      {counters_.steps, step.cost.rows, step.draft_ms, step.cost.forward_ms},
                      drafters_));

  for (const Turn* turn : step.generating())
    if (turn->taken.empty())
      throw Error(
          "the model gave no usable logits at position {} (NaN, infinite, or every token "
          "forbidden); the file may be damaged, or --logit-bias forbids everything",
          turn->generation->text.size() - 1);
}

}  // namespace outrider

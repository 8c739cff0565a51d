// What a step counts for its answers, and what it reports to whoever watches.

#include "engine/step_report.h"

#include <algorithm>

#include "engine/step.h"

namespace outrider {

void Step::count(const SequenceStep& turn) const {
  Counters& counters = turn.generation->counters;
  ++counters.steps;
  counters.rows += turn.n_tokens + turn.checked.size() - 1;
  counters.drafted += turn.checked.size() - 1;
  counters.accepted += static_cast<long>(turn.verdict.accepted.size());
  counters.emitted += static_cast<long>(turn.generation->emitted.size());
  if (turn.generates) {
    ++counters.generating;
    counters.draft_passes += draft_passes_;
    counters.draft_levels += draft_levels_;
    counters.draft_ms += draft_ms_;
  }
  count_not_drafted(turn);
  if (turn.checked.size() > 1) {
    ++counters.drafts;
    const std::size_t n_accepted = turn.verdict.accepted.size();
    if (counters.accepted_lengths.size() <= n_accepted)
      counters.accepted_lengths.resize(n_accepted + 1);
    ++counters.accepted_lengths[n_accepted];
    int deepest = 0;
    for (int node = 1; node < turn.checked.size(); ++node)
      deepest = std::max(deepest, turn.checked[node].depth);
    counters.draft_depth += deepest;
    // A text that ends with an accepted node does not ask what follows it.
    const std::vector<int>& accepted = turn.verdict.accepted;
    counters.tested += static_cast<long>(accepted.size());
    const int last = accepted.empty() ? 0 : accepted.back();
    const bool asked = turn.generation->emitted.size() > accepted.size();
    if (asked && !turn.checked.children(last).empty()) ++counters.tested;
  }
  for (int node = 1; node < turn.checked.size(); ++node)
    for (const Proposal& proposal : turn.checked[node].proposals)
      ++counters.drafters[proposal.drafter].proposed;
  for (int node : turn.verdict.accepted)
    for (const Proposal& proposal : turn.checked[node].proposals)
      ++counters.drafters[proposal.drafter].accepted;
}

void Step::count_not_drafted(const SequenceStep& turn) const {
  const bool could_draft =
      turn.generates && turn.n_tokens == 1 && turn.length > turn.generation->n_prompt;
  if (!could_draft || turn.checked.size() > 1) return;
  NotDrafted& reasons = turn.generation->counters.not_drafted;
  if (turn.rows_max == 0 || engine_.drafters_.empty())
    ++reasons.off;
  else if (is_measured_)
    ++reasons.measured;
  else if (turn.depth_max <= 0 || load_.rows >= load_.rows_max)
    ++reasons.limit;
  else if (turn.was_asked_for && turn.drafted.size() == 1)
    ++reasons.no_match;
  else
    ++reasons.does_not_pay;
}

void Step::report() {
  ++engine_.n_steps_;
  if (!engine_.observe_) return;
  StepReport report{.step = engine_.n_steps_,
                    .rows = rows_,
                    .draft_ms = draft_ms_,
                    .forward_ms = forward_ms_,
                    .drafters = {},
                    .sequences = {}};
  for (const auto& drafter : engine_.drafters_) report.drafters.emplace_back(drafter->name());
  for (const SequenceStep& turn : turns_) {
    const Generation& generation = *turn.generation;
    StepReport::Sequence& sequence = report.sequences.emplace_back(
        StepReport::Sequence{.id = generation.draft_sequence,
                             .position = turn.first,
                             .n_tokens = turn.n_tokens,
                             .n_proposed = turn.drafted.size() - 1,
                             .nodes = {},
                             .emitted = {},
                             .finish_reason = generation.finish_reason,
                             .error = {}});
    for (int node = 1; node < turn.checked.size(); ++node) {
      const DraftNode& drafted = turn.checked[node];
      const bool accepted = std::ranges::count(turn.verdict.accepted, node) > 0;
      sequence.nodes.push_back({drafted.token, drafted.parent, accepted, drafted.proposals});
    }
    for (const Emitted& emitted : generation.emitted) sequence.emitted.push_back(emitted.token);
    if (generation.error) sequence.error = generation.error->what();
  }
  engine_.observe_(report);
}

}  // namespace outrider

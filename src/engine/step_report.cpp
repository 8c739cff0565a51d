// What a step counts for its answers, and what it reports to whoever watches.

#include "engine/step_report.h"

#include <algorithm>

#include "engine/step.h"

namespace outrider {

void Step::count(const SequenceStep& sequence) const {
  Counters& counters = sequence.generation->counters;
  ++counters.steps;
  counters.rows += sequence.n_tokens + sequence.checked.size() - 1 + sequence.n_riders();
  counters.drafted += sequence.checked.size() - 1;
  counters.accepted += static_cast<long>(sequence.verdict.accepted.size());
  counters.emitted += static_cast<long>(sequence.generation->emitted.size());
  if (sequence.generates) {
    ++counters.generating;
    counters.draft_passes += draft_passes_;
    counters.draft_levels += draft_levels_;
    counters.draft_ms += draft_ms_;
  }
  count_not_drafted(sequence);
  if (sequence.checked.size() > 1) {
    ++counters.drafts;
    const std::size_t n_accepted = sequence.verdict.accepted.size();
    if (counters.accepted_lengths.size() <= n_accepted)
      counters.accepted_lengths.resize(n_accepted + 1);
    ++counters.accepted_lengths[n_accepted];
    counters.draft_depth += sequence.checked.depth();
    // A text that ends with an accepted node does not ask what follows it.
    const std::vector<int>& accepted = sequence.verdict.accepted;
    counters.tested += static_cast<long>(accepted.size());
    const int last = accepted.empty() ? 0 : accepted.back();
    const bool asked = sequence.generation->emitted.size() > accepted.size();
    if (asked && !sequence.checked.children(last).empty()) ++counters.tested;
  }
  for (int node = 1; node < sequence.checked.size(); ++node)
    for (const Proposal& proposal : sequence.checked[node].proposals)
      ++counters.drafters[proposal.drafter].proposed;
  for (int i = 0; i < std::ssize(counters.drafters); ++i) {
    DrafterCounts& counts = counters.drafters[i];
    if (sequence.generation->emitted.empty() || !sequence.drafted.guesses(i)) continue;
    ++counts.first;
    counts.first_right += sequence.drafted.guesses(i, sequence.generation->emitted[0].token);
  }
  for (int node : sequence.verdict.accepted)
    for (const Proposal& proposal : sequence.checked[node].proposals)
      ++counters.drafters[proposal.drafter].accepted;
}

void Step::count_not_drafted(const SequenceStep& sequence) const {
  const bool could_draft = sequence.generates && sequence.n_tokens == 1 &&
                           sequence.length > sequence.generation->n_prompt;
  if (!could_draft || sequence.checked.size() > 1) return;
  NotDrafted& reasons = sequence.generation->counters.not_drafted;
  if (sequence.rows_max == 0 || engine_.drafters_.empty())
    ++reasons.off;
  else if (is_measured_)
    ++reasons.measured;
  else if (sequence.depth_max <= 0 || load_.rows >= load_.rows_max)
    ++reasons.limit;
  else if (sequence.was_asked_for && sequence.drafted.size() == 1)
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
  for (const SequenceStep& sequence : sequences_) {
    const Generation& generation = *sequence.generation;
    StepReport::Sequence& reported = report.sequences.emplace_back(
        StepReport::Sequence{.id = generation.draft_sequence,
                             .last = sequence.checked[0].token,
                             .position = sequence.first,
                             .n_tokens = sequence.n_tokens,
                             .n_proposed = sequence.drafted.size() - 1,
                             .nodes = {},
                             .choices = {},
                             .emitted = {},
                             .finish_reason = generation.finish_reason,
                             .error = {}});
    for (int node = 1; node < sequence.checked.size(); ++node) {
      const DraftNode& drafted = sequence.checked[node];
      const bool accepted = std::ranges::count(sequence.verdict.accepted, node) > 0;
      reported.nodes.push_back({drafted.token, drafted.parent, accepted, drafted.proposals});
    }
    for (const NodeAnswer& answer : sequence.answers) reported.choices.push_back(answer.choice);
    for (const Emitted& emitted : generation.emitted) reported.emitted.push_back(emitted.token);
    if (generation.error) reported.error = generation.error->what();
  }
  engine_.observe_(report);
}

}  // namespace outrider

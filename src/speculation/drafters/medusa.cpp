#include "speculation/drafters/medusa.h"

#include <algorithm>

#include "base/stopwatch.h"

namespace outrider {
namespace {

int n_heads(const Backend& head) {
  return head.spec().medusa->n_heads;
}

}  // namespace

MedusaDrafter::MedusaDrafter(std::shared_ptr<Backend> target)
    : HeadDrafter(target, {.target_vocabulary = target->spec().vocabulary,
                           .n_parallel = n_heads(*head_of(target))}) {}

bool MedusaDrafter::prefill(std::span<Draft> drafts, double&) {
  const Stopwatch watch;
  Batch batch;
  for (int head = 0; head < *options_.n_parallel; ++head)
    for (Draft& draft : drafts)
      if (head < draft.request->limits.depth) batch.ask_place(draft, head);
  const PassWork work{.rows = static_cast<int>(batch.rows.size())};
  compute(batch);
  curve_.refine(work, watch.ms());
  return true;
}

void MedusaDrafter::measure_costs() {
  if (sequences_.empty()) return time_heads(OwnedSequence(*backend_).id());
  for (const auto& [number, sequence] : sequences_)
    if (backend_->committed(sequence.id) == sequence.size() - 1) return time_heads(sequence.id);
}

// One sequence's heads.
void MedusaDrafter::time_heads(SequenceId sequence) {
  std::vector<Row> rows;
  std::vector<ChoiceRequest> choices;
  for (int head = 0; head < *options_.n_parallel; ++head) {
    rows.push_back({.sequence = sequence,
                    .token = 0,
                    .position = backend_->committed(sequence) + head,
                    .wants_logits = true});
    choices.push_back({.row = head, .filters = {.temperature = 0}, .n_best = 2});
  }
  constexpr int kRounds = 3;  // the first touches memory
  for (int round = 0; round < kRounds; ++round) {
    const Stopwatch watch;
    backend_->choose(backend_->forward(rows), choices);
    curve_.measure(*options_.n_parallel, watch.ms());
  }
}

DraftCost MedusaDrafter::cost(int n_sequences, int) const {
  if (curve_.empty()) return {};
  return {.fixed_ms = curve_.ms(n_sequences * *options_.n_parallel), .is_old = curve_.is_old()};
}

}  // namespace outrider

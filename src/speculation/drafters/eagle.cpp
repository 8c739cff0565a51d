#include "speculation/drafters/eagle.h"

#include <algorithm>

#include "base/error.h"
#include "base/stopwatch.h"
#include "speculation/drafter_kind.h"

namespace outrider {
namespace {

// What the next row goes on from.
int state_tap(const ModelSpec& head) {
  return head.eagle->state_is_normed ? head.n_layers() : head.n_layers() - 1;
}

}  // namespace

EagleDrafter::EagleDrafter(std::shared_ptr<Backend> target, std::string_view name)
    : HeadDrafter(target, {.target_vocabulary = target->spec().vocabulary,
                           .passes = {.taps = {state_tap(head_of(target)->spec())}},
                           .has_state = true}),
      name_(name) {}

void EagleDrafter::truncate(DraftSequence sequence, int length) {
  GrowingDrafter::truncate(sequence, length);
  text_ends_.erase(sequence);
}

void EagleDrafter::end(DraftSequence sequence) {
  GrowingDrafter::end(sequence);
  text_ends_.erase(sequence);
}

void EagleDrafter::computed(const Pass& target, std::span<const ComputedText> texts) {
  std::vector<Row> rows;
  struct Next {
    const ComputedText* text;
    int row;
  };
  std::vector<Next> next;
  for (const ComputedText& text : texts) {
    const SequenceId sequence = sequences_.at(text.sequence).id;
    const int n = static_cast<int>(text.tokens.size());
    text_ends_.erase(text.sequence);
    // The state before row i of the text.
    const auto before = [&](int i) {
      return i == 0 ? StateBefore{KeptFeatures{}} : StateBefore{TargetRow{text.rows[i - 1]}};
    };
    const bool is_completed =
        std::ranges::find(target.completed, text.rows[0]) != target.completed.end();
    for (int i = is_completed ? 1 : 0; i < n; ++i)
      rows.push_back({.sequence = sequence,
                      .token = text.tokens[i],
                      .position = text.first + i,
                      .before = before(i),
                      .slot = target.slots[text.rows[i]]});
    const bool has_room =
        backend_->free_slots(sequence) > 0 && text.first + n < backend_->options().context;
    if (!text.next || !has_room) continue;
    next.push_back({&text, static_cast<int>(rows.size())});
    rows.push_back({.sequence = sequence,
                    .token = *text.next,
                    .position = text.first + n,
                    .parent = target.slots[text.rows[n - 1]],
                    .before = before(n)});
  }
  if (rows.empty()) return;
  const Pass pass = backend_->forward(rows, options_.passes);
  for (const auto& [text, row] : next)
    text_ends_[text->sequence] = {rows[row].position, backend_->read_tap(pass, 0, row)};
}

Row EagleDrafter::text_end_row(const Sequence& sequence) const {
  return {.sequence = sequence.id,
          .token = sequence.text.back(),
          .position = sequence.length - 1,
          .before = KeptFeatures{}};
}

// Where the state of the last token is known, its logits alone are computed.
bool EagleDrafter::prefill(std::span<Draft> drafts, double&) {
  Batch known, unknown;
  std::vector<Sequence*> with_known;
  for (Draft& draft : drafts) {
    Sequence& sequence = *draft.sequence;
    const auto end = text_ends_.find(draft.request->sequence);
    const bool is_known = end != text_ends_.end() && end->second.position == sequence.length - 1;
    Batch& batch = is_known ? known : unknown;
    batch.rows.push_back(text_end_row(sequence));
    batch.rows.back().wants_logits = true;
    batch.ask_root(draft);
    batch.length += sequence.length;
    if (!is_known) continue;
    with_known.push_back(&sequence);
    sequence.said[0].state = end->second.state;
    batch.rows.back().before = std::span<const float>(sequence.said[0].state);
  }
  if (!unknown.rows.empty()) {
    const Stopwatch watch;
    const PassWork work = work_of(unknown);
    compute(unknown);
    curve_.refine(work, watch.ms());
  }
  if (known.rows.empty()) return true;
  const Stopwatch watch;
  compute(known, {.layers = std::vector<int>()});
  first_levels_.refine({.rows = static_cast<int>(known.rows.size())}, watch.ms());
  for (Sequence* sequence : with_known) {  // its row has no keys
    sequence->said[0].slot.reset();
    backend_->discard(sequence->id);
  }
  return true;
}

std::optional<Row> EagleDrafter::missing_text_end(const Sequence& sequence) const {
  if (sequence.said[0].slot) return {};
  return text_end_row(sequence);
}

void EagleDrafter::finish(std::span<const Draft> drafts) {
  for (const Draft& draft : drafts) backend_->discard(draft.sequence->id);
}

void EagleDrafter::measure_costs() {
  const std::vector<float> state(static_cast<std::size_t>(backend_->spec().embedding));
  const auto time = [&](SequenceId sequence) {
    const std::span<const float> before = state;
    time_passes(sequence, before);
  };
  if (sequences_.empty()) return time(OwnedSequence(*backend_).id());
  for (const auto& [number, sequence] : sequences_)
    if (backend_->committed(sequence.id) == sequence.size() - 1) return time(sequence.id);
}

DraftCost EagleDrafter::cost(int n_sequences, int length) const {
  DraftCost cost = GrowingDrafter::cost(n_sequences, length);
  cost.per_prefill_ms = 0;
  cost.fixed_ms = first_levels_.empty() ? cost.fixed_ms : first_levels_.ms(n_sequences);
  return cost;
}

}  // namespace outrider

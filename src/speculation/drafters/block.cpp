#include "speculation/drafters/block.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"
#include "model/block_rows.h"

namespace outrider {
namespace {

const BlockInput& block_of(const Backend& head) {
  return *head.spec().block;
}

bool is_completed(const BlockInput& block) {
  return block.successor_rank > 0;
}

}  // namespace

GrowingDrafter::Options BlockDrafter::options_for(Backend& target) {
  const BlockInput& block = block_of(*target.head());
  Options options{.target_vocabulary = target.spec().vocabulary};
  const int n_guesses = block.n_guesses();
  if (is_completed(block)) {
    options.depth_max = n_guesses;
    options.has_state = block.successors_remember;
    if (options.has_state) options.passes.taps = {kMemoryTap};
    options.rows_are_in_cache = false;
  } else {
    options.n_parallel = n_guesses;
  }
  return options;
}

BlockDrafter::BlockDrafter(std::shared_ptr<Backend> target, std::string_view name)
    : HeadDrafter(target, options_for(*target)), name_(name) {}

void BlockDrafter::computed(const Pass& target, std::span<const ComputedText> texts) {
  std::vector<Row> rows;
  for (const ComputedText& text : texts)
    for (std::size_t i = 0; i < text.tokens.size(); ++i)
      rows.push_back({.sequence = sequences_.at(text.sequence).id,
                      .token = text.tokens[i],
                      .position = text.first + static_cast<int>(i),
                      .before = TargetRow{text.rows[i]},
                      .slot = target.slots[text.rows[i]]});
  if (!rows.empty()) backend_->forward(rows);
}

// Whether the cache and the context have room for a block.
bool BlockDrafter::has_room(SequenceId sequence) const {
  const int n = block_of(*backend_).n_rows;
  return backend_->free_slots(sequence) >= n &&
         backend_->committed(sequence) + n <= backend_->options().context;
}

bool BlockDrafter::prepare(const DraftRequest& request, Sequence& sequence,
                           std::span<const DraftRequest> all, int& n_promised) {
  if (!HeadDrafter::prepare(request, sequence, all, n_promised)) return false;
  const int n_pages = backend_->pages_wanted(sequence.id, block_of(*backend_).n_rows, 0);
  if (!has_room(sequence.id) || backend_->free_pages() - n_promised < n_pages) return false;
  n_promised += n_pages;
  return true;
}

bool BlockDrafter::prefill(std::span<Draft> drafts, double&) {
  constexpr Token kUnknown = -1;  // no penalty counts it
  const bool grows = is_completed(block_of(*backend_));
  const Stopwatch watch;
  Batch batch;
  first_guesses_.clear();
  for (Draft& draft : drafts) {
    Sequence& sequence = *draft.sequence;
    const BlockPlace place{.sequence = sequence.id,
                           .anchor = sequence.text.back(),
                           .position = sequence.length - 1,
                           .first_row = static_cast<int>(batch.rows.size())};
    for (const Row& row : block_rows(block_of(*backend_), place, draft.request->limits.depth)) {
      if (row.wants_logits && grows) {
        first_guesses_.try_emplace(sequence.id, static_cast<int>(batch.rows.size()));
      } else if (row.wants_logits) {
        const int guess = static_cast<int>(sequence.said.size());
        sequence.said.push_back({.token = guess == 0 ? sequence.text.back() : kUnknown,
                                 .parent = guess - 1,
                                 .depth = guess,
                                 .end = sequence.index.end()});
        batch.asked.push_back({&draft, guess, static_cast<int>(batch.rows.size()), 1});
      }
      batch.rows.push_back(row);
    }
    batch.length += sequence.length;
  }
  const PassWork work = work_of(batch);
  if (grows) {
    backend_->forward(batch.rows);
    blocks_.refine(work, watch.ms());
    ask_roots(drafts);
  } else {
    compute(batch);
    curve_.refine(work, watch.ms());
  }
  return true;
}

// What follows the text's last tokens, which complete the blocks' first guesses.
void BlockDrafter::ask_roots(std::span<Draft> drafts) {
  const Stopwatch watch;
  Batch batch;
  for (Draft& draft : drafts) batch.ask_place(draft, 0);
  const PassWork work = work_of(batch);
  compute(batch);
  curve_.refine(work, watch.ms());
}

std::optional<StateBefore> BlockDrafter::state_before(const Sequence& sequence,
                                                      const Said& said) const {
  if (!is_completed(block_of(*backend_))) return {};
  BlockRow before{first_guesses_.at(sequence.id) + said.depth};
  if (said.parent >= 0) before.memory = sequence.said[said.parent].state;
  return before;
}

void BlockDrafter::finish(std::span<const Draft> drafts) {
  for (const Draft& draft : drafts) backend_->discard(draft.sequence->id);
}

void BlockDrafter::measure_costs() {
  if (sequences_.empty()) return time_blocks(OwnedSequence(*backend_).id());
  for (const auto& [number, sequence] : sequences_)
    if (backend_->committed(sequence.id) == sequence.size() - 1) return time_blocks(sequence.id);
}

void BlockDrafter::time_blocks(SequenceId sequence) {
  constexpr int kRounds = 3;  // the first touches memory
  constexpr int kLevelRows[] = {1, 2, 4, 8}, kTimedGuesses = 4;
  if (!has_room(sequence)) return;
  const std::vector<Row> block =
      block_rows(block_of(*backend_),
                 {.sequence = sequence, .position = backend_->committed(sequence)}, kTimedGuesses);
  const auto time = [&](std::span<const Row> rows, bool wants_choices) {
    std::vector<ChoiceRequest> choices;
    for (int row = 0; wants_choices && row < std::ssize(rows); ++row)
      if (rows[row].wants_logits)
        choices.push_back({.row = row, .filters = {.temperature = 0}, .n_best = 2});
    const Stopwatch watch;
    const Pass pass = backend_->forward(rows);
    if (!choices.empty()) backend_->choose(pass, choices);
    return watch.ms();
  };
  const int first = block_of(*backend_).first_guess();
  for (int round = 0; round < kRounds; ++round) {
    const bool grows = is_completed(block_of(*backend_));
    block_curve().measure(static_cast<int>(block.size()), time(block, !grows));
    for (const int n : grows ? std::span<const int>(kLevelRows) : std::span<const int>()) {
      std::vector<Row> level;
      for (int i = 0; i < n; ++i)
        level.push_back({.sequence = sequence,
                         .token = 0,
                         .position = block[0].position,
                         .wants_logits = true,
                         .before = BlockRow{first}});
      curve_.measure(n, time(level, true));
    }
    backend_->discard(sequence);
  }
}

// Of the passes over blocks. What levels take is soon known, and little.
CostCurve& BlockDrafter::block_curve() {
  return is_completed(block_of(*backend_)) ? blocks_ : curve_;
}
const CostCurve& BlockDrafter::block_curve() const {
  return is_completed(block_of(*backend_)) ? blocks_ : curve_;
}

DraftCost BlockDrafter::cost(int n_sequences, int length) const {
  const CostCurve& blocks = block_curve();
  if (blocks.empty()) return {};
  DraftCost cost{.fixed_ms = blocks.ms(n_sequences * block_of(*backend_).n_rows),
                 .is_old = blocks.is_old()};
  if (&blocks == &curve_ || curve_.empty()) return cost;
  cost.fixed_ms += curve_.ms(n_sequences);
  cost.per_depth_ms = GrowingDrafter::cost(n_sequences, length).per_depth_ms;
  return cost;
}

}  // namespace outrider

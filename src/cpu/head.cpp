#include "cpu/head.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "cpu/batch.h"
#include "cpu/pass_timer.h"

namespace outrider {
namespace {

std::size_t tap_width_of(const ModelSpec& head) {
  if (head.eagle) return static_cast<std::size_t>(head.eagle->tap_width);
  return static_cast<std::size_t>(head.block ? head.block->tap_width : head.embedding);
}

// What is kept of a row that the next one needs.
std::size_t features_kept(const ModelSpec& head) {
  if (head.block) return 0;
  return tap_width_of(head) * (head.eagle ? head.eagle->taps.size() : 1);
}

}  // namespace

LoadOptions CpuHead::options_beside(const LoadOptions& target, const HeadToLoad& head) {
  LoadOptions options = target;
  options.head = {};
  // The rows of a pass of the target, and what follows each text.
  options.batch_rows = target.batch_rows + target.n_sequences;
  if (const auto& medusa = head.model.spec.medusa)
    options.batch_rows = std::max(options.batch_rows, medusa->n_heads * target.n_sequences);
  if (const auto& block = head.model.spec.block)
    options.batch_rows = std::max(options.batch_rows, block->n_rows * target.n_sequences);
  options.requantize = head.options.requantize;
  options.output_ids = head.options.output_ids;
  options.output_names = head.options.output_names;
  options.n_names = head.options.n_names;
  options.output_room = head.options.output_room;
  return options;
}

MemoryNeed CpuHead::memory_need(const HeadToLoad& head, const LoadOptions& target, int n_pages) {
  MemoryNeed need = LoadedModel::memory_need(head.model, options_beside(target, head), n_pages);
  need.cache += features_kept(head.model.spec) * sizeof(float) * static_cast<std::size_t>(n_pages);
  return need;
}

CpuHead::CpuHead(const HeadToLoad& head, const LoadOptions& options, Target target, int n_pages,
                 Isa isa, ThreadTeam& team, const LoadProgress& progress)
    : target_(std::move(target)),
      model_(head.model, options_beside(options, head), n_pages, isa, team, progress),
      first_layer_(target_.model.spec().n_layers()),
      taps_(taps_of(spec(), target_.model.spec())),
      tap_width_(tap_width_of(spec())),
      n_features_(features_kept(spec())),
      all_layers_(static_cast<std::size_t>(layers_in_cache(spec()))),
      page_features_(n_features_ * static_cast<std::size_t>(n_pages) * sizeof(float),
                     /*is_filled=*/false),
      own_features_(n_features_ * static_cast<std::size_t>(options.n_sequences)),
      no_features_(n_features_),
      sequences_(static_cast<std::size_t>(options.n_sequences)) {
  std::iota(all_layers_.begin(), all_layers_.end(), 0);
  rows_.reserve(static_cast<std::size_t>(options.batch_rows));
}

void CpuHead::use(SequenceId sequence, bool uses) {
  LayerSet layers;
  const int n_layers = first_layer_ + (uses ? layers_in_cache(spec()) : 0);
  for (int layer = 0; layer < n_layers; ++layer) layers.set(layer);
  target_.cache.set_layers(sequence, layers);
  of(sequence) = {.is_used = uses};
}

void CpuHead::computed(std::span<const Row> rows, int first_tap, Pass& pass) {
  first_tap_ = first_tap;
  LayerSet layers;
  for (const int layer : all_layers_) layers.set(first_layer_ + layer);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const SequenceId sequence = rows[row].sequence;
    const SlotId slot = pass.slots[row];
    rows_.push_back({sequence, slot});
    if (spec().medusa && of(sequence).is_used) target_.cache.add_layers(sequence, slot, layers);
    const auto& completed = of(sequence).completed;
    if (!completed || !std::holds_alternative<CommittedEnd>(rows[row].parent)) continue;
    const CacheRun place = target_.cache.place(sequence, slot);
    if (place.page != completed->page || place.offset != completed->offset) {
      const CacheCopy copy{completed->page, completed->offset, place.page, place.offset, 1};
      model_.memory().copy({&copy, 1});
    }
    target_.cache.add_layers(sequence, slot, layers);
    pass.completed.push_back(static_cast<int>(row));
  }
}

std::span<float> CpuHead::page_features(int page) {
  return page_features_.as<float>().subspan(n_features_ * static_cast<std::size_t>(page),
                                            n_features_);
}

std::span<float> CpuHead::own_features(SequenceId sequence) {
  return std::span(own_features_)
      .subspan(n_features_ * static_cast<std::size_t>(sequence.value), n_features_);
}

void CpuHead::forked(SequenceId from, SequenceId to) {
  of(to) = of(from);
  std::ranges::copy(own_features(from), own_features(to).begin());
}

std::span<const float> CpuHead::kept_features(SequenceId sequence) {
  const int length = target_.cache.committed(sequence);
  if (length == 0) return no_features_;
  if (length % kPagePositions == 0)
    return page_features(target_.cache.pages(sequence)[length / kPagePositions - 1]);
  CHECK(of(sequence).has_features);
  return own_features(sequence);
}

void CpuHead::read_features(int row, std::span<float> out) const {
  for (std::size_t tap = 0; tap < taps().size(); ++tap)
    std::ranges::copy(target_.model.tap(first_tap_ + static_cast<int>(tap), row),
                      out.subspan(tap * tap_width_, tap_width_).begin());
}

void CpuHead::committed(SequenceId sequence, std::span<const SlotId> path, int first,
                        std::span<const CacheCopy> copies) {
  model_.memory().copy(copies);
  if (path.empty() || n_features_ == 0) return;
  of(sequence).completed.reset();
  const int last = first + static_cast<int>(path.size()) - 1;
  for (int position = first; position <= last; ++position) {
    const bool ends_page = position % kPagePositions == kPagePositions - 1;
    if (!ends_page && position != last) continue;
    const SlotId slot = path[static_cast<std::size_t>(position - first)];
    const auto row = std::ranges::find_if(rows_, [&](const RowOfPass& each) {
      return each.sequence == sequence && each.slot == slot;
    });
    CHECK(row != rows_.end());
    const int index = static_cast<int>(row - rows_.begin());
    const std::span<float> kept =
        ends_page ? page_features(target_.cache.pages(sequence)[position / kPagePositions])
                  : own_features(sequence);
    read_features(index, kept);
    of(sequence).has_features = !ends_page;
  }
}

int CpuHead::length_kept(SequenceId sequence, int length) {
  if (n_features_ == 0) return length;
  Sequence& cut = of(sequence);
  // Where a row has to be computed again, what it goes on from is gone.
  if (length == target_.cache.committed(sequence) && !cut.completed) return length;
  cut.has_features = false;
  cut.completed.reset();
  if (length % kPagePositions == 0) return length;
  const int last = length - 1, offset = last % kPagePositions;
  if (offset != 0) cut.completed = {target_.cache.pages(sequence)[last / kPagePositions], offset};
  return last;
}

void CpuHead::reused(SequenceId sequence) {
  if (target_.cache.committed(sequence) % kPagePositions != 0) return;
  of(sequence).has_features = false;
  of(sequence).completed.reset();
}

// What the row's stream begins with.
void CpuHead::set_state(const Row& row, ForwardRow& prepared) {
  const bool is_of_text = row.slot.has_value();
  if (spec().block && !is_of_text) return;
  if (const auto* own = std::get_if<std::span<const float>>(&row.before)) {
    CHECK(own->size() == static_cast<std::size_t>(spec().embedding));
    prepared.state = *own;
  } else if (const auto* before = std::get_if<TargetRow>(&row.before)) {
    CHECK(before->row >= 0 && static_cast<std::size_t>(before->row) < rows_.size());
    CHECK(rows_[static_cast<std::size_t>(before->row)].sequence == row.sequence);
    for (std::size_t tap = 0; tap < taps_.size(); ++tap)
      prepared.features.push_back(
          target_.model.tap(first_tap_ + static_cast<int>(tap), before->row));
  } else {
    const std::span<const float> kept = kept_features(row.sequence);
    for (std::size_t tap = 0; tap < taps_.size(); ++tap)
      prepared.features.push_back(kept.subspan(tap * tap_width_, tap_width_));
  }
}

// The slot that a row's keys and values go to.
SlotId CpuHead::slot_of(std::span<const Row> rows, std::size_t i, std::span<const SlotId> slots,
                        const LayerSet& layers) {
  const Row& row = rows[i];
  if (!row.slot)
    return target_.cache.add_slot(row.sequence, row.token, parent_slot(rows, i, slots), layers);
  target_.cache.add_layers(row.sequence, *row.slot, layers);
  return *row.slot;
}

// What rows of a block see of it, and of what comes before.
void CpuHead::set_blocks(std::span<const Row> rows, std::span<ForwardRow> prepared) const {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].block_end) continue;
    RowContext& context = prepared[i].context;
    context.block_end = &prepared[static_cast<std::size_t>(*rows[i].block_end)].context;
    if (!spec().block->windows_end_at_anchor) continue;
    const auto* const before = std::get_if<EarlierRow>(&rows[i].parent);
    const bool is_anchor =
        !before || rows[static_cast<std::size_t>(before->row)].block_end != rows[i].block_end;
    context.window_of = is_anchor
                            ? std::max(0, rows[i].position - 1)
                            : prepared[static_cast<std::size_t>(before->row)].context.window_of;
  }
}

Pass CpuHead::forward(std::span<const Row> rows, const ForwardOptions& options) {
  ScratchOfBatch scratch(target_.cache, rows);
  PassTimer timer(options.profile, this->options().n_threads, model_.weights());
  CHECK(!rows.empty() && rows.size() <= static_cast<std::size_t>(this->options().batch_rows));
  const std::vector<int>& layers = options.layers ? *options.layers : all_layers_;
  LayerSet written;
  for (const int layer : layers) {
    CHECK(layer >= 0 && layer < spec().n_layers());
    written.set(first_layer_ + layer);
  }
  Pass pass{.slots = {}, .number = model_.pass_number() + 1};
  pass.slots.reserve(rows.size());
  std::vector<ForwardRow> prepared(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    CHECK(is_used_by(row.sequence));
    prepared[i].wants_logits = row.wants_logits;
    if (const auto* completed = std::get_if<BlockRow>(&row.before)) {
      CHECK(row.wants_logits && spec().block && spec().block->successor_rank > 0);
      CHECK(row.token >= 0 && row.token < spec().vocabulary);
      prepared[i].token = row.token;
      prepared[i].completes = completed->row;
      CHECK(completed->memory.empty() ||
            completed->memory.size() >= static_cast<std::size_t>(spec().block->successor_rank));
      prepared[i].state = completed->memory;
      pass.slots.emplace_back();
      continue;
    }
    set_state(row, prepared[i]);
    if (spec().medusa) {
      prepared[i].medusa_head = row.position - target_.cache.committed(row.sequence);
      pass.slots.emplace_back();
      continue;
    }
    CHECK(row.token >= 0 && row.token < spec().vocabulary);
    const SlotId slot = slot_of(rows, i, pass.slots, written);
    prepared[i].token = row.token;
    prepared[i].context = context_of(target_.cache, row.sequence, slot);
    CHECK(prepared[i].context.position == row.position);
    pass.slots.push_back(slot);
  }
  set_blocks(rows, prepared);
  model_.run(prepared, layers, options.taps, target_.prefetch(), timer);
  scratch.keep();
  timer.finish();
  return pass;
}

std::vector<float> CpuHead::read_tap(const Pass& pass, int tap, int row) const {
  CHECK(pass.number == model_.pass_number());
  const std::span<const float> values = model_.tap(tap, row);
  return {values.begin(), values.end()};
}

std::optional<float> CpuHead::read_confidence(const Pass& pass, int row) const {
  CHECK(pass.number == model_.pass_number());
  return model_.confidence(row);
}

SequenceId CpuHead::begin(CacheScope scope) {
  const SequenceId sequence = target_.backend.begin(scope);
  target_.backend.use_head(sequence, true);
  return sequence;
}

}  // namespace outrider

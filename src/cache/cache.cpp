#include "cache/cache.h"

#include <algorithm>

#include "base/error.h"

namespace outrider {
namespace {

int pages_for(int positions) {
  return (positions + kPagePositions - 1) / kPagePositions;
}

// Appends the next position's place; extends the last run if the place directly follows it.
void append(std::vector<CacheRun>& runs, const CacheRun& next) {
  if (!runs.empty() && runs.back().page == next.page &&
      runs.back().offset + runs.back().count == next.offset) {
    ++runs.back().count;
  } else {
    runs.push_back(next);
  }
}

}  // namespace

int Cache::pages_needed(const CacheLimits& limits) {
  return limits.n_sequences * (pages_for(limits.context) + pages_for(limits.n_slots));
}

Cache::Cache(const CacheLimits& limits)
    : limits_(limits), sequences_(limits.n_sequences), uses_(pages_needed(limits)) {
  CHECK(limits.n_layers > 0 && limits.n_layers <= kMaxLayers);
  CHECK(limits.context > 0 && limits.n_slots > 0 && limits.n_sequences > 0);
  for (int layer = 0; layer < limits.n_layers; ++layer) all_layers_.set(layer);
  for (Sequence& sequence : sequences_) {
    sequence.pages.reserve(pages_for(limits.context));
    sequence.scratch_pages.reserve(pages_for(limits.n_slots));
    sequence.slots.reserve(limits.n_slots);
  }
  // Descending, so that the first page taken is page 0.
  for (int page = static_cast<int>(uses_.size()) - 1; page >= 0; --page) free_.push_back(page);
}

Cache::Sequence& Cache::at(SequenceId sequence) {
  CHECK(sequence.value >= 0 && sequence.value < limits_.n_sequences &&
        sequences_[sequence.value].alive);
  return sequences_[sequence.value];
}

const Cache::Sequence& Cache::at(SequenceId sequence) const {
  return const_cast<Cache*>(this)->at(sequence);
}

int Cache::take_page() {
  CHECK(!free_.empty());  // pages_needed covers every sequence at its largest
  const int page = free_.back();
  free_.pop_back();
  uses_[page] = 1;
  return page;
}

void Cache::drop_page(int page) {
  if (--uses_[page] == 0) free_.push_back(page);
}

SequenceId Cache::begin() {
  const auto place = std::find_if(sequences_.begin(), sequences_.end(),
                                  [](const Sequence& s) { return !s.alive; });
  CHECK(place != sequences_.end());
  place->alive = true;
  return {static_cast<int>(place - sequences_.begin())};
}

void Cache::end(SequenceId id) {
  Sequence& sequence = at(id);
  for (int page : sequence.pages) drop_page(page);
  for (int page : sequence.scratch_pages) drop_page(page);
  sequence.pages.clear();
  sequence.scratch_pages.clear();
  sequence.slots.clear();
  sequence.committed = 0;
  sequence.alive = false;
}

SequenceId Cache::fork(SequenceId id) {
  const SequenceId copy = begin();
  const Sequence& from = at(id);
  Sequence& to = at(copy);
  to.committed = from.committed;
  to.pages = from.pages;
  for (int page : to.pages) ++uses_[page];
  return copy;
}

SlotId Cache::add_slot(SequenceId id, std::optional<SlotId> parent, const LayerSet& layers) {
  Sequence& sequence = at(id);
  const int slot = static_cast<int>(sequence.slots.size());
  CHECK(slot < limits_.n_slots);
  int position = sequence.committed;
  if (parent) {
    CHECK(parent->value >= 0 && parent->value < slot);
    const Slot& above = sequence.slots[parent->value];
    CHECK((layers & ~above.layers).none());  // a row sees only what at least its own layers wrote
    position = above.position + 1;
  }
  CHECK(position < limits_.context);
  if (slot % kPagePositions == 0 &&
      slot / kPagePositions == static_cast<int>(sequence.scratch_pages.size())) {
    sequence.scratch_pages.push_back(take_page());
  }
  sequence.slots.push_back(
      {parent ? std::optional(parent->value) : std::nullopt, position, layers});
  return {slot};
}

std::vector<CacheCopy> Cache::commit(SequenceId id, std::span<const SlotId> path) {
  Sequence& sequence = at(id);
  std::vector<CacheCopy> copies;
  copies.reserve(path.size() + 1);  // a shared page, and a copy for each slot
  std::optional<int> parent;
  for (const SlotId slot : path) {
    CHECK(slot.value >= 0 && slot.value < static_cast<int>(sequence.slots.size()));
    CHECK(sequence.slots[slot.value].parent == parent);
    CHECK(sequence.slots[slot.value].layers == all_layers_);
    parent = slot.value;

    const int offset = sequence.committed % kPagePositions;
    if (offset == 0) {
      sequence.pages.push_back(take_page());
    } else if (const int shared = sequence.pages.back(); uses_[shared] > 1) {
      sequence.pages.back() = take_page();
      drop_page(shared);
      copies.push_back({shared, 0, sequence.pages.back(), 0, offset});
    }
    const CacheRun from = place(id, slot);
    CacheCopy* last = copies.empty() ? nullptr : &copies.back();
    if (last != nullptr && last->from_page == from.page &&
        last->from_offset + last->count == from.offset && last->to_page == sequence.pages.back() &&
        last->to_offset + last->count == offset) {
      ++last->count;
    } else {
      copies.push_back({from.page, from.offset, sequence.pages.back(), offset, 1});
    }
    ++sequence.committed;
  }
  sequence.slots.clear();
  return copies;
}

void Cache::discard(SequenceId id) {
  at(id).slots.clear();
}

void Cache::truncate(SequenceId id, int length) {
  Sequence& sequence = at(id);
  CHECK(length >= 0 && length <= sequence.committed);
  sequence.slots.clear();
  sequence.committed = length;
  while (static_cast<int>(sequence.pages.size()) > pages_for(length)) {
    drop_page(sequence.pages.back());
    sequence.pages.pop_back();
  }
}

int Cache::committed(SequenceId id) const {
  return at(id).committed;
}

int Cache::free_slots(SequenceId id) const {
  return limits_.n_slots - static_cast<int>(at(id).slots.size());
}

int Cache::position(SequenceId id, SlotId slot) const {
  const Sequence& sequence = at(id);
  CHECK(slot.value >= 0 && slot.value < static_cast<int>(sequence.slots.size()));
  return sequence.slots[slot.value].position;
}

CacheRun Cache::place(SequenceId id, SlotId slot) const {
  return {at(id).scratch_pages[slot.value / kPagePositions], slot.value % kPagePositions,
          position(id, slot), 1};
}

std::span<const int> Cache::pages(SequenceId id) const {
  return at(id).pages;
}

std::vector<CacheRun> Cache::path(SequenceId id, SlotId slot) const {
  const Sequence& sequence = at(id);
  std::vector<int> upward;
  for (std::optional<int> at = slot.value; at; at = sequence.slots[*at].parent)
    upward.push_back(*at);
  std::vector<CacheRun> runs;
  for (auto step = upward.rbegin(); step != upward.rend(); ++step) append(runs, place(id, {*step}));
  return runs;
}

void Cache::check_integrity() const {
  std::vector<int> as_history(uses_.size()), as_scratch(uses_.size()), as_free(uses_.size());
  const auto count = [](std::vector<int>& uses, const std::vector<int>& pages) {
    for (const int page : pages) {
      CHECK(page >= 0 && page < static_cast<int>(uses.size()));
      ++uses[page];
    }
  };
  count(as_free, free_);
  for (const Sequence& sequence : sequences_) {
    count(as_history, sequence.pages);
    count(as_scratch, sequence.scratch_pages);
    CHECK(sequence.alive || (sequence.committed == 0 && sequence.pages.empty() &&
                             sequence.scratch_pages.empty() && sequence.slots.empty()));
    CHECK(sequence.committed >= 0 && sequence.committed <= limits_.context);
    CHECK(static_cast<int>(sequence.pages.size()) == pages_for(sequence.committed));
    const int n_slots = static_cast<int>(sequence.slots.size());
    CHECK(n_slots <= limits_.n_slots);
    CHECK(static_cast<int>(sequence.scratch_pages.size()) >= pages_for(n_slots));
    for (int i = 0; i < n_slots; ++i) {
      const Slot& slot = sequence.slots[i];
      CHECK(slot.position < limits_.context && (slot.layers & ~all_layers_).none());
      if (!slot.parent) {
        CHECK(slot.position == sequence.committed);
        continue;
      }
      CHECK(*slot.parent >= 0 && *slot.parent < i);
      const Slot& above = sequence.slots[*slot.parent];
      CHECK(slot.position == above.position + 1 && (slot.layers & ~above.layers).none());
    }
  }
  for (std::size_t page = 0; page < uses_.size(); ++page) {
    CHECK(uses_[page] == as_history[page] + as_scratch[page]);
    CHECK(as_scratch[page] == 0 || uses_[page] == 1);  // never shared
    CHECK(as_free[page] == (uses_[page] == 0 ? 1 : 0));
  }
}

}  // namespace outrider

#include "cache/cache.h"

#include <algorithm>

#include "base/error.h"

namespace outrider {
namespace {

// SplitMix64's finalizer over a state and the next value.
std::uint64_t mixed(std::uint64_t state, std::uint64_t value) {
  state = (state ^ (value + 1)) * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u;
  state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
  state = (state ^ (state >> 27)) * 0x94d049bb133111ebu;
  return state ^ (state >> 31);
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

int Cache::n_pages(const CacheLimits& limits) {
  if (limits.n_pages > 0) return limits.n_pages;
  return limits.n_sequences * (pages_for(limits.context) + pages_for(limits.n_slots));
}

Cache::Cache(const CacheLimits& limits)
    : limits_(limits), sequences_(limits.n_sequences), pages_(n_pages(limits)) {
  CHECK(limits.n_layers > 0 && limits.n_layers <= kMaxLayers);
  CHECK(limits.context > 0 && limits.n_slots > 0 && limits.n_sequences > 0);
  for (int layer = 0; layer < limits.n_layers; ++layer) all_layers_.set(layer);
  for (Sequence& sequence : sequences_) {
    sequence.pages.reserve(pages_for(limits.context));
    sequence.scratch_pages.reserve(pages_for(limits.n_slots));
    sequence.slots.reserve(limits.n_slots);
    if (limits.shares_texts) sequence.tokens.reserve(limits.context);
  }
  // Descending, so that the first page taken is page 0.
  for (int page = static_cast<int>(pages_.size()) - 1; page >= 0; --page) free_.push_back(page);
  if (!limits.shares_texts) return;
  page_tokens_.resize(pages_.size() * kPagePositions);
  buckets_.assign(2 * pages_.size(), kNone);
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
  if (free_.empty()) {
    CHECK(oldest_ != kNone);  // callers ask free_pages() first
    forget(oldest_);
  }
  const int page = free_.back();
  free_.pop_back();
  pages_[page].uses = 1;
  return page;
}

void Cache::use(int page) {
  Page& used = pages_[page];
  if (used.uses++ > 0) return;
  (used.older == kNone ? oldest_ : pages_[used.older].newer) = used.newer;
  (used.newer == kNone ? newest_ : pages_[used.newer].older) = used.older;
  used.older = used.newer = kNone;
  --n_unused_cached_;
}

void Cache::drop_page(int page) {
  Page& dropped = pages_[page];
  if (--dropped.uses > 0) return;
  if (!dropped.is_cached) return free_.push_back(page);
  dropped.older = newest_;
  (newest_ == kNone ? oldest_ : pages_[newest_].newer) = page;
  newest_ = page;
  ++n_unused_cached_;
}

std::span<const Token> Cache::tokens_of(int page) const {
  return std::span(page_tokens_).subspan(std::size_t{kPagePositions} * page, kPagePositions);
}

std::uint64_t Cache::hash(const CacheScope& scope, int before,
                          std::span<const Token> tokens) const {
  std::uint64_t hash =
      before == kNone ? mixed(mixed(0, scope.value[0]), scope.value[1]) : pages_[before].hash;
  for (const Token token : tokens) hash = mixed(hash, static_cast<std::uint64_t>(token));
  return hash & limits_.hash_mask;
}

int Cache::find_cached(const CacheScope& scope, const LayerSet& layers, int before,
                       std::span<const Token> tokens) const {
  const std::uint64_t wanted = hash(scope, before, tokens);
  int page = buckets_[wanted % buckets_.size()];
  for (; page != kNone; page = pages_[page].next_of_hash) {
    const Page& cached = pages_[page];
    if (cached.hash == wanted && cached.before == before && cached.scope == scope &&
        cached.layers == layers && std::ranges::equal(tokens_of(page), tokens))
      break;
  }
  return page;
}

// The last page of history is full: it becomes a cached page, or is replaced by the cached page
// with the same key, whose keys and values have the same bits (docs/arithmetic.md).
void Cache::make_cached(Sequence& sequence) {
  const int page = sequence.pages.back();
  const std::size_t n_before = sequence.pages.size() - 1;
  const int before = n_before == 0 ? kNone : sequence.pages[n_before - 1];
  const auto tokens = std::span<const Token>(sequence.tokens).last(kPagePositions);
  const int cached = find_cached(sequence.scope, sequence.layers, before, tokens);
  if (cached != kNone) {
    use(cached);
    sequence.pages.back() = cached;
    return drop_page(page);
  }
  std::ranges::copy(tokens, page_tokens_.begin() + std::ptrdiff_t{kPagePositions} * page);
  Page& added = pages_[page];
  added.is_cached = true;
  added.scope = sequence.scope;
  added.layers = sequence.layers;
  added.before = before;
  added.hash = hash(sequence.scope, before, tokens);
  added.next_of_hash = bucket(added.hash);
  bucket(added.hash) = page;
}

// An unused page.
void Cache::forget(int page) {
  use(page);
  Page& forgotten = pages_[page];
  int* link = &bucket(forgotten.hash);
  while (*link != page) link = &pages_[*link].next_of_hash;
  *link = forgotten.next_of_hash;
  forgotten = {};
  free_.push_back(page);
}

void Cache::forget_texts() {
  for (const Sequence& sequence : sequences_) CHECK(!sequence.alive);
  while (oldest_ != kNone) forget(oldest_);
}

SequenceId Cache::begin(CacheScope scope) {
  const auto place = std::find_if(sequences_.begin(), sequences_.end(),
                                  [](const Sequence& s) { return !s.alive; });
  CHECK(place != sequences_.end());
  place->alive = true;
  place->scope = scope;
  place->layers = all_layers_;
  return {static_cast<int>(place - sequences_.begin())};
}

void Cache::set_layers(SequenceId id, const LayerSet& layers) {
  Sequence& sequence = at(id);
  CHECK(sequence.committed == 0 && sequence.slots.empty() && (layers & ~all_layers_).none());
  sequence.layers = layers;
}

void Cache::end(SequenceId id) {
  truncate(id, 0);
  at(id).alive = false;
}

SequenceId Cache::fork(SequenceId id) {
  const SequenceId copy = begin(at(id).scope);
  const Sequence& from = at(id);
  Sequence& to = at(copy);
  to.layers = from.layers;
  to.committed = from.committed;
  to.pages = from.pages;
  to.tokens = from.tokens;
  for (int page : to.pages) use(page);
  return copy;
}

int Cache::reuse_prefix(SequenceId id, std::span<const Token> tokens) {
  Sequence& sequence = at(id);
  drop_scratch(sequence);
  if (!limits_.shares_texts) return sequence.committed;
  CHECK(static_cast<std::size_t>(sequence.committed) <= tokens.size() &&
        std::ranges::equal(sequence.tokens, tokens.first(sequence.committed)));
  for (;;) {
    const int n_full = sequence.committed / kPagePositions;
    const auto begin = static_cast<std::size_t>(n_full) * kPagePositions;
    if (begin + kPagePositions > tokens.size()) return sequence.committed;
    const auto next = tokens.subspan(begin, kPagePositions);
    const int cached = find_cached(sequence.scope, sequence.layers,
                                   n_full == 0 ? kNone : sequence.pages[n_full - 1], next);
    if (cached == kNone) return sequence.committed;
    use(cached);
    if (sequence.committed % kPagePositions != 0) {  // its own page with a part of the same tokens
      drop_page(sequence.pages.back());
      sequence.pages.pop_back();
    }
    sequence.pages.push_back(cached);
    sequence.tokens.resize(begin);
    sequence.tokens.insert(sequence.tokens.end(), next.begin(), next.end());
    sequence.committed = static_cast<int>(sequence.tokens.size());
  }
}

int Cache::pages_wanted(SequenceId id, int n_rows, int n_committed) const {
  const Sequence& sequence = at(id);
  const int n_scratch = static_cast<int>(sequence.slots.size()) - sequence.n_in_place;
  const bool copies =
      sequence.committed % kPagePositions != 0 && !may_be_written(sequence.pages.back());
  return pages_for(n_scratch + n_rows) - static_cast<int>(sequence.scratch_pages.size()) +
         pages_for(sequence.committed + n_committed) - static_cast<int>(sequence.pages.size()) +
         (copies ? 1 : 0);
}

// Scratch pages go back to the pool, so that those who need some now find them.
void Cache::drop_scratch(Sequence& sequence) {
  for (const int page : sequence.scratch_pages) drop_page(page);
  sequence.scratch_pages.clear();
  sequence.slots.clear();
  sequence.n_in_place = 0;
}

SlotId Cache::add_slot(SequenceId id, Token token, std::optional<SlotId> parent,
                       const LayerSet& layers) {
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
  Slot added{.token = token,
             .parent = parent ? std::optional(parent->value) : std::nullopt,
             .position = position,
             .layers = layers};
  if (may_go_in_place(sequence, parent)) {
    added.page = sequence.pages.back();
    added.offset = position % kPagePositions;
    ++sequence.n_in_place;
  } else {
    const int n_before = slot - sequence.n_in_place;
    if (n_before % kPagePositions == 0) sequence.scratch_pages.push_back(take_page());
    added.page = sequence.scratch_pages.back();
    added.offset = n_before % kPagePositions;
  }
  sequence.slots.push_back(added);
  return {slot};
}

void Cache::add_layers(SequenceId id, SlotId slot, const LayerSet& layers) {
  Sequence& sequence = at(id);
  CHECK(slot.value >= 0 && slot.value < static_cast<int>(sequence.slots.size()));
  Slot& written = sequence.slots[slot.value];
  CHECK(!written.parent || (layers & ~sequence.slots[*written.parent].layers).none());
  written.layers |= layers;
}

const LayerSet& Cache::layers(SequenceId id, SlotId slot) const {
  const Sequence& sequence = at(id);
  CHECK(slot.value >= 0 && slot.value < static_cast<int>(sequence.slots.size()));
  return sequence.slots[slot.value].layers;
}

// Whether the next slot may lie where it would as history.
bool Cache::may_go_in_place(const Sequence& sequence, std::optional<SlotId> parent) const {
  const int n = static_cast<int>(sequence.slots.size());
  const int n_in_page = sequence.committed % kPagePositions;
  const bool is_chain = n == sequence.n_in_place && (n == 0 || (parent && parent->value == n - 1));
  return is_chain && n_in_page > 0 && n_in_page + n < kPagePositions &&
         may_be_written(sequence.pages.back());
}

std::vector<CacheCopy> Cache::commit(SequenceId id, std::span<const SlotId> path) {
  Sequence& sequence = at(id);
  std::vector<CacheCopy> copies;
  copies.reserve(path.size() + 1);  // a shared page, and a copy for each slot
  std::optional<int> parent;
  for (const SlotId slot : path) {
    CHECK(slot.value >= 0 && slot.value < static_cast<int>(sequence.slots.size()));
    const Slot& from = sequence.slots[slot.value];
    CHECK(from.parent == parent && from.layers == sequence.layers);
    parent = slot.value;

    const int offset = sequence.committed % kPagePositions;
    if (offset == 0) {
      sequence.pages.push_back(take_page());
    } else if (const int shared = sequence.pages.back(); !may_be_written(shared)) {
      sequence.pages.back() = take_page();
      drop_page(shared);
      copies.push_back({shared, 0, sequence.pages.back(), 0, offset});
    }
    const int to_page = sequence.pages.back();
    CacheCopy* last = copies.empty() ? nullptr : &copies.back();
    if (from.page == to_page) {
      CHECK(from.offset == offset);
    } else if (last != nullptr && last->from_page == from.page &&
               last->from_offset + last->count == from.offset && last->to_page == to_page &&
               last->to_offset + last->count == offset) {
      ++last->count;
    } else {
      copies.push_back({from.page, from.offset, to_page, offset, 1});
    }
    ++sequence.committed;
    if (!limits_.shares_texts) continue;
    sequence.tokens.push_back(from.token);
    if (sequence.committed % kPagePositions == 0) make_cached(sequence);
  }
  drop_scratch(sequence);
  return copies;
}

void Cache::discard(SequenceId id) {
  drop_scratch(at(id));
}

void Cache::truncate(SequenceId id, int length) {
  Sequence& sequence = at(id);
  CHECK(length >= 0 && length <= sequence.committed);
  drop_scratch(sequence);
  sequence.committed = length;
  if (limits_.shares_texts) sequence.tokens.resize(length);
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
  const int position = this->position(id, slot);
  const Slot& found = at(id).slots[slot.value];
  return {found.page, found.offset, position, 1};
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
  const std::size_t n = pages_.size();
  std::vector<int> as_history(n), as_scratch(n), as_free(n), as_unused_known(n), as_known(n);
  const auto count = [&](std::vector<int>& uses, const std::vector<int>& pages) {
    for (const int page : pages) {
      CHECK(page >= 0 && page < static_cast<int>(n));
      ++uses[page];
    }
  };
  count(as_free, free_);
  std::vector<int> unused;  // the oldest first
  for (int page = oldest_; page != kNone; page = pages_[page].newer) unused.push_back(page);
  count(as_unused_known, unused);
  CHECK(static_cast<int>(unused.size()) == n_unused_cached_);
  for (const int first : buckets_)
    for (int page = first; page != kNone; page = pages_[page].next_of_hash) count(as_known, {page});

  for (const Sequence& sequence : sequences_) {
    count(as_history, sequence.pages);
    count(as_scratch, sequence.scratch_pages);
    CHECK(sequence.alive || (sequence.committed == 0 && sequence.pages.empty() &&
                             sequence.scratch_pages.empty() && sequence.slots.empty()));
    CHECK(sequence.committed >= 0 && sequence.committed <= limits_.context);
    CHECK(static_cast<int>(sequence.pages.size()) == pages_for(sequence.committed));
    CHECK(static_cast<int>(sequence.tokens.size()) ==
          (limits_.shares_texts ? sequence.committed : 0));
    const int n_slots = static_cast<int>(sequence.slots.size());
    CHECK(n_slots <= limits_.n_slots);
    CHECK(static_cast<int>(sequence.scratch_pages.size()) ==
          pages_for(n_slots - sequence.n_in_place));
    for (int i = 0; i < n_slots; ++i) {
      const Slot& slot = sequence.slots[i];
      const bool in_place = i < sequence.n_in_place;
      const int n_before = in_place ? slot.position : i - sequence.n_in_place;
      CHECK(slot.offset == n_before % kPagePositions);
      CHECK(slot.page ==
            (in_place ? sequence.pages.back() : sequence.scratch_pages[n_before / kPagePositions]));
      CHECK(!in_place || slot.position == sequence.committed + i);
      CHECK(slot.position < limits_.context && (slot.layers & ~all_layers_).none());
      if (!slot.parent) {
        CHECK(slot.position == sequence.committed);
        continue;
      }
      CHECK(*slot.parent >= 0 && *slot.parent < i);
      const Slot& above = sequence.slots[*slot.parent];
      CHECK(slot.position == above.position + 1 && (slot.layers & ~above.layers).none());
    }
    for (std::size_t i = 0; i < sequence.pages.size(); ++i) {  // full pages of history are cached
      const bool is_full = (i + 1) * kPagePositions <= sequence.tokens.size();
      const Page& page = pages_[sequence.pages[i]];
      if (!is_full) continue;
      CHECK(page.is_cached && page.scope == sequence.scope && page.layers == sequence.layers);
      CHECK(page.before == (i == 0 ? kNone : sequence.pages[i - 1]));
      CHECK(std::ranges::equal(
          tokens_of(sequence.pages[i]),
          std::span(sequence.tokens).subspan(i * kPagePositions, kPagePositions)));
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    const Page& page = pages_[i];
    CHECK(page.uses == as_history[i] + as_scratch[i]);
    CHECK(as_scratch[i] == 0 || (page.uses == 1 && !page.is_cached));  // never shared
    CHECK(as_free[i] == (page.uses == 0 && !page.is_cached ? 1 : 0));
    CHECK(as_known[i] == (page.is_cached ? 1 : 0));
    CHECK(as_unused_known[i] == (page.uses == 0 && page.is_cached ? 1 : 0));
    if (!page.is_cached) continue;
    CHECK(find_cached(page.scope, page.layers, page.before, tokens_of(static_cast<int>(i))) ==
          static_cast<int>(i));
    if (page.before == kNone) continue;
    const Page& before = pages_[page.before];
    CHECK(before.is_cached && before.scope == page.scope && before.layers == page.layers);
    CHECK(before.uses >= 1 || page.uses == 0);
    if (before.uses == 0) {
      const auto place = [&](int wanted) { return std::ranges::find(unused, wanted); };
      CHECK(place(static_cast<int>(i)) < place(page.before));
    }
  }
}

}  // namespace outrider

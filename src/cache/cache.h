// The cache's bookkeeping, for any device: which page holds which positions of which sequence. It
// moves no keys or values itself; it says what to move. Paging: Kwon et al. 2023, arXiv:2309.06180.
//
// A sequence's keys and values lie in pages of 64 positions, from one pool:
//
//   pages     [0, committed)  history, by position; a page that others use or that is cached is
//                             copied before it is written
//   scratch   [0, slots)      rows that are not committed, in the order in which they were added,
//                             in pages of their own. But the first ones, as far as they form a
//                             chain, lie behind history while its last page has room. Gone at the
//                             next commit (which moves its path to history), discard or truncate
//
// With CacheLimits::shares_texts each full page of history is *cached*: its key is its scope, its
// tokens and all tokens before them, and the layers that wrote it; no two cached pages have the
// same key. A cached page that
// no sequence uses can be taken for others, the least recently used one first; until then a
// sequence that begins alike can reuse it. Keys are found by a hash and then compared, so equal
// hashes never mix up pages. The page before a cached page is cached, too, and was used at least as
// recently.
//
// Only what is reached through a sequence's history or a row's ancestors is read, so nothing is
// cleared.

#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/token.h"
#include "cache/ids.h"

namespace outrider {

inline constexpr int kPagePositions = 64;
inline constexpr int kMaxLayers = 256;
using LayerSet = std::bitset<kMaxLayers>;

struct CacheLimits {
  int context = 0;      // positions a sequence can have
  int n_sequences = 0;  // alive at once
  int n_slots = 0;      // scratch rows that a sequence may have
  int n_layers = 0;
  int n_pages = 0;            // of the pool; 0: as many as all sequences need at their longest
  bool shares_texts = false;  // whether full pages are cached, so that sequences can reuse them
  // The bits of hashes that are compared; 0 makes all hashes equal (for tests).
  std::uint64_t hash_mask = ~std::uint64_t{0};
};

// Keys and values of `count` neighbouring positions inside one page.
struct CacheRun {
  int page = 0, offset = 0;
  int position = 0;  // of the first
  int count = 0;
};

// A copy of `count` neighbouring positions that a device must make before its next forward pass.
struct CacheCopy {
  int from_page, from_offset;
  int to_page, to_offset;
  int count;
};

constexpr int pages_for(int positions) {
  return (positions + kPagePositions - 1) / kPagePositions;
}

// The most pages that one sequence alone needs: `context` positions of history, one page that is
// copied before it is written, and scratch for `rows` rows.
constexpr int pages_of_one_sequence(int context, int rows) {
  return context / kPagePositions + 1 + rows / kPagePositions + 2;
}

class Cache {
 public:
  explicit Cache(const CacheLimits& limits);

  // Pages that a device needs memory for.
  static int n_pages(const CacheLimits& limits);
  int n_pages() const { return static_cast<int>(pages_.size()); }

  // Misuse (an unknown sequence, too many sequences or slots, an invalid path, no page left) fails
  // a CHECK. Only returned vectors are allocated, and before anything changes: after a
  // std::bad_alloc the cache is as it was before the call.
  //
  // fork(): a sequence with the same history, whose pages the two share; without its scratch.
  SequenceId begin(CacheScope scope = {});
  // Of an empty sequence: the layers that write each row before it becomes history. At first all.
  void set_layers(SequenceId sequence, const LayerSet& layers);
  void end(SequenceId sequence);
  SequenceId fork(SequenceId sequence);

  // Adds a row to scratch. Its parent is the row `parent`, which must have been written by at least
  // `layers`, or the last committed position.
  SlotId add_slot(SequenceId sequence, Token token, std::optional<SlotId> parent,
                  const LayerSet& layers);
  // The row is written by these layers, too, as its parent is.
  void add_layers(SequenceId sequence, SlotId slot, const LayerSet& layers);
  const LayerSet& layers(SequenceId sequence, SlotId slot) const;

  // Drops scratch, and extends history by the cached pages of the tokens that follow it in
  // `tokens`, which begins with the history's. Returns how many tokens are committed then.
  int reuse_prefix(SequenceId sequence, std::span<const Token> tokens);

  // Pages that no sequence uses, and the cached ones among them.
  int free_pages() const { return static_cast<int>(free_.size()) + n_unused_cached_; }
  int unused_cached_pages() const { return n_unused_cached_; }
  // Caches no page any more. No sequence lives.
  void forget_texts();
  // The most pages that adding n_rows rows to the sequence's scratch and committing n_committed
  // positions can take.
  int pages_wanted(SequenceId sequence, int n_rows, int n_committed) const;

  // As in model/backend.h. commit() returns the copies that the device must make, in this order.
  std::vector<CacheCopy> commit(SequenceId sequence, std::span<const SlotId> path);
  void discard(SequenceId sequence);
  void truncate(SequenceId sequence, int length);

  int committed(SequenceId sequence) const;
  int free_slots(SequenceId sequence) const;
  int position(SequenceId sequence, SlotId slot) const;
  CacheRun place(SequenceId sequence, SlotId slot) const;
  // Pages of the history: position p is in pages[p / 64] at p % 64.
  std::span<const int> pages(SequenceId sequence) const;
  // The slot and its ancestors in scratch, positions ascending.
  std::vector<CacheRun> path(SequenceId sequence, SlotId slot) const;

  // Fails a CHECK unless every page is either free, once, or cached and unused, or used as often as
  // its count says; scratch pages belong to one sequence and are not cached; cached pages form
  // trees of different texts, unused ones below used ones and in the order of their use; slots form
  // trees that begin at the committed end; and each slot's ancestors were written by at least its
  // layers.
  void check_integrity() const;

 private:
  struct Slot {
    Token token;
    std::optional<int> parent;
    int position;
    LayerSet layers;
    int page = 0, offset = 0;  // where its keys and values are
  };
  struct Sequence {  // its vectors have the capacity for all that limits allow
    bool alive = false;
    CacheScope scope;
    LayerSet layers;  // that write its history
    int committed = 0;
    std::vector<int> pages;
    std::vector<int> scratch_pages;
    std::vector<Slot> slots;
    int n_in_place = 0;         // the first slots, which lie behind history in its last page
    std::vector<Token> tokens;  // [committed] where texts are shared
  };
  static constexpr int kNone = -1;
  struct Page {
    int uses = 0;
    bool is_cached = false;  // its key: the next three, and its tokens in page_tokens_
    CacheScope scope;
    LayerSet layers;
    int before = kNone;  // the cached page with the 64 tokens before; kNone: the text begins here
    std::uint64_t hash = 0;            // of the key
    int next_of_hash = kNone;          // in the same bucket
    int older = kNone, newer = kNone;  // among unused cached pages
  };

  Sequence& at(SequenceId sequence);
  const Sequence& at(SequenceId sequence) const;
  int take_page();
  void use(int page);
  void drop_page(int page);
  void drop_scratch(Sequence& sequence);
  bool may_be_written(int page) const { return pages_[page].uses == 1 && !pages_[page].is_cached; }
  bool may_go_in_place(const Sequence& sequence, std::optional<SlotId> parent) const;

  std::span<const Token> tokens_of(int page) const;
  std::uint64_t hash(const CacheScope& scope, int before, std::span<const Token> tokens) const;
  int& bucket(std::uint64_t hash) { return buckets_[hash % buckets_.size()]; }
  int find_cached(const CacheScope& scope, const LayerSet& layers, int before,
                  std::span<const Token> tokens) const;
  void make_cached(Sequence& sequence);
  void forget(int page);

  CacheLimits limits_;
  LayerSet all_layers_;
  std::vector<Sequence> sequences_;
  std::vector<Page> pages_;
  std::vector<int> free_;           // pages with no use that are not cached
  std::vector<Token> page_tokens_;  // [n_pages * 64] where texts are shared
  std::vector<int> buckets_;        // first page of each hash; kNone: no page
  int oldest_ = kNone, newest_ = kNone, n_unused_cached_ = 0;  // of unused cached pages
};

}  // namespace outrider

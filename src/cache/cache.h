// The cache's bookkeeping, for any device: which page holds which positions of which sequence. It
// moves no keys or values itself; it says what to move. Paging: Kwon et al. 2023, arXiv:2309.06180.
//
// A sequence's text lies in pages of 64, from one pool:
//
//   pages     [0, committed)  history, by position; a page that others use or that is cached is
//                             copied before it is written
//   scratch   [0, slots)      rows of unfinished steps as they were added, in pages of
//                             their own; but a chain that they begin with lies behind history
//                             while its last page has room. Gone at the next commit (its path
//                             moves to history, where it does not lie there), discard or truncate
//
// Where texts are shared, a full page of history is *cached* under its tokens and those before it,
// in its scope: no other cached page says the same. A cached page that no sequence uses is still
// free to be taken, the one that was used longest ago first; until then a text that begins alike
// may reuse it. What a page is cached under is found through a hash and then compared, so a hash
// never decides. A cached page's predecessor is cached, too, and was used at least as lately.
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
  bool shares_texts = false;  // whether pages are cached, so that sequences may reuse them
  // The bits of hashes that are compared; 0 makes all hashes equal (for tests).
  std::uint64_t hash_mask = ~std::uint64_t{0};
};

// Keys and values of `count` neighbouring positions inside one page.
struct CacheRun {
  int page = 0, offset = 0;
  int position = 0;  // of the first
  int count = 0;
};

// Copies that a device must make, in order, before its next forward.
struct CacheCopy {
  int from_page, from_offset;
  int to_page, to_offset;
  int count;
};

constexpr int pages_for(int positions) {
  return (positions + kPagePositions - 1) / kPagePositions;
}

// Pages with which a sequence gets on that is alone, at its longest and with the rows of a step:
// history with a page that is copied before it is written, and scratch.
constexpr int pages_of_one(int context, int rows) {
  return context / kPagePositions + 1 + rows / kPagePositions + 2;
}

class Cache {
 public:
  explicit Cache(const CacheLimits& limits);

  // Pages that a device needs memory for.
  static int n_pages(const CacheLimits& limits);

  // Misuse (an unknown sequence, too many sequences or slots, an invalid path, no page left) fails
  // a CHECK. Only what is returned is allocated, before anything changes: after a std::bad_alloc
  // all is as it was.
  SequenceId begin(CacheScope scope = {});
  void end(SequenceId sequence);
  SequenceId fork(SequenceId sequence);

  // A place for a row whose parent is `parent`, or the committed end. The parent must have been
  // written by at least `layers`.
  SlotId add_slot(SequenceId sequence, Token token, std::optional<SlotId> parent,
                  const LayerSet& layers);

  // The history, which `text` begins with, grows by the cached pages of what follows in `text`,
  // whole pages only; scratch is dropped. Returns the tokens that are committed then.
  int reuse_prefix(SequenceId sequence, std::span<const Token> text);

  // Pages that can be taken, and of these the cached ones.
  int free_pages() const { return static_cast<int>(free_.size()) + n_unused_cached_; }
  int unused_cached_pages() const { return n_unused_cached_; }
  // The most pages that adding n_rows slots to the sequence's scratch and committing n_committed of
  // them can take.
  int pages_wanted(SequenceId sequence, int n_rows, int n_committed) const;

  // See model/backend.h.
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
    // Known: by these, and by its tokens in page_tokens_.
    bool is_cached = false;
    CacheScope scope;
    int before = kNone;  // the cached page with the 64 tokens before; kNone: the text begins here
    std::uint64_t hash = 0;            // of all of that
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
  int find_cached(const CacheScope& scope, int before, std::span<const Token> tokens) const;
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

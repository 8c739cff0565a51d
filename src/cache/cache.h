// The cache's bookkeeping, for any device: which page holds which positions of which sequence. It
// moves no keys or values itself; it says what to move. Paging: Kwon et al. 2023, arXiv:2309.06180.
//
// A sequence's text lies in pages of 64:
//
//   pages     [0, committed)  history, by position; a page may be shared with forks and is copied
//                             before it is written
//   scratch   [0, slots)      rows of unfinished steps as they were added, in pages of
//                             their own; gone at the next commit (but for its path, which moves to
//                             history), discard or truncate
//
// Only what is reached through a sequence's history or a row's ancestors is read, so nothing is
// cleared.

#pragma once

#include <bitset>
#include <optional>
#include <span>
#include <vector>

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

class Cache {
 public:
  explicit Cache(const CacheLimits& limits);

  // Pages that a device needs memory for.
  static int pages_needed(const CacheLimits& limits);

  // Misuse (an unknown sequence, too many sequences or slots, an invalid path) fails a CHECK.
  // Only what is returned is allocated, before anything changes: after a std::bad_alloc all is as
  // it was.
  SequenceId begin();
  void end(SequenceId sequence);
  SequenceId fork(SequenceId sequence);

  // A place for a row whose parent is `parent`, or the committed end. The parent must have been
  // written by at least `layers`.
  SlotId add_slot(SequenceId sequence, std::optional<SlotId> parent, const LayerSet& layers);

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

  // Fails a CHECK unless every page is either free, once, or used as often as its count says;
  // scratch pages belong to one sequence; slots form trees that begin at the committed end; and
  // each slot's ancestors were written by at least its layers.
  void check_integrity() const;

 private:
  struct Slot {
    std::optional<int> parent;
    int position;
    LayerSet layers;
  };
  struct Sequence {  // its vectors have the capacity for all that limits allow
    bool alive = false;
    int committed = 0;
    std::vector<int> pages;
    std::vector<int> scratch_pages;
    std::vector<Slot> slots;
  };

  Sequence& at(SequenceId sequence);
  const Sequence& at(SequenceId sequence) const;
  int take_page();
  void drop_page(int page);

  CacheLimits limits_;
  LayerSet all_layers_;
  std::vector<Sequence> sequences_;
  std::vector<int> uses_;  // of each page
  std::vector<int> free_;  // pages with no use
};

}  // namespace outrider

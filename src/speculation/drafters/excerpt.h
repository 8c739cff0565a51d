// Which tokens of a text a model reads, where it need not know all of it.

#pragma once

#include <algorithm>

namespace outrider {

// The first `kept` tokens of a text and those from `first` on, as if they were adjacent; without a
// gap the whole text. What a model has read of a text's beginning stays in its cache while it tries
// what the end alone tells.
struct Excerpt {
  int kept = 0, first = 0;
  bool operator==(const Excerpt&) const = default;

  bool has_gap() const { return first > kept; }
  // Tokens, of a text with `size`.
  int length(int size) const { return kept + size - first; }
  // Where in the text the excerpt's token at this position is.
  int place(int position) const { return position < kept ? position : position - kept + first; }
  // Of the text's last tokens, those without a gap; the whole text: the largest int.
  int n_known(int size) const;
  // The excerpt with the last n_context tokens that leaves the least to read, if the first n_read
  // of this one have been read: this one or one that begins with the same.
  Excerpt with(int n_context, int size, int n_read) const;
  // Tokens that are left to read then.
  int n_unread(int n_context, int size, int n_read) const;
  // Of the text cut to so many tokens, with which it shares its first n_shared().
  Excerpt cut(int size) const { return size > first ? *this : Excerpt{}; }
  int n_shared(int size) const { return size > first ? length(size) : std::min(kept, size); }
};

}  // namespace outrider

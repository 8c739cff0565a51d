// Which tokens of a text a draft model prefills, where it need not know all of it.

#pragma once

#include <algorithm>

namespace outrider {

// The first `kept` tokens of a text and those from `first` on, as if they were adjacent; without a
// gap the whole text. What a model has computed of a text's beginning stays in its cache while it
// drafts from the end alone.
struct Excerpt {
  int kept = 0, first = 0;
  bool operator==(const Excerpt&) const = default;

  bool has_gap() const { return first > kept; }
  // Tokens, of a text with `size`.
  int length(int size) const { return kept + size - first; }
  // Where in the text the excerpt's token at this position is.
  int place(int position) const { return position < kept ? position : position - kept + first; }
  // How many of the text's last tokens follow the gap; the largest int if there is none.
  int n_known(int size) const;
  // The excerpt with the last n_context tokens that leaves the least to prefill, if the first
  // n_computed of this one are computed: this one or one that begins with the same.
  Excerpt with(int n_context, int size, int n_computed) const;
  // Tokens that are left to prefill then.
  int n_to_prefill(int n_context, int size, int n_computed) const;
  // Of the text cut to so many tokens, with which it shares its first n_shared().
  Excerpt cut(int size) const { return size > first ? *this : Excerpt{}; }
  int n_shared(int size) const { return size > first ? length(size) : std::min(kept, size); }
};

}  // namespace outrider

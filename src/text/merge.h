// Byte-pair merging: Sennrich et al. 2016, arXiv:1508.07909, in O(n log n) for n symbols.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/token.h"

namespace outrider {

struct Symbol {
  Token token;
  std::uint32_t begin, n_bytes;  // its part of the text
};

template <typename Priority>
struct Merge {
  Priority priority;  // less: earlier; of equal ones the leftmost comes first
  Token token;        // what the two symbols become
};

// One thread's working memory, kept from text to text.
template <typename Priority>
class Merger {
 public:
  // Merges neighbours, always the pair that comes first, until no pair merges; appends what is
  // left. find_merge(const Symbol& left, const Symbol& right) gives std::optional<Merge<Priority>>,
  // a function of the two symbols alone. At most 2^31 - 1 symbols and bytes.
  template <typename FindMerge>
  void merge(const std::vector<Symbol>& symbols, FindMerge find_merge, std::vector<Token>& out) {
    nodes_.clear();
    heap_.clear();
    const auto n = static_cast<std::int32_t>(symbols.size());
    for (std::int32_t i = 0; i < n; ++i)
      nodes_.push_back({symbols[i], i - 1, i + 1 < n ? i + 1 : kNone});
    for (std::int32_t i = 0; i + 1 < n; ++i) push_candidate(i, find_merge);
    std::make_heap(heap_.begin(), heap_.end(), later);

    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), later);
      const Candidate best = heap_.back();
      heap_.pop_back();
      Node& left = nodes_[best.left];
      // Symbols only grow, so a pair that still covers as many bytes is the pair that was entered.
      if (left.symbol.n_bytes == 0 || left.next == kNone) continue;
      Node& right = nodes_[left.next];
      if (left.symbol.n_bytes + right.symbol.n_bytes != best.n_bytes) continue;

      left.symbol = {best.token, left.symbol.begin, best.n_bytes};
      right.symbol.n_bytes = 0;
      left.next = right.next;
      if (left.next != kNone) nodes_[left.next].previous = best.left;
      for (const std::int32_t pair : {left.previous, best.left}) {
        if (pair != kNone && push_candidate(pair, find_merge))
          std::push_heap(heap_.begin(), heap_.end(), later);
      }
    }
    for (std::int32_t i = n == 0 ? kNone : 0; i != kNone; i = nodes_[i].next)
      out.push_back(nodes_[i].symbol.token);
  }

 private:
  static constexpr std::int32_t kNone = -1;

  struct Node {
    Symbol symbol;  // n_bytes 0: merged into its left neighbour
    std::int32_t previous, next;
  };
  struct Candidate {
    Priority priority;
    std::int32_t left;      // and the node after it
    std::uint32_t n_bytes;  // of both
    Token token;
  };

  static bool later(const Candidate& a, const Candidate& b) {
    if (b.priority < a.priority) return true;
    if (a.priority < b.priority) return false;
    return a.left > b.left;
  }

  template <typename FindMerge>
  bool push_candidate(std::int32_t left, FindMerge& find_merge) {
    if (nodes_[left].next == kNone) return false;
    const Symbol& a = nodes_[left].symbol;
    const Symbol& b = nodes_[nodes_[left].next].symbol;
    const std::optional<Merge<Priority>> found = find_merge(a, b);
    if (found) heap_.push_back({found->priority, left, a.n_bytes + b.n_bytes, found->token});
    return found.has_value();
  }

  std::vector<Node> nodes_;
  std::vector<Candidate> heap_;
};

}  // namespace outrider

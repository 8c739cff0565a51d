// Drafts from the text itself: where its last tokens occur earlier in prompt or answer, it proposes
// what followed there. Prompt lookup decoding, Saxena 2023,
// https://github.com/apoorvumang/prompt-lookup-decoding; several continuations form a tree.

#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <span>
#include <vector>

#include "speculation/drafter.h"

namespace outrider {

struct LookupOptions {
  std::size_t memory_bytes = std::size_t{256} << 20;  // of one text's index
};

// The positions of one text by the n-gram that ends there, for several n. Appending or removing a
// token touches one entry per n.
class NgramIndex {
 public:
  // The lengths n. A match of another length is found as one of the next smaller length.
  static constexpr int kLengths[] = {1, 2, 3, 4, 6, 8, 12, 16};
  static constexpr std::size_t kClasses = std::size(kLengths);

  // The most bytes that the index of a text of n tokens takes.
  static std::size_t bytes(std::size_t n);

  // Only positions in the first `n_indexed_max` tokens are found. It is the first tokens, so that
  // truncate() gives the index of a text that was never longer.
  explicit NgramIndex(std::size_t n_indexed_max) : n_indexed_max_(n_indexed_max) {}

  void append(std::span<const Token> tokens);
  void truncate(std::size_t length);

  std::span<const Token> text() const { return text_; }

  // Earlier positions p < text().size() with text()[p - n, p) equal to the last n tokens of the
  // text, n = kLengths[length_class]; the most recent first, at most n_max of them.
  std::vector<std::size_t> find(std::size_t length_class, std::size_t n_max) const;

 private:
  // For one n. Position p stands for the n-gram that ends before it; 0 stands for none. A bucket
  // holds the most recent position whose n-gram has its hash; `previous` leads from each position
  // to the one before it in the same bucket.
  struct Table {
    std::vector<std::uint32_t> buckets;
    std::vector<std::uint32_t> previous;  // [positions so far, 0 among them]
  };
  std::size_t bucket(std::size_t length_class, std::size_t end) const;
  void insert(std::size_t position);
  void grow();

  std::size_t n_indexed_max_;
  std::vector<Token> text_;
  Table tables_[kClasses];
  std::size_t n_buckets_ = 0;  // a power of two, of each table
};

class LookupDrafter final : public Drafter {
 public:
  explicit LookupDrafter(LookupOptions options);

  std::string_view name() const override { return "lookup"; }
  void begin(DraftSequence sequence) override;
  void observe(DraftSequence sequence, std::span<const Token> tokens) override;

  // Merges continuations into a tree, those of longer matches first and of equal matches the most
  // recent first, and proposes its most likely nodes. After a match of m tokens the next token has
  // confidence m / (m + 2), and if it is right the match is m + 1 tokens long. A further child of a
  // node has this share of the probability that the earlier children left.
  void propose(std::span<const DraftRequest> requests) override;
  void truncate(DraftSequence sequence, int length) override;
  void end(DraftSequence sequence) override;
  DraftCost cost(int n_texts, int) const override { return {.fixed_ms = n_texts * mean_ms_}; }

 private:
  void propose(const DraftRequest& request) const;

  std::size_t n_indexed_max_;
  std::map<DraftSequence, NgramIndex> texts_;
  double mean_ms_ = 0;  // of a proposal for one text
};

}  // namespace outrider

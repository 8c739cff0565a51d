// Drafts by looking up: where the text's last tokens stood before in prompt or output, what
// followed them then. Prompt lookup decoding, Saxena 2023,
// https://github.com/apoorvumang/prompt-lookup-decoding; several continuations as a tree.

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

// Every position of one text by the n-gram that ends there, for several n. Appending and removing a
// token touches one entry for each n.
class NgramIndex {
 public:
  // Match lengths that are told apart: a longer match counts as the next one below.
  static constexpr int kLengths[] = {1, 2, 3, 4, 6, 8, 12, 16};
  static constexpr std::size_t kClasses = std::size(kLengths);

  // Bytes that a text of n tokens needs at most.
  static std::size_t bytes(std::size_t n);

  // Tokens beyond the first `n_indexed_max` are kept but not found. A text always keeps its first
  // part, so truncation gives what a shorter text would have given.
  explicit NgramIndex(std::size_t n_indexed_max) : n_indexed_max_(n_indexed_max) {}

  void append(std::span<const Token> tokens);
  void truncate(std::size_t length);

  std::span<const Token> text() const { return text_; }

  // Earlier positions p < text().size() with text()[p - n, p) equal to the last n tokens of the
  // text, n = kLengths[length_class]; the most recent first, at most `most` of them.
  std::vector<std::size_t> find(std::size_t length_class, std::size_t most) const;

 private:
  // For one n. Position p stands for the n-gram that ends before it; 0 is none. A bucket holds the
  // most recent position whose n-gram falls into it, `previous` chains to the one before.
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

  // Distinct continuations of the longest match, most recent first, then of shorter matches, merged
  // into a tree; of that the most likely nodes. After a match of m tokens the next one is right
  // with confidence m / (m + 2), and a right one makes the match longer; a later continuation at
  // the same node shares what the earlier ones leave.
  void propose(std::span<const DraftRequest> requests) override;
  void truncate(DraftSequence sequence, int length) override;
  void end(DraftSequence sequence) override;
  DraftCost cost() const override { return {.fixed_ms = mean_ms_}; }

 private:
  void propose(const DraftRequest& request) const;

  std::size_t n_indexed_max_;
  std::map<DraftSequence, NgramIndex> texts_;
  double mean_ms_ = 0;
};

}  // namespace outrider

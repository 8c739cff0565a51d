// Answers to earlier requests, as one text that drafts may come from: the global tree of
// SuffixDecoding, Oliaro et al. 2024, arXiv:2411.04975.

#pragma once

#include <cstddef>
#include <functional>
#include <future>
#include <span>
#include <vector>

#include "speculation/drafters/suffix_text.h"

namespace outrider {

class EarlierAnswers {
 public:
  using Answer = std::vector<Token>;

  struct Options {
    std::size_t memory_bytes;  // of the index; the oldest answers make room
    // Where answers come from and where new ones are kept; null: there are none, none are kept.
    std::function<std::vector<Answer>(std::size_t n_tokens_max)> load = nullptr;  // newest last
    std::function<void(const Answer&)> keep = nullptr;
  };
  explicit EarlierAnswers(Options options);

  // Loads what there is, once. Its index is made on another thread.
  void load();
  // An answer has ended. Short ones and one that is there already are left out. Without memory, or
  // if `keep` throws, it is forgotten.
  void add(std::span<const Token> answer) noexcept;
  // All of them, each with a token after it that no model has. Empty until the index is made.
  const SuffixText& text();
  void wait();  // until then

  // Changes whenever matches that were found in text() become invalid.
  long version() const { return version_; }
  // Forgets the answers in memory. What `keep` has stored stays.
  void forget();

 private:
  struct Index {
    std::vector<Answer> answers;
    std::size_t n_tokens = 0;
    SuffixText text;

    Index(std::span<const Answer> answers, std::size_t memory_bytes);
    void append(const Answer& answer);
  };
  void append(const Answer& answer);
  void take_index();

  const Options options_;
  const std::size_t n_tokens_max_;
  bool was_loaded_ = false;
  std::future<Index> loading_;
  std::vector<Answer> added_;  // while it is loading
  Index index_;
  long version_ = 0;
};

}  // namespace outrider

// Keeps texts that a head is measured with out of what it learns from.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_set>

namespace outrider {

// The 13-grams of words of some texts, the length by which overlap with test sets is usually found
// (Brown et al. 2020, arXiv:2005.14165, appendix C). A word is a run of letters and digits, with
// ASCII letters in lower case; every character beyond ASCII counts as a letter except Unicode's
// general punctuation and ideographic spaces and stops. An ill-formed byte separates words. So
// layout, punctuation and the case of ASCII letters make no difference.
//
// Kept are hashes of 64 bits, which are not compared with the words: a text is taken for shared by
// mistake about once in 10^13 grams asked for if a million are known. Reading is thread-safe.
class SharedPassages {
 public:
  static constexpr std::size_t kWords = 13;

  // A text with fewer words than kWords counts as a whole; one without words adds nothing.
  void add(std::string_view text);

  // Whether one of the text's 13-grams is known, or the whole text if it has fewer words.
  bool shares_passage(std::string_view text) const;

  std::size_t n_passages() const { return hashes_.size(); }

 private:
  std::unordered_set<std::uint64_t> hashes_;
};

}  // namespace outrider

// What a text says about how it goes on: where its end occurred before, and what followed there.
// SuffixDecoding, Oliaro et al. 2024, arXiv:2411.04975.

#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "speculation/drafters/suffix_automaton.h"

namespace outrider {

class SuffixText {
 public:
  // A string of this text that ends a sequence: this one, with or without drafts, or another.
  struct End {
    SuffixAutomaton::Match match;
    bool is_end = false;  // one occurrence ends this text, where nothing follows yet
  };
  struct Guess {
    Token token;
    double probability;
  };
  // A text, and its string that ends a sequence.
  struct Source {
    const SuffixText* text;
    End end;
  };

  // Indexes only its first tokens, as many as fit into memory_bytes.
  explicit SuffixText(std::size_t memory_bytes);

  // Out of memory, the text goes on and nothing is found any more.
  void append(std::span<const Token> tokens);
  void truncate(std::size_t length);

  std::size_t size() const { return tokens_.size(); }
  std::span<const Token> tokens() const { return tokens_; }
  End end() const { return {end_, tokens_.size() <= n_indexed_max_}; }
  End after(End end, Token token) const { return {automaton_.after(end.match, token), false}; }

  // What may follow, the n_max most likely first. The probability of a token after a string of m
  // tokens that occurred c times before, after c' of them followed by this token, is the mean of
  // c' / c, with the weight sqrt(c) m, and of its probability after the next shorter end that
  // occurred more often, with the weight 2.
  std::vector<Guess> guesses(End end, std::size_t n_max) const {
    const Source source{this, end};
    return guesses({&source, 1}, n_max);
  }
  // The same from several texts, whose longer strings come before shorter ones of whatever text.
  static std::vector<Guess> guesses(std::span<const Source> sources, std::size_t n_max);

 private:
  void append(Token token);

  std::size_t n_indexed_max_;
  std::vector<Token> tokens_;
  SuffixAutomaton automaton_;        // of the first n_indexed_max_
  SuffixAutomaton::Match end_ = {};  // the longest end of the text that occurs earlier
};

}  // namespace outrider

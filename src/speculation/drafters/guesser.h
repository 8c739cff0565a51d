// Guesses at what a draft model will say next, from the text and from what it said before. As rows
// of its own pass they let one pass decide several levels of a draft: speculation for the drafter,
// Spector & Re 2023, arXiv:2308.04623 (staged speculative decoding).

#pragma once

#include <array>
#include <span>
#include <vector>

#include "speculation/drafters/successors.h"
#include "speculation/drafters/suffix_text.h"

namespace outrider {

class Guesser {
 public:
  using End = SuffixText::End;
  struct Guess {
    Token token;
    double probability;
    End end;  // with this token
  };

  explicit Guesser(int vocabulary) : successors_(vocabulary) {}

  // What the model may say after `last`, where text and path end so; the most likely first.
  std::vector<Guess> guesses(const SuffixText& text, End end, Token last) const;
  // What it did say there.
  void learn(Token last, std::span<const Candidate> best);
  void forget();

 private:
  static constexpr std::size_t kBranches = 3;  // guesses at one place
  // How often the model said again what it had said first, second and third.
  static constexpr std::array<double, kBranches> kAtFirst{0.4, 0.12, 0.06};

  Successors successors_;
  std::array<double, kBranches> said_again_ = kAtFirst;
};

}  // namespace outrider

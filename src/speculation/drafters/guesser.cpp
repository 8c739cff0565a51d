#include "speculation/drafters/guesser.h"

#include <algorithm>
#include <functional>

namespace outrider {
namespace {

constexpr double kLastOutcome = 0.01;  // its weight in a running mean

}  // namespace

std::vector<Guesser::Guess> Guesser::guesses(const SuffixText& text, End end, Token last) const {
  std::vector<Guess> guesses;
  double left = 1;
  for (const SuffixText::Guess& guess : text.guesses(end, kBranches)) {
    guesses.push_back({guess.token, guess.probability, text.after(end, guess.token)});
    left -= guess.probability;
  }
  const std::span<const Token> successors = successors_.after(last);
  for (std::size_t i = 0; i < std::min(kBranches, successors.size()); ++i) {
    const auto known = std::ranges::find(guesses, successors[i], &Guess::token);
    if (known == guesses.end())
      guesses.push_back({successors[i], left * said_again_[i], text.after(end, successors[i])});
    else
      known->probability += left * said_again_[i];
  }
  std::ranges::stable_sort(guesses, std::greater<>{}, &Guess::probability);
  return guesses;
}

void Guesser::learn(Token last, std::span<const Candidate> best) {
  if (best.empty()) return;
  const std::span<const Token> successors = successors_.after(last);
  for (std::size_t i = 0; i < std::min(kBranches, successors.size()); ++i)
    said_again_[i] += kLastOutcome * ((successors[i] == best[0].token) - said_again_[i]);
  successors_.learn(last, best);
}

void Guesser::forget() {
  successors_.clear();
  said_again_ = kAtFirst;
}

}  // namespace outrider

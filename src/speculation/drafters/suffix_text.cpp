#include "speculation/drafters/suffix_text.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <new>

#include "base/error.h"

namespace outrider {
namespace {

// Followers of one string that are looked at, and ends of a text, from the longest on.
constexpr std::size_t kFollowersMax = 32;
constexpr int kEndsMax = 4;
constexpr int kLongest = 64;    // a match of more tokens tells no more
constexpr double kShorter = 2;  // what shorter ends weigh

}  // namespace

SuffixText::SuffixText(std::size_t memory_bytes)
    : n_indexed_max_(memory_bytes / SuffixAutomaton::kBytesPerToken) {}

void SuffixText::append(std::span<const Token> tokens) {
  for (const Token token : tokens) append(token);
}

void SuffixText::append(Token token) {
  tokens_.push_back(token);
  if (tokens_.size() > n_indexed_max_) {
    end_ = automaton_.after(end_, token);
    return;
  }
  try {
    automaton_.append(token);
    end_ = automaton_.end_before();
  } catch (const std::bad_alloc&) {
    automaton_ = SuffixAutomaton();
    n_indexed_max_ = 0;
    end_ = {};
  }
}

void SuffixText::truncate(std::size_t length) {
  CHECK(length <= tokens_.size());
  for (std::size_t n = std::min(tokens_.size(), n_indexed_max_); n > length; --n)
    automaton_.remove_last();
  tokens_.resize(length);
  end_ = automaton_.end_before();
  for (std::size_t i = n_indexed_max_; i < length; ++i) end_ = automaton_.after(end_, tokens_[i]);
}

std::vector<SuffixText::Guess> SuffixText::guesses(std::span<const Source> sources,
                                                   std::size_t n_max) {
  struct Ends {
    const SuffixAutomaton* automaton;
    End end;  // the longest that was not looked at
    int n_left = kEndsMax;
    int length() const { return n_left > 0 ? end.match.length : 0; }
  };
  std::vector<Ends> ends;
  for (const Source& source : sources) ends.push_back({&source.text->automaton_, source.end});
  std::vector<Guess> guesses;
  double left = 1;
  while (!ends.empty()) {
    Ends& longest = *std::ranges::max_element(ends, {}, &Ends::length);
    if (longest.length() == 0) break;
    const auto& [match, is_end] = longest.end;
    const SuffixAutomaton& automaton = *longest.automaton;
    const double n = std::max(1, automaton.count(match.state) - (is_end ? 1 : 0));
    const double weight = std::sqrt(n) * std::min(match.length, kLongest);
    const double share = left * weight / (weight + kShorter);
    left -= share;
    for (const auto& [token, to] : automaton.followers(match.state, kFollowersMax)) {
      if (token < 0) continue;
      const double probability = share * std::min(1.0, automaton.count(to) / n);
      const auto known = std::ranges::find(guesses, token, &Guess::token);
      if (known != guesses.end())
        known->probability += probability;
      else
        guesses.push_back({token, probability});
    }
    longest.end.match = automaton.shorter(match.state);
    --longest.n_left;
  }
  std::ranges::stable_sort(guesses, std::greater<>{}, &Guess::probability);
  if (guesses.size() > n_max) guesses.resize(n_max);
  return guesses;
}

}  // namespace outrider

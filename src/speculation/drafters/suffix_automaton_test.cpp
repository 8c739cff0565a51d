#include "speculation/drafters/suffix_automaton.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace outrider {
namespace {

using Match = SuffixAutomaton::Match;
using Text = std::vector<Token>;

Text random_text(int n, int n_tokens, std::mt19937& random) {
  Text text;
  for (int i = 0; i < n; ++i) text.push_back(static_cast<Token>(random() % n_tokens));
  return text;
}

// How often `part` stands in the text.
int occurrences(const Text& text, std::span<const Token> part) {
  int n = 0;
  for (std::size_t i = 0; i + part.size() <= text.size(); ++i)
    n += std::equal(part.begin(), part.end(), text.begin() + i);
  return n;
}

// The state of a string, if it occurs.
std::optional<SuffixAutomaton::State> state_of(const SuffixAutomaton& automaton,
                                               std::span<const Token> part) {
  SuffixAutomaton::State state = SuffixAutomaton::kEmpty;
  for (const Token token : part) {
    const auto next = automaton.next(state, token);
    if (!next) return std::nullopt;
    state = *next;
  }
  return state;
}

void check(const SuffixAutomaton& automaton, const Text& text, int n_tokens) {
  // Every string of up to five tokens, whether it occurs or not.
  std::vector<Text> strings{{}};
  for (std::size_t i = 0; i < strings.size(); ++i) {
    const Text& string = strings[i];
    const auto state = state_of(automaton, string);
    const int n = string.empty() ? 1 : occurrences(text, string);
    ASSERT_EQ(state.has_value(), n > 0);
    if (!state) continue;
    if (!string.empty()) {
      ASSERT_EQ(automaton.count(*state), n);
    }
    std::set<Token> followers, expected;
    for (const auto& [token, to] : automaton.followers(*state, 100)) followers.insert(token);
    for (Token token = 0; token < n_tokens; ++token) {
      Text longer = strings[i];
      longer.push_back(token);
      if (occurrences(text, longer) > 0) expected.insert(token);
      if (longer.size() <= 5) strings.push_back(longer);
    }
    ASSERT_EQ(followers, expected);
  }
  // The longest end that occurs before.
  int length = 0;
  for (int n = 1; n < std::ssize(text); ++n)
    if (occurrences(text, std::span(text).last(n)) > 1) length = n;
  ASSERT_EQ(automaton.end_before().length, length);
  ASSERT_EQ(automaton.end_before().state,
            *state_of(automaton, std::span(text).last(static_cast<std::size_t>(length))));
}

TEST(SuffixAutomaton, KnowsEveryStringOfTheText) {
  std::mt19937 random(1);
  for (const int n_tokens : {1, 2, 3}) {
    SuffixAutomaton automaton;
    const Text whole = random_text(40, n_tokens, random);
    for (int n = 1; n <= std::ssize(whole); ++n) {
      automaton.append(whole[n - 1]);
      check(automaton, Text(whole.begin(), whole.begin() + n), n_tokens);
    }
  }
}

TEST(SuffixAutomaton, GivesBackItsLastTokens) {
  std::mt19937 random(2);
  for (int round = 0; round < 30; ++round) {
    SuffixAutomaton automaton;
    Text text;
    for (int i = 0; i < 12; ++i) {
      for (const Token token : random_text(random() % 30, 2, random)) {
        automaton.append(token);
        text.push_back(token);
      }
      for (std::size_t n = random() % (text.size() + 1); n > 0; --n) {
        automaton.remove_last();
        text.pop_back();
      }
      if (!text.empty()) check(automaton, text, 2);
    }
  }
}

TEST(SuffixAutomaton, FollowsAnotherText) {
  SuffixAutomaton automaton;
  for (const Token token : {1, 2, 3, 4, 2, 3, 5}) automaton.append(token);
  Match match;
  std::vector<int> lengths;
  for (const Token token : {7, 1, 2, 3, 5, 4, 2, 3, 5, 1})
    lengths.push_back((match = automaton.after(match, token)).length);
  EXPECT_EQ(lengths, (std::vector<int>{0, 1, 2, 3, 3, 1, 2, 3, 4, 1}));
}

}  // namespace
}  // namespace outrider

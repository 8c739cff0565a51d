#include "speculation/drafters/suffix_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <ostream>
#include <random>

namespace outrider {
namespace {

constexpr std::size_t kTextMemory = std::size_t{1} << 20;

struct Guessed {
  Token token;
  double probability;
  bool operator==(const Guessed&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Guessed& guess) {
    return out << guess.token << " (" << guess.probability << ')';
  }
};

std::vector<Guessed> guesses(const SuffixText& text, SuffixText::End end) {
  std::vector<Guessed> guesses;
  for (const SuffixText::Guess& guess : text.guesses(end, 4))
    guesses.push_back({guess.token, guess.probability});
  return guesses;
}

std::vector<Guessed> guesses(std::span<const Token> tokens) {
  SuffixText text(kTextMemory);
  text.append(tokens);
  return guesses(text, text.end());
}

TEST(SuffixText, ContinuesTheLongestMatch) {
  // "1 2 3" stood at the start, "2 3" later, with another continuation.
  SuffixText text(kTextMemory);
  text.append(std::vector<Token>{1, 2, 3, 4, 5, 9, 2, 3, 6, 1, 2, 3});
  const auto first = text.guesses(text.end(), 4);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].token, 4);
  // "1 2 3" occurred once, with 3 tokens: 3 / (3 + 2) of what follows it, and the rest as after
  // "2 3", which occurred twice, with the weight 2 sqrt(2): half of that. "3" occurred no more
  // often.
  const double twice = 2 * std::sqrt(2.0);
  EXPECT_DOUBLE_EQ(first[0].probability, 3.0 / 5 + 2.0 / 5 * twice / (twice + 2) / 2);
  EXPECT_EQ(first[1].token, 6);
  EXPECT_EQ(guesses(text, text.after(text.end(), first[0].token))[0].token, 5);
  EXPECT_EQ(guesses(text, text.after(text.end(), first[1].token))[0].token, 1);
}

TEST(SuffixText, PrefersWhatFollowedMoreOften) {
  const auto found = guesses(std::vector<Token>{1, 2, 3, 8, 1, 2, 3, 9, 1, 2, 4, 7, 1, 2});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].token, 3);
  EXPECT_EQ(found[1].token, 4);
  EXPECT_DOUBLE_EQ(found[0].probability, 2 * found[1].probability);
}

TEST(SuffixText, HasNothingToSayAboutWhatIsNew) {
  EXPECT_TRUE(guesses(std::vector<Token>{}).empty());
  EXPECT_TRUE(guesses(std::vector<Token>{1, 2, 3}).empty());
}

TEST(SuffixText, ProbabilityGrowsWithTheMatch) {
  double last = 0;
  for (const int n : {1, 2, 3, 4, 6, 8, 12, 16, 32}) {
    std::vector<Token> text;
    for (int i = 0; i < n; ++i) text.push_back(i);
    text.insert(text.end(), {100, 101});
    for (int i = 0; i < n; ++i) text.push_back(i);
    const auto found = guesses(text);
    ASSERT_FALSE(found.empty());
    EXPECT_GT(found[0].probability, last);
    last = found[0].probability;
  }
}

// It guesses what a new one would that was given the same text, whatever happened on the way.
TEST(SuffixText, IsAFunctionOfItsTokens) {
  std::mt19937 random(8);
  for (const std::size_t memory : {kTextMemory, 100 * SuffixAutomaton::kBytesPerToken}) {
    SuffixText text(memory);
    std::vector<Token> tokens;
    for (int round = 0; round < 1000; ++round) {
      if (random() % 5 == 0) {
        tokens.resize(random() % (tokens.size() + 1));
        text.truncate(tokens.size());
      } else {
        std::vector<Token> more(random() % 20);
        for (Token& token : more) token = static_cast<Token>(random() % 4);
        tokens.insert(tokens.end(), more.begin(), more.end());
        text.append(more);
      }
      SuffixText fresh(memory);
      fresh.append(tokens);
      const auto wanted = guesses(fresh, fresh.end());
      ASSERT_EQ(guesses(text, text.end()), wanted);
      double sum = 0;
      for (const Guessed& guess : wanted) sum += guess.probability;
      ASSERT_LE(sum, 1.0001);
    }
  }
}

// A text that outgrows its memory still finds what stood in its first part, and nothing later.
TEST(SuffixText, StaysWithinItsMemory) {
  SuffixText text(200 * SuffixAutomaton::kBytesPerToken);
  text.append(std::vector<Token>{1000, 1001, 1002});
  for (Token token = 0; token < 600; ++token) text.append(std::vector<Token>{token});
  text.append(std::vector<Token>{2000, 2001, 2002, 2000});
  EXPECT_TRUE(guesses(text, text.end()).empty());
  text.append(std::vector<Token>{1000, 1001});
  const auto found = guesses(text, text.end());
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].token, 1002);
}

}  // namespace
}  // namespace outrider

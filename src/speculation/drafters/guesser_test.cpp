#include "speculation/drafters/guesser.h"

#include <gtest/gtest.h>

namespace outrider {
namespace {

std::vector<Token> tokens(const std::vector<Guesser::Guess>& guesses) {
  std::vector<Token> tokens;
  for (const Guesser::Guess& guess : guesses) tokens.push_back(guess.token);
  return tokens;
}

TEST(Guesser, GuessesFromTheTextAndFromWhatWasSaid) {
  SuffixText text(1 << 20);
  text.append(std::vector<Token>{1, 2, 3, 4, 1, 2});
  Guesser guesser(10);
  EXPECT_EQ(tokens(guesser.guesses(text, text.end(), 2)), (std::vector<Token>{3}));
  const Candidate said[] = {{7, 0, 0}, {3, 0, 0}, {8, 0, 0}};
  guesser.learn(2, said);
  const auto both = guesser.guesses(text, text.end(), 2);
  EXPECT_EQ(tokens(both), (std::vector<Token>{3, 7, 8}));
  double sum = 0;
  for (const Guesser::Guess& guess : both) sum += guess.probability;
  EXPECT_LE(sum, 1);
  // Along a path: first of the text, then of what was said alone.
  EXPECT_EQ(tokens(guesser.guesses(text, both[0].end, 3)), (std::vector<Token>{4}));
  EXPECT_TRUE(guesser.guesses(text, both[1].end, 7).empty());
  EXPECT_EQ(tokens(guesser.guesses(text, both[1].end, 2)), (std::vector<Token>{7, 3, 8}));
  guesser.forget();
  EXPECT_EQ(tokens(guesser.guesses(text, text.end(), 2)), (std::vector<Token>{3}));
}

TEST(Guesser, LearnsHowOftenTheSameIsSaidAgain) {
  SuffixText text(1 << 20);
  text.append(std::vector<Token>{1});
  Guesser guesser(10);
  const Candidate one[] = {{7, 0, 0}}, other[] = {{8, 0, 0}};
  const auto probability = [&] { return guesser.guesses(text, text.end(), 1)[0].probability; };
  guesser.learn(1, one);
  const double at_first = probability();
  for (int i = 0; i < 50; ++i) guesser.learn(1, one);
  const double often = probability();
  EXPECT_GT(often, at_first);
  for (int i = 0; i < 100; ++i) guesser.learn(1, i % 2 == 0 ? other : one);
  EXPECT_LT(probability(), often);
  guesser.forget();
  guesser.learn(1, one);
  EXPECT_EQ(probability(), at_first);
}

}  // namespace
}  // namespace outrider

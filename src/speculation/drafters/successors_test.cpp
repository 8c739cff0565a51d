#include "speculation/drafters/successors.h"

#include <gtest/gtest.h>

namespace outrider {
namespace {

std::vector<Candidate> candidates(std::initializer_list<Token> tokens) {
  std::vector<Candidate> candidates;
  for (const Token token : tokens) candidates.push_back({token, 0, 0});
  return candidates;
}

std::vector<Token> after(const Successors& successors, Token token) {
  const auto found = successors.after(token);
  return {found.begin(), found.end()};
}

TEST(Successors, KeepsWhatWasSaidLast) {
  Successors successors(10);
  EXPECT_TRUE(after(successors, 3).empty());
  successors.learn(3, candidates({5, 6, 7}));
  successors.learn(9, candidates({1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(after(successors, 3), (std::vector<Token>{5, 6, 7}));
  EXPECT_EQ(after(successors, 9), (std::vector<Token>{1, 2, 3, 4, 5, 6, 7, 8}));
  successors.learn(3, candidates({6}));
  EXPECT_EQ(after(successors, 3), (std::vector<Token>{6}));
  successors.learn(3, {});
  EXPECT_EQ(after(successors, 3), (std::vector<Token>{6}));
  successors.clear();
  EXPECT_TRUE(after(successors, 3).empty());
  EXPECT_TRUE(after(successors, 9).empty());
}

TEST(Successors, KnowsNothingBeyondTheVocabulary) {
  Successors successors(10);
  for (const Token token : {-1, 10, 1000}) {
    successors.learn(token, candidates({1}));
    EXPECT_TRUE(after(successors, token).empty());
  }
}

}  // namespace
}  // namespace outrider

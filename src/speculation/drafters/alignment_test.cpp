#include "speculation/drafters/alignment.h"

#include <gtest/gtest.h>

#include <ostream>
#include <random>

namespace outrider {
namespace {

std::vector<Token> counting(int first, int end) {
  std::vector<Token> tokens;
  for (int token = first; token < end; ++token) tokens.push_back(token);
  return tokens;
}

// What the prediction says next at the place that is most likely; -1: nothing.
Token next(const Alignment& alignment) {
  const auto places = alignment.places();
  return places.empty() ? -1 : alignment.prediction()[places[0].index];
}

void append(Alignment& alignment, std::span<const Token> tokens) {
  for (const Token token : tokens) alignment.append(token);
}

TEST(Alignment, BeginsAtTheBeginningAndEndsAtTheEnd) {
  const std::vector<Token> prediction = counting(0, 20);
  Alignment alignment(prediction);
  for (const Token token : prediction) {
    EXPECT_EQ(next(alignment), token);
    EXPECT_EQ(alignment.places().size(), 1u);
    alignment.append(token);
  }
  EXPECT_TRUE(alignment.places().empty());
  EXPECT_TRUE(Alignment().places().empty());
}

TEST(Alignment, IsSurerTheLongerItHolds) {
  Alignment alignment(counting(0, 100));
  double last = 0;
  for (Token token = 0; token < 50; ++token) {
    EXPECT_GT(alignment.places()[0].probability, last);
    last = alignment.places()[0].probability;
    alignment.append(token);
  }
  EXPECT_LT(last, 1);
}

struct Change {
  const char* name;
  std::vector<Token> instead;  // of tokens 10, 11 and 12 of 0 to 39
  int n_lost;                  // tokens of the answer after the change that are not the best guess
};

// Where tokens were replaced by as many, left out or inserted, it is back with the first token that
// agrees again; the answer's own tokens tell it.
TEST(Alignment, FindsItselfAgainAfterAChange) {
  const Change changes[] = {
      {"as many", {900, 901, 902}, 0},
      {"one less", {900, 901}, 1},
      {"left out", {}, 1},
      {"inserted", {10, 11, 12, 900, 901}, 1},
      {"one more", {900, 901, 902, 903}, 1},
  };
  const std::vector<Token> prediction = counting(0, 40);
  for (const Change& change : changes) {
    SCOPED_TRACE(change.name);
    Alignment alignment(prediction);
    append(alignment, counting(0, 10));
    append(alignment, change.instead);
    int n_lost = 0;
    for (Token token = 13; token < 40; ++token) {
      n_lost += next(alignment) != token;
      alignment.append(token);
    }
    EXPECT_EQ(n_lost, change.n_lost);
  }
}

// After one other token the likely places are: that it was replaced, and that it was inserted.
TEST(Alignment, HasSeveralPlacesWhereItIsUnsure) {
  Alignment alignment(counting(0, 40));
  append(alignment, counting(0, 10));
  alignment.append(900);
  std::vector<int> places;
  double sum = 0;
  for (const Alignment::Place& place : alignment.places()) {
    places.push_back(place.index);
    sum += place.probability;
  }
  EXPECT_EQ(places, (std::vector<int>{11, 10}));
  EXPECT_LE(sum, 1);
}

// "return x" stands in several functions: the nearest one goes on.
TEST(Alignment, OfEqualPlacesTheNearestCounts) {
  std::vector<Token> prediction;
  for (int function = 0; function < 5; ++function) {
    prediction.insert(prediction.end(), {1, 2, 3});
    for (Token token = 0; token < 10; ++token) prediction.push_back(100 * function + 10 + token);
  }
  Alignment alignment(prediction);
  append(alignment, std::span(prediction).first(2 * 13));  // two functions
  append(alignment, std::vector<Token>{900, 901});
  append(alignment, std::vector<Token>{1, 2});
  EXPECT_EQ(alignment.places()[0].index, 2 * 13 + 2);
}

// Whatever was appended and taken back, it is where a new one would be.
TEST(Alignment, IsAFunctionOfItsTokens) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<Token> prediction(random() % 60), answer;
    for (Token& token : prediction) token = static_cast<Token>(random() % 6);
    Alignment alignment(prediction);
    for (int step = 0; step < 60; ++step) {
      if (random() % 4 == 0) {
        answer.resize(random() % (answer.size() + 1));
        alignment.truncate(static_cast<int>(answer.size()));
      } else {
        answer.push_back(static_cast<Token>(random() % 6));
        alignment.append(answer.back());
      }
      ASSERT_EQ(alignment.size(), std::ssize(answer));
      Alignment fresh(prediction);
      append(fresh, answer);
      const auto got = alignment.places(), wanted = fresh.places();
      ASSERT_EQ(got.size(), wanted.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i].index, wanted[i].index);
        ASSERT_EQ(got[i].probability, wanted[i].probability);
        ASSERT_LT(got[i].index, std::ssize(prediction));
      }
    }
  }
}

}  // namespace
}  // namespace outrider

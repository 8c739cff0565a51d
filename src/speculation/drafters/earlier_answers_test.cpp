#include "speculation/drafters/earlier_answers.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace outrider {
namespace {

using Answer = EarlierAnswers::Answer;

// n tokens from `first` on.
Answer answer(Token first, int n = 10) {
  Answer answer(n);
  for (int i = 0; i < n; ++i) answer[i] = first + i;
  return answer;
}

// Whether the answers hold these tokens.
bool has(EarlierAnswers& earlier, std::span<const Token> tokens) {
  const SuffixText& text = earlier.text();
  SuffixText::End end;
  for (const Token token : tokens) end = text.after(end, token);
  return end.match.length == std::ssize(tokens);
}

constexpr std::size_t kMemory = std::size_t{1} << 20;

TEST(EarlierAnswers, LoadsOnceAndKeepsWhatIsNew) {
  int n_loaded = 0;
  std::vector<Answer> kept;
  EarlierAnswers earlier({.memory_bytes = kMemory,
                          .load =
                              [&](std::size_t) {
                                ++n_loaded;
                                return std::vector<Answer>{answer(100), answer(200)};
                              },
                          .keep = [&](const Answer& answer) { kept.push_back(answer); }});
  EXPECT_FALSE(has(earlier, answer(100)));
  earlier.load();
  earlier.add(answer(300));  // perhaps while the others are loading
  earlier.load();
  earlier.wait();
  for (const Token first : {100, 200, 300}) EXPECT_TRUE(has(earlier, answer(first))) << first;
  EXPECT_EQ(n_loaded, 1);
  EXPECT_EQ(kept, std::vector<Answer>{answer(300)});
}

TEST(EarlierAnswers, LeavesOutShortOnesAndCountsEachOnce) {
  EarlierAnswers earlier({.memory_bytes = kMemory});
  earlier.add(answer(1, 4));
  EXPECT_EQ(earlier.text().size(), 0u);
  earlier.add(answer(1));
  const long version = earlier.version();
  earlier.add(answer(1));
  EXPECT_EQ(earlier.text().size(), 11u);
  EXPECT_EQ(earlier.version(), version);
}

// Whoever ends a text cannot do anything about it.
TEST(EarlierAnswers, WhatCannotBeKeptIsForgotten) {
  EarlierAnswers earlier({.memory_bytes = kMemory, .keep = [](const Answer& answer) {
                            if (answer[0] == 1) throw std::runtime_error("no");
                          }});
  earlier.add(answer(1));
  earlier.add(answer(100));
  EXPECT_FALSE(has(earlier, answer(1)));
  EXPECT_TRUE(has(earlier, answer(100)));
}

// No string of the index runs from one answer into the next, as far as tokens of models go.
TEST(EarlierAnswers, DoNotGoOnInEachOther) {
  EarlierAnswers earlier({.memory_bytes = kMemory});
  earlier.add(answer(100));
  earlier.add(answer(200));
  EXPECT_FALSE(has(earlier, std::vector<Token>{109, 200}));
  const SuffixText& text = earlier.text();
  SuffixText::End end;
  for (const Token token : answer(100)) end = text.after(end, token);
  EXPECT_TRUE(text.guesses(end, 4).empty());
}

TEST(EarlierAnswers, TheOldestMakeRoom) {
  EarlierAnswers earlier({.memory_bytes = 1000 * SuffixAutomaton::kBytesPerToken});
  for (int i = 0; i < 200; ++i) {
    const long version = earlier.version();
    earlier.add(answer(100 * i));
    EXPECT_NE(earlier.version(), version);
    EXPECT_LE(earlier.text().size(), 1000u);
    for (int j = std::max(0, i - 40); j <= i; ++j) EXPECT_TRUE(has(earlier, answer(100 * j))) << j;
  }
  EXPECT_FALSE(has(earlier, answer(0)));
  earlier.add(answer(0, 2000));  // has no room
  EXPECT_LE(earlier.text().size(), 1000u);
  earlier.forget();
  EXPECT_EQ(earlier.text().size(), 0u);
}

}  // namespace
}  // namespace outrider

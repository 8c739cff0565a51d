#include "training/repetition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

namespace outrider {
namespace {

using Text = std::vector<Token>;

// Counts every run of the text anew for each token.
std::optional<std::size_t> slowly(const Text& text) {
  for (std::size_t end = Repetition::kRun; end <= text.size(); ++end) {
    const auto last = text.begin() + (end - Repetition::kRun);
    std::size_t n_occurrences = 0;
    for (auto at = text.begin(); at <= last; ++at) {
      n_occurrences += std::equal(at, at + Repetition::kRun, last);
    }
    if (n_occurrences == 3) return end - Repetition::kRun;
  }
  return {};
}

std::optional<std::size_t> kept(const Text& text) {
  Repetition repetition;
  for (const Token token : text) repetition.push(token);
  return repetition.kept();
}

Text numbers(Token first, std::size_t n) {
  Text text(n);
  std::iota(text.begin(), text.end(), first);
  return text;
}

Text joined(std::initializer_list<Text> parts) {
  Text text;
  for (const Text& part : parts) text.insert(text.end(), part.begin(), part.end());
  return text;
}

TEST(Repetition, EndsBeforeTheThirdOccurrence) {
  const Text run = numbers(100, 16);
  struct Case {
    const char* name;
    Text text;
    std::optional<std::size_t> kept;
  };
  const Case cases[] = {
      {"nothing", {}, {}},
      {"twice", joined({run, {1}, run}), {}},
      {"three times side by side", joined({run, run, run}), 32},
      {"three times with others between", joined({run, {1, 2}, run, {3}, run, {4}}), 35},
      {"15 tokens, three times",
       joined({numbers(100, 15), {1}, numbers(100, 15), {2}, numbers(100, 15), {3}}),
       {}},
      {"one token, 17 times", Text(17, 7), {}},
      {"one token, 18 times: three runs that overlap", Text(18, 7), 2},
      {"a period of two",
       joined({Text{1, 2, 1, 2, 1, 2, 1, 2, 1, 2}, {1, 2, 1, 2, 1, 2, 1, 2, 1, 2}}), 4},
      {"what follows changes nothing", joined({Text(18, 7), run, run, run}), 2},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(kept(c.text), c.kept);
    EXPECT_EQ(slowly(c.text), c.kept);
  }
}

TEST(Repetition, IsSaidWithTheTokenThatCompletesTheThirdOccurrence) {
  Repetition repetition;
  for (int i = 0; i < 17; ++i) EXPECT_FALSE(repetition.push(0)) << i;
  EXPECT_TRUE(repetition.push(0));
  EXPECT_TRUE(repetition.push(1));  // and stays so
}

TEST(Repetition, IsWhatCountingSays) {
  std::mt19937_64 random(1);
  int n_found = 0;
  for (int round = 0; round < 300; ++round) {
    // Parts of one base text, so that some runs come again.
    const Text base = numbers(0, 40);
    Text text;
    while (text.size() < 300) {
      const std::size_t begin = random() % 30, n = 1 + random() % 24;
      text.insert(text.end(), base.begin() + begin,
                  base.begin() + std::min(begin + n, base.size()));
    }
    text.resize(random() % 300);
    SCOPED_TRACE(round);
    EXPECT_EQ(kept(text), slowly(text));
    n_found += kept(text).has_value();
  }
  EXPECT_GT(n_found, 30);
  EXPECT_LT(n_found, 270);
}

}  // namespace
}  // namespace outrider

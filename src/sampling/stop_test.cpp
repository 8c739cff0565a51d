#include "sampling/stop.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "sampling/fake_tokenizer.h"

namespace outrider {
namespace {

struct Answer {
  std::string text;
  std::vector<std::string> pieces;  // after each token
  std::optional<FinishReason> reason;
  std::optional<std::string> stop;
  int n_tokens = 0;
};

Answer answer(const Tokenizer& tokenizer, const StopParams& params,
              const std::vector<Token>& tokens) {
  StopRules rules(tokenizer, params);
  Answer answer;
  for (Token token : tokens) {
    answer.reason = rules.push(token);
    answer.pieces.push_back(rules.take_text());
    answer.text += answer.pieces.back();
    if (answer.reason) break;
  }
  if (!answer.reason) {
    rules.finish();
    answer.text += rules.take_text();
  }
  answer.stop = rules.stopped_by();
  answer.n_tokens = rules.n_tokens();
  return answer;
}

// 0 is the end token; 1 and 2 are the two bytes of é, 3 the first byte of another.
FakeTokenizer tokenizer() {
  FakeTokenizer tokenizer(
      {"", "\xc3", "\xa9", "\xe2", "a", "b", "ab", "STOP", "ST", "OP", "S", "TO", "x"});
  tokenizer.end_tokens = {0};
  return tokenizer;
}

TEST(StopRules, EndsAtTheFirstOfItsRules) {
  const FakeTokenizer words = tokenizer();
  using enum FinishReason;
  struct Case {
    const char* name;
    StopParams params;
    std::vector<Token> tokens;
    std::string text;
    std::optional<FinishReason> reason;
    int n_tokens;
  };
  const Case cases[] = {
      {"an end token shows nothing", {}, {4, 5, 0, 4}, "ab", stop, 3},
      {"an ignored end token is a token", {.ignore_eos = true}, {4, 0, 5}, "ab", {}, 3},
      {"the limit counts tokens", {.n_predict = 2}, {6, 6, 6}, "abab", length, 2},
      {"an end token at the limit", {.n_predict = 2}, {4, 0}, "a", stop, 2},
      {"a stop string in one token", {.texts = {"STOP"}}, {4, 7, 5}, "a", stop, 2},
      {"across tokens", {.texts = {"STOP"}}, {4, 10, 11, 12}, "aSTOx", {}, 4},
      {"across tokens, complete", {.texts = {"STOP"}}, {4, 8, 9, 5}, "a", stop, 3},
      {"at the limit it is a stop", {.n_predict = 3, .texts = {"STOP"}}, {4, 8, 9}, "a", stop, 3},
      {"what was held is shown at the limit",
       {.n_predict = 2, .texts = {"STOP"}},
       {4, 8},
       "aST",
       length,
       2},
      {"and at an end token", {.texts = {"STOP"}}, {4, 8, 0}, "aST", stop, 3},
      {"a start within a false start", {.texts = {"aab"}}, {4, 4, 4, 5}, "a", stop, 4},
      {"of two the one complete first", {.texts = {"abxab", "b"}}, {6, 12, 6}, "a", stop, 1},
      {"complete at once: the longest", {.texts = {"b", "ab"}}, {12, 6}, "x", stop, 2},
      {"within a token, the rest is not shown", {.texts = {"T"}}, {7}, "S", stop, 1},
      {"half a character at the end", {.n_predict = 2}, {4, 1}, "a\xef\xbf\xbd", length, 2},
      {"a stop string of two bytes", {.texts = {"é"}}, {4, 1, 2, 4}, "a", stop, 3},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Answer got = answer(words, c.params, c.tokens);
    EXPECT_EQ(got.text, c.text);
    EXPECT_EQ(got.reason, c.reason);
    EXPECT_EQ(got.n_tokens, c.n_tokens);
  }
}

TEST(StopRules, HoldsBackTheLongestPossiblePrefixAndWholeCharacters) {
  const FakeTokenizer words = tokenizer();
  const Answer got = answer(words, {.texts = {"STOP", "aST"}}, {1, 2, 4, 10, 12, 8, 4});
  // "a" could begin "aST", "aS" too, "x" frees both; "ST" could begin "STOP".
  EXPECT_EQ(got.pieces, (std::vector<std::string>{"", "é", "", "", "aSx", "", "ST"}));
  EXPECT_EQ(got.text, "éaSxSTa");
}

TEST(StopRules, SaysWhichStopStringEndedTheText) {
  const FakeTokenizer words = tokenizer();
  struct Case {
    const char* name;
    StopParams params;
    std::vector<Token> tokens;
    std::optional<std::string> stop;
  };
  const Case cases[] = {
      {"none has", {.texts = {"STOP"}}, {4, 8}, {}},
      {"an end token did", {.texts = {"STOP"}}, {4, 0}, {}},
      {"the limit did", {.n_predict = 1, .texts = {"STOP"}}, {4}, {}},
      {"the second", {.texts = {"x", "STOP"}}, {4, 8, 9}, "STOP"},
      {"the longest of two", {.texts = {"b", "ab"}}, {12, 6}, "ab"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(answer(words, c.params, c.tokens).stop, c.stop);
  }
}

TEST(StopRules, ShowsTheControlTokensThatItIsTold) {
  FakeTokenizer words({"", "a", "<|call|>", "<|end|>", "<|pad|>"});
  words.control = {2, 3, 4};
  words.end_tokens = {3};
  const std::vector<Token> tokens{1, 2, 4, 1, 3};
  EXPECT_EQ(answer(words, {}, tokens).text, "aa");
  const StopParams shown{.shown_tokens = {2, 3}};
  EXPECT_EQ(answer(words, shown, tokens).text, "a<|call|>a");
  EXPECT_EQ(answer(words, shown, tokens).reason, FinishReason::stop);
  // Stop strings are found in it, too.
  EXPECT_EQ(answer(words, {.texts = {"call"}, .shown_tokens = {2}}, tokens).text, "a<|");
}

// Its text is invisible, so that it is in no text.
TEST(StopRules, AStopStringThatIsAControlTokensTextEndsThere) {
  FakeTokenizer words({"", "a", "<|call|>", "<|end|>", "<|pad|>", "<|", "ST"});
  words.control = {2, 3, 4};
  words.end_tokens = {3};
  struct Case {
    const char* name;
    StopParams params;
    std::vector<Token> tokens;
    std::string text;
    std::optional<std::string> stop;
    int n_tokens;
  };
  const Case cases[] = {
      {"hidden", {.texts = {"<|pad|>"}}, {1, 4, 1}, "a", "<|pad|>", 2},
      {"one of several", {.texts = {"x", "<|pad|>"}}, {1, 4, 1}, "a", "<|pad|>", 2},
      {"shown", {.texts = {"<|call|>"}, .shown_tokens = {2}}, {1, 2, 1}, "a", "<|call|>", 2},
      {"an end token", {.texts = {"<|end|>"}}, {1, 3, 1}, "a", "<|end|>", 2},
      {"an end token that is ignored",
       {.texts = {"<|end|>"}, .ignore_eos = true},
       {1, 3, 1},
       "a",
       "<|end|>",
       2},
      {"at the limit", {.n_predict = 2, .texts = {"<|pad|>"}}, {1, 4, 1}, "a", "<|pad|>", 2},
      {"what was held is shown", {.texts = {"STOP", "<|pad|>"}}, {1, 6, 4}, "aST", "<|pad|>", 3},
      {"another", {.texts = {"<|end|>"}}, {1, 4, 1}, "aa", {}, 3},
      {"a part of it", {.texts = {"pad"}}, {1, 4, 1}, "aa", {}, 3},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Answer got = answer(words, c.params, c.tokens);
    EXPECT_EQ(got.text, c.text);
    EXPECT_EQ(got.stop, c.stop);
    EXPECT_EQ(got.n_tokens, c.n_tokens);
    EXPECT_EQ(got.reason.has_value(), c.stop.has_value());
  }
}

TEST(StopRules, SaysHowManyTokensMayCome) {
  const FakeTokenizer words = tokenizer();
  StopRules rules(words, {.n_predict = 2});
  EXPECT_EQ(rules.n_left(), 2);
  rules.push(4);
  EXPECT_EQ(rules.n_left(), 1);
  EXPECT_EQ(StopRules(words, {}).n_left(), std::nullopt);
}

TEST(StopRules, RefusesStopStringsThatAreNoText) {
  const FakeTokenizer words = tokenizer();
  for (const char* stop : {"", "\xa9", "\xc3", "a\xff", "\xed\xa0\x80"})
    EXPECT_THROW(StopRules(words, {.texts = {"a", stop}}), Error) << stop;
}

// However a text is split into tokens, it shows the same and ends for the same reason: compared
// with single letters, over random texts of two letters, where false starts abound.
TEST(StopRules, DoesNotDependOnHowTextFallsIntoTokens) {
  std::vector<std::string> entries{""};
  for (int n = 1; n <= 4; ++n)
    for (int bits = 0; bits < 1 << n; ++bits) {
      std::string entry;
      for (int i = 0; i < n; ++i) entry += bits >> i & 1 ? 'b' : 'a';
      entries.push_back(entry);
    }
  const FakeTokenizer words(entries);
  std::mt19937 random(2);
  const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  int n_stopped = 0;
  for (int round = 0; round < 3000; ++round) {
    StopParams params;
    for (std::size_t i = 0; i < 1 + pick(3); ++i)
      params.texts.push_back(entries[1 + pick(30)] + entries[1 + pick(6)]);
    std::vector<Token> tokens, letters;
    for (std::size_t i = 0; i < pick(10); ++i) {
      tokens.push_back(static_cast<Token>(1 + pick(entries.size() - 1)));
      for (char letter : entries[tokens.back()]) letters.push_back(letter == 'a' ? 1 : 2);
    }
    const Answer whole = answer(words, params, tokens), cut = answer(words, params, letters);
    ASSERT_EQ(whole.text, cut.text);
    ASSERT_EQ(whole.reason, cut.reason);
    ASSERT_EQ(whole.stop, cut.stop);
    n_stopped += whole.reason.has_value();
  }
  EXPECT_GT(n_stopped, 500);
  EXPECT_LT(n_stopped, 2900);
}

}  // namespace
}  // namespace outrider

#include "speculation/draft_vocabulary.h"

#include <gtest/gtest.h>

#include "sampling/fake_tokenizer.h"

namespace outrider {
namespace {

using Tokens = std::vector<Token>;

// Two control tokens, at both ends.
class WithControlTokens final : public FakeTokenizer {
 public:
  WithControlTokens() : FakeTokenizer({"<s>", "a", "b", "c", "d", "e", "</s>"}) {}
  TokenKind kind(Token token) const override {
    return token == 0 || token == 6 ? TokenKind::control : TokenKind::normal;
  }
};

TEST(FrequentTokens, AreThoseOfTheCorpusThenTheLowest) {
  const WithControlTokens tokenizer;
  const Tokens corpus = {5, 4, 5, 2, 5, 4};
  EXPECT_EQ(frequent_tokens(tokenizer, corpus, 3), (Tokens{0, 5, 6}));
  EXPECT_EQ(frequent_tokens(tokenizer, corpus, 4), (Tokens{0, 4, 5, 6}));
  EXPECT_EQ(frequent_tokens(tokenizer, corpus, 5), (Tokens{0, 2, 4, 5, 6}));
  EXPECT_EQ(frequent_tokens(tokenizer, corpus, 6), (Tokens{0, 1, 2, 4, 5, 6}));
  EXPECT_EQ(frequent_tokens(tokenizer, {}, 4), (Tokens{0, 1, 2, 6}));
}

TEST(FrequentTokens, AreAllWhereThereAreNoMore) {
  const WithControlTokens tokenizer;
  const Tokens all = {0, 1, 2, 3, 4, 5, 6};
  EXPECT_EQ(frequent_tokens(tokenizer, {}, 7), all);
  EXPECT_EQ(frequent_tokens(tokenizer, Tokens{3}, 1000), all);
}

// What ends an answer is drafted in any case.
TEST(FrequentTokens, HoldControlTokensFirst) {
  const WithControlTokens tokenizer;
  EXPECT_EQ(frequent_tokens(tokenizer, Tokens{1, 1, 1}, 2), (Tokens{0, 6}));
  EXPECT_EQ(frequent_tokens(tokenizer, Tokens{1, 1, 1}, 1), (Tokens{0}));
}

}  // namespace
}  // namespace outrider

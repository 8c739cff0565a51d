#include "speculation/vocabulary_map.h"

#include <gtest/gtest.h>

#include "sampling/fake_tokenizer.h"

namespace outrider {
namespace {

using Tokens = std::vector<Token>;

Tokens read(const VocabularyMap& map, Token token) {
  const auto own = map.read(token);
  return {own.begin(), own.end()};
}

LoadOptions named(const VocabularyMap& map) {
  LoadOptions options;
  map.name_outputs(options);
  return options;
}

TEST(VocabularyMap, SameBytesAreTheSameToken) {
  const FakeTokenizer target({"a", "b", "ab", "cd", "a", "\xC3", "bcda"});
  const FakeTokenizer draft({"x", "cd", "b", "a", "cd", "c"});
  const VocabularyMap map(target, draft);
  EXPECT_EQ(map.own(0), 3);
  EXPECT_EQ(map.own(1), 2);
  EXPECT_EQ(map.own(2), std::nullopt);
  EXPECT_EQ(map.own(3), 1);  // the lowest
  EXPECT_EQ(map.own(4), 3);
  EXPECT_EQ(map.own(7), std::nullopt);
  EXPECT_EQ(map.own(-1), std::nullopt);
  EXPECT_EQ(named(map).output_ids, (Tokens{1, 2, 3}));
  EXPECT_EQ(named(map).output_names, (Tokens{3, 1, 0}));  // not 4, whose token has a name already
  EXPECT_EQ(named(map).n_names, 7);
  EXPECT_DOUBLE_EQ(map.overlap(), 0.5);
  EXPECT_EQ(map.problem(), std::nullopt);
  EXPECT_EQ(map.first(), std::nullopt);

  EXPECT_EQ(read(map, 1), Tokens{2});
  EXPECT_EQ(read(map, 2), (Tokens{3, 2}));
  EXPECT_EQ(read(map, 5), Tokens{});  // half a character, for which it has nothing
  EXPECT_EQ(read(map, 6), (Tokens{2, 1, 3}));
}

TEST(VocabularyMap, ControlTokensAreTheSameByNameOrPurpose) {
  FakeTokenizer target({"<s>", "<end>", "<turn>", "<tool>", "turn"}),
      draft({"<turn>", "<bos>", "<eos>", "turn", "<tool>"});
  target.control = {0, 1, 2, 3};
  draft.control = {0, 1, 2};
  target.bos = 0;
  target.eos = 1;
  draft.bos = 1;
  draft.eos = 2;
  EXPECT_EQ(VocabularyMap(target, draft).own(0), 1);
  EXPECT_EQ(VocabularyMap(target, draft).own(1), 2);
  EXPECT_EQ(VocabularyMap(target, draft).own(2), 0);
  EXPECT_EQ(VocabularyMap(target, draft).own(3), std::nullopt);  // a user may write the other's
  EXPECT_EQ(read(VocabularyMap(target, draft), 3), Tokens{4});
  EXPECT_EQ(VocabularyMap(target, draft).own(4), 3);
  draft.add_bos = true;
  EXPECT_EQ(VocabularyMap(target, draft).first(), 1);
  target.add_bos = true;
  EXPECT_EQ(VocabularyMap(target, draft).first(), std::nullopt);
}

// As in vocabularies of SentencePiece's kind, where byte tokens come first.
TEST(VocabularyMap, BytesComeLast) {
  class WithBytes final : public FakeTokenizer {
   public:
    using FakeTokenizer::FakeTokenizer;
    TokenKind kind(Token token) const override {
      return token < 2 ? TokenKind::byte : TokenKind::normal;
    }
  };
  const WithBytes target({"a", "b", "c", "a"}), draft({"b", "a", "a", "x"});
  const VocabularyMap map(target, draft);
  EXPECT_EQ(map.own(3), 2);
  EXPECT_EQ(map.own(0), 2);
  EXPECT_EQ(map.own(1), 0);
  EXPECT_EQ(named(map).output_ids, (Tokens{0, 2}));
  EXPECT_EQ(named(map).output_names, (Tokens{1, 3}));
}

TEST(VocabularyMap, SaysThatThereIsTooLittle) {
  const FakeTokenizer target({"a", "b", "c", "d", "e", "f"}), other({"1", "2", "3", "4", "5", "f"}),
      none({"x"});
  EXPECT_EQ(VocabularyMap(target, other).problem(),
            "the vocabularies have 1 tokens in common, 17% of the smaller one");
  EXPECT_EQ(VocabularyMap(target, none).overlap(), 0);
}

}  // namespace
}  // namespace outrider

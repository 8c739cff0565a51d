#include "speculation/vocabulary_map.h"

#include <gtest/gtest.h>

#include "sampling/fake_tokenizer.h"

namespace outrider {
namespace {

std::vector<Token> read(const VocabularyMap& map, Token token) {
  std::vector<Token> own;
  map.read(token, own);
  return own;
}

TEST(VocabularyMap, SameBytesAreTheSameToken) {
  const FakeTokenizer target({"a", "b", "ab", "cd", "a", "\xC3", "\xC3\xA4"});
  const FakeTokenizer draft({"x", "cd", "b", "a", "cd", "c"});
  const VocabularyMap map(target, draft);
  EXPECT_EQ(map.own(0), 3);
  EXPECT_EQ(map.own(1), 2);
  EXPECT_EQ(map.own(2), std::nullopt);
  EXPECT_EQ(map.own(3), 1);  // the lowest
  EXPECT_EQ(map.own(4), 3);
  EXPECT_EQ(map.own(7), std::nullopt);
  EXPECT_EQ(map.own(-1), std::nullopt);
  EXPECT_EQ(map.common(), (std::vector<Token>{0, 1, 3}));  // not 4, whose token has a name already
  EXPECT_EQ(map.own_of_common(), (std::vector<Token>{3, 2, 1}));
  EXPECT_DOUBLE_EQ(map.overlap(), 0.5);
  EXPECT_EQ(map.problem(), std::nullopt);

  EXPECT_EQ(read(map, 1), std::vector<Token>{2});
  EXPECT_EQ(read(map, 2), draft.encode("ab"));
  EXPECT_EQ(read(map, 5), std::vector<Token>{});  // half a character, for which it has nothing
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

#include "training/shared_passages.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

namespace outrider {
namespace {

// "word5 word6 ...", of `n` words.
std::string words(int first, int n) {
  std::string text;
  for (int i = first; i < first + n; ++i) text += fmt::format("word{} ", i);
  return text;
}

TEST(SharedPassages, ThirteenWordsInARowAreShared) {
  SharedPassages measured;
  measured.add(words(0, 40));
  measured.add("How are you?");
  EXPECT_EQ(measured.n_passages(), 29U);
  struct Case {
    const char* name;
    std::string text;
    bool shared;
  };
  const Case cases[] = {
      {"nothing", "", false},
      {"only punctuation", " ... !", false},
      {"the text itself", words(0, 40), true},
      {"its first 13 words", words(0, 13), true},
      {"its last 13 words", words(27, 13), true},
      {"13 words among others", words(100, 20) + words(5, 13) + words(200, 20), true},
      {"12 words among others", words(100, 20) + words(5, 12) + words(200, 20), false},
      {"13 words with one exchanged", words(5, 6) + "other " + words(12, 6), false},
      {"12 words as a whole text: not a text that was added", words(5, 12), false},
      {"a short text", "How are you?", true},
      {"a short text in other letters and layout", "\n HOW,  are\tyou", true},
      {"a short text and a word", "How are you now?", false},
      {"a short text inside a longer one", words(100, 20) + "how are you?", false},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(measured.shares_passage(c.text), c.shared);
  }
}

TEST(SharedPassages, WordsAreLettersAndDigits) {
  struct Case {
    const char* name;
    const char* text;
    const char* other;
    bool shared;
  };
  const Case cases[] = {
      {"punctuation", "a-b_c", "a b c", true},
      {"words run together", "a b", "ab", false},
      {"letters beyond ASCII", "Größe über alles", "größe über alles", true},
      {"a letter beyond ASCII counts", "schön", "schon", false},
      {"quotes and dashes", "\u201Cone\u201D \u2014 two", "one two", true},
      {"an ideographic stop", "\u4F60\u597D\u3002", "\u4F60\u597D", true},
      {"an ill-formed byte", "one\xFFtwo", "one two", true},
      {"order", "two one", "one two", false},
      {"digits", "1 2", "1 3", false},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    SharedPassages measured;
    measured.add(c.text);
    EXPECT_EQ(measured.shares_passage(c.other), c.shared);
  }
}

TEST(SharedPassages, AreNoneAtFirst) {
  SharedPassages measured;
  EXPECT_FALSE(measured.shares_passage(words(0, 20)));
  measured.add(" - ");
  EXPECT_EQ(measured.n_passages(), 0U);
}

}  // namespace
}  // namespace outrider

#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace outrider {
namespace {

using Words = std::vector<std::string>;

Words split(const char* name, std::string_view text) {
  Words words;
  for (const std::string_view word : PreTokenizer(name, "test.gguf").split(text))
    words.emplace_back(word);
  return words;
}

// As the pre-tokenizers of the Python package `tokenizers` cut them.
TEST(PreTokenizer, CutsTextIntoWords) {
  struct Case {
    std::string text;
    Words smollm, qwen2;
  };
  const Case cases[] = {
      {"", {}, {}},
      {"Hello, world", {"Hello", ",", " world"}, {"Hello", ",", " world"}},
      {"x  y", {"x", " ", " y"}, {"x", " ", " y"}},
      {"x  1",
       {"x", "  ", "1"},
       {"x", " ", " ", "1"}},  // SmolLM: a digit ends the text for what is before it
      {"x  ", {"x", "  "}, {"x", "  "}},
      {" 12a", {" ", "1", "2", "a"}, {" ", "1", "2", "a"}},
      {"½Ⅷ٣", {"½", "Ⅷ", "٣"}, {"½", "Ⅷ", "٣"}},
      {"it's IT'S", {"it", "'s", " IT", "'", "S"}, {"it", "'s", " IT", "'S"}},
      {"'The 'llama", {"'", "The", " '", "llama"}, {"'T", "he", " '", "llama"}},
      {"'lla 'ſx", {"'ll", "a", " '", "ſx"}, {"'ll", "a", " '", "ſx"}},
      {"a'ſx", {"a", "'", "ſx"}, {"a", "'ſ", "x"}},  // U+017F is another form of s
      {"(ab) -cd", {"(", "ab", ")", " -", "cd"}, {"(ab", ")", " -", "cd"}},
      {"a;\n\n b", {"a", ";", "\n\n", " b"}, {"a", ";\n\n", " b"}},
      {"a \n \nb", {"a", " \n ", "\n", "b"}, {"a", " \n \n", "b"}},
      {"a\tb", {"a", "\t", "b"}, {"a", "\tb"}},
      {"a\u0085\u0085b", {"a", "\u0085", "\u0085", "b"}, {"a", "\u0085", "\u0085b"}},
      {"a\u180E\u180Eb", {"a", "\u180E\u180E", "b"}, {"a", "\u180E\u180E", "b"}},  // no white space
      {"a\u3000\u2028b", {"a", "\u3000", "\u2028", "b"}, {"a", "\u3000", "\u2028b"}},
      {"e\u0301e\u0301", {"e", "\u0301", "e", "\u0301"}, {"e", "\u0301e", "\u0301"}},
      {"日本語 中文。", {"日本語", " 中文", "。"}, {"日本語", " 中文", "。"}},
      {"😀👍🏽a", {"😀👍🏽", "a"}, {"😀👍🏽", "a"}},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(split("smollm", c.text), c.smollm) << c.text;
    EXPECT_EQ(split("qwen2", c.text), c.qwen2) << c.text;
  }
}

TEST(PreTokenizer, UnknownNamesAreErrorsThatListTheKnown) {
  try {
    const PreTokenizer unknown("gpt-9", "test.gguf");
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    const std::string problem = error.what();
    EXPECT_TRUE(
        problem.starts_with("test.gguf: the pre-tokenizer \"gpt-9\" (tokenizer.ggml.pre) is not "
                            "supported in this version; "
                            "choose a model of one of these, or name one: gpt-2, "))
        << problem;
    EXPECT_NE(problem.find(", llama-bpe, "), problem.npos) << problem;
  }
}

// One step back per space is allowed for, however long the text.
TEST(PreTokenizer, LongRunsOfSpaceStayWithinTheBound) {
  for (const char* name : {"smollm", "qwen2", "gpt-2", "llama-bpe", "tekken", "gpt-4o"}) {
    const std::string spaces(3'000'000, ' ');
    EXPECT_EQ(split(name, spaces + "x"), (Words{spaces.substr(1), " x"})) << name;
    EXPECT_EQ(split(name, "x" + spaces), (Words{"x", spaces})) << name;
  }
}

// So are runs of letters of one case, which two alternatives try.
TEST(PreTokenizer, LongWordsStayWithinTheBound) {
  for (const char* name :
       {"llama-bpe", "tekken", "gpt-4o", "qwen35", "deepseek-llm", "deepseek-v3"}) {
    for (const char* letter : {"a", "A", "日", "\u0301"}) {
      std::string word;
      for (int i = 0; i < 500'000; ++i) word += letter;
      EXPECT_EQ(split(name, word), Words{word}) << name << " " << letter;
    }
  }
}

}  // namespace
}  // namespace outrider

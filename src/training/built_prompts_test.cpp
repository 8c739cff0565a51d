#include "training/built_prompts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "base/utf8.h"

namespace outrider {
namespace {

// Two sentences, of 34 words.
std::string prose(int number) {
  return fmt::format(
      "The package number {} is one of those that can be installed from the archive of the system. "
      "It has a configuration file, which the configuration of the system may change at any time.",
      number);
}

SourceTexts small_sources() {
  SourceTexts texts;
  for (int i = 0; i < 5; ++i) {
    const std::string name = fmt::format("function{}", i);
    texts.functions.push_back(
        {name, "def " + name + "(self, a):", "Return what one gives it.\n\n    As it is."});
  }
  for (int i = 0; i < 12; ++i) {
    texts.paragraphs.push_back(
        {i < 6 ? "What is a package?" : "Package files", prose(i), i % 3 != 0});
  }
  texts.n_python_files = 1;
  texts.n_documents = 2;
  return texts;
}

TEST(BuiltPrompts, AreAFunctionOfTextsAndSeed) {
  BuiltPrompts prompts(small_sources(), 1), again(small_sources(), 1), other(small_sources(), 2);
  int n_equal = 0;
  for (int i = 0; i < 300; ++i) {
    const std::string text = prompts.next().value().text;
    EXPECT_EQ(text, again.next().value().text);
    n_equal += text == other.next().value().text;
  }
  EXPECT_LT(n_equal, 30);
}

TEST(BuiltPrompts, KindsTakeTurnsUntilTheyRunOut) {
  BuiltPrompts prompts(small_sources(), 3);
  for (std::size_t i = 0; i < 5 * kPromptKinds; ++i) {
    EXPECT_EQ(static_cast<std::size_t>(prompts.next().value().kind), i % kPromptKinds) << i;
  }
  std::map<PromptKind, int> n;
  for (int i = 0; i < 3000; ++i) ++n[prompts.next().value().kind];
  EXPECT_LE(n[PromptKind::code], 10);  // three times five functions, five of which are above
  EXPECT_GE(n[PromptKind::code], 5);
  EXPECT_GT(n[PromptKind::chat], 900);
  EXPECT_GT(n[PromptKind::math], 900);
}

TEST(BuiltPrompts, AreDistinctAndHoldTheTexts) {
  const SourceTexts texts = small_sources();
  BuiltPrompts prompts(texts, 4);
  std::set<std::string> seen;
  std::set<std::string> functions;
  std::map<PromptKind, int> n_whole, n;
  for (int i = 0; i < 1000; ++i) {
    const BuiltPrompt prompt = prompts.next().value();
    SCOPED_TRACE(prompt.text);
    EXPECT_TRUE(seen.insert(prompt.text).second);
    EXPECT_TRUE(is_well_formed(prompt.text));
    EXPECT_FALSE(prompt.text.empty());
    EXPECT_LT(prompt.text.size(), 2600U);
    EXPECT_EQ(prompt.text.find_first_of("{}"), prompt.text.npos);
    ++n[prompt.kind];
    for (const Paragraph& paragraph : texts.paragraphs) {
      const bool holds_sentence =
          prompt.text.find(paragraph.text.substr(0, 80)) != std::string::npos;
      const bool is_built = prompt.kind == PromptKind::question ||
                            prompt.kind == PromptKind::summary ||
                            prompt.kind == PromptKind::translation;
      EXPECT_TRUE(is_built || !holds_sentence);
      n_whole[prompt.kind] += prompt.text.find(paragraph.text) != std::string::npos;
    }
    if (prompt.kind == PromptKind::code) {
      EXPECT_NE(prompt.text.find("Return what one gives it."), std::string::npos);
      EXPECT_EQ(prompt.text.find("function ca"), std::string::npos);  // it is a method
    }
  }
  EXPECT_GE(n_whole[PromptKind::question], n[PromptKind::question]);
  EXPECT_GE(n_whole[PromptKind::summary], 2 * n[PromptKind::summary]);  // of 60 words at least
  EXPECT_GT(n_whole[PromptKind::translation], 0);
}

TEST(BuiltPrompts, GoOnWhereAnEarlierProcessEnded) {
  const auto accepts = [](const std::string& text) { return text.size() % 3 != 0; };
  std::vector<std::string> whole;
  BuiltPrompts prompts(small_sources(), 5);
  for (int i = 0; i < 300; ++i) whole.push_back(prompts.next(accepts).value().text);
  for (const std::size_t n_taken : {1U, 60U, 150U, 299U}) {  // texts run out at about a hundred
    BuiltPrompts again(small_sources(), 5);
    for (std::size_t i = 0; i < n_taken; ++i) again.note(whole[i]);
    for (std::size_t i = n_taken; i < whole.size(); ++i)
      ASSERT_EQ(again.next(accepts).value().text, whole[i]) << n_taken << " " << i;
  }
}

// As after an installation of packages.
TEST(BuiltPrompts, GoOnWithOtherTexts) {
  std::set<std::string> seen;
  BuiltPrompts before(small_sources(), 6);
  for (int i = 0; i < 200; ++i) seen.insert(before.next().value().text);
  SourceTexts texts = small_sources();
  texts.paragraphs.insert(texts.paragraphs.begin(), {"Package files", prose(99), false});
  texts.functions.erase(texts.functions.begin());
  BuiltPrompts after(std::move(texts), 6);
  for (const std::string& text : seen) after.note(text);
  std::map<PromptKind, int> n;
  for (int i = 0; i < 200; ++i) {
    const BuiltPrompt prompt = after.next().value();
    EXPECT_TRUE(seen.insert(prompt.text).second) << prompt.text;
    ++n[prompt.kind];
  }
  EXPECT_GT(n[PromptKind::chat], 20);
  EXPECT_GT(n[PromptKind::math], 20);
}

TEST(BuiltPrompts, EndWhereAllAreRefused) {
  BuiltPrompts prompts(small_sources(), 7);
  int n_refused = 0;
  const auto refuses = [&](const std::string&) {
    ++n_refused;
    return false;
  };
  EXPECT_FALSE(prompts.next(refuses));
  EXPECT_GT(n_refused, 300);
  EXPECT_LE(n_refused, 1000);
}

TEST(BuiltPrompts, SayWhatTheyAreBuiltFrom) {
  const BuiltPrompts prompts(small_sources(), 1);
  EXPECT_EQ(prompts.material().n_functions, 5U);
  EXPECT_EQ(prompts.material().n_python_files, 1U);
  EXPECT_EQ(prompts.material().n_paragraphs, 12U);
  EXPECT_EQ(prompts.material().n_documents, 2U);
  EXPECT_GE(prompts.material().n_passages, 4U);
  EXPECT_GE(prompts.material().n_questioned, 4U);
  EXPECT_GE(prompts.material().n_sentences, 12U);
}

TEST(BuiltPrompts, PhrasesAloneAreEnough) {
  BuiltPrompts prompts(SourceTexts{}, 1);
  std::set<PromptKind> kinds;
  for (int i = 0; i < 2000; ++i) kinds.insert(prompts.next().value().kind);
  EXPECT_EQ(kinds,
            (std::set<PromptKind>{PromptKind::chat, PromptKind::math, PromptKind::translation}));
}

TEST(BuiltPrompts, CodeStaysCodeWhateverTheQuotes) {
  SourceTexts texts;
  texts.functions = {{"f", "def f(a):", "Return what is quoted \"so\""}};
  BuiltPrompts prompts(std::move(texts), 1);
  for (int i = 0; i < 30; ++i) {
    const std::string text = prompts.next().value().text;
    EXPECT_EQ(text.find("\"\"\"\""), text.npos) << text;
  }
}

TEST(BuiltPrompts, ThisMachinesTextsGivePrompts) {
  BuiltPrompts prompts(read_sources(TextSources::of_this_machine()), 1);
  for (int i = 0; i < 2000; ++i) {
    const BuiltPrompt prompt = prompts.next().value();
    EXPECT_TRUE(is_well_formed(prompt.text)) << prompt.text;
    EXPECT_LT(prompt.text.size(), 2600U) << prompt.text;
  }
}

}  // namespace
}  // namespace outrider

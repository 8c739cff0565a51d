#include "training/prompt_grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/utf8.h"

namespace outrider {
namespace {

TEST(PromptGrammar, FillsSlots) {
  const SlotValue values[] = {{"text", "a {name} of its own"}, {"empty", ""}};
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SeededRandom random(seed);
    EXPECT_EQ(filled("<{text}|{empty}>", random, values), "<a {name} of its own|>");
    const std::string two = filled("{name}+{name}+{name 2}", random);
    const std::size_t first = two.find('+'), second = two.find('+', first + 1);
    EXPECT_EQ(two.substr(0, first), two.substr(first + 1, second - first - 1));
    EXPECT_NE(two.substr(0, first), two.substr(second + 1));
    const int number = std::stoi(filled("{3-12}", random));
    EXPECT_TRUE(number >= 3 && number <= 12) << number;
    const int step = std::stoi(filled("{10-90:20}", random));
    EXPECT_TRUE(step >= 10 && step <= 90 && step % 20 == 10) << step;
  }
}

TEST(PromptGrammar, GivesAllNumbersOfARange) {
  SeededRandom random(1);
  std::set<std::string> found;
  for (int i = 0; i < 200; ++i) found.insert(filled("{2-4}", random));
  EXPECT_EQ(found, (std::set<std::string>{"2", "3", "4"}));
}

// Slots that no list fills are given by the caller.
TEST(PromptGrammar, EveryPhraseCanBeFilled) {
  const SlotValue values[] = {{"text", "TEXT"},     {"heading", "HEADING"}, {"term", "TERM"},
                              {"what", "function"}, {"code", "CODE"},       {"fenced", "FENCED"},
                              {"doc", "DOC"},       {"function", "NAME"}};
  std::set<std::string_view> names;
  SeededRandom random(1);
  for (const PhraseList& list : prompt_phrases()) {
    EXPECT_TRUE(names.insert(list.name).second) << list.name;
    std::set<std::string_view> phrases;
    for (const std::string_view phrase : list.phrases) {
      SCOPED_TRACE(phrase);
      if (list.name == "sum" || list.name == "exercise") {
        EXPECT_TRUE(phrases.insert(phrase).second);
      }
      for (int i = 0; i < 20; ++i) {
        const std::string text = filled(phrase, random, values);
        EXPECT_EQ(text.find_first_of("{}"), text.npos) << text;
        EXPECT_TRUE(is_well_formed(text));
      }
    }
  }
}

TEST(PromptGrammar, IsTheSameForASeed) {
  SeededRandom random(5), again(5), other(6);
  int n_equal = 0;
  for (int i = 0; i < 50; ++i) {
    const std::string text = phrase_of("chat", random);
    EXPECT_EQ(text, phrase_of("chat", again));
    n_equal += text == phrase_of("chat", other);
  }
  EXPECT_LT(n_equal, 5);
  // What the standard says of the generator: the numbers are those of every system.
  SeededRandom first(5489);
  EXPECT_EQ(first.below(1'000'000'007), 14514284786278117030ULL % 1'000'000'007);
}

}  // namespace
}  // namespace outrider

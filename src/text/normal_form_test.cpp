#include "text/normal_form.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "base/utf8.h"

namespace outrider {
namespace {

// [text, its normal form C] by Python's unicodedata: every character that does not stay as it is,
// every pair that becomes one character, and random runs of both with others between them.
const nlohmann::json& golden_pairs() {
  static const nlohmann::json pairs =
      nlohmann::json::parse(std::ifstream(OUTRIDER_GOLDEN_DIR "/tokenizers/normal_form.json"));
  return pairs;
}

std::string nfc(const std::string& text) {
  return to_nfc(text).value_or(text);
}

TEST(NormalForm, EqualsPythons) {
  ASSERT_GT(golden_pairs().size(), 2500u);
  for (const auto& pair : golden_pairs()) {
    const std::string text = pair[0], expected = pair[1];
    EXPECT_EQ(nfc(text), expected) << text;
    EXPECT_EQ(to_nfc(expected), std::nullopt) << expected;
    EXPECT_EQ(nfc("a" + text + "é日"), nfc("a" + expected) + "é日") << text;
  }
}

TEST(NormalForm, ComposedTextGivesNothing) {
  for (const char* text :
       {"", "plain", "déjà vu", "Größe œ ǅ", "Съешь ещё", "我能吞下玻璃", "한국어", "ภาษาไทย ที่นี่",
        "שָׁלוֹם", "यह एक परीक्षण", "x\u0323\u0301", "😀👍🏽", "\u0301", "\u1161"}) {
    EXPECT_EQ(to_nfc(text), std::nullopt) << text;
  }
}

TEST(NormalForm, ComposesWhatIsApart) {
  struct Case {
    const char *text, *expected;
  };
  const Case cases[] = {
      {"e\u0301", "é"},
      {"cafe\u0301 cafe\u0301", "café café"},
      {"\u212B\u2126\u212A", "ÅΩK"},                     // singletons
      {"a\u0301\u0323", "ạ\u0301"},                      // marks in order, then composed
      {"a\u0301\u0301", "á\u0301"},                      // the second is blocked
      {"a\u0302\u0301", "ấ"},                            // twice
      {"\u1112\u1161\u11AB\u1100\u1173\u11AF", "한글"},  // jamo
      {"\uD558\u11AB", "한"},                            // a syllable and a final
      {"\u0958", "\u0915\u093C"},                        // excluded from composition
      {"\u09C7\u09BE", "\u09CB"},                        // by a character that is no mark
      {"\u0344", "\u0308\u0301"},
      {"\u2000x\u037E", "\u2002x;"},
      {">\u0338", "\u226F"},
  };
  for (const Case& c : cases) EXPECT_EQ(nfc(c.text), c.expected) << c.text;
}

TEST(NormalForm, BytesThatAreNoCharacterStayAndSeparate) {
  struct Case {
    const char *text, *expected;
  };
  const Case cases[] = {
      {"\x80", "\x80"},
      {"e\x80\u0301", "e\x80\u0301"},
      {"\xCC", "\xCC"},
      {"e\u0301\xCC", "é\xCC"},
      {"\xC3\u0301e\u0301", "\xC3\u0301é"},
      {"\xF0\x9F\u0301\u0323", "\xF0\x9F\u0323\u0301"},
      {"\xED\xA0\x80\u0301", "\xED\xA0\x80\u0301"},
      {"\u00E9\x80\u0323", "\u00E9\x80\u0323"},
  };
  for (const Case& c : cases) EXPECT_EQ(nfc(c.text), c.expected) << c.text;
}

// Composing part by part, where a character separates the parts, is composing the whole.
TEST(NormalForm, IsLocalAndStable) {
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    std::string text, expected;
    for (unsigned n = random() % 6; n > 0; --n) {
      const std::string part = golden_pairs()[random() % golden_pairs().size()][random() % 2];
      text += part + "x";
      expected += nfc(part) + "x";
    }
    EXPECT_EQ(nfc(text), expected);
    EXPECT_EQ(to_nfc(expected), std::nullopt) << expected;
  }
}

// Sorting marks by insertion would take minutes.
TEST(NormalForm, LongRunsOfMarksAreNoTrap) {
  std::string text = "a", expected = "ạ";
  constexpr int kMarks = 500'000;
  for (int i = 0; i < kMarks; ++i) text += "\u0301\u0323";
  for (int i = 1; i < kMarks; ++i) expected += "\u0323";
  for (int i = 0; i < kMarks; ++i) expected += "\u0301";
  EXPECT_EQ(nfc(text), expected);
  text.clear();
  for (int i = 0; i < kMarks; ++i) text += "\u1100\u1161";
  EXPECT_EQ(nfc(text).size(), std::size_t{3 * kMarks});
}

}  // namespace
}  // namespace outrider

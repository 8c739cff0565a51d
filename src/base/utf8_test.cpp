#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace outrider {
namespace {

using namespace std::string_literals;

const std::string kR(kReplacementCharacter);

TEST(Utf8, IllFormedTextIsReplacedPerMaximalSubpart) {
  struct Case {
    std::string text, expected;
  };
  const Case cases[] = {
      {"", ""},
      {"a\0b"s, "a\0b"s},
      {"é€😀\xF4\x8F\xBF\xBF", "é€😀\xF4\x8F\xBF\xBF"},
      {"\x80", kR},
      {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41",
       kR + kR + kR + kR + kR + kR + kR + kR + "A"},  // table 3-8
      {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41",
       kR + kR + kR + kR + kR + kR + kR + kR + "A"},  // table 3-9
      {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42",
       kR + kR + kR + kR + kR + "A" + kR + kR + "B"},                     // 3-10
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", kR + kR + kR + kR + "A"},  // 3-11
      {"\xF0\x9F\x98", kR},
      {"\xF0\x9F\x98\xF0\x9F\x98\x80", kR + "😀"},
  };
  for (const Case& c : cases) EXPECT_EQ(well_formed(c.text), c.expected) << c.text;
}

TEST(Utf8, EveryCodePointIsWellFormedExceptSurrogates) {
  for (unsigned code = 0; code < 0x110000; ++code) {
    const int n_more = (code >= 0x80) + (code >= 0x800) + (code >= 0x10000);
    constexpr unsigned kLead[] = {0, 0xC0, 0xE0, 0xF0};
    std::string text(1, static_cast<char>(kLead[n_more] | code >> 6 * n_more));
    for (int i = n_more - 1; i >= 0; --i) {
      text.push_back(static_cast<char>(0x80 | (code >> 6 * i & 63)));
    }
    const Utf8Step step = utf8_step(text);
    const bool surrogate = code >= 0xD800 && code < 0xE000;
    ASSERT_EQ(step.well_formed, !surrogate) << code;
    ASSERT_EQ(step.n_bytes, surrogate ? 1 : text.size()) << code;
    for (std::size_t n = 1; n < text.size() && !surrogate; ++n) {
      ASSERT_EQ(unfinished_suffix(std::string("x").append(text, 0, n)), n) << code;
      ASSERT_EQ(unfinished_suffix(text.substr(n)), 0u) << code;
    }
  }
}

TEST(Utf8, OnlyBytesThatCanStillBecomeACharacterAreUnfinished) {
  EXPECT_EQ(unfinished_suffix(""), 0u);
  EXPECT_EQ(unfinished_suffix("\xE0\x80"), 0u);
  EXPECT_EQ(unfinished_suffix("\xED\xA0"), 0u);
  EXPECT_EQ(unfinished_suffix("\xF4\x90"), 0u);
  EXPECT_EQ(unfinished_suffix("\xC1"), 0u);
  EXPECT_EQ(unfinished_suffix("\xE2\x82\xE2"), 1u);
  EXPECT_EQ(unfinished_suffix("\xF0\x9F\x98\x80\xF0\x9F\x98"), 3u);
}

TEST(Utf8, CharactersAreCounted) {
  EXPECT_EQ(n_characters(""), 0u);
  EXPECT_EQ(n_characters("aé€😀"), 4u);
}

}  // namespace
}  // namespace outrider

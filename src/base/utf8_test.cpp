#include "base/utf8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

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
    ASSERT_EQ(step.code, surrogate ? 0 : code);
    std::string appended = "x";
    append_utf8(appended, code);
    ASSERT_EQ(appended, "x" + text) << code;
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

std::vector<std::uint32_t> codes_forwards(std::string_view text) {
  std::vector<std::uint32_t> codes;
  for (std::size_t at = 0; at < text.size(); at += character_at(text, at).n_bytes)
    codes.push_back(character_at(text, at).code);
  return codes;
}

std::vector<std::uint32_t> codes_backwards(std::string_view text) {
  std::vector<std::uint32_t> codes;
  for (std::size_t end = text.size(); end > 0; end -= character_before(text, end).n_bytes)
    codes.push_back(character_before(text, end).code);
  std::reverse(codes.begin(), codes.end());
  return codes;
}

TEST(Utf8, EachIllFormedByteIsACharacter) {
  struct Case {
    std::string text;
    std::vector<std::uint32_t> codes;
  };
  const auto ill = [](std::uint32_t byte) { return kIllFormed + byte; };
  const Case cases[] = {
      {"", {}},
      {"aé€😀", {'a', 0xE9, 0x20AC, 0x1F600}},
      {"\x80", {ill(0x80)}},
      {"\xC0\xAF", {ill(0xC0), ill(0xAF)}},
      {"\xED\xA0\x80", {ill(0xED), ill(0xA0), ill(0x80)}},
      {"\xF0\x9F\x98", {ill(0xF0), ill(0x9F), ill(0x98)}},
      {"\xF0\x9F\x98\xF0\x9F\x98\x80", {ill(0xF0), ill(0x9F), ill(0x98), 0x1F600}},
      {"é\xA9", {0xE9, ill(0xA9)}},
      {"\xF0\x9F\x98\x80\x80\x80", {0x1F600, ill(0x80), ill(0x80)}},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(codes_forwards(c.text), c.codes) << c.text;
    EXPECT_EQ(codes_backwards(c.text), c.codes) << c.text;
  }
}

TEST(Utf8, AnyBytesComeBackFromTheirCodes) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::string bytes = "a\x80\xA9\xBF\xC0\xC3\xE0\xE2\x82\xAC\xED\xA0\xF0\x9F\xF4\x90\xFF";
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (auto n = random() % 12; n > 0; --n) text += bytes[random() % bytes.size()];
    const std::vector<std::uint32_t> codes = codes_forwards(text);
    ASSERT_EQ(codes_backwards(text), codes) << ::testing::PrintToString(text);
    std::string back;
    for (const std::uint32_t code : codes) append_utf8(back, code);
    ASSERT_EQ(back, text) << ::testing::PrintToString(text);
    ASSERT_EQ(is_well_formed(text), std::all_of(codes.begin(), codes.end(), [](std::uint32_t code) {
                return code < kIllFormed;
              }));
  }
}

}  // namespace
}  // namespace outrider

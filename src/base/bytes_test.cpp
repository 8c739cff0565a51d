#include "base/bytes.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace outrider {
namespace {

TEST(Bytes, AProductThatWrapsIsNothing) {
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  EXPECT_EQ(checked_multiply(kMost / 5, 5), kMost);
  EXPECT_EQ(checked_multiply(kMost / 5 + 1, 5), std::nullopt);
  EXPECT_EQ(checked_multiply(kMost, 0), 0u);
}

TEST(Bytes, ReaderGivesBackWhatTheWriterTook) {
  ByteWriter out;
  out.write(std::uint8_t{7});
  out.pad(4);
  out.write(-5);
  out.write(0.25);
  out.write(std::string_view("abc"));
  ByteReader in(out.bytes(), "f");
  EXPECT_EQ(in.read<std::uint8_t>("a"), 7);
  in.take(3, "padding");
  EXPECT_EQ(in.read<int>("b"), -5);
  EXPECT_EQ(in.read<double>("c"), 0.25);
  EXPECT_EQ(in.remaining(), 3u);
  EXPECT_EQ(in.take(3, "d")[2], std::byte{'c'});
  EXPECT_TRUE(in.take(0, "nothing").empty());
  try {
    in.take(1, "the end");
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "f: the end at byte 19 needs 1 bytes, but the file ends after 0 more; it is cut "
                 "off or damaged, "
                 "fetch it again");
  }
}

TEST(Bytes, PrintableIsOneHarmlessLine) {
  struct Case {
    std::string_view text;
    const char* printed;
  };
  const Case cases[] = {
      {"blk.0.attn_q.weight", "blk.0.attn_q.weight"},
      {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
      {std::string_view("a\0b\n\x1b\x7f", 6), "a\\x00b\\x0a\\x1b\\x7f"},
      {"\"\\", "\\x22\\x5c"},
      {"\xc2\x85", "\\xc2\\x85"},  // U+0085, a control character
      {"\xff\xc3", "\\xff\\xc3"},  // no lead byte; a lead byte at the end
      {"\xc0\x80\xed\xa0\x80", "\\xc0\\x80\\xed\\xa0\\x80"},  // overlong, surrogate
      {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},           // beyond U+10FFFF
      {"\xe0\x80\xaf\xf0\x80\x80\x80", "\\xe0\\x80\\xaf\\xf0\\x80\\x80\\x80"},
  };
  for (const Case& c : cases) EXPECT_EQ(printable(c.text), c.printed);
  EXPECT_EQ(printable("abcdef", 4), "abcd...");
  EXPECT_EQ(printable("abc\xe2\x82\xac", 5), "abc...");  // no half characters
  EXPECT_EQ(printable("abcd", 4), "abcd");
}

}  // namespace
}  // namespace outrider

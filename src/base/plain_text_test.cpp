#include "base/plain_text.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace outrider {
namespace {

using namespace std::string_literals;

TEST(PlainText, IsTheSameWhateverWroteIt) {
  struct Case {
    std::string bytes, text;
  };
  const Case cases[] = {
      {"", ""},
      {"a\nb\n", "a\nb\n"},
      {"a\r\nb\r\n", "a\nb\n"},
      {"\xef\xbb\xbf"
       "a\r\n\r\nb",
       "a\n\nb"},
      {"\xef\xbb\xbf", ""},
      {"\r\n", "\n"},
      {"\r\r\n\n\r", "\r\n\n\r"},  // no CR but that before a LF goes
      {"a\xef\xbb\xbf"
       "b",
       "a\xef\xbb\xbf"
       "b"},  // no mark but the first goes
      {"\xef\xbb\xbf\xef\xbb\xbf", "\xef\xbb\xbf"},
      {"\xef\xbb", "\xef\xbb"},
      {"\0\r\n\xff\xfe"s, "\0\n\xff\xfe"s},
  };
  for (const Case& c : cases) EXPECT_EQ(plain_text(c.bytes, "x"), c.text) << c.bytes;
  EXPECT_EQ(plain_text("\xef\xbb\xbf"
                       "a\r\n",
                       "x", false),
            "\xef\xbb\xbf"
            "a\n");
  EXPECT_EQ(plain_text("\xff\xfe\r\n", "x", false), "\xff\xfe\n");
}

TEST(PlainText, OtherEncodingsAreRefusedByName) {
  for (const auto& [bytes, name] : {std::pair{"\xff\xfe"
                                              "a\0"s,
                                              "UTF-16"},
                                    {"\xfe\xff\0a"s, "UTF-16"},
                                    {"\xff\xfe"s, "UTF-16"},
                                    {"\xff\xfe\0\0a\0\0\0"s, "UTF-32"},
                                    {"\0\0\xfe\xff\0\0\0a"s, "UTF-32"}}) {
    try {
      plain_text(bytes, "notes.txt");
      ADD_FAILURE() << "no Error";
    } catch (const Error& error) {
      EXPECT_EQ(error.what(),
                fmt::format("notes.txt: is {0} by its byte order mark, expected UTF-8; "
                            "iconv -f {0} -t UTF-8 converts it",
                            name));
    }
  }
}

}  // namespace
}  // namespace outrider

#include "jinja/unicode.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <vector>

namespace outrider::jinja {
namespace {

// Python's upper and lower make several characters of these, as SS of a sharp s. Here they stay as
// they are; all others are as by utf8proc.
TEST(Unicode, CaseIsUtf8procsExceptWherePythonWritesSeveralCharacters) {
  struct Case {
    std::uint32_t (*mapped)(std::uint32_t);
    utf8proc_int32_t (*theirs)(utf8proc_int32_t);
    std::vector<std::uint32_t> unchanged;
  };
  const Case cases[] = {
      {to_upper,
       utf8proc_toupper,
       {0x00DF,                                                          // sharp s
        0x1F80, 0x1F81, 0x1F82, 0x1F83, 0x1F84, 0x1F85, 0x1F86, 0x1F87,  // alpha
        0x1F90, 0x1F91, 0x1F92, 0x1F93, 0x1F94, 0x1F95, 0x1F96, 0x1F97,  // eta
        0x1FA0, 0x1FA1, 0x1FA2, 0x1FA3, 0x1FA4, 0x1FA5, 0x1FA6, 0x1FA7,  // omega
        0x1FB3, 0x1FC3, 0x1FF3}},                                        // all with a iota below
      {to_lower, utf8proc_tolower, {0x0130}},                            // I with a dot
  };
  for (const Case& c : cases) {
    std::vector<std::uint32_t> different;
    for (std::uint32_t code = 0; code < kIllFormed; ++code) {
      const auto theirs = static_cast<std::uint32_t>(c.theirs(static_cast<utf8proc_int32_t>(code)));
      if (c.mapped(code) == theirs) continue;
      ASSERT_EQ(c.mapped(code), code);
      different.push_back(code);
    }
    EXPECT_EQ(different, c.unchanged);
  }
}

TEST(Unicode, CaseIsPythons) {
  struct Case {
    std::uint32_t code, upper, lower;
  };
  const Case cases[] = {
      {'a', 'A', 'a'},
      {'Z', 'Z', 'z'},
      {'1', '1', '1'},
      {0xE9, 0xC9, 0xE9},
      {0xFF, 0x178, 0xFF},
      {0xB5, 0x39C, 0xB5},
      {0x131, 'I', 0x131},
      {0x17F, 'S', 0x17F},
      {0x1C5, 0x1C4, 0x1C6},
      {0x3A3, 0x3A3, 0x3C3},
      {0x3C2, 0x3A3, 0x3C2},
      {0x10D0, 0x1C90, 0x10D0},
      {0x13A0, 0x13A0, 0xAB70},
      {0x1E9E, 0x1E9E, 0xDF},
      {0x212A, 0x212A, 'k'},
      {0x2160, 0x2160, 0x2170},
      {0x65E5, 0x65E5, 0x65E5},
      {0x10428, 0x10400, 0x10428},
      {kIllFormed + 0xE9, kIllFormed + 0xE9, kIllFormed + 0xE9},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(to_upper(c.code), c.upper) << c.code;
    EXPECT_EQ(to_lower(c.code), c.lower) << c.code;
  }
}

}  // namespace
}  // namespace outrider::jinja

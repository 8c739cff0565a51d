// What strings can do, keeping each byte's origin (text.h). Indices and lengths count characters,
// as in Python.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "jinja/runtime.h"

namespace outrider::jinja {

// The place of `needle` in text[from:], as bytes; npos if there is none. Takes linear time for any
// input.
std::size_t find_bytes(std::string_view text, std::string_view needle, std::size_t from = 0);

// Without the characters of `characters` (null: white space) at the ends named.
Value strip(Runtime& runtime, const Text& text, const Text* characters, bool left, bool right);

enum class Case {
  upper,
  lower,
  capitalize,   // the first character upper, all others lower
  title,        // str.title: letters after a letter lower, others upper
  title_words,  // the filter `title`: the same after white space, '-' and opening brackets only
};
Value change_case(Runtime& runtime, const Text& text, Case to);

// The first `count` occurrences of `from`, all if negative.
Value replace(Runtime& runtime, const Text& text, const Text& from, const Text& to,
              std::int64_t count);

// str.split and str.rsplit; without a separator at white space. At most `most` splits; no limit if
// negative.
std::vector<Value> split(Runtime& runtime, const Text& text, const Text* separator,
                         std::int64_t most, bool from_right);
// str.splitlines; without line ends.
std::vector<Value> split_lines(Runtime& runtime, const Text& text);

Value join(Runtime& runtime, const Text& separator, std::span<const Value> items);

Value repeat(Runtime& runtime, const Text& text, std::int64_t times);

// text % arguments: %s %r %d %i %u %x %X %o %c %f %e %g %%, with flags, width, precision and
// (names).
Value format_percent(Runtime& runtime, const Text& format, Value arguments);

// int(text, base) and float(text); nothing where Python raises ValueError. Integers beyond 64 bits
// fail in other bases than 10.
std::optional<Value> parse_integer(Runtime& runtime, std::string_view text, int base);
std::optional<double> parse_number(std::string_view text);

// The whole number next to it, towards zero; fails where Python does.
Value truncate_to_integer(Runtime& runtime, double number);

}  // namespace outrider::jinja

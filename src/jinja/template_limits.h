// What a template may cost. Templates come with model files, so they are untrusted programs:
// reaching one of these bounds is an Error with line and column, never a crash, a hang or exhausted
// memory.

#pragma once

#include <cstddef>
#include <cstdint>

namespace outrider::jinja {

struct TemplateLimits {
  // The source; the largest templates in use have some 60 KB.
  std::size_t source_bytes = std::size_t{1} << 20;
  // Nested levels of expressions and of blocks, as the parser counts them; jinja2 itself stops near
  // 100, where Python's parser gives up. A chain such as a + b + c is one level per operator.
  int nesting = 200;
  // Levels of evaluation at run time: nested expressions, statements and calls of macros.
  int depth = 500;
  // Expressions and statements evaluated, items visited, and one more for each 64 bytes of text
  // that an operation reads. The longest conversations need some 100,000; ten million take about a
  // second.
  std::int64_t steps = 10'000'000;
  // Bytes of all values that a rendering makes, added up. They are released together when it ends,
  // so this bounds the memory as well as the time spent on copying. Values may take
  // `value_bytes_per_input_byte` more for each byte of the messages, so that no conversation is too
  // long.
  std::size_t value_bytes = std::size_t{128} << 20;
  std::size_t value_bytes_per_input_byte = 64;
  // Bytes of text written; the bound grows with the input in the same way.
  std::size_t output_bytes = std::size_t{16} << 20;
  std::size_t output_bytes_per_input_byte = 16;
};

// Items of a range(), as in jinja2's sandbox.
inline constexpr std::int64_t kMaxRange = 100'000;

}  // namespace outrider::jinja

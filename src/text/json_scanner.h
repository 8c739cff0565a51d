// Where a JSON value ends, byte by byte, while a model still writes it.

#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace outrider {

// White space, as RFC 8259 has it.
inline constexpr std::string_view kWhite = " \n\r\t";

constexpr bool is_white(char byte) {
  return kWhite.find(byte) != std::string_view::npos;
}

// Follows one value (RFC 8259) as parse_json would read it: the first byte that no value could have
// in its place is refused. Two differences: at most kDepthMax levels of nesting, so that a value
// can be put into a larger one; and control characters in strings, which models write in code, are
// taken as their escapes.
class JsonScanner {
 public:
  static constexpr std::size_t kDepthMax = 48;

  enum class Outcome {
    more,    // the byte belongs to the value, which goes on
    last,    // the byte is the value's last
    beyond,  // the value, a number or a literal, had ended before this byte
    wrong,   // this is no value
  };

  // Appends to `out` what of the value this byte makes known: the byte, or an escape in its place.
  // White space before the value belongs to it. Nothing may follow `last`, `beyond` or `wrong`.
  Outcome push(char byte, std::string& out);

 private:
  enum class At { value, item_or_end, key_or_end, key, colon, next, string, escape, hex, scalar };

  Outcome value(char byte, std::string& out);
  Outcome string(char byte, std::string& out);
  Outcome scalar_end(char byte, std::string& out);
  Outcome close(char byte, std::string& out);
  Outcome open(char byte, At inside, std::string& out);
  Outcome take(char byte, At then, std::string& out);
  Outcome ended();

  At at_ = At::value;
  std::string open_;     // brackets and braces
  bool is_key_ = false;  // the string that is read
  std::string scalar_;   // a number, true, false or null so far
  int n_hex_ = 0;        // of \uXXXX
  unsigned unit_ = 0;    // its value so far
  bool high_ = false;    // the second half of a surrogate pair must follow
};

// The value that is the whole of `text`, white space around it aside; nothing if it is none.
std::optional<std::string> scanned_json(std::string_view text);

}  // namespace outrider

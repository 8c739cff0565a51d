// A template's source as a list of lexemes, with white space control already applied: trim_blocks
// and lstrip_blocks are on and keep_trailing_newline is off, as Hugging Face's tokenizers set them.
// Follows jinja2 3.1.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/position.h"

namespace outrider::jinja {

enum class LexemeKind {
  data,            // text outside of tags; `text` is what it writes
  variable_begin,  // {{
  variable_end,    // }}
  block_begin,     // {%
  block_end,       // %}
  name,
  string,   // `text` is the decoded value
  integer,  // of 64 bits; `text` is a longer one
  number,
  symbol,  // an operator or bracket: `text` is its spelling
  end,     // of the source
};

struct Lexeme {
  LexemeKind kind = LexemeKind::end;
  Position at;
  std::string text;
  std::int64_t integer = 0;
  double number = 0;
};

// The last lexeme is `end`. Throws Error.
std::vector<Lexeme> tokenize(std::string_view source, std::string_view origin);

}  // namespace outrider::jinja

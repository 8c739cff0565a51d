// A model's answer, while it is written, as content, reasoning and tool calls.

#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer_format.h"

namespace outrider {

struct AnswerDelta {
  enum class Kind {
    content,    // text
    reasoning,  // text
    call,       // a call begins; text: its name
    arguments,  // of the call that began last, a JSON object; text: a further piece of it
    call_end,   // the call is complete, and so are its arguments
    call_void,  // it was none after all: its whole text follows as content
  };
  Kind kind;
  std::string text = {};
  int call = 0;  // 0 for the answer's first call, and so on; void ones count

  bool operator==(const AnswerDelta&) const = default;
};

struct AnswerParserOptions {
  // As OpenAI gives them, a JSON list. Empty: no tools, and what looks like a call is content.
  std::string tools = {};
  bool parallel_calls = true;
  std::string begun = {};  // begun_answer()
};

// White space after a delimiter is dropped up to and with its last line end, or all of it if it has
// none. White space before a delimiter is dropped, too, except between content and calls that
// further content follows. Otherwise content is exactly what the model wrote.
//
// Calls come out as soon as name and arguments can be told: arguments byte by byte where the syntax
// has them as JSON after the name, otherwise at their end. Complete arguments are a JSON object
// that parse_json reads; raw control characters in its strings are escaped, and parameters that
// come as tags have the types that the tool's schema gives. What is no call, or ends before its
// arguments do, is content exactly as written, from its delimiter on; the rest of a call's syntax
// after the arguments may be missing.
//
// The deltas, joined, do not depend on how the text falls into pieces. Time is linear in the text's
// length.
class AnswerParser {
 public:
  // Throws Error if `tools` is no list of tools. Keeps nothing of its arguments but rows of the
  // tables.
  AnswerParser(const AnswerFormat& format, const AnswerParserOptions& options);
  ~AnswerParser();
  AnswerParser(AnswerParser&&) noexcept;

  // Well-formed UTF-8, as StopRules gives it. Content and reasoning come out at once but for what
  // may become a delimiter or be the white space before one.
  std::vector<AnswerDelta> push(std::string_view text);
  // The answer has ended. Nothing may be pushed afterwards.
  std::vector<AnswerDelta> finish();

  // Without parallel calls the first complete call ends the answer: what follows is ignored, so
  // generation may stop.
  bool ended() const;

  // Inner steps taken so far, for tests of the time it takes.
  std::size_t n_steps() const;

 private:
  struct Machine;
  std::unique_ptr<Machine> machine_;
};

}  // namespace outrider

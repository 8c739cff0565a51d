// How a model writes its answers: which part is reasoning, which is a tool call. It follows from
// the chat template, and all formats are rows of two tables.

#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/token.h"
#include "text/chat_template.h"
#include "text/template_conventions.h"
#include "text/tokenizer.h"

namespace outrider {

using Texts = std::vector<std::string_view>;

// Reasoning stands at an answer's beginning.
struct ReasoningSyntax {
  std::string_view name;
  Texts marks;          // a template that contains all of these has this format
  Texts opens, closes;  // either of each
  // Delimiters around the content, in formats that have them: not shown either.
  Texts response_opens = {}, response_closes = {};
};

// `opens`, then the call or calls, then `closes`. White space may stand between all parts.
struct ToolSyntax {
  enum class Shape {
    json,   // {"name": NAME, "arguments": {...}} or a list of these; also "tool_name", "parameters"
    named,  // NAME, one of name_ends, {...}
    tagged,  // <function=NAME>, <parameter=KEY> VALUE </parameter> for each, </function>
  };
  std::string_view name;
  Texts marks;
  Shape shape;
  Texts opens;  // any of these begins a call
  // A call may also begin without these, at an answer's beginning or after another call, JSON also
  // between ```json and ```. Then only those of given tools count.
  bool bare = false;
  bool given_only = false;  // only those of given tools count at all: text may well have `opens`
  std::string_view fence = {};     // json: follows opens
  Texts name_ends = {};            // named: what stands between name and arguments
  std::string_view id_begin = {};  // named: between name and name_ends there may be this and an id
  std::string_view answer_name = {};  // named: not a call, but the answer follows
  Texts closes = {};                  // any of these is dropped after calls
  bool lists = false;                 // json: models write a list even of one call
};

std::span<const ReasoningSyntax> reasoning_syntaxes();
std::span<const ToolSyntax> tool_syntaxes();

struct AnswerFormat {
  const ReasoningSyntax* reasoning = nullptr;  // null: none is known
  const ToolSyntax* tools = nullptr;           // null: none is known
  TemplateConventions conventions = {};
};

// The first row of each table whose marks the template names. A syntax of tools must also be able
// to read what the template itself writes of a call, if it writes calls.
AnswerFormat answer_format(const ChatTemplate& chat_template);

// Nothing if tools can be given to the model and its calls be read; else one line that says why
// not.
std::optional<std::string> why_no_calls(const AnswerFormat& format);

// Control tokens that delimit parts of answers, so that the parser must see their text, ascending:
// for StopParams::shown_tokens. `with_tools`: the request gives tools.
std::vector<Token> shown_tokens(const AnswerFormat& format, const Tokenizer& tokenizer,
                                bool with_tools);

// The tokens by which the model begins and ends its reasoning; `open` -1: several, or none.
struct ReasoningTokens {
  Token open, close;
};
// Nothing if no one token ends it. The format knows reasoning.
std::optional<ReasoningTokens> reasoning_tokens(const AnswerFormat& format,
                                                const Tokenizer& tokenizer);

// Whether an answer of which this is the beginning (begun_answer) is in the midst of reasoning.
bool is_reasoning(const AnswerFormat& format, std::string_view begun);

// What of the answer the prompt has written already: "<think>\n", say, or "<think>\n\n</think>\n\n"
// where reasoning is off. Empty: nothing. `prompt`: what the template rendered.
std::string begun_answer(const AnswerFormat& format, std::span<const TextPiece> prompt);

}  // namespace outrider

// The inside of tool calls, byte by byte: a part of AnswerParser.

#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/answer_format.h"
#include "text/answer_parser.h"
#include "text/json_scanner.h"

namespace outrider {

// What comes out, in order; neighbouring pieces of one text are one.
class AnswerDeltas {
 public:
  void add(AnswerDelta::Kind kind, std::string_view text = {});
  std::vector<AnswerDelta> take() { return std::exchange(deltas_, {}); }
  int n_complete() const { return n_complete_; }

 private:
  std::vector<AnswerDelta> deltas_;
  int call_ = 0;  // the one that is or will be written
  int n_complete_ = 0;
};

// The tools of a request.
class GivenTools {
 public:
  // `json`: a list as OpenAI gives it, or empty. Throws Error.
  explicit GivenTools(const std::string& json);

  bool empty() const { return types_.empty(); }
  bool has(const std::string& name) const { return types_.contains(name); }
  // A parameter's value, written as plain text, as JSON of the type that its schema gives.
  std::string argument(const std::string& tool, const std::string& parameter,
                       const std::string& value) const;

 private:
  // By tool and parameter: the schema's types; empty: any.
  std::map<std::string, std::map<std::string, std::vector<std::string>>> types_;
};

// Reads what follows a delimiter that begins a call.
class CallReader {
 public:
  enum class Outcome {
    more,    // the byte belongs to the call
    last,    // and is its last
    answer,  // the byte ends a header after which the answer follows, not a call
    wrong,   // the byte does not fit
  };
  // `open`: the delimiter, if there is one. given_only: other calls than those of `tools` are
  // `wrong`, and so are other keys than those of calls. All must outlive this.
  CallReader(const ToolSyntax& syntax, std::string_view open, bool given_only,
             const GivenTools& tools, AnswerDeltas& out);

  // Whether a bare call may begin with this byte.
  static bool may_begin(const ToolSyntax& syntax, char byte);

  // After `wrong`, `last` and `answer` nothing may be pushed.
  Outcome push(char byte) { return (this->*state_)(byte); }
  // A call has begun to come out and is not complete.
  bool is_begun() const { return begun_; }
  // A call is complete and no other has begun.
  bool is_complete() const { return complete_; }

 private:
  using State = Outcome (CallReader::*)(char);

  // Shape::json
  Outcome fence(char byte);
  Outcome calls(char byte);
  Outcome item(char byte);
  Outcome key_or_end(char byte);
  Outcome key_begin(char byte);
  Outcome key(char byte);
  Outcome colon(char byte);
  Outcome value_begin(char byte);
  Outcome value(char byte);
  Outcome after_value(char byte);
  Outcome after_item(char byte);
  Outcome object_end();
  // Shape::named
  Outcome name(char byte);
  Outcome name_end(char byte);
  Outcome id(char byte);
  Outcome answer_end(char byte);
  Outcome arguments_begin(char byte);
  Outcome arguments(char byte);
  // Shape::tagged
  Outcome function_tag(char byte);
  Outcome function_name(char byte);
  Outcome parameter_tag(char byte);
  Outcome parameter_name(char byte);
  Outcome parameter_value(char byte);

  enum class Match { more, whole, wrong };
  Match match(char byte, std::span<const std::string_view> texts);
  Outcome go(State state);
  bool is_name_known() const;
  void begin();
  void complete();

  const ToolSyntax& syntax_;
  const bool given_only_;
  const GivenTools& tools_;
  AnswerDeltas& out_;
  State state_;
  bool in_list_ = false;
  bool begun_ = false, complete_ = false;
  std::string name_, key_;
  std::string matched_;    // of a literal so far, or the one that is whole
  std::string collected_;  // of a key, a value, arguments before the name
  JsonScanner scanner_;
  // What the value being read is. quoted_arguments: arguments as a string that holds JSON.
  enum class Role { name, arguments, quoted_arguments, other } role_ = Role::other;
  std::vector<std::pair<std::string, std::string>> parameters_;  // tagged; values as JSON
};

}  // namespace outrider

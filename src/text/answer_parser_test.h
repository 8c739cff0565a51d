// Answers for the tests of AnswerParser, and what is true of whatever it makes of any text.

#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/answer_parser.h"

namespace outrider {

inline const ReasoningSyntax* reasoning_syntax(std::string_view name) {
  for (const ReasoningSyntax& row : reasoning_syntaxes())
    if (row.name == name) return &row;
  return nullptr;
}
inline const ToolSyntax* tool_syntax(std::string_view name) {
  for (const ToolSyntax& row : tool_syntaxes())
    if (row.name == name) return &row;
  return nullptr;
}

inline constexpr const char* kTestTools = R"([
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties":
        {"place": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "boolean"},
         "units": {"type": ["string", "null"]}, "range": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
         "more": {"type": "object"}}}}},
    {"type": "function", "function": {"name": "now"}},
    {"type": "function", "function": {"name": "run", "parameters": {"properties": {"code": {"type": "string"}}}}}])";

// The answer in pieces that end at `ends`, ascending, and at its end.
inline std::vector<AnswerDelta> read_answer(const AnswerFormat& format,
                                            const AnswerParserOptions& options,
                                            std::string_view text,
                                            const std::vector<std::size_t>& ends = {}) {
  AnswerParser parser(format, options);
  std::vector<AnswerDelta> out;
  const auto add = [&](std::vector<AnswerDelta> deltas) {
    for (AnswerDelta& delta : deltas) {
      const bool goes_on =
          !out.empty() && out.back().kind == delta.kind &&
          (delta.kind == AnswerDelta::Kind::content || delta.kind == AnswerDelta::Kind::reasoning ||
           delta.kind == AnswerDelta::Kind::arguments);
      if (goes_on)
        out.back().text += delta.text;
      else
        out.push_back(std::move(delta));
    }
  };
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    add(parser.push(text.substr(begin, end - begin)));
    begin = end;
  }
  add(parser.push(text.substr(begin)));
  add(parser.finish());
  return out;
}

struct AnswerParts {
  std::string reasoning, content;
  std::vector<std::pair<std::string, std::string>> calls;  // complete ones: name, arguments

  bool operator==(const AnswerParts&) const = default;
};

// What a client has at the end, which drops void calls.
inline AnswerParts answer_parts(const std::vector<AnswerDelta>& deltas) {
  AnswerParts parts;
  for (const AnswerDelta& delta : deltas) {
    switch (delta.kind) {
      case AnswerDelta::Kind::content: parts.content += delta.text; break;
      case AnswerDelta::Kind::reasoning: parts.reasoning += delta.text; break;
      case AnswerDelta::Kind::call: parts.calls.emplace_back(delta.text, ""); break;
      case AnswerDelta::Kind::arguments: parts.calls.back().second += delta.text; break;
      case AnswerDelta::Kind::call_end: break;
      case AnswerDelta::Kind::call_void: parts.calls.pop_back(); break;
    }
  }
  return parts;
}

namespace answer_check {

// Without white space, and without delimiters, also those that leaving out others makes.
inline std::string bare_text(const AnswerFormat& format, std::string text) {
  std::vector<std::string> parts;
  const auto add = [&](const Texts& texts) {
    parts.insert(parts.end(), texts.begin(), texts.end());
  };
  if (const ReasoningSyntax* row = format.reasoning)
    for (const Texts& texts : {row->opens, row->closes, row->response_opens, row->response_closes})
      add(texts);
  if (const ToolSyntax* row = format.tools; row != nullptr && !row->answer_name.empty())
    parts.push_back(std::string(row->opens[0]) + std::string(row->answer_name));
  const auto is_white = [](char byte) {
    return std::string_view(" \n\r\t").find(byte) != std::string_view::npos;
  };
  std::erase_if(text, is_white);
  for (std::string& part : parts) std::erase_if(part, is_white);
  for (bool found = true; found;) {
    found = false;
    for (const std::string& part : parts) {
      const std::size_t at = text.find(part);
      if (at == text.npos) continue;
      text.erase(at, part.size());
      found = true;
    }
  }
  return text;
}

inline bool is_subsequence(std::string_view part, std::string_view whole) {
  for (const char byte : whole)
    if (!part.empty() && part.front() == byte) part.remove_prefix(1);
  return part.empty();
}

}  // namespace answer_check

// What is wrong with these deltas of `text`, or "".
inline std::string wrong_with(const AnswerFormat& format, const AnswerParserOptions& options,
                              const std::string& text, const std::vector<AnswerDelta>& deltas) {
  using Kind = AnswerDelta::Kind;
  bool is_open = false;
  int n_calls = 0, n_complete = 0;
  std::string shown, content, arguments;
  for (const AnswerDelta& delta : deltas) {
    if (delta.kind == Kind::content || delta.kind == Kind::reasoning) {
      if (is_open) return "text within a call";
      if (delta.text.empty()) return "an empty piece of text";
      shown += delta.text;
      if (delta.kind == Kind::content) content += delta.text;
      continue;
    }
    if (delta.call != n_calls) return "calls are not numbered in order";
    if (is_open == (delta.kind == Kind::call)) return "a call that is not begun and ended once";
    is_open = delta.kind == Kind::call || delta.kind == Kind::arguments;
    if (delta.kind == Kind::call && delta.text.empty()) return "a call without a name";
    if (delta.kind == Kind::call) arguments.clear();
    if (delta.kind == Kind::arguments) arguments += delta.text;
    if (!is_open) ++n_calls;
    if (delta.kind != Kind::call_end) continue;
    ++n_complete;
    if (!arguments.starts_with('{') || !nlohmann::json::accept(arguments))
      return "arguments that are no object: " + arguments;
  }
  if (is_open) return "a call without an end";
  if (!options.parallel_calls && n_complete > 1) return "more than one call";
  if (!answer_check::is_subsequence(shown, text)) return "text that was not written: " + shown;
  // What the prompt has begun belongs to a delimiter, or is none of the answer's.
  const auto is_all = [&](const std::string& written) {
    return answer_check::bare_text(format, shown) == answer_check::bare_text(format, written);
  };
  if (n_complete == 0 && !is_all(text) && !is_all(options.begun + text))
    return "text was lost: " + shown;
  return "";
}

}  // namespace outrider

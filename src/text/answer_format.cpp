#include "text/answer_format.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "formats/parse_json.h"
#include "text/answer_parser.h"
#include "text/json_scanner.h"

namespace outrider {
namespace {

using Shape = ToolSyntax::Shape;

// Whether the parser finds the call that the template wrote.
bool reads(const AnswerFormat& format, const RenderedCall& rendered) {
  std::string question;
  for (const TextPiece& piece : rendered.question) question += piece.text;
  std::string begun = begun_answer(format, rendered.question);
  std::string_view answer = rendered.whole;
  if (answer.starts_with(question)) {
    answer.remove_prefix(question.size());
  } else {
    // What the prompt begins, a call alone has not.
    question.resize(question.size() - std::exchange(begun, {}).size());
    if (answer.starts_with(question)) answer.remove_prefix(question.size());
  }
  const std::string tools = fmt::format(R"([{{"name": "{}", "parameters": {{}}}}])", kProbeName);
  AnswerParser parser(format, {.tools = tools, .begun = begun});
  std::vector<AnswerDelta> deltas = parser.push(answer);
  const std::vector<AnswerDelta> rest = parser.finish();
  deltas.insert(deltas.end(), rest.begin(), rest.end());
  std::string name, arguments;
  for (const AnswerDelta& delta : deltas) {
    if (delta.kind == AnswerDelta::Kind::call) {
      name = delta.text;
      arguments.clear();
    }
    if (delta.kind == AnswerDelta::Kind::arguments) arguments += delta.text;
    if (delta.kind == AnswerDelta::Kind::call_end && name == kProbeName &&
        parse_json(arguments, "arguments") == parse_json(kProbeArguments, "arguments"))
      return true;
  }
  return false;
}

template <typename Row>
bool has_marks(const Row& row, const ChatTemplate& chat_template) {
  return std::ranges::all_of(row.marks,
                             [&](std::string_view mark) { return chat_template.names(mark); });
}

// That stands for one of the texts; -1: none does.
Token token_of_any(const Texts& texts, const Tokenizer& tokenizer) {
  for (const std::string_view text : texts) {
    const TextPiece pieces[] = {{std::string(text), true}};
    const std::vector<Token> tokens = tokenizer.encode(pieces);
    if (tokens.size() == 1) return tokens[0];
  }
  return -1;
}

bool is_in_any(const Texts& texts, std::string_view part) {
  return std::ranges::any_of(
      texts, [&](std::string_view text) { return text.find(part) != std::string_view::npos; });
}

}  // namespace

std::span<const ReasoningSyntax> reasoning_syntaxes() {
  static const ReasoningSyntax kRows[] = {
      {.name = "think and response",  // Granite 3.3
       .marks = {"<think></think>", "<response></response>"},
       .opens = {"<think>"},
       .closes = {"</think>"},
       .response_opens = {"<response>"},
       .response_closes = {"</response>"}},
      {.name = "think",  // DeepSeek-R1, Qwen3, QwQ, SmolLM3, Magistral of 2025-06, Phi-4-reasoning
       .marks = {"</think>"},
       .opens = {"<think>"},
       .closes = {"</think>"}},
      {.name = "THINK",  // Magistral of 2025-07, Ministral 3
       .marks = {"[THINK]"},
       .opens = {"[THINK]"},
       .closes = {"[/THINK]"}},
      {.name = "START_THINKING",  // Command R7B, Command A
       .marks = {"<|START_THINKING|>"},
       .opens = {"<|START_THINKING|>"},
       .closes = {"<|END_THINKING|>"},
       .response_opens = {"<|START_RESPONSE|>", "<|START_TEXT|>"},
       .response_closes = {"<|END_RESPONSE|>", "<|END_TEXT|>"}},
      {.name = "thought process",  // Granite 3.2
       .marks = {"Here is my thought process:", "Here is my response:"},
       .opens = {"Here is my thought process:", "Here's my thought process:"},
       .closes = {"Here is my response:", "Here's my response:"}},
  };
  return kRows;
}

std::span<const ToolSyntax> tool_syntaxes() {
  static const ToolSyntax kRows[] = {
      {.name = "function and parameter tags",  // Qwen3-Coder
       .marks = {"<tool_call>", "<function=", "<parameter="},
       .shape = Shape::tagged,
       .opens = {"<tool_call>", "<function="},
       .closes = {"</tool_call>"}},
      {.name = "function tags",  // Functionary 3.1
       .marks = {"<function", "</function>"},
       .shape = Shape::named,
       .opens = {"<function="},
       .name_ends = {">"},
       .closes = {"</function>"}},
      {.name = ">>>",  // Functionary 3.2
       .marks = {">>>${recipient}", ">>>all"},
       .shape = Shape::named,
       .opens = {">>>"},
       .given_only = true,
       .name_ends = {"\n"},
       .answer_name = "all"},
      {.name = "TOOL_CALLS and ARGS",  // Mistral Small 3.2, Magistral, Devstral, Ministral 3
       .marks = {"[TOOL_CALLS]", "[ARGS]"},
       .shape = Shape::named,
       .opens = {"[TOOL_CALLS]"},
       .name_ends = {"[ARGS]"},
       .id_begin = "[CALL_ID]"},
      {.name = "TOOL_CALLS",  // Mistral 7B 0.3, Nemo, Small to 3.1
       .marks = {"[TOOL_CALLS]"},
       .shape = Shape::json,
       .opens = {"[TOOL_CALLS]"},
       .lists = true},
      {.name = "START_ACTION",  // Command R7B, Command A
       .marks = {"<|START_ACTION|>"},
       .shape = Shape::json,
       .opens = {"<|START_ACTION|>"},
       .closes = {"<|END_ACTION|>"},
       .lists = true},
      {.name = "Action",  // Command-R, R+
       .marks = {"Action:", "```json", "tool_name"},
       .shape = Shape::json,
       .opens = {"Action:"},
       .fence = "```json",
       .closes = {"```"},
       .lists = true},
      {.name = "tool calls begin",  // DeepSeek-R1's distillates
       .marks = {"<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "```json"},
       .shape = Shape::named,
       .opens = {"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>",
                 "<｜tool▁call▁begin｜>function<｜tool▁sep｜>"},
       .name_ends = {"\n```json"},
       .closes = {"```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"}},
      {.name = "|tool_call|",  // Granite 3.0 to 3.3
       .marks = {"<|tool_call|>"},
       .shape = Shape::json,
       .opens = {"<|tool_call|>"},
       .lists = true},
      {.name = "|tool_call| and |/tool_call|",  // Phi-4 mini, whose template names neither
       .marks = {"<|tool|>", "<|/tool|>"},
       .shape = Shape::json,
       .opens = {"<|tool_call|>"},
       .closes = {"<|/tool_call|>"},
       .lists = true},
      {.name = "TOOLCALL",  // Nemotron
       .marks = {"<TOOLCALL>", "</TOOLCALL>"},
       .shape = Shape::json,
       .opens = {"<TOOLCALL>"},
       .closes = {"</TOOLCALL>"},
       .lists = true},
      {.name = "tool_call tags",  // Hermes 2 and 3, Qwen2.5, Qwen3, QwQ, SmolLM3, Granite 4
       .marks = {"<tool_call>", "</tool_call>", "arguments"},
       .shape = Shape::json,
       .opens = {"<tool_call>"},
       .bare = true,
       .closes = {"</tool_call>"}},
      {.name = "JSON with parameters",  // Llama 3.1 to 3.3
       .marks = {R"({"name": )", R"("parameters": )", "<|start_header_id|>"},
       .shape = Shape::json,
       .opens = {"<|python_tag|>"},
       .bare = true},
      {.name = "name and JSON",  // GLM-4 9B chat, GLM-4 0414
       .marks = {"可用工具", "<|observation|>"},
       .shape = Shape::named,
       .opens = {},
       .bare = true,
       .name_ends = {"\n"}},
  };
  return kRows;
}

AnswerFormat answer_format(const ChatTemplate& chat_template) {
  AnswerFormat format;
  format.conventions = template_conventions(chat_template);
  const auto rendered = rendered_call(chat_template, format.conventions);
  for (const ReasoningSyntax& row : reasoning_syntaxes()) {
    if (!has_marks(row, chat_template)) continue;
    format.reasoning = &row;
    break;
  }
  for (const ToolSyntax& row : tool_syntaxes()) {
    format.tools = &row;
    if (has_marks(row, chat_template) && (!rendered || reads(format, *rendered))) return format;
  }
  format.tools = nullptr;
  return format;
}

std::optional<std::string> why_no_calls(const AnswerFormat& format) {
  if (format.conventions.tools == TemplateConventions::Tools::nowhere)
    return "the model's chat template shows it no tools; choose another model or another template";
  if (format.tools == nullptr)
    return "how the model's chat template writes tool calls is not known in this version; choose "
           "another model or another template";
  return std::nullopt;
}

std::vector<Token> shown_tokens(const AnswerFormat& format, const Tokenizer& tokenizer,
                                bool with_tools) {
  Texts texts;
  const auto add = [&](const Texts& more) { texts.insert(texts.end(), more.begin(), more.end()); };
  if (const ReasoningSyntax* row = format.reasoning)
    for (const Texts& more : {row->opens, row->closes, row->response_opens, row->response_closes})
      add(more);
  if (const ToolSyntax* row = format.tools; row != nullptr && with_tools)
    for (const Texts& more : {row->opens, row->closes, row->name_ends, Texts{row->id_begin}})
      add(more);
  std::vector<Token> shown;
  for (Token token = 0; token < tokenizer.size(); ++token) {
    if (tokenizer.kind(token) != TokenKind::control) continue;
    const std::string_view text = tokenizer.text(token);
    if (!text.empty() && is_in_any(texts, text)) shown.push_back(token);
  }
  return shown;
}

std::optional<ReasoningTokens> reasoning_tokens(const AnswerFormat& format,
                                                const Tokenizer& tokenizer) {
  const Token close = token_of_any(format.reasoning->closes, tokenizer);
  if (close == -1) return std::nullopt;
  return ReasoningTokens{token_of_any(format.reasoning->opens, tokenizer), close};
}

bool is_reasoning(const AnswerFormat& format, std::string_view begun) {
  const auto is_in = [&](std::string_view text) { return begun.find(text) != begun.npos; };
  return format.reasoning != nullptr && std::ranges::any_of(format.reasoning->opens, is_in) &&
         std::ranges::none_of(format.reasoning->closes, is_in);
}

std::string begun_answer(const AnswerFormat& format, std::span<const TextPiece> prompt) {
  if (prompt.empty() || !prompt.back().parse_special) return {};
  const std::string_view text = prompt.back().text;
  const auto without_white = [](std::string_view rest) {
    const std::size_t begin = rest.find_first_not_of(kWhite);
    if (begin == rest.npos) return std::string_view();
    return rest.substr(begin, rest.find_last_not_of(kWhite) + 1 - begin);
  };
  if (const ReasoningSyntax* row = format.reasoning) {
    for (const std::string_view open : row->opens) {
      const std::size_t at = text.rfind(open);
      if (at == text.npos) continue;
      const std::string_view rest = without_white(text.substr(at + open.size()));
      if (rest.empty() || std::ranges::find(row->closes, rest) != row->closes.end())
        return std::string(text.substr(at));
    }
  }
  if (const ToolSyntax* row = format.tools; row != nullptr && !row->answer_name.empty())
    for (const std::string_view open : row->opens)
      if (text.ends_with(open)) return std::string(open);
  return {};
}

}  // namespace outrider

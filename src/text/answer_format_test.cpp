#include "text/answer_format.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "text/answer_parser_test.h"

namespace outrider {
namespace {

ChatTemplate make_template(const std::string& source) {
  return ChatTemplate(source, "test", "<s>", "</s>");
}

std::string golden_template(const std::string& name) {
  std::ostringstream out;
  out << std::ifstream(OUTRIDER_SOURCE_DIR "/tests/golden/templates/" + name, std::ios::binary)
             .rdbuf();
  return out.str();
}

// What most templates do with tools, and what they write between messages.
const std::string kTools = "{{ tools | tojson if tools }}";
// Writes calls: `each` of them, of the name and the arguments.
std::string with_calls(const std::string& each) {
  return "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}"
         "{% for call in message.tool_calls or [] %}{% set name = call.function.name %}"
         "{% set arguments = call.function.arguments | tojson %}" +
         each + "{% endfor %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";
}

TEST(AnswerFormat, FollowsFromTheTemplate) {
  struct Case {
    const char* name;
    std::string source;
    const char *reasoning, *tools;  // "": none
    bool can_call;
  };
  const Case cases[] = {
      {"a plain one", golden_template("styles/chatml.jinja"), "", "", false},
      {"Hermes' calls", golden_template("tools/tagged_calls.jinja"), "think", "tool_call tags",
       true},
      {"Mistral's", golden_template("tools/identified_calls.jinja"), "", "TOOL_CALLS", true},
      {"Llama's", golden_template("tools/header_calls.jinja"), "", "JSON with parameters", true},
      {"Command-R's", golden_template("tools/sections.jinja"), "", "Action", true},
      {"calls as no model of the table writes them", golden_template("tools/typed_functions.jinja"),
       "", "", false},
      {"tools that are not shown",
       with_calls(R"(<tool_call>{"name": "{{ name }}", "arguments": {{ arguments }}}</tool_call>)"),
       "", "tool_call tags", false},
      {"calls that are not written",
       kTools + "Write <tool_call>{\"name\": .., \"arguments\": ..}</tool_call>", "",
       "tool_call tags", true},
      {"another syntax between known tags",
       kTools + "{# arguments #}" +
           with_calls("<tool_call>{{ name }}: {{ arguments }}</tool_call>"),
       "", "", false},
      {"Qwen3-Coder",
       kTools + with_calls("<tool_call>\n<function={{ name }}>\n{% for key, value in "
                           "call.function.arguments.items() %}"
                           "<parameter={{ key }}>\n{{ value }}\n</parameter>\n{% endfor "
                           "%}</function>\n</tool_call>"),
       "", "function and parameter tags", true},
      {"Functionary 3.1", kTools + with_calls("<function={{ name }}>{{ arguments }}</function>"),
       "", "function tags", true},
      {"Functionary 3.2",
       kTools + "Write >>>${recipient}, {{ '>>>all' }} to the user" +
           with_calls(">>>{{ name }}\n{{ arguments }}") + "{{ '>>>' if add_generation_prompt }}",
       "", ">>>", true},
      {"Mistral Small 3.2",
       kTools + with_calls("[TOOL_CALLS]{{ name }}[CALL_ID]{{ call.id }}[ARGS]{{ arguments }}"), "",
       "TOOL_CALLS and ARGS", true},
      {"Ministral 3",
       kTools + "[THINK]..[/THINK]" + with_calls("[TOOL_CALLS]{{ name }}[ARGS]{{ arguments }}"),
       "THINK", "TOOL_CALLS and ARGS", true},
      {"Command R7B",
       kTools + "<|START_THINKING|>" +
           with_calls(
               R"(<|START_ACTION|>[{"tool_name": "{{ name }}", "parameters": {{ arguments }}}]<|END_ACTION|>)"),
       "START_THINKING", "START_ACTION", true},
      {"DeepSeek-R1",
       kTools + "{{ '</think>' }}" +
           with_calls("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{{ name "
                      "}}\n```json\n{{ arguments }}\n"
                      "```<｜tool▁call▁end｜><｜tool▁calls▁end｜>") +
           "{{ '<think>\n' if add_generation_prompt }}",
       "think", "tool calls begin", true},
      {"Granite 3.2",
       kTools + "<|tool_call|> Here is my thought process: .. Here is my response: ..",
       "thought process", "|tool_call|", true},
      {"Granite 3.3", kTools + "<|tool_call|> <think></think> <response></response>",
       "think and response", "|tool_call|", true},
      {"Phi-4 mini",
       "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}"
       "{{ '<|tool|>' + message.tools + '<|/tool|>' if message.tools is string }}{% endfor %}",
       "", "|tool_call| and |/tool_call|", true},
      {"Nemotron",
       kTools +
           with_calls(
               R"(<TOOLCALL>[{"name": "{{ name }}", "arguments": {{ arguments }}}]</TOOLCALL>)"),
       "", "TOOLCALL", true},
      {"GLM-4",
       "{% if tools %}# 可用工具 {{ tools | tojson }}{% endif %}{% for message in messages %}"
       "{{ '<|observation|>' if message.role == 'observation' else '<|user|>' }}{{ message.content "
       "}}{% endfor %}",
       "", "name and JSON", true},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const AnswerFormat format = answer_format(make_template(c.source));
    EXPECT_EQ(format.reasoning ? format.reasoning->name : "", c.reasoning);
    EXPECT_EQ(format.tools ? format.tools->name : "", c.tools);
    EXPECT_EQ(!why_no_calls(format), c.can_call);
  }
  for (const ToolSyntax& row : tool_syntaxes())
    EXPECT_TRUE(std::ranges::any_of(cases, [&](const Case& c) { return c.tools == row.name; }))
        << row.name;
}

// A vocabulary of control tokens, but for those that begin with a space. Text is one of its
// entries, or as many tokens 0 as it has bytes.
class Vocabulary final : public Tokenizer {
 public:
  explicit Vocabulary(std::vector<std::string> entries) : entries_(std::move(entries)) {}
  std::vector<Token> encode(std::span<const TextPiece> pieces) const override {
    const auto entry = std::ranges::find(entries_, pieces[0].text);
    if (entry == entries_.end()) return std::vector<Token>(pieces[0].text.size());
    return {static_cast<Token>(entry - entries_.begin())};
  }
  std::string bytes(Token token, bool) const override { return entries_[token]; }
  int size() const override { return static_cast<int>(entries_.size()); }
  TokenKind kind(Token token) const override {
    return entries_[token].starts_with(' ') ? TokenKind::user_defined : TokenKind::control;
  }
  std::string_view text(Token token) const override { return entries_[token]; }

 private:
  std::vector<std::string> entries_;
};

TEST(AnswerFormat, ShowsTheTokensOfItsDelimiters) {
  const Vocabulary vocabulary({"", "<think>", " </think>", "<|im_end|>", "<|tool_call|>",
                               "<|/tool_call|>", "[ARGS]", "[CALL_ID]", "<｜tool▁call▁begin｜>",
                               "<｜tool▁sep｜>"});
  struct Case {
    const char *reasoning, *tools;
    bool with_tools;
    std::vector<Token> expected;
  };
  const Case cases[] = {
      {"", "", true, {}},
      {"think", "", true, {1}},
      {"think", "|tool_call| and |/tool_call|", true, {1, 4, 5}},
      {"think", "|tool_call|", false, {1}},
      {"", "TOOL_CALLS and ARGS", true, {6, 7}},
      {"", "tool calls begin", true, {8, 9}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.reasoning) + ", " + c.tools);
    const AnswerFormat format{reasoning_syntax(c.reasoning), tool_syntax(c.tools)};
    EXPECT_EQ(shown_tokens(format, vocabulary, c.with_tools), c.expected);
  }
}

TEST(AnswerFormat, FindsTheTokensOfReasoning) {
  const Vocabulary tokenizer({"", "<think>", "</think>", "[THINK]"});
  struct Case {
    const char* reasoning;
    Token open, close;  // -1: none
  };
  const Case cases[] = {{"think", 1, 2}, {"THINK", 3, -1}};
  for (const auto& [reasoning, open, close] : cases) {
    SCOPED_TRACE(reasoning);
    const auto tokens = reasoning_tokens({reasoning_syntax(reasoning)}, tokenizer);
    ASSERT_EQ(tokens.has_value(), close != -1);
    if (!tokens) continue;
    EXPECT_EQ(tokens->open, open);
    EXPECT_EQ(tokens->close, close);
  }
  const AnswerFormat format{reasoning_syntax("think")};
  EXPECT_TRUE(is_reasoning(format, "<think>\n"));
  EXPECT_FALSE(is_reasoning(format, "<think>\n\n</think>\n\n"));
  EXPECT_FALSE(is_reasoning(format, ""));
  EXPECT_FALSE(is_reasoning({}, "<think>\n"));
}

TEST(AnswerFormat, FindsWhatThePromptHasBegun) {
  struct Case {
    const char *name, *reasoning, *tools;
    std::vector<TextPiece> prompt;
    std::string expected;
  };
  const Case cases[] = {
      {"nothing", "think", "", {{"<|assistant|>\n", true}}, ""},
      {"no prompt", "think", "", {}, ""},
      {"reasoning", "think", "", {{"Hi", false}, {"<|assistant|>\n<think>\n", true}}, "<think>\n"},
      {"no reasoning",
       "think",
       "",
       {{"<|assistant|><think>\n\n</think>\n\n", true}},
       "<think>\n\n</think>\n\n"},
      {"earlier reasoning", "think", "", {{"<think>x</think>y<|assistant|>", true}}, ""},
      {"a description", "think", "", {{"Use <think>..</think>.<|assistant|>", true}}, ""},
      {"the user's text", "think", "", {{"<|assistant|>", true}, {"<think>\n", false}}, ""},
      {"a recipient", "", ">>>", {{"<|assistant|>>>>", true}}, ">>>"},
      {"calls begin by themselves", "", "tool_call tags", {{"<tool_call>", true}}, ""},
      {"another format", "", "", {{"<think>\n", true}}, ""},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(begun_answer({reasoning_syntax(c.reasoning), tool_syntax(c.tools)}, c.prompt),
              c.expected);
  }
}

// The parser acts on a delimiter as soon as it is whole.
TEST(AnswerFormat, NoDelimiterBeginsAnother) {
  for (const ReasoningSyntax& reasoning : reasoning_syntaxes())
    for (const ToolSyntax& tools : tool_syntaxes()) {
      Texts all;
      for (const Texts& texts : {reasoning.opens, reasoning.closes, reasoning.response_opens,
                                 reasoning.response_closes, tools.opens, tools.closes})
        all.insert(all.end(), texts.begin(), texts.end());
      for (std::size_t i = 0; i < all.size(); ++i)
        for (std::size_t k = 0; k < all.size(); ++k)
          EXPECT_TRUE(i == k || !all[i].starts_with(all[k])) << all[i];
    }
}

}  // namespace
}  // namespace outrider

#include "text/answer_parser.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "base/utf8.h"
#include "formats/parse_json.h"
#include "text/answer_parser_test.h"
#include "text/json_scanner.h"

namespace outrider {

void PrintTo(const AnswerDelta& delta, std::ostream* out) {
  *out << "\n  " << static_cast<int>(delta.kind) << " " << delta.call << " '" << delta.text << "'";
}
void PrintTo(const AnswerParts& parts, std::ostream* out) {
  *out << "\n  reasoning '" << parts.reasoning << "'\n  content   '" << parts.content << "'";
  for (const auto& [name, arguments] : parts.calls) *out << "\n  " << name << " " << arguments;
}

namespace {

using Calls = std::vector<std::pair<std::string, std::string>>;

struct Example {
  const char *name, *reasoning, *tools;
  std::string text;
  AnswerParts expected;
  std::string begun = "";

  AnswerFormat format() const { return {reasoning_syntax(reasoning), tool_syntax(tools)}; }
  AnswerParserOptions options() const { return {.tools = kTestTools, .begun = begun}; }
};

// Answers as models write them, and as they should not.
const std::vector<Example>& examples() {
  static const std::vector<Example> kExamples = {
      // Content
      {"content", "", "", "Hi.\n\n  It is <b>2</b>. \n", {"", "Hi.\n\n  It is <b>2</b>. \n", {}}},
      {"nothing", "think", "tool_call tags", "", {}},
      {"a delimiter's beginning",
       "think",
       "tool_call tags",
       "a <tool_cal",
       {"", "a <tool_cal", {}}},
      {"white space first", "think", "tool_call tags", "\n  x", {"", "\n  x", {}}},
      {"content in an unknown format",
       "",
       "",
       "<tool_call>\n{}\n</tool_call>",
       {"", "<tool_call>\n{}\n</tool_call>", {}}},

      // Reasoning
      {"reasoning",
       "think",
       "",
       "<think>\nOh, 2.\n\nYes.\n</think>\n\nTwo.\n",
       {"Oh, 2.\n\nYes.", "Two.\n", {}}},
      {"begun by the prompt",
       "think",
       "",
       "Oh.\n</think>\n\nTwo.",
       {"Oh.", "Two.", {}},
       "<think>\n"},
      {"ended by the prompt", "think", "", "\nTwo.", {"", "Two.", {}}, "<think>\n\n</think>\n\n"},
      {"on one line", "think", "", "<think> Oh. </think> Two.", {"Oh.", "Two.", {}}},
      {"empty", "think", "", "<think>\n\n</think>\n\nTwo.", {"", "Two.", {}}},
      {"not ended", "think", "", "<think>\nOh </thin", {"Oh </thin", "", {}}},
      {"in the middle it is content",
       "think",
       "",
       "Say <think>\nx</think>",
       {"", "Say <think>\nx</think>", {}}},
      {"a second time it is content",
       "think",
       "",
       "<think>a</think><think>b</think>",
       {"a", "<think>b</think>", {}}},
      {"indented code follows",
       "think",
       "",
       "<think>a</think>\n\n    x = 1\n",
       {"a", "    x = 1\n", {}}},
      {"no calls in it",
       "think",
       "tool_call tags",
       R"(<think>a <tool_call>{"name": "now"}</tool_call></think>b)",
       {R"(a <tool_call>{"name": "now"}</tool_call>)", "b", {}}},
      {"in brackets", "THINK", "", "[THINK]Oh.[/THINK]Two.", {"Oh.", "Two.", {}}},
      {"Granite 3.2",
       "thought process",
       "",
       "Here is my thought process: Oh.\n\nHere is my response: Two.",
       {"Oh.", "Two.", {}}},
      {"Granite 3.3",
       "think and response",
       "",
       "<think>Oh.</think>\n\n<response>Two.</response>\n",
       {"Oh.", "Two.", {}}},
      {"an answer's own tags",
       "think and response",
       "",
       "<think>Oh.</think>See <response>x</response>.",
       {"Oh.", "See <response>x</response>.", {}}},
      {"text after the response",
       "think and response",
       "",
       "<think>Oh.</think><response>Two. </response>\nPS",
       {"Oh.", "Two. </response>PS", {}}},
      {"Command R7B",
       "START_THINKING",
       "START_ACTION",
       "<|START_RESPONSE|>Two.<|END_RESPONSE|>",
       {"", "Two.", {}},
       "<|START_THINKING|><|END_THINKING|>"},

      // Hermes' calls
      {"call",
       "",
       "tool_call tags",
       "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"place\": \"Zürich\", \"days\": "
       "2}}\n</tool_call>",
       {"", "", {{"get_weather", R"({"place": "Zürich", "days": 2})"}}}},
      {"text and two calls",
       "think",
       "tool_call tags",
       "<think>\nHm.\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"now\", \"arguments\": "
       "{}}\n</tool_call>\n"
       "<tool_call>\n{\"name\": \"run\", \"arguments\": {\"code\": "
       "\"}\\\"</tool_call>\\u00e9\"}}\n</tool_call>\n",
       {"Hm.", "I look.", {{"now", "{}"}, {"run", R"({"code": "}\"</tool_call>\u00e9"})"}}}},
      {"text after a call",
       "",
       "tool_call tags",
       "One:\n<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>\n\nDone.",
       {"", "One:\nDone.", {{"now", "{}"}}}},
      {"arguments first",
       "",
       "tool_call tags",
       R"(<tool_call>{"arguments": {"a": [{}]}, "id": "x1", "name": "now"}</tool_call>)",
       {"", "", {{"now", R"({"a": [{}]})"}}}},
      {"no arguments",
       "",
       "tool_call tags",
       R"(<tool_call>{"name": "now", }</tool_call>)",
       {"", R"(<tool_call>{"name": "now", }</tool_call>)", {}}},
      {"no key of arguments",
       "",
       "tool_call tags",
       R"(<tool_call>{"name": "now"}</tool_call>)",
       {"", "", {{"now", "{}"}}}},
      {"arguments of null",
       "",
       "tool_call tags",
       R"(<tool_call>{"name": "now", "arguments": null}</tool_call>)",
       {"", "", {{"now", "{}"}}}},
      {"a list",
       "",
       "tool_call tags",
       R"(<tool_call>[{"name": "now", "arguments": {}}, {"name": "run", "arguments": {"code": ""}}]</tool_call>)",
       {"", "", {{"now", "{}"}, {"run", R"({"code": ""})"}}}},
      {"an unknown function",
       "",
       "tool_call tags",
       R"(<tool_call>{"name": "fly", "parameters": {}}</tool_call>)",
       {"", "", {{"fly", "{}"}}}},
      {"a line end in a string",
       "",
       "tool_call tags",
       "<tool_call>{\"name\": \"run\", \"arguments\": {\"code\": \"a\n\tb\"}}</tool_call>",
       {"", "", {{"run", R"({"code": "a\n\tb"})"}}}},
      {"no closing tag",
       "",
       "tool_call tags",
       R"(<tool_call>{"name": "now", "arguments": {}})",
       {"", "", {{"now", "{}"}}}},
      {"no closing brace",
       "",
       "tool_call tags",
       "<tool_call>{\"name\": \"now\", \"arguments\": {}\n</tool_call>\n",
       {"", "", {{"now", "{}"}}}},
      {"a brace too many",
       "",
       "tool_call tags",
       R"(<tool_call>{"name": "now", "arguments": {}}}</tool_call>)",
       {"", "}</tool_call>", {{"now", "{}"}}}},
      {"cut off",
       "",
       "tool_call tags",
       "Hm.\n<tool_call>\n{\"name\": \"run\", \"arguments\": {\"code\": \"x",
       {"", "Hm.\n<tool_call>\n{\"name\": \"run\", \"arguments\": {\"code\": \"x", {}}},
      {"no JSON",
       "",
       "tool_call tags",
       "<tool_call>\nnow()\n</tool_call> ",
       {"", "<tool_call>\nnow()\n</tool_call> ", {}}},
      {"bad JSON, then a call",
       "",
       "tool_call tags",
       "<tool_call>{\"name\": \"now\", \"arguments\": {'a': 1}}</tool_call>\n"
       "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>",
       {"", R"(<tool_call>{"name": "now", "arguments": {'a': 1}}</tool_call>)", {{"now", "{}"}}}},
      {"no tags",
       "",
       "tool_call tags",
       "```json\n{\n  \"name\": \"get_weather\",\n  \"arguments\": {\n    \"days\": 2\n  }\n}\n```",
       {"", "", {{"get_weather", "{\n    \"days\": 2\n  }"}}}},
      {"no tags, twice",
       "",
       "tool_call tags",
       "```json\n{\"name\": \"now\", \"arguments\": {}}\n```\n\n```json\n[{\"name\": \"run\", "
       "\"arguments\": {}}]\n```\nSo.",
       {"", "So.", {{"now", "{}"}, {"run", "{}"}}}},
      {"no tags, no fence",
       "",
       "tool_call tags",
       R"({"name": "now", "arguments": {}} {"name": "fly", "arguments": {}})",
       {"", R"({"name": "fly", "arguments": {}})", {{"now", "{}"}}}},
      {"JSON as an answer",
       "",
       "tool_call tags",
       "```json\n{\"name\": \"Ada\"}\n```\n",
       {"", "```json\n{\"name\": \"Ada\"}\n```\n", {}}},
      {"a fence after text",
       "",
       "tool_call tags",
       "So:\n```json\n{\"name\": \"now\", \"arguments\": {}}\n```",
       {"", "So:\n```json\n{\"name\": \"now\", \"arguments\": {}}\n```", {}}},
      {"arguments twice",
       "",
       "tool_call tags",
       R"(<tool_call>{"arguments": {}, "arguments": {}, "name": "now"}</tool_call>)",
       {"", R"(<tool_call>{"arguments": {}, "arguments": {}, "name": "now"}</tool_call>)", {}}},
      {"arguments as a text",
       "",
       "tool_call tags",
       R"(<tool_call>{"name": "run", "arguments": "{\"code\": \"x\"}"}</tool_call>)"
       R"(<tool_call>{"arguments": "{}", "name": "now"})",
       {"", "", {{"run", R"({"code": "x"})"}, {"now", "{}"}}}},
      {"a text that is no object",
       "",
       "tool_call tags",
       R"(<tool_call>{"name": "run", "arguments": "[]"}</tool_call>)",
       {"", R"(<tool_call>{"name": "run", "arguments": "[]"}</tool_call>)", {}}},
      {"arguments that are no object",
       "",
       "tool_call tags",
       R"(<tool_call>{"name": "now", "arguments": [1]}</tool_call>)",
       {"", R"(<tool_call>{"name": "now", "arguments": [1]}</tool_call>)", {}}},
      {"no name",
       "",
       "tool_call tags",
       R"(<tool_call>{"arguments": {}}</tool_call>)",
       {"", R"(<tool_call>{"arguments": {}}</tool_call>)", {}}},
      {"too deep",
       "",
       "tool_call tags",
       R"(<tool_call>{"name": "now", "arguments": {"a": )" + std::string(60, '['),
       {"", R"(<tool_call>{"name": "now", "arguments": {"a": )" + std::string(60, '['), {}}},

      // Tags
      {"tags",
       "",
       "function and parameter tags",
       "I look.\n\n<tool_call>\n<function=get_weather>\n<parameter=place>\nZürich\n</parameter>\n"
       "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
       {"", "I look.", {{"get_weather", R"({"place": "Zürich", "days": 2})"}}}},
      {"tags by schema",
       "",
       "function and parameter tags",
       "<tool_call>\n<function=get_weather>\n<parameter=place>\n12\n</"
       "parameter>\n<parameter=exact>\nTrue\n</parameter>\n"
       "<parameter=units>\nnull\n</parameter>\n<parameter=range>\n5\n</"
       "parameter>\n<parameter=days>\nmany\n</parameter>\n"
       "<parameter=more>\n{\"a\": [1.50]}\n</parameter>\n</function>\n</tool_call>\n",
       {"",
        "",
        {{"get_weather",
          R"({"place": "12", "exact": true, "units": null, "range": 5, "days": "many", "more": {"a": [1.50]}})"}}}},
      {"tags by what they look like",
       "",
       "function and parameter tags",
       "<tool_call><function=fly><parameter=a>1</parameter><parameter=b>[x</"
       "parameter><parameter=c>None</parameter></function></tool_call>",
       {"", "", {{"fly", R"({"a": 1, "b": "[x", "c": null})"}}}},
      {"a text of several lines",
       "",
       "function and parameter tags",
       "<function=run>\n<parameter=code>\n\n  if a < b:\n    "
       "\"</function>\"\n\n</parameter>\n</function>\n</tool_call>",
       {"", "", {{"run", R"({"code": "\n  if a < b:\n    \"</function>\"\n"})"}}}},
      {"no parameters, a parameter twice",
       "",
       "function and parameter tags",
       "<tool_call>\n<function=now>\n</function>\n</"
       "tool_call>\n<tool_call>\n<function=now>\n<parameter=a>\n1\n</parameter>\n"
       "<parameter=a>\n2\n</parameter>\n</function>\n</tool_call>",
       {"", "", {{"now", "{}"}, {"now", R"({"a": 2})"}}}},
      {"text between tags",
       "",
       "function and parameter tags",
       "<tool_call>\n<function=now>\nx<parameter=a>1</parameter></function></tool_call>",
       {"", "<tool_call>\n<function=now>\nx<parameter=a>1</parameter></function></tool_call>", {}}},

      // Mistral
      {"TOOL_CALLS",
       "",
       "TOOL_CALLS",
       R"([TOOL_CALLS] [{"name": "now", "arguments": {}}, {"name": "run", "arguments": {"code": "]"}, "id": "aB3dE6gH9"}])",
       {"", "", {{"now", "{}"}, {"run", R"({"code": "]"})"}}}},
      {"TOOL_CALLS after text",
       "",
       "TOOL_CALLS",
       R"(I look.[TOOL_CALLS][{"name": "now", "arguments": {}}])",
       {"", "I look.", {{"now", "{}"}}}},
      {"TOOL_CALLS, the list not ended",
       "",
       "TOOL_CALLS",
       R"([TOOL_CALLS][{"name": "now", "arguments": {}})",
       {"", "", {{"now", "{}"}}}},
      {"TOOL_CALLS, the second cut off",
       "",
       "TOOL_CALLS",
       R"([TOOL_CALLS][{"name": "now", "arguments": {}}, {"name": "run", "arg)",
       {"", R"(}, {"name": "run", "arg)", {{"now", "{}"}}}},
      {"ARGS",
       "THINK",
       "TOOL_CALLS and ARGS",
       R"([THINK]Hm.[/THINK][TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]run[ARGS]{"code": "[ARGS]"})",
       {"Hm.", "", {{"now", "{}"}, {"run", R"({"code": "[ARGS]"})"}}}},
      {"CALL_ID",
       "",
       "TOOL_CALLS and ARGS",
       R"([TOOL_CALLS]now[CALL_ID]aB3dE6gH9[ARGS]{"a": {}})",
       {"", "", {{"now", R"({"a": {}})"}}}},
      {"ARGS that are none",
       "",
       "TOOL_CALLS and ARGS",
       "[TOOL_CALLS]now[ARG]{}",
       {"", "[TOOL_CALLS]now[ARG]{}", {}}},

      // Llama
      {"JSON",
       "",
       "JSON with parameters",
       R"({"name": "get_weather", "parameters": {"place": "A"}})",
       {"", "", {{"get_weather", R"({"place": "A"})"}}}},
      {"JSON with a type",
       "",
       "JSON with parameters",
       "\n{\"type\": \"function\", \"name\": \"now\", \"parameters\": {}}",
       {"", "", {{"now", "{}"}}}},
      {"JSON after a tag",
       "",
       "JSON with parameters",
       R"(<|python_tag|>{"name": "now", "parameters": {}})",
       {"", "", {{"now", "{}"}}}},
      {"two of JSON",
       "",
       "JSON with parameters",
       R"({"name": "now", "parameters": {}}; {"name": "run", "parameters": {"code": "1"}})",
       {"", "", {{"now", "{}"}, {"run", R"({"code": "1"})"}}}},
      {"JSON that is no call",
       "",
       "JSON with parameters",
       R"({"name": "Ada", "parameters": {}})",
       {"", R"({"name": "Ada", "parameters": {}})", {}}},
      {"JSON without parameters",
       "",
       "JSON with parameters",
       R"({"name": "now"} )",
       {"", R"({"name": "now"} )", {}}},
      {"JSON after text is content",
       "",
       "JSON with parameters",
       R"(So: {"name": "now", "parameters": {}})",
       {"", R"(So: {"name": "now", "parameters": {}})", {}}},
      {"a list that is none",
       "",
       "JSON with parameters",
       "[1] says {so}.",
       {"", "[1] says {so}.", {}}},
      {"Python",
       "",
       "JSON with parameters",
       "<|python_tag|>now.call()",
       {"", "<|python_tag|>now.call()", {}}},
      {"a semicolon",
       "",
       "JSON with parameters",
       R"({"name": "now", "parameters": {}}; so.)",
       {"", "; so.", {{"now", "{}"}}}},

      // Granite, Phi, Cohere, Nemotron
      {"Granite 3",
       "",
       "|tool_call|",
       R"(<|tool_call|>[{"name": "now", "arguments": {}}])",
       {"", "", {{"now", "{}"}}}},
      {"Phi-4 mini",
       "",
       "|tool_call| and |/tool_call|",
       R"(<|tool_call|>[{"name": "now", "arguments": {}}]<|/tool_call|>)",
       {"", "", {{"now", "{}"}}}},
      {"Command-R",
       "",
       "Action",
       "Action: ```json\n[\n    {\n        \"tool_name\": \"get_weather\",\n        "
       "\"parameters\": {\n"
       "            \"place\": \"A\"\n        }\n    }\n]\n```",
       {"", "", {{"get_weather", "{\n            \"place\": \"A\"\n        }"}}}},
      {"an action that is none",
       "",
       "Action",
       "Action: ```js\n[]```",
       {"", "Action: ```js\n[]```", {}}},
      {"Command R7B's calls",
       "START_THINKING",
       "START_ACTION",
       "<|START_THINKING|>I look.<|END_THINKING|><|START_ACTION|>[\n"
       "    {\"tool_call_id\": \"0\", \"tool_name\": \"now\", \"parameters\": {}},\n"
       "    {\"tool_call_id\": \"1\", \"tool_name\": \"run\", \"parameters\": {\"code\": "
       "\"x\"}}\n]<|END_ACTION|>",
       {"I look.", "", {{"now", "{}"}, {"run", R"({"code": "x"})"}}}},
      {"Nemotron",
       "think",
       "TOOLCALL",
       R"(<TOOLCALL>[{"name": "now", "arguments": {}}]</TOOLCALL>)",
       {"", "", {{"now", "{}"}}}},

      // A name, then JSON
      {"Functionary 3.1",
       "",
       "function tags",
       R"(I look.<function=now>{}</function><function=run>{"code": "</function>"}</function>)",
       {"", "I look.", {{"now", "{}"}, {"run", R"({"code": "</function>"})"}}}},
      {"Functionary 3.2",
       "",
       ">>>",
       "all\nI look.\n>>>now\n{}>>>run\n{\"code\": \">>>\"}",
       {"", "I look.", {{"now", "{}"}, {"run", R"({"code": ">>>"})"}}},
       ">>>"},
      {"Functionary 3.2, a call first",
       "",
       ">>>",
       "now\n{\"a\": 1}",
       {"", "", {{"now", R"({"a": 1})"}}},
       ">>>"},
      {"Functionary 3.2, Python's prompt",
       "",
       ">>>",
       "all\n>>> now\n{'a'}\n>>> x\n",
       {"", ">>> now\n{'a'}\n>>> x\n", {}},
       ">>>"},
      {"DeepSeek-R1",
       "think",
       "tool calls begin",
       "Hm.\n</"
       "think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}"
       "\n```<｜tool▁call▁end｜>\n"
       "<｜tool▁call▁begin｜>function<｜tool▁sep｜>run\n```json\n{\"code\": "
       "\"```\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       {"Hm.", "", {{"now", "{}"}, {"run", R"({"code": "```"})"}}},
       "<think>\n"},
      {"GLM-4",
       "",
       "name and JSON",
       "get_weather\n{\"place\": \"A\"}",
       {"", "", {{"get_weather", R"({"place": "A"})"}}}},
      {"GLM-4, text",
       "",
       "name and JSON",
       "\nget_weather is a function.",
       {"", "\nget_weather is a function.", {}}},
      {"GLM-4, another name", "", "name and JSON", "fly\n{}", {"", "fly\n{}", {}}},
  };
  return kExamples;
}

TEST(AnswerParser, ReadsWhatModelsWrite) {
  for (const Example& example : examples()) {
    SCOPED_TRACE(example.name);
    const auto deltas = read_answer(example.format(), example.options(), example.text);
    EXPECT_EQ(answer_parts(deltas), example.expected);
    EXPECT_EQ(wrong_with(example.format(), example.options(), example.text, deltas), "");
  }
}

TEST(AnswerParser, HasAnExampleOfEachSyntax) {
  for (const ReasoningSyntax& row : reasoning_syntaxes())
    EXPECT_TRUE(std::ranges::any_of(examples(), [&](const Example& example) {
      return example.reasoning == row.name;
    })) << row.name;
  for (const ToolSyntax& row : tool_syntaxes())
    EXPECT_TRUE(std::ranges::any_of(examples(), [&](const Example& example) {
      return example.tools == row.name && !example.expected.calls.empty();
    })) << row.name;
}

TEST(AnswerParser, PiecesDoNotMatter) {
  const unsigned seed = 11;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (const Example& example : examples()) {
    SCOPED_TRACE(example.name);
    const auto read = [&](const std::vector<std::size_t>& ends) {
      return read_answer(example.format(), example.options(), example.text, ends);
    };
    const auto whole = read({});
    std::vector<std::size_t> all;
    for (std::size_t i = 1; i < example.text.size(); ++i) {
      all.push_back(i);
      ASSERT_EQ(read({i}), whole) << i;
    }
    ASSERT_EQ(read(all), whole);
    for (int round = 0; round < 50; ++round) {
      std::vector<std::size_t> some;
      for (const std::size_t i : all)
        if (random() % 5 == 0) some.push_back(i);
      ASSERT_EQ(read(some), whole);
    }
  }
}

// Wherever the prompt ends in it, the answer has the text that follows, and no more.
TEST(AnswerParser, WhatThePromptWroteDoesNotComeOut) {
  for (const Example& example : examples()) {
    SCOPED_TRACE(example.name);
    for (std::size_t i = 0; i <= example.text.size(); ++i) {
      const std::string before = example.text.substr(0, i), after = example.text.substr(i);
      if (!is_well_formed(before)) continue;
      SCOPED_TRACE(before);
      AnswerParserOptions options = example.options();
      options.begun += before;
      AnswerParser parser(example.format(), options);
      parser.push("");  // what came out of it at once
      auto deltas = parser.push(after);
      for (AnswerDelta& delta : parser.finish()) deltas.push_back(std::move(delta));
      std::string content, reasoning;
      for (const AnswerDelta& delta : deltas) {
        if (delta.kind == AnswerDelta::Kind::content) content += delta.text;
        if (delta.kind == AnswerDelta::Kind::reasoning) reasoning += delta.text;
      }
      ASSERT_TRUE(answer_check::is_subsequence(reasoning + content, after));
      for (const auto& [part, whole] : {std::pair(&content, &example.expected.content),
                                        std::pair(&reasoning, &example.expected.reasoning)}) {
        ASSERT_TRUE(whole->ends_with(*part)) << *part;
        // White space may be that between parts.
        std::string left_out = whole->substr(0, whole->size() - part->size());
        left_out.erase(left_out.find_last_not_of(" \n") + 1);
        ASSERT_TRUE(answer_check::is_subsequence(left_out, before)) << left_out;
      }
    }
  }
}

// Truncated at every byte, and with every byte left out or replaced.
TEST(AnswerParser, LosesNothingOfWhatIsMalformed) {
  for (const Example& example : examples()) {
    SCOPED_TRACE(example.name);
    const auto check = [&](const std::string& damaged) {
      const std::string text = well_formed(damaged);
      const auto deltas = read_answer(example.format(), example.options(), text);
      ASSERT_EQ(wrong_with(example.format(), example.options(), text, deltas), "") << text;
    };
    for (std::size_t i = 0; i < example.text.size(); ++i) {
      check(example.text.substr(0, i));
      check(example.text.substr(0, i) + example.text.substr(i + 1));
      for (const char* other : {"x", "\"", "}", "<", "\n"})
        check(example.text.substr(0, i) + other + example.text.substr(i + 1));
    }
  }
}

TEST(AnswerParser, WithoutToolsCallsAreContent) {
  for (const Example& example : examples()) {
    if (example.expected.calls.empty()) continue;
    SCOPED_TRACE(example.name);
    AnswerParserOptions options = example.options();
    options.tools = "";
    const auto deltas = read_answer(example.format(), options, example.text);
    const AnswerParts parts = answer_parts(deltas);
    EXPECT_EQ(parts.calls, Calls());
    EXPECT_EQ(parts.reasoning, example.expected.reasoning);
    EXPECT_EQ(wrong_with(example.format(), options, example.text, deltas), "");
  }
}

TEST(AnswerParser, OneCallEndsTheAnswerWithoutParallelCalls) {
  for (const Example& example : examples()) {
    SCOPED_TRACE(example.name);
    AnswerParserOptions options = example.options();
    options.parallel_calls = false;
    AnswerParser parser(example.format(), options);
    std::vector<AnswerDelta> deltas;
    for (const char byte : example.text) {
      const bool had_ended = parser.ended();
      const auto more = parser.push({&byte, 1});
      EXPECT_TRUE(!had_ended || more.empty());
      deltas.insert(deltas.end(), more.begin(), more.end());
    }
    EXPECT_EQ(parser.ended(), !example.expected.calls.empty());
    const auto more = parser.finish();
    EXPECT_TRUE(!parser.ended() || more.empty());
    if (!parser.ended()) continue;
    EXPECT_EQ(answer_parts(deltas).calls, Calls({example.expected.calls[0]}));
    EXPECT_EQ(answer_parts(deltas).reasoning, example.expected.reasoning);
  }
}

// What has come out after each piece: as early as it can be told.
TEST(AnswerParser, HoldsBackNoMoreThanItMust) {
  using Kind = AnswerDelta::Kind;
  struct Piece {
    std::string text;
    std::vector<AnswerDelta> deltas;
  };
  struct Case {
    const char *name, *reasoning, *tools;
    std::vector<Piece> pieces;
    std::vector<AnswerDelta> rest;
  };
  const Case cases[] = {
      {"reasoning, content, a call",
       "think",
       "tool_call tags",
       {{"<th", {}},
        {"ink>\nHm", {{Kind::reasoning, "Hm"}}},
        {", </", {{Kind::reasoning, ","}}},
        {"b> x\n", {{Kind::reasoning, " </b> x"}}},
        {"</think>\n\n", {}},
        {"I ", {{Kind::content, "I"}}},
        {"look.\n<", {{Kind::content, " look."}}},
        {"b <tool", {{Kind::content, "\n<b"}}},
        {"_call>\n{\"name\": \"now\"", {}},
        {", \"arguments\": ", {}},
        {"{\"a\"", {{Kind::call, "now"}, {Kind::arguments, "{\"a\""}}},
        {": 1}", {{Kind::arguments, ": 1}"}, {Kind::call_end}}},
        {"}\n</tool_call>", {}}},
       {}},
      {"the second call",
       "",
       "TOOL_CALLS",
       {{R"([TOOL_CALLS][{"name": "now", "arguments": {})",
         {{Kind::call, "now"}, {Kind::arguments, "{}"}, {Kind::call_end}}},
        {R"(}, {"name": "run", "arguments": {"c)",
         {{Kind::call, "run", 1}, {Kind::arguments, "{\"c", 1}}}},
       {{Kind::call_void, "", 1}, {Kind::content, R"(}, {"name": "run", "arguments": {"c)"}}},
      {"void",
       "",
       "tool_call tags",
       {{R"(<tool_call>{"name": "now", "arguments": {"a": )",
         {{Kind::call, "now"}, {Kind::arguments, "{\"a\": "}}},
        {"x",
         {{Kind::call_void},
          {Kind::content, R"(<tool_call>{"name": "now", "arguments": {"a": x)"}}},
        {"y", {{Kind::content, "y"}}}},
       {}},
      {"tags come at their end",
       "",
       "function and parameter tags",
       {{"<tool_call>\n<function=now>\n<parameter=a>\n1\n</parameter>\n</function", {}},
        {">", {{Kind::call, "now"}, {Kind::arguments, "{\"a\": 1}"}, {Kind::call_end}}}},
       {}},
      {"an answer in JSON",
       "",
       "tool_call tags",
       {{"```json\n{\"user", {}}, {"\"", {{Kind::content, "```json\n{\"user\""}}}},
       {}},
      {"names of tools decide",
       "",
       "JSON with parameters",
       {{R"({"name": "Ada")", {{Kind::content, R"({"name": "Ada")"}}},
        {",", {{Kind::content, ","}}}},
       {}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    AnswerParser parser({reasoning_syntax(c.reasoning), tool_syntax(c.tools)},
                        {.tools = kTestTools});
    for (const Piece& piece : c.pieces)
      EXPECT_EQ(parser.push(piece.text), piece.deltas) << piece.text;
    EXPECT_EQ(parser.finish(), c.rest);
  }
}

TEST(AnswerParser, ArgumentsCanBeReadAgain) {
  const std::string deepest =
      std::string(JsonScanner::kDepthMax - 1, '[') + std::string(JsonScanner::kDepthMax - 1, ']');
  const AnswerFormat format{.tools = tool_syntax("tool_call tags")};
  const auto parts = answer_parts(read_answer(
      format, {.tools = kTestTools},
      "<tool_call>{\"name\": \"run\", \"arguments\": {\"a\": \"\x01\\ud83d\\ude00\", \"b\": " +
          deepest + ", \"c\": -1.5e300}}</tool_call>"));
  ASSERT_EQ(parts.calls.size(), 1u);
  EXPECT_NO_THROW(parse_json(parts.calls[0].second, "arguments"));
}

// Steps are counted, not seconds.
TEST(AnswerParser, TakesLinearTime) {
  const auto repeated = [](std::string_view text, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += text;
    return out;
  };
  for (const Example& example : examples()) {
    SCOPED_TRACE(example.name);
    const auto steps = [&](const std::string& text) {
      AnswerParser parser(example.format(), example.options());
      parser.push(text);
      parser.finish();
      return parser.n_steps();
    };
    const std::string head = example.text.substr(0, example.text.size() / 2);
    for (const std::string& text :
         {example.text, head, head + "\n", std::string(1, ' '), std::string("<tool_call>"),
          std::string("<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"")}) {
      if (text.empty()) continue;
      const std::size_t few = steps(repeated(text, 50)), many = steps(repeated(text, 500));
      EXPECT_LE(many, few * 11 + 1000) << text;
    }
  }
}

TEST(AnswerParser, RefusesToolsThatAreNone) {
  struct Case {
    const char *tools, *error;
  };
  const Case cases[] = {
      {"{}", "tools: expected a list, not object"},
      {"[", "tools: not valid JSON at byte 2"},
      {"[1]", "tools: item 1: needs a function with a name"},
      {R"([{"name": "f"}, {"function": {}}])", "tools: item 2: needs a function with a name"},
  };
  for (const Case& c : cases) {
    try {
      AnswerParser parser({}, {.tools = c.tools});
      ADD_FAILURE() << c.tools;
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), c.error);
    }
  }
}

}  // namespace
}  // namespace outrider

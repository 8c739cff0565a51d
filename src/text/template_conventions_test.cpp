#include "text/template_conventions.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "text/answer_parser_test.h"
#include "text/conversation_json.h"

namespace outrider {
namespace {

std::string golden_tool_template(const std::string& name) {
  std::ostringstream out;
  out << std::ifstream(OUTRIDER_SOURCE_DIR "/tests/golden/templates/tools/" + name,
                       std::ios::binary)
             .rdbuf();
  return out.str();
}

const char* const kNowTool =
    R"([{"type": "function", "function": {"name": "now", "description": "Now.", "parameters": {"type": "object", "properties": {}}}}])";
// Two calls, as OpenAI's clients give them back, and what came of them.
const char* const kConversation = R"([
  {"role": "user", "content": "Go."},
  {"role": "assistant", "content": null, "tool_calls": [
    {"id": "call_abcdefghijkl", "type": "function", "function": {"name": "now", "arguments": "{\"z\": [1, \"é\"], \"a\": 2.50}"}},
    {"id": "call_mnopqrstuvwx", "type": "function", "function": {"name": "now", "arguments": ""}}]},
  {"role": "tool", "tool_call_id": "call_mnopqrstuvwx", "content": "noon"}])";

std::string rendered(const ChatTemplate& chat_template, const ToolSyntax* syntax,
                     const std::string& conversation, const std::string& tools) {
  const TemplateConversation given = template_conversation(
      template_conventions(chat_template), syntax, parse_conversation(conversation, "test"), tools);
  std::string out;
  for (const TextPiece& piece : chat_template.render(given.messages, true, {.tools = given.tools}))
    out += piece.text;
  return out;
}

// Messages in a line each, calls by `each`.
std::string lines(const std::string& each) {
  return "{{ tools | tojson if tools }}{% for message in messages %}<{{ message.role }}>{{ "
         "message.content }}"
         "{% for call in message.tool_calls or [] %}" +
         each + "{% endfor %}{% endfor %}";
}

TEST(TemplateConventions, GiveATemplateWhatItExpects) {
  struct Case {
    const char* name;
    std::string source;
    const char* syntax;
    std::string expected;  // after the tools
  };
  const Case cases[] = {
      {"arguments as objects", lines("[{{ call.function.arguments | tojson }}]"), "",
       "<user>Go.<assistant>[{\"z\": [1, \"é\"], \"a\": 2.5}][{}]<tool>noon"},
      {"arguments as texts", lines("{{ '[' + call.function.arguments + ']' }}"), "",
       "<user>Go.<assistant>[{\"z\":[1,\"é\"],\"a\":2.5}][{}]<tool>noon"},
      {"no content",
       "{{ tools | tojson if tools }}{% for message in messages %}<{{ message.role }}>{% if "
       "message.content is none %}"
       "{% for call in message.tool_calls %}{{ call.function.arguments | tojson }}{% endfor %}"
       "{% else %}{{ message.content }}{% endif %}{% endfor %}",
       "", "<user>Go.<assistant>{\"z\": [1, \"é\"], \"a\": 2.5}{}<tool>noon"},
      {"short ids",
       "{% for message in messages %}{% if message.role == 'tool' %}{{ message.tool_call_id }}{{ "
       "message.content }}\n{% endif %}"
       "{% for call in message.tool_calls or [] %}{% if call.id | length != 9 %}{{ "
       "raise_exception('id') }}{% endif %}"
       "{{ call.id }}{{ call.function.arguments | tojson }}\n{% endfor %}{% endfor %}",
       "", "call00001{\"z\": [1, \"é\"], \"a\": 2.5}\ncall00002{}\ncall00002noon\n"},
      {"calls in the content",
       "{{ tools | tojson if tools }}{% for message in messages %}<{{ message.role }}>{{ "
       "message.content }}\n{% endfor %}",
       "tool_call tags",
       "<user>Go.\n<assistant><tool_call>\n{\"name\":\"now\",\"arguments\":{\"z\":[1,\"é\"],\"a\":"
       "2.5}}\n</tool_call>\n"
       "<tool_call>\n{\"name\":\"now\",\"arguments\":{}}\n</tool_call>\n<tool>noon\n"},
      {"a list of calls in the content",
       "{{ tools | tojson if tools }}{% for message in messages %}<{{ message.role }}>{{ "
       "message.content }}\n{% endfor %}",
       "|tool_call|",
       "<user>Go.\n<assistant><|tool_call|>[{\"name\":\"now\",\"arguments\":{\"z\":[1,\"é\"],\"a\":"
       "2.5}},"
       "{\"name\":\"now\",\"arguments\":{}}]\n<tool>noon\n"},
      {"names and JSON, and results by another name",
       "{{ tools | tojson if tools }}{% for message in messages %}{% if message.role in ['user', "
       "'assistant', 'observation'] %}"
       "<{{ message.role }}>{{ message.content }}\n{% endif %}{% endfor %}",
       "name and JSON",
       "<user>Go.\n<assistant>now\n{\"z\":[1,\"é\"],\"a\":2.5}\nnow\n{}\n<observation>noon\n"},
      {"a template of plain turns",
       "{% for message in messages %}{% if message.role not in ['system', 'user', 'assistant'] "
       "%}{{ raise_exception('role') }}"
       "{% endif %}<{{ message.role }}>{{ message.content }}\n{% endfor %}",
       "", "<user>Go.\n<assistant>\n<user>noon\n"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const ChatTemplate chat_template(c.source, "test", "<s>", "</s>");
    std::string found = rendered(chat_template, tool_syntax(c.syntax), kConversation, kNowTool);
    if (const std::size_t tools = found.rfind("}}]<user>"); tools != found.npos)
      found.erase(0, tools + 3);
    EXPECT_EQ(found, c.expected);
  }
}

TEST(TemplateConventions, PutToolsWhereATemplateLooks) {
  using Tools = TemplateConventions::Tools;
  struct Case {
    const char* name;
    std::string source;
    Tools tools;
    std::string expected;
  };
  const std::string each = "{% for message in messages %}<{{ message.role }}>{{ message.content }}";
  const Case cases[] = {
      {"nowhere", each + "{% endfor %}", Tools::nowhere, "<user>Hi"},
      {"a variable", "{{ tools[0].function.name if tools }}" + each + "{% endfor %}",
       Tools::variable, "now<user>Hi"},
      {"a list in the system message",
       each +
           "{% for tool in message.tools or [] %}{{ tool.function.name }}{% endfor %}{% endfor %}",
       Tools::system_list, "<system>now<user>Hi"},
      {"a text in the system message",
       each + "{{ '(' + message.tools + ')' if message.tools is defined }}{% endfor %}",
       Tools::system_text,
       R"(<system>([{"name":"now","description":"Now.","parameters":{"type":"object","properties":{}}}])<user>Hi)"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const ChatTemplate chat_template(c.source, "test", "<s>", "</s>");
    EXPECT_EQ(template_conventions(chat_template).tools, c.tools);
    EXPECT_EQ(rendered(chat_template, nullptr, R"([{"role": "user", "content": "Hi"}])", kNowTool),
              c.expected);
  }
  const ChatTemplate last(cases[3].source, "test", "<s>", "</s>");
  EXPECT_EQ(rendered(last, nullptr, R"([{"role": "system", "content": "S", "x": 1}])", "[]"),
            "<system>S([])");
  EXPECT_EQ(rendered(last, nullptr, R"([{"role": "user", "content": "Hi"}])", ""), "<user>Hi");
}

TEST(TemplateConventions, OfTemplatesInTheTests) {
  struct Case {
    const char* file;
    bool renders_calls, short_ids;
  };
  for (const Case& c : {Case{"tagged_calls", true, false},
                        {"header_calls", true, false},
                        {"identified_calls", true, true},
                        {"sections", true, false}}) {
    SCOPED_TRACE(c.file);
    const ChatTemplate chat_template(golden_tool_template(std::string(c.file) + ".jinja"), c.file,
                                     "<s>", "</s>");
    const TemplateConventions found = template_conventions(chat_template);
    EXPECT_EQ(found.tools, TemplateConventions::Tools::variable);
    EXPECT_EQ(found.renders_calls, c.renders_calls);
    EXPECT_EQ(found.short_ids, c.short_ids);
    EXPECT_FALSE(found.text_arguments || found.null_content);
    EXPECT_EQ(found.result_role, "tool");
  }
}

// What a client has of an answer that broke off within a call does not end the conversation.
TEST(TemplateConventions, BrokenArgumentsAreWritten) {
  for (const char* text : {R"({"a": 1, "b)", "[1]", "1", "x"}) {
    SCOPED_TRACE(text);
    const nlohmann::json broken = {{"arguments", text}};
    const nlohmann::json more = {
        {"tool_calls", {{{"function", {{"name", "f"}, {"arguments", text}}}}}}};
    const auto written = [&](const TemplateConventions& conventions, const ToolSyntax* syntax) {
      return template_conversation(conventions, syntax, {{"assistant", "", more.dump()}}, "")
          .messages[0];
    };
    const auto arguments = [&](const TemplateConventions& conventions) {
      return nlohmann::json::parse(
          written(conventions, nullptr).more)["tool_calls"][0]["function"]["arguments"];
    };
    EXPECT_EQ(arguments({.renders_calls = true}), broken);
    EXPECT_EQ(arguments({.renders_calls = true, .text_arguments = true}), broken.dump());
    EXPECT_NE(written({}, &tool_syntaxes()[0]).content.find(broken.dump()), std::string::npos);
  }
}

TEST(TemplateConventions, RefuseCallsThatAreNone) {
  struct Case {
    const char *calls, *error;
  };
  const Case cases[] = {
      {"1", "message 1: tool_calls must be a list, not number"},
      {"[1]", "message 1: call 1: needs a function with a name"},
      {R"([{"function": {"arguments": "{}"}}])", "message 1: call 1: needs a function with a name"},
      {R"([{"function": {"name": "f", "arguments": [1]}}])",
       "message 1: call 1: arguments: expected a JSON object, not array"},
      {R"([{"function": {"name": "f", "arguments": 1}}])",
       "message 1: call 1: arguments: expected a JSON object, not number"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.calls);
    try {
      template_conversation(
          {}, nullptr, {{"assistant", "", fmt::format(R"({{"tool_calls": {}}})", c.calls)}}, "");
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), c.error);
    }
  }
}

}  // namespace
}  // namespace outrider

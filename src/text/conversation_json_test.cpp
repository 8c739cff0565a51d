#include "text/conversation_json.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace outrider {
namespace {

TEST(ConversationJson, ReadsWhatOpenAiClientsSend) {
  struct Case {
    const char *name, *json;
    std::vector<std::pair<std::string, std::string>> expected;
  };
  const Case cases[] = {
      {"array", R"([{"role":"user","content":"hi"}])", {{"user", "hi"}}},
      {"object", R"({"model":"m","messages":[{"role":"user","content":"hi"}]})", {{"user", "hi"}}},
      {"parts are joined",
       R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])",
       {{"user", "ab"}}},
      {"no parts", R"([{"role":"user","content":[]}])", {{"user", ""}}},
      {"null", R"([{"role":"assistant","content":null,"tool_calls":null}])", {{"assistant", ""}}},
      {"other keys", R"([{"role":"user","content":"x","name":"Ada"}])", {{"user", "x"}}},
      {"escapes", R"([{"role":"user","content":"\u00e9\ud83d\ude00\n"}])", {{"user", "é😀\n"}}},
      {"several",
       R"([{"role":"system","content":"s"},{"role":"user","content":"u"}])",
       {{"system", "s"}, {"user", "u"}}},
      {"none", "[]", {}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    std::vector<std::pair<std::string, std::string>> found;
    for (const Message& m : parse_conversation(c.json, "chat.json"))
      found.emplace_back(m.role, m.content);
    EXPECT_EQ(found, c.expected);
  }
}

TEST(ConversationJson, RefusesTheRestWithOneLine) {
  struct Case {
    const char *json, *error;
  };
  const Case cases[] = {
      {"", "chat.json: not valid JSON"},
      {"[{", "chat.json: not valid JSON"},
      {"\"hi\"", "expected a list of messages"},
      {R"({"role":"user","content":"x"})", "expected a list of messages"},
      {R"({"messages":{}})", "expected a list of messages"},
      {"[1]", "message 1: expected an object"},
      {R"([{"content":"x"}])", "message 1: needs the key 'role'"},
      {R"([{"role":1,"content":"x"}])", "message 1: needs the key 'role'"},
      {R"([{"role":"user","content":"x"},{"role":"user"}])", "message 2: needs the key 'content'"},
      {R"([{"role":"user","content":{}}])", "must be a string or a list of parts, not object"},
      {R"([{"role":"user","content":["x"]}])", "an object with a type"},
      {R"([{"role":"user","content":[{"type":"image_url"}]}])", "content of type 'image_url'"},
      {R"([{"role":"user","content":[{"type":"text"}]}])", "needs the key 'text'"},
      {R"([{"role":"assistant","content":null,"tool_calls":{}}])",
       "'tool_calls' must be a list, not object"},
      {R"([{"role":"assistant","content":null,"function_call":{}}])",
       "'function_call' is not supported; write it as 'tool_calls'"},
      {"[\"\xff\"]", "chat.json: not valid JSON"},
      {R"([{"role":"user","content":18446744073709551616}])", "or a list of parts, not number"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.json);
    try {
      parse_conversation(c.json, "chat.json");
      ADD_FAILURE() << "no Error";
    } catch (const Error& e) {
      EXPECT_NE(std::string_view(e.what()).find(c.error), std::string_view::npos) << e.what();
      EXPECT_EQ(std::string_view(e.what()).find(0x0A), std::string_view::npos);
    }
  }
  EXPECT_THROW(parse_conversation(std::string(100'000, '['), "deep.json"), Error);
}

TEST(ConversationJson, KeepsFurtherKeysForTheTemplate) {
  const auto messages = parse_conversation(
      R"([{"role":"assistant","tool_calls":[{"b":1,"a":[2.5,null]}],"reasoning_content":"hm"},
          {"role":"tool","content":"x","tool_call_id":"7"}])",
      "chat.json");
  EXPECT_EQ(messages[0].more,
            R"({"tool_calls":[{"b":1,"a":[2.5,null]}],"reasoning_content":"hm","content":null})");
  EXPECT_EQ(messages[1].content, "x");
  EXPECT_EQ(messages[1].more, R"({"tool_call_id":"7"})");
  EXPECT_EQ(parse_conversation(R"([{"role":"user","content":"x"}])", "chat.json")[0].more, "");
}

}  // namespace
}  // namespace outrider

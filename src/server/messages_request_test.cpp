#include "server/messages_request.h"

#include <gtest/gtest.h>

#include "server/request_fields_test.h"

namespace outrider {
namespace {

const std::string kMessagesBody = R"({"max_tokens":9,"messages":[{"role":"user","content":"hi"}]})";

MessagesRequest read_messages(const std::string& body) {
  return read_messages_request(body);
}

MessagesRequest read_messages_with(const std::string& field, const std::string& value) {
  return read_messages(with_field(kMessagesBody, field, value));
}

TEST(MessagesRequest, ObeysItsFields) {
  using R = const MessagesRequest&;
  expect_obeyed<MessagesRequest>(
      messages_request_fields(), read_messages, kMessagesBody,
      {{"messages", R"([{"role":"user","content":"you"}])",
        [](R r) { return r.messages.size() == 1 && r.messages[0].content == "you"; }},
       {"system", R"("s")",
        [](R r) { return r.messages[0].role == "system" && r.messages[0].content == "s"; }},
       {"max_tokens", "0", [](R r) { return r.max_tokens == 0; }},
       {"model", R"("m")", [](R r) { return r.model == "m"; }},
       {"stream", "true", [](R r) { return r.stream; }},
       {"seed", "3", [](R r) { return r.seed == 3u; }},
       {"speculation", R"({"draft":"off"})", [](R r) { return r.draft_rows == 0; }},
       {"priority", "2", [](R r) { return r.priority == 2; }},
       {"cache_salt", R"("s")", [](R r) { return r.cache_salt == "s"; }},
       {"stop_sequences", R"(["a","b"])",
        [](R r) {
          return r.stop == std::vector<std::string>{"a", "b"};
        }},
       {"temperature", "1", [](R r) { return r.filters.temperature == 1.f; }},
       {"top_p", "0.5", [](R r) { return r.filters.top_p == 0.5f; }},
       {"top_k", "5", [](R r) { return r.filters.top_k == 5; }},
       {"thinking", R"({"type":"disabled"})", [](R r) { return r.reasoning == false; }},
       {"thinking", R"({"type":"adaptive","display":"omitted"})",
        [](R r) { return !r.reasoning && !r.shows_thinking; }},
       {"output_config", R"({"effort":"high"})", [](R r) { return r.reasoning_effort == "high"; }},
       {"tools", R"([{"name":"f","description":"d","input_schema":{"b":1,"a":2}}])",
        [](R r) {
          return r.tools.dump() == R"([{"type":"function","function":{"name":"f",)"
                                   R"("description":"d","parameters":{"b":1,"a":2}}}])";
        }},
       {"tool_choice", R"({"type":"none"})", [](R r) { return !r.uses_tools; }},
       {"tool_choice", R"({"type":"auto","disable_parallel_tool_use":true})",
        [](R r) { return r.uses_tools && !r.parallel_calls; }},
       {"chat_template_kwargs", R"({"a":1})",
        [](R r) { return r.variables.dump() == R"({"a":1})"; }}});
}

TEST(MessagesRequest, RowsHold) {
  expect_rows_hold(messages_request_fields(), read_messages, kMessagesBody);
  expect_no_request(read_messages);
}

TEST(MessagesRequest, RowsOfPartsHold) {
  const std::string user = R"({"max_tokens":9,"messages":[{"role":"user","content":[PART]}]})";
  const std::string assistant = R"({"max_tokens":9,"messages":[
      {"role":"assistant","content":[PART]},{"role":"user","content":"hi"}]})";
  const std::string block = "messages[0].content[0]";
  const auto field = [](const std::string& name, const char* value) {
    return R"({"max_tokens":9,"messages":[{"role":"user","content":"hi"}],")" + name +
           "\":" + value + "}";
  };
  expect_parts_hold(
      messages_part_fields(), read_messages,
      {{"Messages of `/v1/messages`", R"({"max_tokens":9,"messages":[PART]})", "messages[0]",
        R"({"role":"user","content":"x"})"},
       {"Blocks of type `text`", user, block, R"({"type":"text","text":"x"})"},
       {"Blocks of type `thinking`", assistant, block, R"({"type":"thinking","thinking":"x"})"},
       {"Blocks of type `tool_use`", assistant, block,
        R"({"type":"tool_use","id":"1","name":"f","input":{}})"},
       {"Blocks of type `tool_result`", user, block, R"({"type":"tool_result","tool_use_id":"1"})"},
       {"Tools of `/v1/messages`", field("tools", "[PART]"), "tools[0]",
        R"({"name":"f","input_schema":{}})"},
       {"`tool_choice` of `/v1/messages`", field("tool_choice", "PART"), "tool_choice",
        R"({"type":"auto"})"},
       {"`thinking`", field("thinking", "PART"), "thinking", R"({"type":"adaptive"})"},
       {"`output_config`", field("output_config", "PART"), "output_config", "{}"}});
}

TEST(MessagesRequest, Thinking) {
  const std::string thinking = R"({"type":"enabled","budget_tokens":2048,"display":"summarized"})";
  const std::string body = with_field(kMessagesBody, "max_tokens", "4096");
  const MessagesRequest request = read_messages(with_field(body, "thinking", thinking));
  EXPECT_EQ(request.reasoning, true);
  EXPECT_TRUE(request.shows_thinking);
  EXPECT_EQ(refusal(read_messages, with_field(kMessagesBody, "thinking", thinking))->param,
            "thinking.budget_tokens");
}

TEST(MessagesRequest, CountingNeedsNoLimit) {
  const std::string body = R"({"messages":[{"role":"user","content":"hi"}]})";
  EXPECT_EQ(refusal(read_messages, body)->param, "max_tokens");
  EXPECT_EQ(read_count_request(body).messages.size(), 1u);
}

TEST(MessagesRequest, CountingNeedsNoAnswer) {
  struct Case {
    const char* content;
    bool continues;
  };
  const Case cases[] = {
      {R"([{"type":"text","text":"x"}])", true},
      {R"([{"type":"tool_use","id":"1","name":"f","input":{}}])", false},
      {R"([{"type":"thinking","thinking":"x"}])", false},
      {R"([{"type":"thinking","thinking":"x"},{"type":"text","text":"x"}])", false}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.content);
    const MessagesRequest request =
        read_count_request(R"({"messages":[{"role":"user","content":"hi"},
                               {"role":"assistant","content":)" +
                           std::string(c.content) + "}]}");
    EXPECT_EQ(request.continues, c.continues);
    EXPECT_EQ(request.add_generation_prompt, c.continues);
  }
  EXPECT_TRUE(read_messages(kMessagesBody).add_generation_prompt);
}

// A message in short: role, content, reasoning, calls, the call that it answers.
std::string shown(const ChatMessage& message) {
  std::string text = message.role + "|" + message.content.value_or("-") + "|" + message.reasoning;
  for (const ToolCall& call : message.calls)
    text += "|" + call.id + " " + call.name + call.arguments;
  return text + (message.call_id.empty() ? "" : "|" + message.call_id);
}

TEST(MessagesRequest, BlocksBecomeMessages) {
  struct Case {
    const char *name, *messages;
    std::vector<std::string> expected;
  };
  const Case cases[] = {
      {"texts are lines",
       R"([{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},
                                     {"type":"text","text":"b","citations":null}]}])",
       {"user|a\nb|"}},
      {"no blocks", R"([{"role":"user","content":[]}])", {"user||"}},
      {"neighbours are one turn",
       R"([{"role":"user","content":"a"},{"role":"user","content":"b"},
           {"role":"assistant","content":"c"},{"role":"assistant","content":"d"},
           {"role":"user","content":"e"}])",
       {"user|a\nb|", "assistant|c\nd|", "user|e|"}},
      {"a call and its results",
       R"([{"role":"user","content":"q"},
           {"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"x"},
             {"type":"text","text":"so"},
             {"type":"tool_use","id":"1","name":"f","input":{"b":1,"a":2}},
             {"type":"tool_use","id":"2","name":"g","input":{},"caller":{"type":"direct"},
              "toolset_name":"t","more":null}]},
           {"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"r",
              "toolset_name":"t"},
             {"type":"tool_result","tool_use_id":"2","is_error":true,
              "content":[{"type":"text","text":"s"},{"type":"text","text":"t"}]},
             {"type":"text","text":"and?"}]}])",
       {"user|q|", R"(assistant|so|t|1 f{"b":1,"a":2}|2 g{})", "tool|r||1", "tool|s\nt||2",
        "user|and?|"}},
      {"a result alone",
       R"([{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}}]},
           {"role":"user","content":[{"type":"tool_result","tool_use_id":"1"}]}])",
       {"assistant|-||1 f{}", "tool|-||1"}},
      {"a system message between",
       R"([{"role":"user","content":"a"},{"role":"system","content":[{"type":"text","text":"s"}]}])",
       {"user|a|", "system|s|"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    std::vector<std::string> found;
    for (const ChatMessage& message : read_messages_with("messages", c.messages).messages)
      found.push_back(shown(message));
    EXPECT_EQ(found, c.expected);
  }
}

TEST(MessagesRequest, TheSystemTextComesFirstWithoutItsBillingHeader) {
  const auto first = [&](const std::string& system) {
    return shown(read_messages_with("system", system).messages[0]);
  };
  EXPECT_EQ(first(R"([{"type":"text","text":"x-anthropic-billing-header: cc_version=1; cch=af3;"},
                      {"type":"text","text":"You help."},{"type":"text","text":"Briefly."}])"),
            "system|You help.\nBriefly.|");
  EXPECT_EQ(first(R"([{"type":"text","text":"x-anthropic-billing-header: cch=1"}])"), "user|hi|");
  EXPECT_EQ(first(R"([])"), "user|hi|");
  EXPECT_EQ(first(R"("")"), "user|hi|");
  // Only there.
  const std::string kept = R"([{"role":"user","content":[{"type":"text",
      "text":"x-anthropic-billing-header: mine"}]}])";
  EXPECT_EQ(shown(read_messages_with("messages", kept).messages[0]),
            "user|x-anthropic-billing-header: mine|");
}

TEST(MessagesRequest, GoesOnWithAnAssistantsLastText) {
  const std::string begun = R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])";
  EXPECT_TRUE(read_messages_with("messages", begun).continues);
  EXPECT_FALSE(read_messages(kMessagesBody).continues);
  const std::string open = R"([{"role":"user","content":"a"},{"role":"assistant","content":
      [{"type":"tool_use","id":"1","name":"f","input":{}}]}])";
  EXPECT_EQ(refusal(read_messages, with_field(kMessagesBody, "messages", open))->param, "messages");
}

TEST(MessagesRequest, RefusesByName) {
  struct Case {
    const char *field, *value, *param, *says;
  };
  const Case cases[] = {
      {"max_tokens", "null", "max_tokens", "is missing"},
      {"messages", "[]", "messages", "has 0 items"},
      {"messages", R"([{"role":"tool","content":"x"}])", "messages[0].role", "found \"tool\""},
      {"messages", R"([{"role":"user"}])", "messages[0].content", "is missing"},
      {"messages", R"([{"role":"user","content":[{"type":"image","source":{}}]}])",
       "messages[0].content[0].type", "\"image\" is not supported; send text"},
      {"messages", R"([{"role":"user","content":[{"type":"document"}]}])",
       "messages[0].content[0].type", "\"document\" is not supported"},
      {"messages", R"([{"role":"assistant","content":[{"type":"redacted_thinking","data":""}]}])",
       "messages[0].content[0].type", "\"redacted_thinking\" is not supported"},
      {"messages", R"([{"role":"user","content":[{"type":"tool_use"}]}])",
       "messages[0].content[0].type", "found \"tool_use\", which has no place here"},
      {"messages", R"([{"role":"assistant","content":[{"type":"tool_result"}]}])",
       "messages[0].content[0].type", "has no place here"},
      {"messages", R"([{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f"}]}])",
       "messages[0].content[0].input", "is missing"},
      {"messages",
       R"([{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"image"}]}]}])",
       "messages[0].content[0].content[0].type", "\"image\" is not supported"},
      {"system", R"([{"type":"image"}])", "system[0].type", "\"image\" is not supported"},
      {"tools", R"([{"type":"web_search_20250305","name":"web_search"}])", "tools[0].type",
       "\"web_search_20250305\" is not supported"},
      {"tools", R"([{"name":"f"}])", "tools[0].input_schema", "is missing"},
      {"tools", R"([{"name":"f","input_schema":{},"strict":true}])", "tools[0].strict",
       "true is not supported"},
      {"tool_choice", R"({"type":"any"})", "tool_choice.type", "\"any\" is not supported"},
      {"tool_choice", R"({"type":"tool","name":"f"})", "tool_choice.type",
       "\"tool\" is not supported; send \"auto\" or \"none\""},
      {"thinking", R"({"type":"between_tools"})", "thinking.type", "found \"between_tools\""},
      {"thinking", R"({"type":"enabled"})", "thinking.budget_tokens", "is missing"},
      {"thinking", R"({"type":"enabled","budget_tokens":100})", "thinking.budget_tokens",
       "expected an integer from 1024"},
      {"output_config", R"({"format":{"type":"json_schema"}})", "output_config.format",
       "not supported"},
      {"temperature", "1.5", "temperature", "expected a number from 0 to 1"},
      {"stop_sequences", R"("x")", "stop_sequences", "expected a list of strings"},
      {"n", "2", "n", "2 is not supported; leave it out or send 1"},
      {"stop", R"(["x"])", "stop", "write it as `stop_sequences`"},
      {"max_tokens", "819.2", "max_tokens", "found 819.2, expected an integer from 0"},
      {"max_tokens", "-1", "max_tokens", "found -1, expected an integer from 0"},
      {"temperature", "1e-46", "temperature", "expected 0, or at least"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.field) + ": " + c.value);
    const auto error = refusal(read_messages, with_field(kMessagesBody, c.field, c.value));
    ASSERT_TRUE(error);
    EXPECT_EQ(error->param, c.param);
    EXPECT_NE(std::string_view(error->what()).find(c.says), std::string_view::npos)
        << error->what();
  }
}

}  // namespace
}  // namespace outrider

#include "server/chat_request.h"

#include <gtest/gtest.h>

#include "server/request_fields_test.h"

namespace outrider {
namespace {

using ChatCase = FieldCase<ChatRequest>;

const std::string kChatBody = R"({"messages":[{"role":"user","content":"hi"}]})";

ChatRequest read_chat(const std::string& body) {
  return read_chat_request(body);
}

ChatRequest read_chat_with(const std::string& field, const std::string& value) {
  return read_chat(with_field(kChatBody, field, value));
}

const std::vector<ChatCase>& cases() {
  using R = const ChatRequest&;
  static const std::vector<ChatCase> cases = {
      {"messages", R"([{"role":"user","content":"you"}])",
       [](R r) { return r.messages.size() == 1 && r.messages[0].content == "you"; }},
      {"tools", R"([{"type":"function","function":{"name":"f","parameters":{"b":1,"a":2}}}])",
       [](R r) {
         return r.tools.dump() ==
                R"([{"type":"function","function":{"name":"f","parameters":{"b":1,"a":2}}}])";
       }},
      {"tool_choice", R"("none")", [](R r) { return !r.uses_tools; }},
      {"parallel_tool_calls", "false", [](R r) { return !r.parallel_calls; }},
      {"reasoning_effort", R"("low")", [](R r) { return r.reasoning_effort == "low"; }},
      {"chat_template_kwargs", R"({"enable_thinking":false})",
       [](R r) { return r.variables.dump() == R"({"enable_thinking":false})"; }},
      {"add_generation_prompt", "false", [](R r) { return !r.add_generation_prompt; }},
      {"model", R"("m")", [](R r) { return r.model == "m"; }},
      {"stream", "true", [](R r) { return r.stream; }},
      {"speculation", R"({"draft":"off"})", [](R r) { return r.draft_rows == 0; }},
      {"speculation", R"({"draft":"auto","rows":5})",
       [](R r) { return r.draft_rows == 5 && !r.drafters; }},
      {"speculation", R"({"draft":"lookup+model"})",
       [](R r) {
         return !r.draft_rows && r.drafters == std::vector<std::string>{"lookup", "model"};
       }},
      {"speculation", R"({"verify":"rejection"})",
       [](R r) { return r.verifier == "rejection" && !r.draft_rows && !r.drafters; }},
      {"priority", "-7", [](R r) { return r.priority == -7; }},
      {"cache_salt", R"("s")", [](R r) { return r.cache_salt == "s"; }},
      {"n", "3", [](R r) { return r.n == 3; }},
      {"n", "3.0", [](R r) { return r.n == 3; }},
      {"stop", R"("x")", [](R r) { return r.stop == std::vector<std::string>{"x"}; }},
      {"stop", R"(["x","é"])",
       [](R r) {
         return r.stop == std::vector<std::string>{"x", "é"};
       }},
      {"seed", "7", [](R r) { return r.seed == 7u; }},
      {"seed", "9223372036854775807", [](R r) { return r.seed == 9223372036854775807u; }},
      {"temperature", "0", [](R r) { return r.filters.temperature == 0.f; }},
      {"temperature", "2", [](R r) { return r.filters.temperature == 2.f; }},
      {"top_p", "0.5", [](R r) { return r.filters.top_p == 0.5f; }},
      {"presence_penalty", "-2", [](R r) { return r.filters.presence_penalty == -2.f; }},
      {"frequency_penalty", "1.5", [](R r) { return r.filters.frequency_penalty == 1.5f; }},
      {"logit_bias", R"({"7":-100,"9":0.5})",
       [](R r) {
         return r.logit_bias.size() == 2 && r.logit_bias[0].token == 7 &&
                r.logit_bias[0].bias == -100 && r.logit_bias[1].bias == 0.5f;
       }},
      {"prediction", R"({"type":"content","content":"p"})",
       [](R r) { return r.prediction == "p"; }},
      {"prediction", R"({"type":"content","content":[{"type":"text","text":"p"}]})",
       [](R r) { return r.prediction == "p"; }},
      {"top_k", "-1", [](R r) { return r.filters.top_k == -1; }},
      {"min_p", "0.25", [](R r) { return r.filters.min_p == 0.25f; }},
      {"typical_p", "0.5", [](R r) { return r.filters.typical_p == 0.5f; }},
      {"repeat_penalty", "1.25", [](R r) { return r.filters.repeat_penalty == 1.25f; }},
      {"repetition_penalty", "1.25", [](R r) { return r.filters.repeat_penalty == 1.25f; }},
      {"repeat_last_n", "-1", [](R r) { return r.repeat_last_n == -1; }},
      {"ignore_eos", "true", [](R r) { return r.ignore_eos; }},
      {"max_completion_tokens", "9", [](R r) { return r.max_tokens == 9; }},
      {"max_completion_tokens", "-1", [](R r) { return r.max_tokens == -1; }},
      {"max_tokens", "9", [](R r) { return r.max_tokens == 9; }},
      {"max_tokens", "819.0", [](R r) { return r.max_tokens == 819; }},
      {"max_tokens", "-1", [](R r) { return r.max_tokens == -1; }},
      {"logprobs", "true", [](R r) { return r.n_logprobs == 0; }},
  };
  return cases;
}

TEST(ChatRequest, ObeysItsFields) {
  std::vector<FieldRow> rows = chat_request_fields();
  // These depend on others and are tested below.
  std::erase_if(rows, [](const FieldRow& row) {
    return row.name == "continue_final_message" || row.name == "stream_options" ||
           row.name == "top_logprobs";
  });
  expect_obeyed(rows, read_chat, kChatBody, cases());
}

TEST(ChatRequest, RowsHold) {
  expect_rows_hold(chat_request_fields(), read_chat, kChatBody);
  expect_no_request(read_chat);
}

TEST(ChatRequest, RowsOfPartsHold) {
  const std::string call = R"({"messages":[{"role":"assistant","tool_calls":[PART]}]})";
  const std::string tool = R"({"messages":[{"role":"user","content":"hi"}],"tools":[PART]})";
  const auto inside = [](std::string body, const std::string& part) {
    return body.replace(body.find("PART"), 4, part);
  };
  expect_parts_hold(
      conversation_part_fields({}), read_chat,
      {{"Messages of a chat", R"({"messages":[PART]})", "messages[0]",
        R"({"role":"assistant","content":"x"})"},
       {"Calls of a message", call, "messages[0].tool_calls[0]", R"({"function":{"name":"f"}})"},
       {"Functions of calls", inside(call, R"({"function":PART})"),
        "messages[0].tool_calls[0].function", R"({"name":"f"})"},
       {"Tools of a chat", tool, "tools[0]", R"({"type":"function","function":{"name":"f"}})"},
       {"Functions of tools", inside(tool, R"({"type":"function","function":PART})"),
        "tools[0].function", R"({"name":"f"})"}});
}

TEST(ChatRequest, RowsOfGenerationsPartsHold) {
  const std::string begin = R"({"messages":[{"role":"user","content":)";
  expect_parts_hold(
      generation_part_fields(), read_chat,
      {{"Parts of a text", begin + "[PART]}]}", "messages[0].content[0]",
        R"({"type":"text","text":"x"})"},
       {"`stream_options`", begin + R"("x"}],"stream":true,"stream_options":PART})",
        "stream_options", "{}"},
       {"`prediction`", begin + R"("x"}],"prediction":PART})", "prediction",
        R"({"type":"content","content":"x"})"},
       {"`speculation`", begin + R"("x"}],"speculation":PART})", "speculation", "{}"}});
}

TEST(ChatRequest, NullIsTheSameAsLeavingOut) {
  const ChatRequest request = read_chat(R"({"x":null,"messages":[
    {"role":"user","content":"hi","tool_calls":null,"x":null},
    {"role":"assistant","tool_calls":[{"x":null,"function":{"x":null,"name":"f"}}]}],
    "tools":[{"type":"function","x":null,"function":{"name":"f","x":null}}]})");
  EXPECT_EQ(request.messages[1].calls[0].name, "f");
  EXPECT_EQ(request.tools.dump(), R"([{"type":"function","function":{"name":"f"}}])");
}

TEST(ChatRequest, FieldsThatNeedOthers) {
  const std::string stream = with_field(kChatBody, "stream", "true");
  EXPECT_TRUE(
      read_chat(with_field(stream, "stream_options", R"({"include_usage":true})")).include_usage);
  EXPECT_TRUE(
      refusal(read_chat, with_field(kChatBody, "stream_options", R"({"include_usage":true})")));
  const std::string logprobs = with_field(kChatBody, "logprobs", "true");
  EXPECT_EQ(read_chat(with_field(logprobs, "top_logprobs", "20")).n_logprobs, 20);
  EXPECT_TRUE(refusal(read_chat, with_field(logprobs, "top_logprobs", "21")));
  EXPECT_EQ(refusal(read_chat, with_field(kChatBody, "top_logprobs", "2"))->param, "top_logprobs");
  EXPECT_TRUE(refusal(read_chat, with_field(with_field(kChatBody, "max_tokens", "1"),
                                            "max_completion_tokens", "1")));
  for (const char* off : {R"("logprobs":false,"top_logprobs":0)", R"("top_logprobs":0)"}) {
    std::string body = kChatBody;
    body.insert(1, off + std::string(","));
    EXPECT_FALSE(refusal(read_chat, body)) << off;
    EXPECT_EQ(read_chat(body).n_logprobs, std::nullopt);
  }
  EXPECT_TRUE(read_chat_with("logit_bias", "[]").logit_bias.empty());
  EXPECT_EQ(read_chat_with("seed", "-1").seed, std::nullopt);
  EXPECT_EQ(read_chat(kChatBody).n_logprobs, std::nullopt);

  const std::string begun =
      R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})";
  EXPECT_TRUE(read_chat(with_field(begun, "continue_final_message", "true")).continues);
  EXPECT_FALSE(read_chat(begun).continues);
  EXPECT_EQ(refusal(read_chat, with_field(kChatBody, "continue_final_message", "true"))->param,
            "continue_final_message");
}

TEST(ChatRequest, ReadsMessages) {
  const ChatRequest request = read_chat(R"({"messages":[
    {"role":"developer","content":[{"type":"text","text":"be "},{"type":"text","text":"brief"}]},
    {"role":"user","content":"Weather?","name":"Ada"},
    {"role":"assistant","content":null,"reasoning_content":"hm","refusal":null,"annotations":[],
     "parsed":{"a":1},"provider_specific_fields":{"a":1},
     "tool_calls":[{"id":"c1","type":"function","provider_specific_fields":{"a":1},
                    "function":{"name":"f","arguments":"{\"a\":1}","parsed_arguments":{"a":2}}},
                   {"id":"c2","type":"function","index":1,"function":{"name":"g","arguments":{"b":2}}},
                   {"type":"function","function":{"name":"h"}}]},
    {"role":"tool","tool_call_id":"c1","content":"rain"},
    {"role":"tool","tool_call_id":"c2","content":null},
    {"role":"assistant","content":""}]})");
  const auto& messages = request.messages;
  ASSERT_EQ(messages.size(), 6u);
  EXPECT_EQ(messages[0].role, "developer");
  EXPECT_EQ(messages[0].content, "be brief");
  EXPECT_EQ(messages[1].name, "Ada");
  EXPECT_EQ(messages[2].content, std::nullopt);
  EXPECT_EQ(messages[2].reasoning, "hm");
  ASSERT_EQ(messages[2].calls.size(), 3u);
  EXPECT_EQ(messages[2].calls[0].id, "c1");
  EXPECT_EQ(messages[2].calls[0].arguments, R"({"a":1})");
  EXPECT_EQ(messages[2].calls[1].name, "g");
  EXPECT_EQ(messages[2].calls[1].arguments, R"({"b":2})");
  EXPECT_EQ(messages[2].calls[2].arguments, "{}");
  EXPECT_EQ(messages[3].call_id, "c1");
  EXPECT_EQ(messages[4].content, std::nullopt);
  EXPECT_EQ(messages[5].content, "");
}

TEST(ChatRequest, RefusesByName) {
  struct ChatCase {
    const char *field, *value, *param, *says;
  };
  const std::string nines(500, '9');
  const ChatCase cases[] = {
      {"messages", "[]", "messages", "has 0 items, expected at least 1"},
      {"messages", R"([{"content":"x"}])", "messages[0].role", "is missing"},
      {"messages", R"([{"role":"function","content":"x"}])", "messages[0].role",
       "found \"function\""},
      {"messages", R"([{"role":"user"}])", "messages[0].content", "is missing"},
      {"messages", R"([{"role":"user","content":null}])", "messages[0].content", "is missing"},
      {"messages", R"([{"role":"user","content":7}])", "messages[0].content",
       "found 7, expected a string or a list of parts"},
      {"messages", R"([{"role":"user","content":[{"type":"image_url","image_url":{}}]}])",
       "messages[0].content[0].type", "\"image_url\" is not supported"},
      {"messages", R"([{"role":"user","content":[{"type":"input_audio"}]}])",
       "messages[0].content[0].type", "\"input_audio\" is not supported"},
      {"messages", R"([{"role":"user","content":[{"type":"text"}]}])",
       "messages[0].content[0].text", "is missing"},
      {"messages", R"([{"role":"user","content":[{"text":"x"}]}])", "messages[0].content[0].type",
       "is missing"},
      {"messages", R"([{"role":"user","content":"x","tool_calls":[{"function":{"name":"f"}}]}])",
       "messages[0].tool_calls", "only an assistant"},
      {"messages", R"([{"role":"assistant","tool_calls":[{"function":{}}]}])",
       "messages[0].tool_calls[0].function.name", "is missing"},
      {"messages",
       R"([{"role":"assistant","tool_calls":[{"type":"custom","function":{"name":"f"}}]}])",
       "messages[0].tool_calls[0].type", "\"custom\" is not supported"},
      {"messages", R"([{"role":"assistant","content":"","audio":{"id":"x"}}])", "messages[0].audio",
       "not supported; leave it out"},
      {"messages", R"([{"role":"assistant","content":"","function_call":{}}])",
       "messages[0].function_call", "not supported"},
      {"tools", R"([{"type":"custom"}])", "tools[0].type", "\"custom\" is not supported"},
      {"tools", R"([{"type":"function","function":{}}])", "tools[0].function.name", "is missing"},
      {"tools", R"([{"type":"function","function":{"name":"f","strict":true}}])",
       "tools[0].function.strict", "true is not supported; leave it out or send false"},
      {"tools", R"([{"type":"function","function":{"name":"f","parameters":[]}}])",
       "tools[0].function.parameters", "found a list, expected an object"},
      {"tool_choice", R"("required")", "tool_choice",
       "\"required\" is not supported; send \"auto\" or \"none\""},
      {"tool_choice", R"({"type":"function","function":{"name":"f"}})", "tool_choice",
       "tool_choice: not supported"},
      {"response_format", R"({"type":"json_object"})", "response_format",
       "not supported; leave it out or send {\"type\": \"text\"}"},
      {"mirostat", "2", "mirostat", "2 is not supported; leave it out or send 0"},
      {"n_predict", "5", "n_predict",
       "5 is not supported; leave it out or send -1: write it as `max_tokens`"},
      {"temperature", "2.5", "temperature", "found 2.5, expected a number from 0 to 2"},
      {"temperature", "18446744073709551616", "temperature",
       "found 18446744073709551616, expected a number from 0 to 2"},
      {"max_tokens", nines.c_str(), "max_tokens",
       "found 999999999999999999999999999999999999999999999999..., expected an integer"},
      {"temperature", "1e-9", "temperature", "expected 0, or at least"},
      {"temperature", "1e-40", "temperature", "expected 0, or at least"},
      {"temperature", "1e-46", "temperature", "expected 0, or at least"},
      {"temperature", "5e-324", "temperature", "expected 0, or at least"},
      {"max_tokens", "819.2", "max_tokens", "found 819.2, expected an integer from 1"},
      {"max_tokens", "-2", "max_tokens", "found -2, expected an integer from 1"},
      {"max_tokens", "-1.5", "max_tokens", "found -1.5, expected an integer from 1"},
      {"max_completion_tokens", "0", "max_completion_tokens", "found 0, expected an integer"},
      {"seed", "9007199254740993.0", "seed", "expected an integer"},
      {"top_k", "1e-300", "top_k", "expected an integer"},
      {"repeat_last_n", "63.999999", "repeat_last_n", "expected an integer"},
      {"temperature", "\"1\"", "temperature", "found \"1\", expected a number"},
      {"n", "0", "n", "found 0, expected an integer from 1 to 128"},
      {"n", "1.5", "n", "found 1.5, expected an integer"},
      {"stop", R"(["a",""])", "stop[1]", "is empty"},
      {"stop", R"(["a",7])", "stop[1]", "found 7, expected a string"},
      {"logit_bias", R"({"a":1})", "logit_bias.a", "expected the id of a token"},
      {"logit_bias", R"({"-1":1})", "logit_bias.-1", "expected the id of a token"},
      {"logit_bias", R"({"+5":1})", "logit_bias.+5", "expected the id of a token"},
      {"logit_bias", R"({"0005":1})", "logit_bias.0005", "expected the id of a token"},
      {"logit_bias", R"({"5":1,"05":1})", "logit_bias.05", "expected the id of a token"},
      {"logit_bias", R"({"-0":1})", "logit_bias.-0", "expected the id of a token"},
      {"logit_bias", R"({" 5":1})", "logit_bias. 5", "expected the id of a token"},
      {"logit_bias", R"({"5.0":1})", "logit_bias.5.0", "expected the id of a token"},
      {"logit_bias", R"({"":1})", "logit_bias.", "expected the id of a token"},
      {"logit_bias", R"({"2147483648":1})", "logit_bias.2147483648", "expected the id of a token"},
      {"logit_bias", R"([[5,1]])", "logit_bias", "found a list, expected an object"},
      {"logit_bias", R"({"1":101})", "logit_bias.1", "expected a number from -100 to 100"},
      {"speculation", R"({"draft":7})", "speculation.draft", "found 7, expected a string"},
      {"speculation", R"({"rows":65})", "speculation.rows", "expected an integer from 0 to 64"},
      {"speculation", R"({"verify":"exact"})", "speculation.verify",
       R"(found "exact", expected "coupled", "rejection" or "typical")"},
      {"prediction", R"({"type":"content"})", "prediction.content", "is missing"},
      {"prediction", R"({"type":"x","content":""})", "prediction.type", "\"x\" is not supported"},
  };
  for (const ChatCase& c : cases) {
    SCOPED_TRACE(std::string(c.field) + ": " + c.value);
    const auto error = refusal(read_chat, with_field(kChatBody, c.field, c.value));
    ASSERT_TRUE(error);
    EXPECT_EQ(error->param, c.param);
    EXPECT_NE(std::string_view(error->what()).find(c.says), std::string_view::npos)
        << error->what();
  }
}

// Wherever they stand, and each is told.
TEST(ChatRequest, IgnoresUnknownFields) {
  std::vector<std::string> told;
  const UnknownFieldListener listener = [&](const std::string& place) { told.push_back(place); };
  const ChatRequest request = read_chat_request(
      R"({"temprature":1,"chat_id":"x","messages":[
          {"role":"user","id":7,"content":[{"type":"text","text":"a","annotations":[]}]},
          {"role":"assistant","id":8,"tool_calls":[{"x":1,"function":{"name":"f","y":{"a":1}}}]}],
          "tools":[{"type":"function","z":1,"function":{"name":"f","parameters":{"q":1},"w":1}}],
          "stream":true,"stream_options":{"v":1},"chat_template_kwargs":{"any":1},"none":null,
          "mirostat":0,"user":"u"})",
      {}, listener);
  EXPECT_EQ(told,
            (std::vector<std::string>{
                "temprature", "chat_id", "messages[].id", "messages[].content[].annotations",
                "messages[].id", "messages[].tool_calls[].x", "messages[].tool_calls[].function.y",
                "tools[].z", "tools[].function.w", "stream_options.v"}));
  EXPECT_EQ(request.messages[0].content, "a");
  // They do not get into the prompt either.
  EXPECT_EQ(request.tools.dump(),
            R"([{"type":"function","function":{"name":"f","parameters":{"q":1}}}])");
}

TEST(ChatRequest, KeepsToItsLimits) {
  GenerationLimits limits;
  limits.n = 2;
  limits.stops = 2;
  limits.stop_bytes = 3;
  limits.logit_bias = 1;
  limits.top_logprobs = 4;
  limits.messages = 2;
  limits.tools = 1;
  const auto read_limited = [&](const std::string& body) {
    return read_chat_request(body, limits);
  };
  const std::string message = R"({"role":"user","content":"x"})";
  const std::string tool = R"({"type":"function","function":{"name":"f"}})";
  struct ChatCase {
    std::string field, most, more;
  };
  const ChatCase cases[] = {
      {"n", "2", "3"},
      {"stop", R"(["a","b"])", R"(["a","b","c"])"},
      {"stop", R"("abc")", R"("abcd")"},
      {"logit_bias", R"({"1":1})", R"({"1":1,"2":1})"},
      {"messages", "[" + message + "," + message + "]",
       "[" + message + "," + message + "," + message + "]"},
      {"tools", "[" + tool + "]", "[" + tool + "," + tool + "]"},
  };
  for (const ChatCase& c : cases) {
    SCOPED_TRACE(c.field);
    EXPECT_EQ(refusal(read_limited, with_field(kChatBody, c.field, c.most)), std::nullopt);
    const auto error = refusal(read_limited, with_field(kChatBody, c.field, c.more));
    ASSERT_TRUE(error);
    EXPECT_EQ(error->param, c.field);
  }
}

}  // namespace
}  // namespace outrider

#include "server/anthropic_routes.h"

#include <gtest/gtest.h>

#include "formats/parse_json.h"
#include "server/fake_served_model.h"
#include "server/json_numbers_test.h"

namespace outrider {
namespace {

struct ServedMessages : FakeScheduler {
  std::shared_ptr<FakeReply> post(const std::string& body,
                                  const std::string& path = "/v1/messages") {
    return ask(anthropic_routes(model()),
               {.method = "POST", .path = path, .query = "beta=true", .headers = {}, .body = body});
  }
  std::shared_ptr<FakeReply> say(const std::string& content, const std::string& fields = "") {
    return post(R"({"max_tokens":9,"messages":[{"role":"user","content":")" + content + "\"}]" +
                (fields.empty() ? "" : "," + fields) + "}");
  }
  const AnswerRequest& request(std::size_t answer = 0) const {
    return submitted.at(answer).request;
  }
  std::string prompt(std::size_t answer = 0) const {
    return letters()->decode(request(answer).request.prompt);
  }
};

TEST(AnthropicRoutes, Answers) {
  ServedMessages served;
  const auto reply = served.say("hi", R"("system":"s","temperature":0,"stop_sequences":["END"])");
  EXPECT_EQ(served.prompt(), "[system]s[user]hi[assistant]");
  EXPECT_EQ(served.request().request.stop.n_predict, 9);
  EXPECT_EQ(served.request().request.stop.texts, std::vector<std::string>{"END"});
  EXPECT_EQ(served.request().request.sampling.filters.temperature, 0);
  served.bring(0, "<think>hm</think>Hello");
  served.finish(0, FinishReason::stop, "END");
  const Json json = reply->json();
  EXPECT_EQ(json["id"].get<std::string>().substr(0, 4), "msg_");
  EXPECT_EQ(json["content"].dump(), R"([{"type":"thinking","thinking":"hm","signature":""},)"
                                    R"({"type":"text","text":"Hello"}])");
  EXPECT_EQ(json["stop_reason"], "stop_sequence");
  EXPECT_EQ(json["stop_sequence"], "END");
  EXPECT_EQ(json["usage"]["input_tokens"], served.prompt().size() - 1);
  EXPECT_EQ(json["usage"]["cache_read_input_tokens"], 1);
}

TEST(AnthropicRoutes, Streams) {
  ServedMessages served;
  const auto reply = served.say("hi", R"("stream":true)");
  EXPECT_EQ(*reply->stream_heartbeat, "event: ping\ndata: {\"type\": \"ping\"}\n\n");
  ASSERT_EQ(reply->events().size(), 1u);
  EXPECT_EQ(reply->events()[0].substr(0, 21), "event: message_start\n");
  EXPECT_NE(reply->events()[0].find(R"("input_tokens":19)"), std::string::npos);
  served.bring(0, "Hel");
  EXPECT_EQ(reply->events().size(), 3u);
  served.finish(0);
  EXPECT_EQ(reply->events().back(), "event: message_stop\ndata: {\"type\":\"message_stop\"}");
  EXPECT_TRUE(reply->ended);
}

TEST(AnthropicRoutes, Tools) {
  ServedMessages served;
  const std::string tool = R"({"name":"f","description":"d","input_schema":{"type":"object"}})";
  const auto reply = served.say("hi", R"("tools":[)" + tool + "]");
  EXPECT_EQ(served.prompt(),
            R"(<tool>{"type": "function", "function": {"name": "f", "description": "d", )"
            R"("parameters": {"type": "object"}}}</tool>[user]hi[assistant])");
  served.bring(0, R"(<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>)");
  served.finish(0);
  EXPECT_EQ(reply->json()["stop_reason"], "tool_use");
  EXPECT_EQ(reply->json()["content"][0]["input"].dump(), R"({"a":1})");
  EXPECT_EQ(reply->json()["content"][0]["id"].get<std::string>().substr(0, 6), "toolu_");
}

// Both ways, as with OpenAI's routes. The input of an answer's call is what the model wrote.
TEST(AnthropicRoutes, NumbersPassUnchanged) {
  for (const auto& [written, in_python] : test_numbers()) {
    SCOPED_TRACE(written);
    ServedMessages served;
    served.setting().context = 100'000;
    const std::string fields =
        R"("tools":[{"name":"f","input_schema":{"default":)" + written +
        R"(}}],"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[)"
        R"({"type":"tool_use","id":"t","name":"f","input":{"a":)" +
        written +
        R"(}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"r"}]}])";
    const auto document = served.post(R"({"max_tokens":9,)" + fields + "}");
    const auto stream = served.post(R"({"max_tokens":9,"stream":true,)" + fields + "}");
    EXPECT_EQ(served.prompt(),
              R"(<tool>{"type": "function", "function": {"name": "f", "parameters": {"default": )" +
                  in_python +
                  R"(}}}</tool>[user]hi[assistant]<tool_call>{"name": "f", "arguments": {"a": )" +
                  in_python + "}}</tool_call>[tool]r[assistant]");

    const std::string arguments = R"({"a": )" + written + "}";
    for (const std::size_t answer : {0, 1}) {
      served.bring(answer, R"(<tool_call>{"name": "f", "arguments": )");
      for (const char letter : arguments) served.bring(answer, {letter});
      served.bring(answer, "}</tool_call>");
      served.finish(answer);
    }
    EXPECT_NE(document->sent->body.find(R"("input":)" + arguments + "}]"), std::string::npos)
        << document->sent->body;
    EXPECT_TRUE(is_json_text(document->sent->body));
    std::string streamed;
    for (const std::string& event : stream->events()) {
      const Json json = Json::parse(event.substr(event.find("data: ") + 6));
      if (json["type"] == "content_block_delta")
        streamed += json["delta"]["partial_json"].get<std::string>();
    }
    EXPECT_EQ(streamed, arguments);
  }
}

TEST(AnthropicRoutes, TheFirstCallEndsAnAnswerWithoutParallelCalls) {
  ServedMessages served;
  const auto reply = served.say("hi", R"("tools":[{"name":"f","input_schema":{}}],
      "tool_choice":{"type":"auto","disable_parallel_tool_use":true})");
  served.bring(0, R"(<tool_call>{"name": "f", "arguments": {"a": )");
  EXPECT_FALSE(served.submitted[0].is_cancelled);
  served.bring(0, "1}}</tool_call>");
  EXPECT_TRUE(served.submitted[0].is_cancelled);
  served.end(0, {});  // cancelled
  EXPECT_EQ(reply->sent->status, 200);
  EXPECT_EQ(reply->json()["stop_reason"], "tool_use");
  EXPECT_EQ(reply->json()["content"].size(), 1u);
}

TEST(AnthropicRoutes, Thinking) {
  struct Case {
    const char *fields, *prompt;
  };
  const Case cases[] = {
      {"", "[user]hi[assistant]"},
      {R"("thinking":{"type":"adaptive"})", "[user]hi[assistant]"},
      {R"("thinking":{"type":"disabled"})", "[user]hi[assistant]<think></think>"},
      {R"("output_config":{"effort":"high"})", "[user]hi[assistant]"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.fields);
    ServedMessages served;
    served.say("hi", c.fields);
    EXPECT_EQ(served.prompt(), c.prompt);
  }
}

TEST(AnthropicRoutes, LimitsThinking) {
  const std::string budget =
      R"("thinking":{"type":"enabled","budget_tokens":1024},"max_tokens":2000)";
  const auto with_marks = [](ServedMessages& served) {
    served.setting().tokenizer = letters({"<think>", "</think>"});
    served.setting().vocabulary = served.setting().tokenizer->size();
  };
  const auto ask = [&](ServedMessages& served) {
    return served.post(R"({"messages":[{"role":"user","content":"hi"}],)" + budget + "}");
  };
  ServedMessages served;
  with_marks(served);
  ask(served);
  const SamplingParams& sampling = served.request().request.sampling;
  ASSERT_TRUE(sampling.reasoning);
  const Tokenizer& tokenizer = *served.setting().tokenizer;
  EXPECT_EQ(sampling.reasoning->n_prompt, std::ssize(served.request().request.prompt));
  EXPECT_EQ(sampling.reasoning->n_tokens, 1024);
  EXPECT_EQ(tokenizer.text(sampling.reasoning->open), "<think>");
  EXPECT_EQ(tokenizer.text(sampling.reasoning->close), "</think>");
  EXPECT_FALSE(sampling.reasoning->is_begun);

  ServedMessages begun;
  with_marks(begun);
  begun.setting().chat_template = std::make_shared<ChatTemplate>(
      "{{ messages[0].content }}<think>{# </think> #}", "fake", "", "<end>");
  begun.setting().format = answer_format(*begun.setting().chat_template);
  ask(begun);
  EXPECT_TRUE(begun.request().request.sampling.reasoning->is_begun);

  ServedMessages no_marks;
  EXPECT_EQ(refused([&] { ask(no_marks); }).param, "thinking.budget_tokens");
  ServedMessages no_reasoning;
  no_reasoning.setting().format.reasoning = nullptr;
  ask(no_reasoning);
  EXPECT_FALSE(no_reasoning.request().request.sampling.reasoning);
}

// The same text again is found in the cache, whatever the client's header says.
TEST(AnthropicRoutes, TheBillingHeaderDoesNotChangeThePrompt) {
  ServedMessages served;
  for (const char* header : {"cch=1;", "cch=2;"})
    served.say("hi",
               std::string(R"("system":[{"type":"text","text":"x-anthropic-billing-header: )") +
                   header + R"("},{"type":"text","text":"Help."}])");
  EXPECT_EQ(served.prompt(0), "[system]Help.[user]hi[assistant]");
  EXPECT_EQ(served.prompt(0), served.prompt(1));
}

TEST(AnthropicRoutes, GoesOnWithTheAssistantsText) {
  ServedMessages served;
  const auto reply = served.post(R"({"max_tokens":9,"messages":[{"role":"user","content":"hi"},
                                     {"role":"assistant","content":"Once"}]})");
  EXPECT_EQ(served.prompt(), "[user]hi[assistant]<think></think>Once");
  served.bring(0, " more");
  served.finish(0);
  EXPECT_EQ(reply->json()["content"][0]["text"], " more");

  const char* const thought = R"({"max_tokens":9,"messages":[{"role":"user","content":"hi"},
      {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":""},
                                     {"type":"text","text":"Once"}]}]})";
  const auto after_thinking = served.post(thought);
  EXPECT_EQ(served.prompt(1), "[user]hi[assistant]<think>hm</think>Once");
  served.bring(1, " more");
  served.finish(1);
  EXPECT_EQ(after_thinking->json()["content"].dump(), R"([{"type":"text","text":" more"}])");
}

TEST(AnthropicRoutes, CountsTokens) {
  ServedMessages served;
  const auto reply = served.post(R"({"messages":[{"role":"user","content":"hi"}],"system":"s"})",
                                 "/v1/messages/count_tokens");
  EXPECT_EQ(reply->sent->body, R"({"input_tokens":28})");
  EXPECT_TRUE(served.submitted.empty());
}

// As it stands, also where no answer could follow.
TEST(AnthropicRoutes, CountsWhatAnAssistantSaidLast) {
  struct Case {
    const char *content, *prompt;
  };
  const Case cases[] = {
      {R"([{"type":"text","text":"Once"}])", "<think></think>Once"},
      {R"([{"type":"tool_use","id":"1","name":"f","input":{}}])",
       R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)"},
      {R"([{"type":"text","text":"so"},{"type":"tool_use","id":"1","name":"f","input":{}}])",
       R"(so<tool_call>{"name": "f", "arguments": {}}</tool_call>)"},
      {R"([{"type":"thinking","thinking":"hm"}])", "<think>hm</think>"},
      {R"([{"type":"thinking","thinking":"hm"},{"type":"text","text":"Once"}])",
       "<think>hm</think>Once"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.content);
    ServedMessages served;
    const auto reply = served.post(
        R"({"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":)" +
            std::string(c.content) + "}]}",
        "/v1/messages/count_tokens");
    EXPECT_EQ(reply->json()["input_tokens"],
              std::string("[user]hi[assistant]").size() + std::string(c.prompt).size());
  }
}

TEST(AnthropicRoutes, Refuses) {
  ServedMessages served;
  const RequestError too_long = refused([&] { served.say(std::string(1000, 'x')); });
  EXPECT_EQ(too_long.status, 400);
  EXPECT_STREQ(too_long.what(), "prompt is too long: 1017 tokens > 999 maximum");
  EXPECT_EQ(refused([&] { served.say("hi", R"("model":"claude")"); }).status, 404);
  served.setting().aliases = {"*"};
  const auto reply = served.say("hi", R"("model":"claude")");
  served.finish(0);
  EXPECT_EQ(reply->json()["model"], "claude");
  served.n_room = 1;
  EXPECT_EQ(refused([&] { served.say("hi"); }).status, 429);
}

TEST(AnthropicRoutes, FailuresBecomeErrors) {
  ServedMessages served;
  const auto whole = served.say("hi");
  served.end(0, {.error = Error("NaN")});
  EXPECT_EQ(whole->sent->status, 500);
  EXPECT_EQ(whole->sent->body, R"({"type":"error","error":{"type":"api_error","message":"NaN"}})");
  const auto stream = served.say("hi", R"("stream":true)");
  served.end(1, {.error = Error("NaN")});
  EXPECT_EQ(stream->events().back(),
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\","
            "\"message\":\"NaN\"}}");
  EXPECT_TRUE(stream->ended);
}

// Where the marks of reasoning and calls are control tokens, their text must come all the same.
TEST(AnthropicRoutes, MarksOfReasoningAndCallsAreShown) {
  ServedMessages served;
  served.setting().tokenizer = letters({"<think>", "<tool_call>", "<other>"});
  served.say("hi");
  served.say("hi", R"("tools":[{"name":"f","input_schema":{}}])");
  EXPECT_EQ(served.request(0).request.stop.shown_tokens, std::vector<Token>{100});
  EXPECT_EQ(served.request(1).request.stop.shown_tokens, (std::vector<Token>{100, 101}));
}

}  // namespace
}  // namespace outrider

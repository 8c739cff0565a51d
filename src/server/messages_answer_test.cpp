#include "server/messages_answer.h"

#include <gtest/gtest.h>

#include "server/fake_served_model.h"

namespace outrider {
namespace {

MessagesAnswerOptions messages_options() {
  static const ChatTemplate chat_template(kFakeTemplate, "fake", "", "");
  return {.head = {.id = "msg_1", .model = "m", .seed = 11},
          .prompt_tokens = 5,
          .format = answer_format(chat_template),
          .parser = {.tools = R"([{"type":"function","function":{"name":"f"}}])"},
          .new_call_id = [] { return std::string("toolu_1"); }};
}

AnswerEvent messages_end(FinishReason reason, std::optional<std::string> stop = {}) {
  AnswerEvent event;
  event.end =
      AnswerEnd{.reason = reason,
                .stop_text = std::move(stop),
                .figures = {.prompt_tokens = 5, .cached_tokens = 2, .completion_tokens = 7}};
  return event;
}

std::string run_messages(AnswerForm& form, const std::vector<std::string>& steps,
                         const AnswerEvent& last) {
  std::string text = form.begin();
  for (const std::string& step : steps) text += form.push(0, letters_event(*letters(), step));
  text += form.push(0, last);
  return text + form.end();
}

struct Event {
  std::string name;
  Json json;
};

std::vector<Event> events(std::string stream) {
  std::vector<Event> events;
  while (!stream.empty()) {
    const std::size_t line = stream.find('\n'), end = stream.find("\n\n");
    EXPECT_EQ(stream.substr(0, 7), "event: ");
    EXPECT_EQ(stream.substr(line + 1, 6), "data: ");
    events.push_back(
        {stream.substr(7, line - 7), Json::parse(stream.substr(line + 7, end - line - 7))});
    EXPECT_EQ(events.back().json["type"], events.back().name);
    stream.erase(0, end + 2);
  }
  return events;
}

// What clients make of a stream. Blocks come one after another.
Json joined(const std::vector<Event>& all) {
  Json message;
  std::string arguments;
  std::size_t n_blocks = 0;
  bool is_open = false;
  for (const auto& [name, json] : all) {
    if (name == "message_start") message = json["message"];
    if (name == "content_block_start") {
      EXPECT_FALSE(std::exchange(is_open, true));
      EXPECT_EQ(json["index"], n_blocks);
      message["content"].push_back(json["content_block"]);
      arguments.clear();
    }
    if (name == "content_block_delta") {
      EXPECT_TRUE(is_open);
      EXPECT_EQ(json["index"], n_blocks);
      const Json& delta = json["delta"];
      Json& block = message["content"].back();
      if (delta["type"] == "text_delta")
        block["text"].get_ref<std::string&>() += delta["text"].get<std::string>();
      else if (delta["type"] == "thinking_delta")
        block["thinking"].get_ref<std::string&>() += delta["thinking"].get<std::string>();
      else
        arguments += delta["partial_json"].get<std::string>();
    }
    if (name == "content_block_stop") {
      EXPECT_TRUE(std::exchange(is_open, false));
      EXPECT_EQ(json["index"], n_blocks++);
      if (!arguments.empty())
        message["content"].back()["input"] = Json::parse(arguments, nullptr, false);
    }
    if (name == "message_delta") {
      for (const auto& [key, value] : json["delta"].items()) message[key] = value;
      message["usage"] = json["usage"];
      message["timings"] = json["timings"];
    }
  }
  EXPECT_FALSE(is_open);
  EXPECT_EQ(all.back().name, "message_stop");
  return message;
}

TEST(MessagesAnswer, DocumentAndStreamSayTheSame) {
  struct Case {
    const char* name;
    std::vector<std::string> steps;
    AnswerEvent last;
    std::string content, stop_reason;
    Json stop_sequence = nullptr;
  };
  using enum FinishReason;
  const std::string call = R"(<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>)";
  const std::string call_block = R"({"type":"tool_use","id":"toolu_1","name":"f","input":{"a":1}})";
  std::vector<std::string> letter_by_letter;
  for (const char letter : "<think>hm</think>so" + call + call)
    letter_by_letter.push_back({letter});
  const std::string blocks = R"([{"type":"thinking","thinking":"hm","signature":""},)"
                             R"({"type":"text","text":"so"},)" +
                             call_block + "," + call_block + "]";
  const Case cases[] = {
      {"text",
       {"Hel", "lo"},
       messages_end(stop),
       R"([{"type":"text","text":"Hello"}])",
       "end_turn"},
      {"nothing", {}, messages_end(stop), "[]", "end_turn"},
      {"cut", {"Hel"}, messages_end(length), R"([{"type":"text","text":"Hel"}])", "max_tokens"},
      {"a stop string",
       {"a"},
       messages_end(stop, "END"),
       R"([{"type":"text","text":"a"}])",
       "stop_sequence",
       "END"},
      {"a call", {call}, messages_end(stop), "[" + call_block + "]", "tool_use"},
      {"at once", {"<think>hm</think>so" + call + call}, messages_end(stop), blocks, "tool_use"},
      {"letter by letter", letter_by_letter, messages_end(stop), blocks, "tool_use"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Json document =
        Json::parse(run_messages(*messages_document(messages_options()), c.steps, c.last));
    EXPECT_EQ(document["id"], "msg_1");
    EXPECT_EQ(document["type"], "message");
    EXPECT_EQ(document["role"], "assistant");
    EXPECT_EQ(document["model"], "m");
    EXPECT_EQ(document["seed"], 11);
    EXPECT_EQ(document["content"].dump(), c.content);
    EXPECT_EQ(document["stop_reason"], c.stop_reason);
    EXPECT_EQ(document["stop_sequence"], c.stop_sequence);
    EXPECT_EQ(document["usage"].dump(), R"({"input_tokens":3,"cache_creation_input_tokens":0,)"
                                        R"("cache_read_input_tokens":2,"output_tokens":7})");
    EXPECT_EQ(document["timings"]["predicted_n"], 7);
    const Json streamed =
        joined(events(run_messages(*messages_stream(messages_options()), c.steps, c.last)));
    EXPECT_EQ(nlohmann::json(streamed), nlohmann::json(document));
  }
}

TEST(MessagesAnswer, StreamsInOrder) {
  const auto all =
      events(run_messages(*messages_stream(messages_options()), {"<think>hm</think>", "a", "b"},
                          messages_end(FinishReason::stop)));
  std::vector<std::string> names;
  for (const Event& event : all) names.push_back(event.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"message_start", "content_block_start", "content_block_delta",
                                      "content_block_stop", "content_block_start",
                                      "content_block_delta", "content_block_delta",
                                      "content_block_stop", "message_delta", "message_stop"}));
  EXPECT_EQ(all[0].json["message"]["usage"]["input_tokens"], 5);
  EXPECT_EQ(all[0].json["message"]["stop_reason"], nullptr);
}

TEST(MessagesAnswer, ThinkingMayBeLeftOut) {
  MessagesAnswerOptions hidden = messages_options();
  hidden.shows_thinking = false;
  const std::vector<std::string> steps = {"<think>h", "m</think>so"};
  const AnswerEvent last = messages_end(FinishReason::stop);
  const std::string blocks = R"([{"type":"thinking","thinking":"","signature":""},)"
                             R"({"type":"text","text":"so"}])";
  EXPECT_EQ(Json::parse(run_messages(*messages_document(hidden), steps, last))["content"].dump(),
            blocks);
  const std::string stream = run_messages(*messages_stream(hidden), steps, last);
  EXPECT_EQ(joined(events(stream))["content"].dump(), blocks);
  EXPECT_EQ(stream.find("thinking_delta"), stream.npos);
}

// A call that turns out to be none is text.
TEST(MessagesAnswer, VoidCallsAreText) {
  const std::string text = R"(so <tool_call>{"name": "f", "arguments": {"a": )";
  const AnswerEvent last = messages_end(FinishReason::length);
  const Json document =
      Json::parse(run_messages(*messages_document(messages_options()), {text}, last));
  EXPECT_EQ(document["content"].size(), 1u);
  EXPECT_EQ(document["content"][0]["text"], text);
  const Json streamed =
      joined(events(run_messages(*messages_stream(messages_options()), {text}, last)));
  EXPECT_EQ(streamed["content"].back()["type"], "text");
}

TEST(MessagesAnswer, StreamsTellErrors) {
  EXPECT_EQ(messages_stream(messages_options())->fail(RequestError(500, "", "", "NaN")),
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\","
            "\"message\":\"NaN\"}}\n\n");
}

}  // namespace
}  // namespace outrider

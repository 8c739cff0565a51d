#include "server/chat_answer.h"

#include <gtest/gtest.h>

#include <memory>

#include "server/fake_served_model.h"

namespace outrider {
namespace {

constexpr const char* kTools = R"([{"type":"function","function":{"name":"f"}}])";

ChatAnswerOptions chat_options() {
  static const ChatTemplate chat_template(kFakeTemplate, "fake", "", "");
  return {.head = {.id = "chatcmpl-1", .model = "m", .version = "v", .created = 7, .seed = 11},
          .format = answer_format(chat_template),
          .tokenizer = letters(),
          .new_call_id = [n = std::make_shared<int>(0)] { return fmt::format("id{}", (*n)++); }};
}

AnswerEvent chat_end(FinishReason reason, int n_tokens = 0) {
  AnswerFigures figures{.prompt_tokens = 5, .cached_tokens = 2, .completion_tokens = n_tokens};
  AnswerEvent event;
  event.end = AnswerEnd{.reason = reason, .figures = figures};
  return event;
}

struct ScriptedAnswer {
  std::vector<std::string> steps;
  FinishReason reason = FinishReason::stop;
};

std::string run_chat(AnswerForm& form, const std::vector<ScriptedAnswer>& answers) {
  std::string text = form.begin();
  for (std::size_t i = 0; i < answers.size(); ++i)
    for (const std::string& step : answers[i].steps)
      text += form.push(static_cast<int>(i), letters_event(*letters(), step));
  for (std::size_t i = 0; i < answers.size(); ++i) {
    std::size_t n = 0;
    for (const std::string& step : answers[i].steps) n += step.size();
    text += form.push(static_cast<int>(i), chat_end(answers[i].reason, static_cast<int>(n)));
  }
  return text + form.end();
}

// The JSON of each event, and the rest of the stream.
std::pair<std::vector<Json>, std::string> chunks(const std::string& stream) {
  std::vector<Json> chunks;
  std::size_t at = 0;
  while (stream.compare(at, 7, "data: {") == 0) {
    const std::size_t end = stream.find("\n\n", at);
    chunks.push_back(Json::parse(stream.substr(at + 6, end - at - 6)));
    at = end + 2;
  }
  return {chunks, stream.substr(at)};
}

// What clients make of a stream: deltas joined, choice by choice.
std::vector<Json> joined(const std::string& stream) {
  std::vector<Json> messages;
  for (const Json& chunk : chunks(stream).first)
    for (const Json& choice : chunk["choices"]) {
      const auto index = choice["index"].get<std::size_t>();
      if (index >= messages.size()) messages.resize(index + 1, Json::object());
      Json& message = messages[index];
      for (const auto& [key, value] : choice["delta"].items()) {
        if (key != "tool_calls") {
          message[key] = message.value(key, "") + value.get<std::string>();
          continue;
        }
        for (const Json& call : value) {
          const auto at = call["index"].get<std::size_t>();
          if (call.contains("id")) {
            EXPECT_EQ(at, message.contains("tool_calls") ? message["tool_calls"].size() : 0);
            message["tool_calls"].push_back(call);
          } else
            message["tool_calls"][at]["function"]["arguments"].get_ref<std::string&>() +=
                call["function"]["arguments"].get<std::string>();
        }
      }
      if (!choice["finish_reason"].is_null()) message["finish_reason"] = choice["finish_reason"];
    }
  return messages;
}

TEST(ChatAnswer, DocumentAndStreamSayTheSame) {
  struct Case {
    const char* name;
    ScriptedAnswer answer;
    std::string content, reasoning;
    std::vector<std::pair<std::string, std::string>> calls;  // names and arguments
    std::string finish_reason;
  };
  const std::string call = R"(<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>)";
  const Case cases[] = {
      {"text", {{"Hel", "lo"}}, "Hello", "", {}, "stop"},
      {"nothing", {{}}, "", "", {}, "stop"},
      {"cut", {{"Hel"}, FinishReason::length}, "Hel", "", {}, "length"},
      {"reasoning", {{"<think>hm", "m</think>yes"}}, "yes", "hmm", {}, "stop"},
      {"in one step",
       {{"<think>hm</think>yes" + call}},
       "yes",
       "hm",
       {{"f", R"({"a": 1})"}},
       "tool_calls"},
      {"letter by letter",
       {[&] {
         std::vector<std::string> steps;
         for (const char letter : "so " + call) steps.push_back({letter});
         return steps;
       }()},
       "so",
       "",
       {{"f", R"({"a": 1})"}},
       "tool_calls"},
      {"two calls",
       {{call, call}},
       "",
       "",
       {{"f", R"({"a": 1})"}, {"f", R"({"a": 1})"}},
       "tool_calls"},
      {"cut after a call",
       {{call, "and"}, FinishReason::length},
       "and",
       "",
       {{"f", R"({"a": 1})"}},
       "length"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    ChatAnswerOptions with_tools = chat_options();
    with_tools.parser.tools = kTools;
    const Json document = Json::parse(run_chat(*chat_document(with_tools), {c.answer}));
    const Json& choice = document["choices"][0];
    const Json& message = choice["message"];
    EXPECT_EQ(message["role"], "assistant");
    EXPECT_EQ(message["content"], c.content.empty() && !c.calls.empty() ? Json() : Json(c.content));
    EXPECT_EQ(message.value("reasoning_content", ""), c.reasoning);
    EXPECT_EQ(message.contains("reasoning_content"), !c.reasoning.empty());
    EXPECT_EQ(message.contains("tool_calls"), !c.calls.empty());
    EXPECT_EQ(choice["finish_reason"], c.finish_reason);
    EXPECT_EQ(choice["logprobs"], nullptr);
    for (std::size_t i = 0; i < c.calls.size(); ++i) {
      const Json& made = message["tool_calls"][i];
      EXPECT_EQ(made["type"], "function");
      EXPECT_EQ(made["function"]["name"], c.calls[i].first);
      EXPECT_EQ(made["function"]["arguments"], c.calls[i].second);
    }
    if (c.calls.size() == 2) {
      EXPECT_NE(message["tool_calls"][0]["id"], message["tool_calls"][1]["id"]);
    }

    const Json streamed = joined(run_chat(*chat_stream(with_tools), {c.answer}))[0];
    EXPECT_EQ(streamed["role"], "assistant");
    EXPECT_EQ(streamed["content"], c.content);
    EXPECT_EQ(streamed.value("reasoning_content", ""), c.reasoning);
    EXPECT_EQ(streamed["finish_reason"], c.finish_reason);
    ASSERT_EQ(streamed.contains("tool_calls") ? streamed["tool_calls"].size() : 0, c.calls.size());
    for (std::size_t i = 0; i < c.calls.size(); ++i)
      EXPECT_EQ(streamed["tool_calls"][i]["function"], message["tool_calls"][i]["function"]);
  }
}

TEST(ChatAnswer, Document) {
  const Json document = Json::parse(run_chat(*chat_document(chat_options()), {{{"Hi"}}}));
  EXPECT_EQ(document["id"], "chatcmpl-1");
  EXPECT_EQ(document["object"], "chat.completion");
  EXPECT_EQ(document["created"], 7);
  EXPECT_EQ(document["model"], "m");
  EXPECT_EQ(document["system_fingerprint"], "v");
  EXPECT_EQ(document["seed"], 11);
  EXPECT_EQ(document["choices"][0]["index"], 0);
  EXPECT_EQ(document["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(document["usage"]["completion_tokens"], 2);
  EXPECT_EQ(document["usage"]["total_tokens"], 7);
  EXPECT_EQ(document["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
  EXPECT_EQ(document["timings"]["predicted_n"], 2);
}

TEST(ChatAnswer, StreamsInOrder) {
  ChatAnswerOptions usage = chat_options();
  usage.include_usage = true;
  usage.n = 2;
  const auto [events, rest] = chunks(run_chat(*chat_stream(usage), {{{"a", "b"}}, {{"c"}}}));
  EXPECT_EQ(rest, "data: [DONE]\n\n");
  std::vector<std::string> order;
  for (const Json& event : events) {
    EXPECT_EQ(event["id"], "chatcmpl-1");
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    EXPECT_EQ(event["seed"], 11);
    EXPECT_TRUE(event.contains("usage"));
    if (event["choices"].empty()) {
      EXPECT_EQ(event["usage"]["prompt_tokens"], 5) << "of one prompt";
      EXPECT_EQ(event["usage"]["completion_tokens"], 3);
      EXPECT_TRUE(event.contains("timings"));
      order.push_back("usage");
      continue;
    }
    EXPECT_EQ(event["usage"], nullptr);
    EXPECT_FALSE(event.contains("timings"));
    const Json& choice = event["choices"][0];
    EXPECT_FALSE(choice.contains("logprobs"));
    order.push_back(choice["index"].dump() + choice["delta"].dump() +
                    choice["finish_reason"].dump());
  }
  EXPECT_EQ(order, (std::vector<std::string>{R"(0{"role":"assistant","content":""}null)",
                                             R"(1{"role":"assistant","content":""}null)",
                                             R"(0{"content":"a"}null)", R"(0{"content":"b"}null)",
                                             R"(1{"content":"c"}null)", R"(0{}"stop")",
                                             R"(1{}"stop")", "usage"}));

  // Without the usage the last chunk has the timings.
  const auto plain = chunks(run_chat(*chat_stream(chat_options()), {{{"a"}}}));
  EXPECT_EQ(plain.first.back()["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(plain.first.back()["timings"]["predicted_n"], 1);
  EXPECT_FALSE(plain.first.back().contains("usage"));
  EXPECT_EQ(plain.second, "data: [DONE]\n\n");
}

AnswerEvent scored_event(const std::vector<Token>& tokens, const std::string& text) {
  AnswerEvent event;
  for (const Token token : tokens)
    event.tokens.push_back({.token = token,
                            .text = token == tokens.back() ? text : "",
                            .score = ScoredToken{-0.5f, {{token, -0.5f}, {0, -2}}}});
  return event;
}

TEST(ChatAnswer, LogProbabilitiesOfEachToken) {
  ChatAnswerOptions scored = chat_options();
  scored.logprobs = true;
  const auto document = chat_document(scored), stream = chat_stream(scored);
  std::string streamed = stream->begin();
  for (AnswerForm* form : {document.get(), stream.get()}) {
    std::string text = form->push(0, scored_event({1, 2}, "é"));
    text += form->push(0, scored_event({1}, ""));  // nothing can be shown yet
    text += form->push(0, scored_event({2, 0}, "é"));
    text += form->push(0, chat_end(FinishReason::stop, 5));
    if (form == stream.get()) streamed += text;
  }
  const Json content = Json::parse(document->end())["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 5u);
  EXPECT_EQ(content[0].dump(),
            R"({"token":"bytes:\\xc3","logprob":-0.5,"bytes":[195],"top_logprobs":)"
            R"([{"token":"bytes:\\xc3","logprob":-0.5,"bytes":[195]},)"
            R"({"token":"<end>","logprob":-2.0,"bytes":[60,101,110,100,62]}]})");
  EXPECT_EQ(content[4]["token"], "<end>");
  Json all = Json::array();
  for (const Json& chunk : chunks(streamed).first)
    if (const Json& logprobs = chunk["choices"][0]["logprobs"]; !logprobs.is_null())
      for (const Json& entry : logprobs["content"]) all.push_back(entry);
  EXPECT_EQ(all, content);
  EXPECT_EQ(chunks(streamed).first[0]["choices"][0]["logprobs"], nullptr) << "of the role";
}

TEST(ChatAnswer, OneCallIsEnoughWithoutParallelCalls) {
  ChatAnswerOptions one = chat_options();
  one.parser = {.tools = kTools, .parallel_calls = false};
  const auto form = chat_document(one);
  form->push(0, letters_event(*letters(), R"(<tool_call>{"name": "f", "arguments": {"a": 1)"));
  EXPECT_FALSE(form->has_enough(0));
  form->push(0, letters_event(*letters(), "}</tool_call>"));
  EXPECT_TRUE(form->has_enough(0));
  form->push(0, letters_event(*letters(), R"(<tool_call>{"name": "f", "arguments": {}})"));
  form->push(0, chat_end(FinishReason::stop));
  const Json choice = Json::parse(form->end())["choices"][0];
  EXPECT_EQ(choice["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
}

// A call that turns out to be none is content.
TEST(ChatAnswer, VoidCallsAreNone) {
  ChatAnswerOptions with_tools = chat_options();
  with_tools.parser.tools = kTools;
  const std::string text = R"(<tool_call>{"name": "f", "arguments": {"a": )";
  const Json document =
      Json::parse(run_chat(*chat_document(with_tools), {{{text}, FinishReason::length}}));
  const Json& message = document["choices"][0]["message"];
  EXPECT_EQ(message["content"], text);
  EXPECT_FALSE(message.contains("tool_calls"));
  EXPECT_EQ(joined(run_chat(*chat_stream(with_tools), {{{text}}}))[0]["finish_reason"], "stop");
}

TEST(ChatAnswer, WhatWasHeldBackComesWithTheEnd) {
  const auto form = chat_document(chat_options());
  AnswerEvent event = chat_end(FinishReason::stop);
  event.held_text = "rest";
  form->push(0, event);
  EXPECT_EQ(Json::parse(form->end())["choices"][0]["message"]["content"], "rest");
}

TEST(ChatAnswer, StreamsTellErrors) {
  const auto form = chat_stream(chat_options());
  EXPECT_EQ(form->fail(RequestError(500, "", "", "NaN")),
            "data: {\"error\":{\"message\":\"NaN\",\"type\":\"server_error\",\"param\":null,"
            "\"code\":null}}\n\ndata: [DONE]\n\n");
}

// Content that the prompt began is not repeated.
TEST(ChatAnswer, GoesOnWithWhatWasBegun) {
  ChatAnswerOptions begun = chat_options();
  begun.parser.begun = "<think></think>Once upon";
  const Json document = Json::parse(run_chat(*chat_document(begun), {{{" a time"}}}));
  EXPECT_EQ(document["choices"][0]["message"]["content"], " a time");
  begun.parser.begun = "<think>";
  const Json reasoning = Json::parse(run_chat(*chat_document(begun), {{{"hm</think>so"}}}));
  EXPECT_EQ(reasoning["choices"][0]["message"]["reasoning_content"], "hm");
  // "hm</think>", in letters.
  EXPECT_EQ(reasoning["usage"]["completion_tokens_details"]["reasoning_tokens"], 10);
}

}  // namespace
}  // namespace outrider

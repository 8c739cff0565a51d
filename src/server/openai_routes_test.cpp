#include "server/openai_routes.h"

#include <gtest/gtest.h>

#include "server/fake_served_model.h"
#include "server/json_numbers_test.h"

namespace outrider {
namespace {

struct ServedOpenAi : FakeScheduler {
  std::shared_ptr<FakeReply> post(const std::string& path, const std::string& body,
                                  std::optional<std::size_t> api_key = {}) {
    return ask(openai_routes(model()), {.method = "POST",
                                        .path = path,
                                        .query = "",
                                        .headers = {},
                                        .body = body,
                                        .api_key = api_key});
  }
  std::shared_ptr<FakeReply> get(const std::string& path) {
    return ask(openai_routes(model()),
               {.method = "GET", .path = path, .query = "", .headers = {}, .body = ""});
  }
  std::shared_ptr<FakeReply> chat(const std::string& fields, const std::string& content = "hi") {
    const std::string more = fields.empty() ? "" : "," + fields;
    return post("/v1/chat/completions",
                R"({"messages":[{"role":"user","content":")" + content + "\"}]" + more + "}");
  }
  const AnswerRequest& request(std::size_t answer = 0) const {
    return submitted.at(answer).request;
  }
  std::string prompt(std::size_t answer = 0) const {
    return letters()->decode(request(answer).request.prompt);
  }
};

TEST(OpenAiRoutes, AnswersAChat) {
  ServedOpenAi served;
  const auto reply = served.chat(R"("max_tokens":7,"temperature":0,"seed":3)");
  ASSERT_EQ(served.submitted.size(), 1u);
  EXPECT_EQ(served.prompt(), "[user]hi[assistant]");
  const AnswerRequest& asked = served.request();
  EXPECT_EQ(asked.request.stop.n_predict, 7);
  EXPECT_EQ(asked.request.sampling.filters.temperature, 0);
  EXPECT_EQ(asked.request.sampling.seed, 3u);
  EXPECT_EQ(asked.request.options.n_logprobs, std::nullopt);
  EXPECT_EQ(asked.request.options.scope, CacheScope{});
  EXPECT_FALSE(reply->sent);
  served.bring(0, "<think>hm</think>");
  served.bring(0, "Hello");
  served.finish(0);
  const Json json = reply->json();
  EXPECT_EQ(reply->sent->status, 200);
  EXPECT_EQ(reply->sent->content_type, "application/json");
  EXPECT_EQ(json["model"], "fake");
  EXPECT_EQ(json["seed"], 3);
  EXPECT_EQ(json["id"].get<std::string>().substr(0, 9), "chatcmpl-");
  EXPECT_EQ(json["choices"][0]["message"]["content"], "Hello");
  EXPECT_EQ(json["choices"][0]["message"]["reasoning_content"], "hm");
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 1);
}

TEST(OpenAiRoutes, PenaltiesLookAsFarAsTheServerSays) {
  ServedOpenAi served;
  served.setting().repeat_last_n = 7;
  served.chat("");
  served.chat(R"("repeat_last_n":0)");
  EXPECT_EQ(served.request(0).request.sampling.repeat_last_n, 7);
  EXPECT_EQ(served.request(1).request.sampling.repeat_last_n, 0);
}

TEST(OpenAiRoutes, StreamsAChat) {
  ServedOpenAi served;
  const auto reply = served.chat(R"("stream":true,"stream_options":{"include_usage":true})");
  EXPECT_EQ(reply->stream_heartbeat.value().substr(0, 1), ":");
  EXPECT_EQ(reply->stream_heartbeat.value().substr(reply->stream_heartbeat->size() - 2), "\n\n");
  EXPECT_EQ(reply->events().size(), 1u) << "the role comes at once";
  served.bring(0, "Hel");
  served.bring(0, "lo");
  EXPECT_EQ(reply->events().size(), 3u) << "each step as it comes";
  EXPECT_FALSE(reply->ended);
  served.finish(0);
  EXPECT_TRUE(reply->ended);
  EXPECT_EQ(reply->events().size(), 6u);
  EXPECT_EQ(reply->events().back(), "data: [DONE]");
}

TEST(OpenAiRoutes, ParallelAnswersAreStreamsOfTheSameSeed) {
  ServedOpenAi served;
  const auto reply = served.chat(R"("n":3)");
  ASSERT_EQ(served.submitted.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(served.request(i).request.sampling.stream, i);
    EXPECT_EQ(served.request(i).request.sampling.seed, served.request(0).request.sampling.seed);
    EXPECT_EQ(served.request(i).request.prompt, served.request(0).request.prompt);
  }
  for (const std::size_t i : {2, 0, 1}) {
    EXPECT_FALSE(reply->sent);
    served.bring(i, std::string(i + 1, 'x'));
    served.finish(i);
  }
  EXPECT_TRUE(reply->is_made);  // not on the engine's thread
  EXPECT_EQ(reply->json()["choices"].size(), 3u);
  EXPECT_EQ(reply->json()["choices"][2]["message"]["content"], "xxx");
  EXPECT_EQ(reply->json()["seed"], served.request(0).request.sampling.seed);
}

TEST(OpenAiRoutes, DrawsASeed) {
  ServedOpenAi served;
  served.chat("");
  served.chat("");
  EXPECT_NE(served.request(0).request.sampling.seed, served.request(1).request.sampling.seed);
}

TEST(OpenAiRoutes, PassesOnWhatIsAsked) {
  ServedOpenAi served;
  served.chat(R"("stop":["x"],"ignore_eos":true,"logprobs":true,"top_logprobs":4,
    "prediction":{"type":"content","content":"ab"},"speculation":{"rows":3},"priority":-2,
    "cache_salt":"s","logit_bias":{"5":1},"repeat_last_n":9,"top_k":0,"presence_penalty":1)");
  const AnswerRequest& asked = served.request();
  EXPECT_EQ(asked.request.stop.texts, std::vector<std::string>{"x"});
  EXPECT_TRUE(asked.request.stop.ignore_eos);
  EXPECT_EQ(asked.request.stop.n_predict, -1);
  EXPECT_EQ(asked.request.options.prediction, letters()->encode("ab"));
  EXPECT_EQ(asked.request.options.n_logprobs, 4);
  EXPECT_FALSE(asked.request.options.prompt_logprobs);
  EXPECT_EQ(asked.request.options.draft_rows, 3);
  EXPECT_EQ(asked.priority, -2);
  EXPECT_NE(asked.request.options.scope, CacheScope{});
  EXPECT_EQ(asked.request.sampling.bias.at(0).token, 5);
  EXPECT_EQ(asked.request.sampling.repeat_last_n, 9);
  EXPECT_EQ(asked.request.sampling.filters.top_k, 0);
  EXPECT_EQ(asked.request.sampling.filters.presence_penalty, 1);
}

TEST(OpenAiRoutes, TheVerifierIsTheRequestsOrTheServers) {
  ServedOpenAi served;
  served.chat("");
  EXPECT_EQ(served.request().request.options.verifier->name(), "coupled");
  served.chat(R"("speculation":{"verify":"typical"})");
  EXPECT_EQ(served.request(1).request.options.verifier->name(), "typical");
  served.setting().verifier = "rejection";
  served.chat(R"("speculation":{"rows":3})");
  EXPECT_EQ(served.request(2).request.options.verifier->name(), "rejection");
}

TEST(OpenAiRoutes, OnlyDraftersOfTheServerCanBeAskedFor) {
  ServedOpenAi served;
  served.chat(R"("speculation":{"draft":"lookup"})");
  EXPECT_EQ(served.request().request.options.drafters, std::vector<std::string>{"lookup"});
  const RequestError error =
      refused([&] { served.chat(R"("speculation":{"draft":"lookup+eagle"})"); });
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.param, "speculation.draft");
  EXPECT_EQ(
      std::string_view(error.what()),
      "speculation.draft: no drafter \"eagle\"; expected \"auto\", \"off\" or of this server's: "
      "prediction, lookup");
}

TEST(OpenAiRoutes, KeysAndSaltsSeparateTheCache) {
  ServedOpenAi served;
  const auto scope = [&](std::optional<std::size_t> key, const std::string& salt) {
    const std::string body = R"({"prompt":"x","cache_salt":")" + salt + "\"}";
    served.post("/v1/completions", body, key);
    return served.submitted.back().request.request.options.scope;
  };
  const std::vector<CacheScope> scopes = {scope({}, ""),  scope(0, ""),   scope(1, ""),
                                          scope({}, "a"), scope({}, "b"), scope(0, "a"),
                                          scope(1, "a"),  scope({}, "0"), scope({}, "none ")};
  for (std::size_t i = 0; i < scopes.size(); ++i)
    for (std::size_t k = 0; k < i; ++k) EXPECT_NE(scopes[i], scopes[k]) << i << " " << k;
  EXPECT_EQ(scope(1, "a"), scopes[6]);
}

TEST(OpenAiRoutes, ToolsGoToTheTemplateAndCallsComeBack) {
  ServedOpenAi served;
  const std::string tools =
      R"("tools":[{"type":"function","function":{"name":"f","parameters":{"b":1,"a":2}}}])";
  const auto reply = served.chat(tools);
  EXPECT_EQ(
      served.prompt(),
      R"(<tool>{"type": "function", "function": {"name": "f", "parameters": {"b": 1, "a": 2}}})"
      "</tool>[user]hi[assistant]");
  served.bring(0, R"(<tool_call>{"name": "f", "arguments": {"b": 1}}</tool_call>)");
  served.finish(0);
  const Json choice = reply->json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], R"({"b": 1})");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["id"].get<std::string>().substr(0, 5), "call_");

  // With "none" the model does not hear of them, and what looks like a call is text.
  const auto none = served.chat(tools + R"(,"tool_choice":"none")");
  EXPECT_EQ(served.prompt(1), "[user]hi[assistant]");
  const std::string call = R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)";
  served.bring(1, call);
  served.finish(1);
  EXPECT_EQ(none->json()["choices"][0]["message"]["content"], call);
  EXPECT_EQ(none->json()["choices"][0]["finish_reason"], "stop");
}

// What tells the model nothing does not change the prompt.
TEST(OpenAiRoutes, TheTemplateGetsOnlyWhatDefinesATool) {
  ServedOpenAi served;
  served.chat(R"("tools":[{"function":{"parameters":{"cache_control":1},"name":"f"},
                           "type":"function"}])");
  served.chat(R"("tools":[{"cache_control":{"type":"ephemeral"},"function":{"strict":false,
                           "parameters":{"cache_control":1},"description":null,"name":"f"},
                           "more":null,"type":"function"}])");
  EXPECT_EQ(served.prompt(0),
            R"(<tool>{"function": {"parameters": {"cache_control": 1}, "name": "f"}, )"
            R"("type": "function"}</tool>[user]hi[assistant])");
  EXPECT_EQ(served.prompt(1), served.prompt(0));
}

// Integers keep all digits, whatever their size, and other numbers are written as Python writes
// them: tools, earlier calls and variables on their way to the template, calls on their way back.
TEST(OpenAiRoutes, NumbersPassUnchanged) {
  for (const auto& [written, in_python] : test_numbers()) {
    SCOPED_TRACE(written);
    ServedOpenAi served;
    served.setting().context = 100'000;
    served.setting().chat_template = std::make_shared<ChatTemplate>(
        std::string(kFakeTemplate) + "{{ x }} {{ x | tojson }}", "fake", "", "<end>");
    const std::string object = R"({"a":[)" + written + "]}";
    const std::string fields =
        R"("tools":[{"type":"function","function":{"name":"f","parameters":{"default":)" + written +
        R"(}}}],"chat_template_kwargs":{"x":)" + written + "}";
    const auto call = [](const std::string& arguments) {
      return R"({"id":"c","type":"function","function":{"name":"f","arguments":)" + arguments +
             "}}";
    };
    const std::string messages =
        R"("messages":[{"role":"user","content":"hi"},{"role":"assistant","tool_calls":[)" +
        call(object) + "," + call(Json(object).dump()) + "]}]";
    const auto ask = [&](const char* stream) {
      return served.post("/v1/chat/completions", "{" + fields + "," + messages + stream + "}");
    };
    const auto document = ask(""), stream = ask(R"(,"stream":true)");
    const std::string called =
        R"(<tool_call>{"name": "f", "arguments": {"a": [)" + in_python + "]}}</tool_call>";
    EXPECT_EQ(served.prompt(),
              R"(<tool>{"type": "function", "function": {"name": "f", "parameters": {"default": )" +
                  in_python + "}}}</tool>[user]hi[assistant]" + called + called + "[assistant]" +
                  in_python + " " + in_python);

    const std::string arguments = R"({"a": )" + written + "}";
    for (const std::size_t answer : {0, 1}) {
      served.bring(answer, R"(<tool_call>{"name": "f", "arguments": )");
      for (const char letter : arguments) served.bring(answer, {letter});
      served.bring(answer, "}</tool_call>");
      served.finish(answer);
    }
    EXPECT_EQ(document->json()["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"],
              arguments);
    std::string streamed;
    for (const std::string& event : stream->events()) {
      if (event == "data: [DONE]") continue;
      const Json delta = Json::parse(event.substr(6))["choices"][0]["delta"];
      if (delta.contains("tool_calls"))
        streamed += delta["tool_calls"][0]["function"]["arguments"].get<std::string>();
    }
    EXPECT_EQ(streamed, arguments);
  }
}

// What the template gets only as text is written by the same rules.
TEST(OpenAiRoutes, NumbersPassUnchangedToTemplatesThatTakeTexts) {
  for (const auto& [written, in_python] : test_numbers()) {
    SCOPED_TRACE(written);
    const std::string sources[] = {
        "{% for m in messages %}{{ '(' + m.tools + ')' if m.tools }}{{ m.content }}"
        "{% for call in m.tool_calls or [] %}{{ '[' + call.function.arguments + ']' }}{% endfor %}"
        "{% endfor %}",
        "{{ tools | tojson if tools }}{% for m in messages %}{{ m.content }}{% endfor %}"};
    for (int i = 0; i < 2; ++i) {
      const std::string& source = sources[i];
      const ChatTemplate chat_template(source, "fake", "", "<end>");
      ServedOpenAi served;
      served.setting().context = 100'000;
      served.setting().chat_template = std::make_shared<ChatTemplate>(source, "fake", "", "<end>");
      served.setting().format = answer_format(chat_template);
      served.setting().format.tools = &tool_syntaxes()[0];
      served.post(
          "/v1/chat/completions",
          R"({"tools":[{"type":"function","function":{"name":"f","parameters":{"x":)" + written +
              R"(}}}],"messages":[{"role":"user","content":"hi"},{"role":"assistant",)"
              R"("tool_calls":[{"type":"function","function":{"name":"f","arguments":{"y":)" +
              written + "}}}]}]}");
      const std::string prompt = served.prompt();
      EXPECT_NE(prompt.find("x\":" + (i == 0 ? "" : std::string(" ")) + in_python + "}"),
                prompt.npos)
          << prompt;
      EXPECT_NE(prompt.find("{\"y\":" + in_python + "}"), prompt.npos) << prompt;
    }
  }
}

TEST(OpenAiRoutes, TheFirstCallEndsAnAnswerWithoutParallelCalls) {
  ServedOpenAi served;
  const auto reply = served.chat(
      R"("tools":[{"type":"function","function":{"name":"f"}}],"parallel_tool_calls":false)");
  served.bring(0, R"(<tool_call>{"name": "f", "arguments": {"a": )");
  EXPECT_FALSE(served.submitted[0].is_cancelled);
  served.bring(0, "1}}</tool_call>");
  EXPECT_TRUE(served.submitted[0].is_cancelled);
  served.end(0, {});  // cancelled
  EXPECT_EQ(reply->sent->status, 200);
  EXPECT_EQ(reply->json()["choices"][0]["finish_reason"], "tool_calls");

  const auto stream = served.chat(R"("tools":[{"type":"function","function":{"name":"f"}}],
                                     "parallel_tool_calls":false,"stream":true)");
  served.bring(1, R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)");
  served.end(1, {});
  EXPECT_NE(stream->written.find(R"("finish_reason":"tool_calls")"), std::string::npos);
  EXPECT_EQ(stream->events().back(), "data: [DONE]");
}

TEST(OpenAiRoutes, WritesConversationsAsTheTemplateHasThem) {
  struct Case {
    const char *name, *messages, *more, *prompt;
  };
  const Case cases[] = {
      {"developers are systems", R"([{"role":"developer","content":"d"}])", "",
       "[system]d[assistant]"},
      {"calls and results",
       R"([{"role":"assistant","content":null,"reasoning_content":"r","tool_calls":[{"id":"1",
          "type":"function","function":{"name":"f","arguments":"{\"b\":1,\"a\":2}"}}]},
          {"role":"tool","tool_call_id":"1","content":"res"}])",
       "",
       "[assistant]<think>r</think><tool_call>{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": "
       "2}}</tool_call>[tool]res[assistant]"},
      {"variables", R"([{"role":"user","content":"x"}])",
       R"(,"chat_template_kwargs":{"enable_thinking":false})", "[user]x[assistant]<think></think>"},
      {"no effort", R"([{"role":"user","content":"x"}])", R"(,"reasoning_effort":"none")",
       "[user]x[assistant]<think></think>"},
      {"variables go before", R"([{"role":"user","content":"x"}])",
       R"(,"reasoning_effort":"none","chat_template_kwargs":{"enable_thinking":true})",
       "[user]x[assistant]"},
      {"no generation prompt", R"([{"role":"user","content":"x"}])",
       R"(,"add_generation_prompt":false)", "[user]x"},
      {"the answer's beginning",
       R"([{"role":"user","content":"x"},{"role":"assistant","content":"Once"}])",
       R"(,"continue_final_message":true)", "[user]x[assistant]<think></think>Once"},
      {"which may be reasoning",
       R"([{"role":"user","content":"x"},{"role":"assistant","content":"<think>Once"}])",
       R"(,"continue_final_message":true,"chat_template_kwargs":{"enable_thinking":true})",
       "[user]x[assistant]<think>Once"},
      {"which may follow reasoning",
       R"([{"role":"user","content":"x"},
           {"role":"assistant","reasoning_content":"hm","content":"Once"}])",
       R"(,"continue_final_message":true)", "[user]x[assistant]<think>hm</think>Once"},
      {"and be empty then",
       R"([{"role":"user","content":"outrider_content"},
           {"role":"assistant","reasoning":"outrider_content","content":""}])",
       R"(,"continue_final_message":true)",
       "[user]outrider_content[assistant]<think>outrider_content</think>"},
      {"a turn of its own",
       R"([{"role":"user","content":"x"},{"role":"assistant","content":"Once"}])", "",
       "[user]x[assistant]Once[assistant]"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    ServedOpenAi served;
    served.post("/v1/chat/completions", std::string(R"({"messages":)") + c.messages + c.more + "}");
    EXPECT_EQ(served.prompt(), c.prompt);
  }
}

constexpr const char* kBegunWithReasoning =
    R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"Once",
        "reasoning_content":"hm"}],"continue_final_message":true})";

TEST(OpenAiRoutes, GoesOnAfterReasoning) {
  ServedOpenAi served;
  const auto reply = served.post("/v1/chat/completions", kBegunWithReasoning);
  served.bring(0, " more");
  served.finish(0);
  const Json message = reply->json()["choices"][0]["message"];
  EXPECT_EQ(message["content"], " more");
  EXPECT_FALSE(message.contains("reasoning_content"));
}

void set_template(ServedOpenAi& served, const char* source) {
  served.setting().chat_template = std::make_shared<ChatTemplate>(source, "fake", "", "<end>");
  served.setting().format = answer_format(*served.setting().chat_template);
}

constexpr const char* kPlainTemplate = "{% for m in messages %}{{ m.content }}{% endfor %}";

TEST(OpenAiRoutes, RefusesReasoningThatTheTemplateDoesNotWrite) {
  for (const char* source : {kPlainTemplate, "{{ messages[-1].reasoning_content }}"}) {
    SCOPED_TRACE(source);
    ServedOpenAi served;
    set_template(served, source);
    const RequestError error =
        refused([&] { served.post("/v1/chat/completions", kBegunWithReasoning); });
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.code, "unsupported_value");
    EXPECT_EQ(error.param, "messages");
    EXPECT_NE(std::string_view(error.what()).find("leave the reasoning out"),
              std::string_view::npos);
  }
}

TEST(OpenAiRoutes, ModelsThatDoNotReasonTakeNoEffort) {
  ServedOpenAi served;
  set_template(served, kPlainTemplate);
  served.chat(R"("reasoning_effort":"none")");
  EXPECT_EQ(served.prompt(), "hi");
  EXPECT_EQ(refused([&] { served.chat(R"("reasoning_effort":"low")"); }).param, "reasoning_effort");

  // One that always reasons does not.
  ServedOpenAi reasoning;
  set_template(reasoning, "{{ messages[0].content }}{# </think> #}");
  EXPECT_EQ(refused([&] { reasoning.chat(R"("reasoning_effort":"none")"); }).param,
            "reasoning_effort");
}

TEST(OpenAiRoutes, Completes) {
  ServedOpenAi served;
  const auto reply = served.post("/v1/completions",
                                 R"({"prompt":["ab",[5,6]],"n":2,"echo":true,"logprobs":1,"seed":4,
                                    "max_tokens":0})");
  ASSERT_EQ(served.submitted.size(), 4u);
  EXPECT_EQ(served.prompt(0), "ab");
  EXPECT_EQ(served.prompt(1), "ab");
  EXPECT_EQ(served.request(2).request.prompt, (std::vector<Token>{5, 6}));
  EXPECT_EQ(served.request(1).request.sampling.stream, 1u);
  EXPECT_EQ(served.request(2).request.sampling.stream, 0u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(served.request(i).request.sampling.seed, 4u);
    EXPECT_EQ(served.request(i).request.stop.n_predict, 0);
    EXPECT_EQ(served.request(i).request.options.n_logprobs, 1);
    EXPECT_TRUE(served.request(i).request.options.prompt_logprobs);
    served.finish(i, FinishReason::length);
  }
  const Json json = reply->json();
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_EQ(json["choices"].size(), 4u);
  EXPECT_EQ(json["choices"][0]["text"], "ab");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
}

TEST(OpenAiRoutes, BosGoesBeforeTextsWhereTheModelExpectsIt) {
  ServedOpenAi served;
  const auto tokenizer = letters();
  tokenizer->bos = 3;
  tokenizer->add_bos = true;
  served.setting().tokenizer = tokenizer;
  served.post("/v1/completions", R"({"prompt":"a"})");
  served.post("/v1/completions", R"({"prompt":"a","add_special_tokens":false})");
  served.post("/v1/completions", R"({"prompt":[5]})");
  served.post("/v1/completions", R"({"prompt":""})");
  EXPECT_EQ(served.request(0).request.prompt.size(), 2u);
  EXPECT_EQ(served.request(0).request.prompt[0], 3);
  EXPECT_EQ(served.request(1).request.prompt.size(), 1u);
  EXPECT_EQ(served.request(2).request.prompt, std::vector<Token>{5});
  EXPECT_EQ(served.request(3).request.prompt, std::vector<Token>{3});
}

TEST(OpenAiRoutes, RefusesWhatCannotBeAnswered) {
  struct Case {
    const char *path, *body;
    int status;
    const char *code, *param, *says;
  };
  const std::string long_text(1000, 'x');
  const std::string long_chat = R"({"messages":[{"role":"user","content":")" + long_text + "\"}]}";
  const std::string long_prompt = R"({"prompt":")" + long_text + "\"}";
  const char* const chat = "/v1/chat/completions";
  const char* const text = "/v1/completions";
  const Case cases[] = {
      {chat, "{", 400, "", "", "not valid JSON at byte"},
      {chat, R"({"messages":[{"role":"user","content":"raise"}]})", 400, "", "messages",
       "no such talk"},
      {chat, R"({"model":"gpt","messages":[{"role":"user","content":"x"}]})", 404,
       "model_not_found", "model", "\"gpt\" is not served; fake is"},
      {chat, long_chat.c_str(), 400, "context_length_exceeded", "messages",
       "the prompt has 1017 tokens, but this model's maximum context length is 1000"},
      {text, long_prompt.c_str(), 400, "context_length_exceeded", "prompt", "1000 tokens"},
      {text, R"({"prompt":""})", 400, "", "prompt", "is empty"},
      {text, R"({"prompt":[100]})", 400, "", "prompt", "no token 100; the model has 100"},
      {text, R"({"prompt":"x","logit_bias":{"100":1}})", 400, "", "logit_bias.100",
       "no such token"},
      {chat, R"({"messages":[{"role":"user","content":"x"}],"reasoning_effort":"low"})", 400, "",
       "reasoning_effort", "knows none"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.body).substr(0, 100));
    ServedOpenAi served;
    ASSERT_EQ(served.setting().vocabulary, 100);
    const RequestError error = refused([&] { served.post(c.path, c.body); });
    EXPECT_EQ(error.status, c.status);
    EXPECT_EQ(error.code, c.code);
    EXPECT_EQ(error.param, c.param);
    EXPECT_NE(std::string_view(error.what()).find(c.says), std::string_view::npos) << error.what();
    EXPECT_TRUE(served.submitted.empty());
  }
}

TEST(OpenAiRoutes, ModelsWithoutTemplateOrFormatOfCalls) {
  ServedOpenAi served;
  served.setting().format = {};
  const auto ask_with_tools = [&] {
    served.chat(R"("tools":[{"type":"function","function":{"name":"f"}}])");
  };
  EXPECT_EQ(refused(ask_with_tools).param, "tools");
  EXPECT_EQ(refused(ask_with_tools).code, "unsupported_value");
  served.chat("");
  EXPECT_EQ(served.submitted.size(), 1u);
  served.setting().chat_template = nullptr;
  EXPECT_EQ(refused([&] { served.chat(""); }).param, "messages");
  served.post("/v1/completions", R"({"prompt":"x"})");
  EXPECT_EQ(served.submitted.size(), 2u);
}

TEST(OpenAiRoutes, Names) {
  ServedOpenAi served;
  served.setting().aliases = {"small"};
  const auto name_of = [&](const std::string& asked) {
    const auto reply = served.chat("\"model\":\"" + asked + "\"");
    served.finish(served.submitted.size() - 1);
    return reply->json()["model"];
  };
  EXPECT_EQ(name_of("small"), "small");
  EXPECT_EQ(name_of("fake"), "fake");
  EXPECT_EQ(name_of(""), "fake");
  EXPECT_EQ(refused([&] { name_of("other"); }).status, 404);
  served.setting().aliases.emplace_back("*");
  EXPECT_EQ(name_of("other"), "other");
}

TEST(OpenAiRoutes, ListsModels) {
  ServedOpenAi served;
  served.setting().aliases = {"org/small", "*"};
  const Json list = served.get("/v1/models")->json();
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["first_id"], "fake");
  EXPECT_EQ(list["last_id"], "org/small");
  ASSERT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["data"][0].dump(),
            R"({"id":"fake","object":"model","created":1700000000,"owned_by":"outrider",)"
            R"("max_model_len":1000,"type":"model","display_name":"fake",)"
            R"("created_at":"2023-11-14T22:13:20Z"})");
  EXPECT_EQ(served.get("/v1/models/org/small")->json()["id"], "org/small");
  EXPECT_EQ(served.get("/v1/models/other")->json()["id"], "other") << "any name";
  served.setting().aliases.clear();
  EXPECT_EQ(refused([&] { served.get("/v1/models/other"); }).status, 404);
}

TEST(OpenAiRoutes, AFullQueueCancelsWhatWasSubmitted) {
  ServedOpenAi served;
  served.n_room = 2;
  const RequestError error = refused([&] { served.chat(R"("n":3)"); });
  EXPECT_EQ(error.status, 429);
  EXPECT_EQ(error.code, "overloaded");
  ASSERT_EQ(served.submitted.size(), 2u);
  EXPECT_TRUE(served.submitted[0].is_cancelled);
  EXPECT_TRUE(served.submitted[1].is_cancelled);
  served.end(0, {});  // nobody is told
}

TEST(OpenAiRoutes, AClientThatGoesCancelsItsAnswers) {
  ServedOpenAi served;
  const auto reply = served.chat(R"("n":2)");
  EXPECT_FALSE(served.submitted[0].is_cancelled);
  reply->call_when_gone();
  EXPECT_TRUE(served.submitted[0].is_cancelled);
  EXPECT_TRUE(served.submitted[1].is_cancelled);
}

// The engine may answer before the request's thread has submitted all.
TEST(OpenAiRoutes, EventsBeforeTheStreamWait) {
  ServedOpenAi served;
  served.setting().submit = [&](AnswerRequest request, AnswerListener listener) {
    served.submitted.push_back({std::move(request), std::move(listener)});
    const std::size_t i = served.submitted.size() - 1;
    served.bring(i, "early");
    served.finish(i);
    return AnswerId{i};
  };
  for (const char* stream : {"false", "true"}) {
    const auto reply = served.chat(std::string(R"("n":2,"stream":)") + stream);
    if (reply->stream_heartbeat) {
      EXPECT_TRUE(reply->ended);
      EXPECT_EQ(reply->events().size(), 2u * 3 + 1);
      EXPECT_NE(reply->events()[0].find("\"role\":\"assistant\""), std::string::npos);
    } else {
      EXPECT_EQ(reply->json()["choices"][1]["message"]["content"], "early");
    }
  }
}

// That a client takes what has come for the whole answer.
bool says_stop(const FakeReply& stream) {
  return stream.written.find(R"("finish_reason":"stop")") != std::string::npos;
}

TEST(OpenAiRoutes, FailuresBecomeErrors) {
  ServedOpenAi served;
  const auto whole = served.chat(R"("n":2)");
  served.end(0, {.error = Error("NaN")});
  EXPECT_FALSE(whole->sent) << "the other is in progress";
  served.finish(1);
  EXPECT_EQ(whole->sent->status, 500);
  EXPECT_EQ(whole->json()["error"]["message"], "NaN");

  const auto stream = served.chat(R"("stream":true)");
  served.bring(2, "Hel");
  served.end(2, {.error = Error("NaN")});
  EXPECT_TRUE(stream->ended);
  const auto events = stream->events();
  EXPECT_EQ(events[events.size() - 1], "data: [DONE]");
  EXPECT_NE(events[events.size() - 2].find("{\"error\":{\"message\":\"NaN\""), std::string::npos);
  EXPECT_FALSE(says_stop(*stream));

  const auto stopped = served.chat("");
  served.end(3, {});
  EXPECT_EQ(stopped->sent->status, 503);
  const auto stopped_stream = served.chat(R"("stream":true)");
  served.bring(4, "Hel");
  served.end(4, {});
  EXPECT_TRUE(stopped_stream->ended);
  EXPECT_EQ(stopped_stream->events().size(), 4u) << "the role, the text, the error and [DONE]";
  EXPECT_NE(stopped_stream->written.find("the server is stopping"), std::string::npos);
  EXPECT_FALSE(says_stop(*stopped_stream));

  const auto whole_stream = served.chat(R"("stream":true)");
  served.finish(5);
  EXPECT_TRUE(says_stop(*whole_stream));
}

// Where the marks of reasoning and calls are control tokens, their text must come all the same.
TEST(OpenAiRoutes, MarksOfReasoningAndCallsAreShown) {
  ServedOpenAi served;
  served.setting().tokenizer = letters({"<think>", "<tool_call>", "<other>"});
  served.chat("");
  served.chat(R"("tools":[{"type":"function","function":{"name":"f"}}])");
  EXPECT_EQ(served.request(0).request.stop.shown_tokens, std::vector<Token>{100});
  EXPECT_EQ(served.request(1).request.stop.shown_tokens, (std::vector<Token>{100, 101}));
}

}  // namespace
}  // namespace outrider

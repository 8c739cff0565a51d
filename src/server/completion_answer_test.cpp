#include "server/completion_answer.h"

#include <gtest/gtest.h>

#include "server/fake_served_model.h"

namespace outrider {
namespace {

CompletionAnswerOptions completion_options() {
  return {.head = {.id = "cmpl-1", .model = "m", .created = 7, .seed = 11},
          .prompts = {letters()->encode("Once")},
          .tokenizer = letters()};
}

AnswerEvent completion_end(std::optional<FinishReason> reason = FinishReason::stop) {
  AnswerEvent event;
  event.end = AnswerEnd{.reason = reason, .figures = {.prompt_tokens = 4, .completion_tokens = 2}};
  return event;
}

// The whole stream, or the document.
std::string run_completion(AnswerForm& form, const std::vector<std::vector<AnswerEvent>>& answers) {
  std::string text = form.begin();
  for (std::size_t i = 0; i < answers.size(); ++i)
    for (const AnswerEvent& event : answers[i]) text += form.push(static_cast<int>(i), event);
  return text + form.end();
}

std::vector<Json> completion_chunks(std::string stream) {
  std::vector<Json> completion_chunks;
  while (stream.starts_with("data: {")) {
    const std::size_t end = stream.find("\n\n");
    completion_chunks.push_back(Json::parse(stream.substr(6, end - 6)));
    stream.erase(0, end + 2);
  }
  EXPECT_EQ(stream, "data: [DONE]\n\n");
  return completion_chunks;
}

AnswerEvent says(const std::string& text) {
  return letters_event(*letters(), text);
}

TEST(CompletionAnswer, Document) {
  const auto form = completion_document(completion_options());
  const Json json =
      Json::parse(run_completion(*form, {{says("up"), says("on"), completion_end()}}));
  EXPECT_EQ(json["id"], "cmpl-1");
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_EQ(json["created"], 7);
  EXPECT_EQ(json["model"], "m");
  EXPECT_EQ(json["seed"], 11);
  EXPECT_FALSE(json.contains("system_fingerprint"));
  EXPECT_EQ(json["choices"].dump(),
            R"([{"index":0,"text":"upon","logprobs":null,"finish_reason":"stop"}])");
  EXPECT_EQ(json["usage"]["total_tokens"], 6);
  EXPECT_EQ(json["timings"]["prompt_n"], 4);
}

TEST(CompletionAnswer, ChoicesOfSeveralPrompts) {
  CompletionAnswerOptions several = completion_options();
  several.n = 2;
  several.prompts.push_back(letters()->encode("x"));
  several.echo = true;
  const std::vector<std::vector<AnswerEvent>> answers = {
      {says("a"), completion_end()},
      {says("b"), completion_end(FinishReason::length)},
      {says("c"), completion_end()},
      {completion_end()}};
  const Json json = Json::parse(run_completion(*completion_document(several), answers));
  EXPECT_EQ(json["choices"].dump(),
            R"([{"index":0,"text":"Oncea","logprobs":null,"finish_reason":"stop"},)"
            R"({"index":1,"text":"Onceb","logprobs":null,"finish_reason":"length"},)"
            R"({"index":2,"text":"xc","logprobs":null,"finish_reason":"stop"},)"
            R"({"index":3,"text":"x","logprobs":null,"finish_reason":"stop"}])");
  EXPECT_EQ(json["usage"]["prompt_tokens"], 8) << "each prompt once";
  EXPECT_EQ(json["usage"]["completion_tokens"], 8);
}

TEST(CompletionAnswer, StreamsStepByStep) {
  const auto all = completion_chunks(run_completion(*completion_stream(completion_options()),
                                                    {{says("up"), says("on"), completion_end()}}));
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0]["choices"].dump(),
            R"([{"index":0,"text":"up","logprobs":null,"finish_reason":null}])");
  EXPECT_EQ(all[2]["choices"].dump(),
            R"([{"index":0,"text":"","logprobs":null,"finish_reason":"stop"}])");
  EXPECT_EQ(all[2]["timings"]["predicted_n"], 2);
  EXPECT_FALSE(all[2].contains("usage"));

  CompletionAnswerOptions usage = completion_options();
  usage.include_usage = true;
  usage.echo = true;
  const auto with_usage = completion_chunks(
      run_completion(*completion_stream(usage), {{says("up"), completion_end()}}));
  ASSERT_EQ(with_usage.size(), 3u);
  EXPECT_EQ(with_usage[0]["choices"][0]["text"], "Onceup");
  EXPECT_EQ(with_usage[1]["usage"], nullptr);
  EXPECT_FALSE(with_usage[1].contains("timings"));
  EXPECT_EQ(with_usage[2]["choices"], Json::array());
  EXPECT_EQ(with_usage[2]["usage"]["completion_tokens"], 2);
  EXPECT_TRUE(with_usage[2].contains("timings"));
}

// As lm-evaluation-harness asks for the likelihood of a text.
TEST(CompletionAnswer, LogProbabilitiesOfPromptAndAnswer) {
  CompletionAnswerOptions scored = completion_options();
  scored.prompts = {{3, 1, 2, 5}};  // <s>, é in two halves, a space
  scored.echo = true;
  scored.logprobs = true;
  AnswerEvent event;
  event.prompt = {{-1, {{1, -1}}}, {-2, {{2, -2}, {0, -3}}}, {-4, {}}};
  event.tokens = {{.token = 0, .text = "", .score = ScoredToken{-5, {{0, -5}}}}};
  const std::string tokens = R"(["<s>","bytes:\\xc3","bytes:\\xa9"," ","<end>"])";
  for (const bool streams : {false, true}) {
    SCOPED_TRACE(streams);
    const auto form = streams ? completion_stream(scored) : completion_document(scored);
    const std::string text = run_completion(*form, {{event, completion_end(FinishReason::length)}});
    const Json json = streams ? completion_chunks(text)[0] : Json::parse(text);
    const Json& choice = json["choices"][0];
    EXPECT_EQ(choice["text"], "é ");
    EXPECT_EQ(choice["logprobs"]["tokens"].dump(), tokens);
    EXPECT_EQ(choice["logprobs"]["token_logprobs"].dump(), "[null,-1.0,-2.0,-4.0,-5.0]");
    EXPECT_EQ(choice["logprobs"]["text_offset"].dump(), "[0,0,0,1,2]");
    EXPECT_EQ(choice["logprobs"]["top_logprobs"].dump(),
              R"([null,{"bytes:\\xc3":-1.0},{"bytes:\\xa9":-2.0,"<end>":-3.0},{},{"<end>":-5.0}])");
  }
}

// Also where its text is held back, and comes with an end that no token brings, or never.
TEST(CompletionAnswer, ALetterOfPromptAndAnswerIsWhole) {
  CompletionAnswerOptions half = completion_options();
  half.prompts = {{70, 1}};  // a and the first byte of é
  half.echo = true;
  const auto token = [](Token token, const char* text) {
    AnswerEvent event;
    event.tokens = {{.token = token, .text = text}};
    return event;
  };
  AnswerEvent late_end = completion_end(FinishReason::length);
  late_end.held_text = "\uFFFD";
  struct Case {
    const char* name;
    std::vector<AnswerEvent> events;
    const char* text;
  };
  const Case cases[] = {
      {"at once", {token(2, "\uFFFD"), token(71, "b"), completion_end()}, "aéb"},
      {"after what shows nothing", {token(3, ""), token(2, "\uFFFD"), completion_end()}, "aé"},
      {"held back", {token(2, ""), token(71, "\uFFFDb"), completion_end()}, "aéb"},
      {"held back to the end", {token(2, ""), late_end}, "aé"},
      {"part of a stop string", {token(2, ""), token(71, ""), completion_end()}, "a\uFFFD"},
      {"not completed", {token(71, "b"), completion_end()}, "a\uFFFDb"},
      {"no answer", {completion_end(FinishReason::length)}, "a\uFFFD"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Json json = Json::parse(run_completion(*completion_document(half), {c.events}));
    EXPECT_EQ(json["choices"][0]["text"], c.text);
    std::string streamed;
    for (const Json& chunk :
         completion_chunks(run_completion(*completion_stream(half), {c.events})))
      streamed += chunk["choices"][0]["text"].get<std::string>();
    EXPECT_EQ(streamed, c.text);
  }
}

// A prompt of one token has no scores; what is asked of it comes all the same.
TEST(CompletionAnswer, EchoesWithoutScores) {
  CompletionAnswerOptions one = completion_options();
  one.prompts = {letters()->encode("x")};
  one.echo = true;
  one.logprobs = true;
  const Json json = Json::parse(run_completion(*completion_document(one), {{completion_end()}}));
  EXPECT_EQ(json["choices"][0]["text"], "x");
  EXPECT_EQ(json["choices"][0]["logprobs"]["token_logprobs"].dump(), "[null]");
}

TEST(CompletionAnswer, StreamsTellErrors) {
  EXPECT_EQ(completion_stream(completion_options())->fail(RequestError(500, "", "", "NaN")),
            "data: {\"error\":{\"message\":\"NaN\",\"type\":\"server_error\",\"param\":null,"
            "\"code\":null}}\n\ndata: [DONE]\n\n");
}

}  // namespace
}  // namespace outrider

// Where a prompt ends and its answer begins, and where the answer ends: letters, stop strings and
// control tokens across these places, and the context's last position. Scheduler and engine are the
// real ones; the model says what the test wants it to.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "engine/scheduler.h"
#include "model/fake_backend.h"
#include "sampling/logprobs.h"
#include "server/answer_form.h"
#include "server/anthropic_routes.h"
#include "server/fake_served_model.h"
#include "server/openai_routes.h"
#include "server/token_text.h"
#include "speculation/drafters/prediction.h"

namespace outrider {
namespace {

using Tokens = std::vector<Token>;

// Those of letters(), then parts of longer letters, tokens that end or begin within one, and
// control tokens.
const std::vector<std::string> kMoreEntries = {"\xf0\x9f", "\x98", "\x80",   "a\xc3",
                                               "\xa9z",    "TO",   "<mark>", "<other>"};
constexpr Token kEnd = 0, kC3 = 1, kA9 = 2, kBegin = 3, kF09F = 100, k98 = 101, k80 = 102,
                kAC3 = 103, kA9z = 104, kTO = 105, kMark = 106;

std::shared_ptr<FakeTokenizer> border_tokenizer() {
  const auto tokenizer = letters(kMoreEntries);
  tokenizer->control = {kEnd, kBegin, kMark, kMark + 1};
  return tokenizer;
}

// A server of one model, whose answers are `script` and then its end.
struct ScriptedServer {
  explicit ScriptedServer(int context) : context(context) {
    model.vocabulary = tokenizer->size();
    model.says = [this](std::span<const Token> path) {
      const std::size_t i = path.size() - n_prompt;
      return path.size() >= n_prompt && i < script.size() ? script[i] : kEnd;
    };
    std::vector<std::unique_ptr<Drafter>> drafters;
    drafters.push_back(std::make_unique<PredictionDrafter>());
    engine.emplace(std::make_shared<FakeBackend>(model, LoadOptions{.context = context,
                                                                    .n_sequences = 4,
                                                                    .shares_texts = true,
                                                                    .batch_rows = 32}),
                   std::move(drafters),
                   EngineOptions{.planner = {.automatic = false, .rows = 6, .depth = 4, .width = 2},
                                 .prompt_chunk = 16});
    scheduler.emplace(*engine, *tokenizer, SchedulerOptions{.n_running = 4});
    served.setting().tokenizer = tokenizer;
    served.setting().vocabulary = tokenizer->size();
    served.setting().context = context;
    served.setting().submit = [this](AnswerRequest request, AnswerListener listener) {
      n_prompt = request.request.prompt.size();
      if (drafts) request.request.options.prediction = script;
      return scheduler->submit(std::move(request), [this, listener](const AnswerEvent& event) {
        if (event.end) n_drafts_accepted += event.end->figures.counters.accepted;
        listener(event);
      });
    };
    served.setting().cancel = [this](AnswerId id) { scheduler->cancel(id); };
  }

  // What the route says until the answer's end.
  std::shared_ptr<FakeReply> post(const std::string& path, const Json& body, Tokens says) {
    script = std::move(says);
    std::vector<HttpRoute> routes = openai_routes(served.model());
    for (HttpRoute& route : anthropic_routes(served.model())) routes.push_back(std::move(route));
    const auto reply = ask(
        routes,
        {.method = "POST", .path = path, .query = "", .headers = {}, .body = document_text(body)});
    while (scheduler->turn()) {
    }
    return reply;
  }

  const int context;
  const std::shared_ptr<FakeTokenizer> tokenizer = border_tokenizer();
  FakeModel model;
  std::optional<Engine> engine;
  std::optional<Scheduler> scheduler;
  FakeScheduler served;
  Tokens script;
  bool drafts = false;  // the script, however it falls into letters
  std::size_t n_prompt = 0;
  long n_drafts_accepted = 0;
};

// What an answer is to be, from its script and its tokens' bytes alone.
struct ExpectedAnswer {
  Tokens tokens;
  std::string bytes;  // before the stop string, if one ends it
  std::string finish_reason = "stop";
  std::optional<std::string> stop;
};

ExpectedAnswer expected_answer(const Tokenizer& tokenizer, const Tokens& script,
                               const std::vector<std::string>& stops, int n_most) {
  ExpectedAnswer expected;
  for (std::size_t i = 0;; ++i) {
    if (static_cast<int>(i) == n_most) {
      expected.finish_reason = "length";
      return expected;
    }
    expected.tokens.push_back(i < script.size() ? script[i] : kEnd);
    if (expected.tokens.back() == kEnd) return expected;
    expected.bytes += tokenizer.bytes(expected.tokens.back());
    const std::string text = well_formed(
        expected.bytes.substr(0, expected.bytes.size() - unfinished_suffix(expected.bytes)));
    std::size_t least_end = text.npos, least_begin = 0;
    for (const std::string& stop : stops) {
      const std::size_t begin = text.find(stop);
      if (begin == text.npos) continue;
      if (std::pair(begin + stop.size(), begin) >= std::pair(least_end, least_begin)) continue;
      least_begin = begin;
      least_end = begin + stop.size();
      expected.stop = stop;
    }
    if (!expected.stop) continue;
    // As many of its letters as are before the stop string.
    std::size_t end = 0;
    for (std::size_t n = n_characters(text.substr(0, least_begin)); n > 0; --n)
      end += utf8_step(std::string_view(expected.bytes).substr(end)).n_bytes;
    expected.bytes.resize(end);
    return expected;
  }
}

// Where each token begins in the text of all, in letters: after those that end before it.
Json expected_offsets(const Tokenizer& tokenizer, const Tokens& tokens) {
  Json offsets = Json::array();
  std::string bytes;
  for (const Token token : tokens) {
    const std::size_t begin = bytes.size();
    bytes += tokenizer.bytes(token);
    std::size_t n = 0;
    for (std::size_t at = 0; at < begin;) {
      const Utf8Step step = utf8_step(std::string_view(bytes).substr(at));
      at += step.n_bytes;
      n += at <= begin && !step.unfinished;
    }
    offsets.push_back(n);
  }
  return offsets;
}

// What a client has read at the end of either form of one choice.
struct Read {
  std::string text;
  Json finish_reason;
  Json tokens = Json::array(), logprobs = Json::array(), offsets = Json::array();
  bool has_logprobs = false;
  int n_with_text = 0;
};

void read_choice(Read& read, const Json& choice) {
  const std::string text = choice["text"];
  read.text += text;
  if (!choice["finish_reason"].is_null()) read.finish_reason = choice["finish_reason"];
  read.has_logprobs = !choice["logprobs"].is_null();
  if (!read.has_logprobs) return;
  const auto append = [&](Json& all, const char* name) {
    for (const Json& entry : choice["logprobs"][name]) all.push_back(entry);
  };
  append(read.tokens, "tokens");
  append(read.logprobs, "token_logprobs");
  append(read.offsets, "text_offset");
  EXPECT_EQ(choice["logprobs"]["top_logprobs"].size(), choice["logprobs"]["tokens"].size());
}

// The choices of a completion, and the rest of its document or last event.
std::pair<std::vector<Read>, Json> read_completion(const FakeReply& reply, int n) {
  std::vector<Read> read(static_cast<std::size_t>(n));
  const auto read_choices = [&](const Json& document) {
    for (const Json& choice : document["choices"]) read_choice(read.at(choice["index"]), choice);
  };
  if (reply.sent) {
    read_choices(reply.json());
    return {read, reply.json()};
  }
  Json last;
  for (const std::string& event : reply.events()) {
    if (event == "data: [DONE]") break;
    last = Json::parse(event.substr(6));
    read_choices(last);
  }
  EXPECT_TRUE(reply.ended);
  return {read, last};
}

struct PromptEnd {
  const char* name;
  Tokens tokens;
};
const std::vector<PromptEnd> kPromptEnds = {
    {"whole letters", {70, 71}},
    {"half a letter", {70, kC3}},
    {"half a letter within a token", {kAC3}},
    {"half a letter, then a control token", {kC3, kBegin}},
    {"half of four bytes", {kF09F}},
    {"three of four bytes", {kF09F, k98}},
    {"bytes that are no letter", {k80, kC3}},
    {"a control token", {71, kMark}},
    {"the end token", {71, kEnd}},
    {"a stop string's beginning", letters()->encode("ST")},
};

Tokens letters_of(const std::string& text) {
  return letters()->encode(text);
}

const std::vector<Tokens> kScripts = {
    {},
    letters_of("xy"),
    {kA9},
    {kA9, 70, 71},
    {kA9z, kC3},
    {k98, k80, 70},
    {k98, 70, kF09F, k98},
    {k80, 70},
    {kC3, kA9, 70},
    {70, kC3, 71},
    {kAC3, kA9z, kAC3},
    {kBegin, kA9, 70},
    {kMark, kMark, 70, kMark},
    letters_of("OPx"),
    letters_of("call>x"),
    letters_of("k>x</think>y"),
    letters_of("think>x</think>y"),
    letters_of("xSTOPy"),
    {letters_of("S")[0], kTO, letters_of("P")[0]},
    {letters_of("S")[0], kTO, letters_of("x")[0], kC3},
    {kA9, letters_of("S")[0], kTO, kMark, letters_of("P")[0]},
};
const std::vector<std::vector<std::string>> kStops = {
    {}, {"STOP"}, {"é"}, {"\uFFFD"}, {"éz", "yz", "OPx"}, {"\uFFFD\uFFFDB", "STOx\u00C3"}, {"😀"}};
struct Room {
  int left;                   // of the context, for the answer
  std::optional<int> n_most;  // max_tokens
};
const std::vector<Room> kRooms = {{30, {}}, {30, 0}, {30, 1}, {30, 2}, {30, 3}, {3, {}},
                                  {2, 9},   {1, {}}, {1, 0},  {1, 1},  {1, 2},  {0, 0},
                                  {0, 1},   {0, {}}, {-1, 0}, {-1, 1}, {-1, {}}};

TEST(Borders, OfCompletions) {
  ScriptedServer server(48);
  const Tokenizer& tokenizer = *server.tokenizer;
  ASSERT_EQ(tokenizer.decode(kPromptEnds.back().tokens), "ST");
  std::mt19937 random(3);
  int n_asked = 0, n_stopped = 0;
  for (const PromptEnd& prompt_end : kPromptEnds)
    for (const Tokens& script : kScripts)
      for (const std::vector<std::string>& stop : kStops)
        for (const Room& room : kRooms) {
          if (random() % 8 != 0) continue;  // all of them take half a minute
          const bool echo = random() % 3 != 0, streams = random() % 2 == 0;
          const bool scores = random() % 2 == 0;
          server.drafts = random() % 2 == 0;
          const int n = 1 + static_cast<int>(random() % 2);
          Tokens prompt(
              static_cast<std::size_t>(server.context - room.left) - prompt_end.tokens.size(), 80);
          prompt.insert(prompt.end(), prompt_end.tokens.begin(), prompt_end.tokens.end());
          Json body = {{"prompt", prompt}, {"temperature", 0},  {"echo", echo},
                       {"n", n},           {"stream", streams}, {"stop", stop}};
          if (room.n_most) body["max_tokens"] = *room.n_most;
          if (scores) body["logprobs"] = 1;
          if (streams) body["stream_options"] = {{"include_usage", true}};
          const std::string text = tokenizer.decode(prompt, true);
          if (random() % 2 == 0 && is_well_formed(text) && tokenizer.encode(text) == prompt)
            body["prompt"] = text;
          SCOPED_TRACE(prompt_end.name);
          SCOPED_TRACE(body.dump() + " says " + Json(script).dump());

          if (room.left < (room.n_most == 0 ? 0 : 1)) {
            const RequestError error =
                refused([&] { server.post("/v1/completions", body, script); });
            EXPECT_EQ(error.status, 400);
            EXPECT_EQ(error.code, "context_length_exceeded");
            continue;
          }
          const auto reply = server.post("/v1/completions", body, script);
          const auto [choices, rest] = read_completion(*reply, n);
          const ExpectedAnswer expected = expected_answer(
              tokenizer, script, stop, std::min(room.left, room.n_most.value_or(16)));
          std::string bytes = expected.bytes;
          Tokens scored = expected.tokens, whole = prompt;
          whole.insert(whole.end(), scored.begin(), scored.end());
          if (echo) {
            bytes = tokenizer.decode(prompt) + bytes;
            scored = whole;
          }
          for (const Read& choice : choices) {
            EXPECT_EQ(choice.text, well_formed(bytes));
            EXPECT_EQ(choice.finish_reason, expected.finish_reason);
            EXPECT_EQ(choice.has_logprobs, scores);
            if (!scores) continue;
            EXPECT_EQ(choice.offsets, expected_offsets(tokenizer, scored));
            ASSERT_EQ(choice.tokens.size(), scored.size());
            for (std::size_t i = 0; i < scored.size(); ++i) {
              EXPECT_EQ(choice.tokens[i], token_text(tokenizer, scored[i]));
              const std::size_t place = whole.size() - scored.size() + i;
              if (place == 0)
                EXPECT_TRUE(choice.logprobs[i].is_null());
              else
                EXPECT_EQ(choice.logprobs[i].get<float>(),
                          score(server.model.logits(std::span(whole).first(place)), scored[i], 1)
                              .logprob);
            }
          }
          EXPECT_EQ(rest["usage"]["prompt_tokens"], prompt.size());
          EXPECT_EQ(rest["usage"]["completion_tokens"], n * std::ssize(expected.tokens));
          ++n_asked;
          n_stopped += expected.stop.has_value();
          if (HasFailure()) return;
        }
  EXPECT_GT(n_asked, 1500);
  EXPECT_GT(n_stopped, 100);
  EXPECT_GT(server.n_drafts_accepted, 300);
}

// The text of a chat's answer or of a message, and why it ended.
struct ReadMessage {
  std::string text;
  Json reason, stop;
  Json logprobs = Json::array();
};

ReadMessage read_chat_answer(const FakeReply& reply) {
  ReadMessage read;
  const auto read_choice = [&](const Json& choice, const char* part) {
    read.text += choice[part].value("content", "");
    if (!choice["finish_reason"].is_null()) read.reason = choice["finish_reason"];
    if (choice.contains("logprobs") && !choice["logprobs"].is_null())
      for (const Json& entry : choice["logprobs"]["content"]) read.logprobs.push_back(entry);
  };
  if (reply.sent) {
    const Json json = reply.json();
    read_choice(json["choices"][0], "message");
    return read;
  }
  for (const std::string& event : reply.events()) {
    if (event == "data: [DONE]") break;
    const Json json = Json::parse(event.substr(6));
    read_choice(json["choices"][0], "delta");
  }
  EXPECT_TRUE(reply.ended);
  return read;
}

ReadMessage read_message_answer(const FakeReply& reply) {
  ReadMessage read;
  if (reply.sent) {
    const Json json = reply.json();
    for (const Json& block : json["content"]) read.text += block["text"].get<std::string>();
    read.reason = json["stop_reason"];
    read.stop = json["stop_sequence"];
    return read;
  }
  for (const std::string& event : reply.events()) {
    const Json json = Json::parse(event.substr(event.find("data: ") + 6));
    if (json["type"] == "content_block_delta")
      read.text += json["delta"]["text"].get<std::string>();
    if (json["type"] != "message_delta") continue;
    read.reason = json["delta"]["stop_reason"];
    read.stop = json["delta"]["stop_sequence"];
  }
  EXPECT_TRUE(reply.ended);
  return read;
}

TEST(Borders, OfConversations) {
  ScriptedServer server(160);
  const Tokenizer& tokenizer = *server.tokenizer;
  std::mt19937 random(4);
  int n_asked = 0, n_stopped = 0;
  for (const char* path : {"/v1/chat/completions", "/v1/messages"})
    for (const std::string begun : {"ab", "café", "S", "xST", "x \n", "x<thin", "x <tool_"})
      for (const Tokens& script : kScripts)
        for (const std::vector<std::string>& stop : kStops)
          for (const Room& room : kRooms) {
            if (random() % 8 != 0) continue;
            const bool is_chat = path[4] == 'c', streams = random() % 2 == 0;
            if (room.n_most == 0 && is_chat) continue;  // at least 1
            server.drafts = random() % 2 == 0;
            // Then the parser holds what may become a call, also where the prompt has begun it.
            const bool has_tools = random() % 2 == 0;
            const std::string tools =
                R"(<tool>{"type": "function", "function": {"name": "f", "parameters": {}}}</tool>)";
            const std::string around =
                (has_tools ? tools : "") + "[user][assistant]<think></think>" + begun;
            const std::string question(
                static_cast<std::size_t>(server.context - room.left) - around.size(), 'k');
            Json body = {{"messages",
                          {{{"role", "user"}, {"content", question}},
                           {{"role", "assistant"}, {"content", begun}}}},
                         {"temperature", 0},
                         {"stream", streams},
                         {"max_tokens", room.n_most.value_or(1000)},
                         {is_chat ? "stop" : "stop_sequences", stop}};
            if (has_tools && is_chat)
              body["tools"] = {{{"type", "function"},
                                {"function", {{"name", "f"}, {"parameters", Json::object()}}}}};
            else if (has_tools)
              body["tools"] = {{{"name", "f"}, {"input_schema", Json::object()}}};
            if (is_chat) {
              body["continue_final_message"] = true;
              body["logprobs"] = true;
            } else {
              body["model"] = "fake";
            }
            SCOPED_TRACE(body.dump() + " says " + Json(script).dump());

            if (room.left < (room.n_most == 0 ? 0 : 1)) {
              const RequestError error = refused([&] { server.post(path, body, script); });
              EXPECT_EQ(error.code, "context_length_exceeded");
              continue;
            }
            const auto reply = server.post(path, body, script);
            EXPECT_EQ(static_cast<int>(server.n_prompt), server.context - room.left);
            const ReadMessage read =
                is_chat ? read_chat_answer(*reply) : read_message_answer(*reply);
            const ExpectedAnswer expected = expected_answer(
                tokenizer, script, stop, std::min(room.left, room.n_most.value_or(1000)));
            EXPECT_EQ(read.text, well_formed(expected.bytes));
            if (is_chat) {
              EXPECT_EQ(read.reason, expected.finish_reason);
              ASSERT_EQ(read.logprobs.size(), expected.tokens.size());
              for (std::size_t i = 0; i < expected.tokens.size(); ++i)
                EXPECT_EQ(read.logprobs[i]["token"], token_text(tokenizer, expected.tokens[i]));
            } else {
              EXPECT_EQ(read.reason, expected.finish_reason == "length" ? "max_tokens"
                                     : expected.stop                    ? "stop_sequence"
                                                                        : "end_turn");
              EXPECT_EQ(read.stop, expected.stop ? Json(*expected.stop) : Json());
            }
            ++n_asked;
            n_stopped += expected.stop.has_value();
            if (HasFailure()) return;
          }
  EXPECT_GT(n_asked, 700);
  EXPECT_GT(n_stopped, 60);
  EXPECT_GT(server.n_drafts_accepted, 100);
}

}  // namespace
}  // namespace outrider

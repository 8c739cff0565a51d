// The life of a whole server with an engine: it loads, serves and drains.

#include "server/server.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>

#include "http/server_test.h"
#include "model/fake_backend.h"
#include "server/fake_served_model.h"
#include "server/metrics.h"
#include "server/openai_routes.h"

namespace outrider {
namespace {

// Its answers end when the test says so.
class LivingServer {
 public:
  void serve() {
    FakeScheduler fake;
    ServedModel& model = fake.setting();
    model.context = target_->options().context;
    model.submit = [this](AnswerRequest request, AnswerListener listener) {
      return scheduler_.submit(std::move(request),
                               [this, listener = std::move(listener)](const AnswerEvent& event) {
                                 hear(listener, event);
                               });
    };
    model.cancel = [this](AnswerId id) { scheduler_.cancel(id); };
    server_.serve(
        status_routes(
            {.version = "v1",
             .state = [this] { return server_.state(); },
             .properties = [] { return ServerProperties{}; },
             .status = [this] { return scheduler_.status(); },
             .metrics = [this](const SchedulerStatus& status) { return metrics_.text(status); }}),
        openai_routes(fake.model()), scheduler_);
  }

  Server& server() { return server_; }
  Response ask(const std::string& request) { return Client(server_.port()).ask(request); }

  // The next time that a listener is called it fails, which ends the scheduler's thread.
  void break_listener() {
    const std::lock_guard lock(mutex_);
    is_broken_ = true;
  }
  // From now on the end of an answer waits.
  void hold_ends() {
    const std::lock_guard lock(mutex_);
    holds_ends_ = true;
  }
  bool has_held_end() {
    const std::lock_guard lock(mutex_);
    return held_end_ != nullptr;
  }
  void release_end() {
    const std::lock_guard lock(mutex_);
    held_end_();
  }

 private:
  void hear(const AnswerListener& listener, const AnswerEvent& event) {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_broken_, false)) throw std::runtime_error("no memory for an answer");
    if (event.end && holds_ends_)
      held_end_ = [listener, event] { listener(event); };
    else
      listener(event);
  }

  std::mutex mutex_;
  bool is_broken_ = false, holds_ends_ = false;
  std::function<void()> held_end_;
  std::shared_ptr<FakeBackend> target_ = std::make_shared<FakeBackend>(
      FakeModel{.vocabulary = letters()->size()},
      LoadOptions{.context = 400, .n_sequences = 4, .shares_texts = true, .batch_rows = 128});
  Engine engine_{target_, {}, EngineOptions{.planner = {.automatic = false}, .prompt_chunk = 100}};
  std::shared_ptr<FakeTokenizer> tokenizer_ = letters();
  Scheduler scheduler_{engine_, *tokenizer_, {.n_running = 4, .n_waiting = 100}};
  Metrics metrics_{"fake", "v1"};
  Server server_{HttpServerOptions{}, "v1"};
};

std::string chat_request(const std::string& more = "") {
  return post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}],
                                          "max_tokens":5,"ignore_eos":true)" +
                                          more + "}");
}

TEST(Server, LoadsServesAndDrains) {
  LivingServer living;
  const auto expect_unavailable = [&](const std::string& request) {
    const Response response = living.ask(request);
    EXPECT_EQ(response.status, 503);
    EXPECT_EQ(response.header("retry-after"), "1");
  };
  expect_unavailable(get("/health"));
  expect_unavailable(chat_request());

  living.serve();
  EXPECT_EQ(living.ask(get("/health")).status, 200);
  EXPECT_EQ(living.ask(chat_request()).status, 200);

  living.hold_ends();
  Client client(living.server().port());
  client.send(chat_request(R"(,"stream":true)"));
  ASSERT_TRUE(wait_until([&] { return living.has_held_end(); }));
  bool was_asked = false;
  const bool is_drained = living.server().drain(kPatience, [&] {
    if (std::exchange(was_asked, true)) return true;
    expect_unavailable(get("/health"));
    EXPECT_EQ(living.ask(get("/metrics")).status, 200);
    expect_unavailable(chat_request());
    living.release_end();
    return true;
  });
  EXPECT_TRUE(was_asked) << "the stream was not in progress";
  EXPECT_TRUE(is_drained);
  const Response stream = client.receive_response();
  EXPECT_EQ(stream.status, 200);
  EXPECT_TRUE(stream.is_whole);
  EXPECT_NE(stream.body.find(R"("finish_reason":"length")"), std::string::npos);
  EXPECT_TRUE(stream.body.ends_with("data: [DONE]\n\n"));
}

TEST(Server, EndsIfItsEngineFails) {
  LivingServer living;
  living.serve();
  EXPECT_EQ(living.ask(chat_request()).status, 200);
  EXPECT_FALSE(living.server().failure());
  living.break_listener();
  Client client(living.server().port());
  client.send(chat_request());
  ASSERT_TRUE(wait_until([&] { return living.server().failure() != nullptr; }));
  EXPECT_FALSE(living.server().drain(kPatience, [&] { return !living.server().failure(); }));
  living.server().stop();
  EXPECT_EQ(client.receive_all(), "");  // closed, so that nobody waits for ever
  try {
    std::rethrow_exception(living.server().failure());
  } catch (const std::exception& error) {
    EXPECT_STREQ(error.what(), "no memory for an answer");
  }
}

// The engine may go before the server.
TEST(Server, NeedsTheSchedulerOnlyUntilItStops) {
  Server server(HttpServerOptions{}, "v1");
  {
    const auto target = std::make_shared<FakeBackend>(
        FakeModel{}, LoadOptions{.context = 100, .n_sequences = 2, .batch_rows = 128});
    Engine engine(target, {}, {.planner = {.automatic = false}, .prompt_chunk = 100});
    const auto tokenizer = letters();
    Scheduler scheduler(engine, *tokenizer, {});
    server.serve({}, {}, scheduler);
    server.stop();
  }
  server.stop();
}

TEST(Server, MissingRoutesSayWhatToUse) {
  LivingServer living;
  living.serve();
  struct Case {
    std::string request, says;
  };
  const Case cases[] = {
      {post("/v1/responses", "{}", "Content-Encoding: zstd\r\n"), "/v1/chat/completions"},
      {post("/v1/responses", "{}"), "Codex"},
      {get("/v1/responses", "Connection: Upgrade\r\nUpgrade: websocket\r\n"), "Responses API"},
      {post("/api/chat", "{}"), "/v1/chat/completions"},
      {get("/api/tags"), "/v1/models"},
      {post("/completion", "{}"), "/v1/completions"},
      {post("/v1/v1/messages", "{}"), "leave it out of its base URL"},
      {post("/chat/completions", "{}"), "has to end with /v1"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.request);
    const Response response = living.ask(c.request);
    EXPECT_EQ(response.status, 404);
    const auto error = nlohmann::json::parse(response.body)["error"];
    EXPECT_EQ(error["type"], "invalid_request_error");
    EXPECT_TRUE(error.contains("param") && error.contains("code"));
    const std::string message = error["message"];
    const std::size_t path = c.request.find('/');
    EXPECT_NE(message.find(c.request.substr(path, c.request.find(' ', path) - path)), message.npos)
        << message;
    EXPECT_NE(message.find(c.says), message.npos) << message;
  }
}

// As docs/api.md has it.
TEST(Server, SilentStreamsShowThatTheyLiveEveryTenSeconds) {
  EXPECT_EQ(HttpTimes{}.heartbeat, std::chrono::seconds(10));
}

}  // namespace
}  // namespace outrider

// The whole server with an engine, asked at random by several clients at once. Under sanitizers it
// is the short form of what `make soak` does with the program.

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "http/server_test.h"
#include "model/fake_backend.h"
#include "server/fake_served_model.h"
#include "server/metrics.h"
#include "server/openai_routes.h"
#include "server/server.h"
#include "speculation/drafters/lookup.h"
#include "speculation/drafters/prediction.h"

namespace outrider {
namespace {

constexpr int kContext = 400, kClients = 8, kRequests = 50;

std::vector<std::unique_ptr<Drafter>> drafters() {
  std::vector<std::unique_ptr<Drafter>> all;
  all.push_back(std::make_unique<PredictionDrafter>());
  all.push_back(std::make_unique<LookupDrafter>(LookupOptions{}));
  return all;
}

// Fewer pages than its requests would like, so that they wait and are preempted.
struct Stack {
  std::shared_ptr<FakeBackend> target = std::make_shared<FakeBackend>(
      FakeModel{.vocabulary = letters()->size()}, LoadOptions{.context = kContext,
                                                              .n_sequences = 4,
                                                              .n_pages = 11,
                                                              .shares_texts = true,
                                                              .batch_rows = 128});
  Engine engine{target, drafters(),
                EngineOptions{.planner = {.automatic = false, .rows = 6, .depth = 4, .width = 2},
                              .prompt_chunk = 100}};
  std::shared_ptr<FakeTokenizer> tokenizer = letters();
  Scheduler scheduler{engine, *tokenizer, {.n_running = 4, .n_waiting = 100}};
  Metrics metrics{"fake", "v1"};
  Server server{HttpServerOptions{}, "v1"};

  Stack() {
    FakeScheduler fake;
    ServedModel& model = fake.setting();
    model.context = kContext;
    model.submit = [this](AnswerRequest request, AnswerListener listener) {
      return scheduler.submit(std::move(request), metrics.watch(std::move(listener)));
    };
    model.cancel = [this](AnswerId id) { scheduler.cancel(id); };
    server.serve(
        status_routes(
            {.version = "v1",
             .state = [this] { return server.state(); },
             .properties = [] { return ServerProperties{}; },
             .status = [this] { return scheduler.status(); },
             .metrics = [this](const SchedulerStatus& status) { return metrics.text(status); }}),
        openai_routes(fake.model()), scheduler);
  }
};

Json random_request(std::mt19937& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  const auto some = [&](int n) { return below(n) == 0; };
  const std::string common(200, 'a');
  std::string prompt = some(2) ? common.substr(0, below(200)) : "";
  for (int i = 1 + below(60); i > 0; --i) prompt += static_cast<char>('a' + below(26));
  Json json = {{"prompt", prompt},
               {"max_tokens", 1 + below(some(2) ? 20 : 120)},
               {"seed", below(1 << 30)},
               {"temperature", some(2) ? 0.0 : 1.0},
               {"ignore_eos", some(2)}};
  if (some(4)) json["n"] = 1 + below(3);
  if (some(4)) json["stop"] = {"ab", "q"};
  if (some(4)) json["logprobs"] = below(3);
  if (some(4)) json["top_p"] = 0.7;
  if (some(4)) json["presence_penalty"] = 1.5;
  if (some(4)) json["priority"] = below(3) - 1;
  if (some(4)) json["cache_salt"] = "s";
  if (some(3)) json["prediction"] = {{"type", "content"}, {"content", common.substr(0, 30)}};
  const std::array<Json, 3> speculation = {Json{{"draft", "off"}}, Json{{"draft", "lookup"}},
                                           Json{{"rows", 2}}};
  if (some(3)) json["speculation"] = speculation[below(3)];
  return json;
}

using Texts = std::map<int, std::string>;  // by choice

Texts texts_of(const Response& response, bool streams) {
  Texts texts;
  const auto add = [&](const std::string& text) {
    const Json json = Json::parse(text);
    for (const Json& choice : json.at("choices"))
      texts[choice["index"].get<int>()] += choice["text"].get<std::string>();
  };
  if (!streams) {
    add(response.body);
    return texts;
  }
  for (std::size_t at = 0; (at = response.body.find("data: {", at)) != std::string::npos;) {
    at += 6;
    add(response.body.substr(at, response.body.find("\n\n", at) - at));
  }
  return texts;
}

TEST(ServerSoak, AnswersAreThoseOfTheSameRequestAlone) {
  Stack stack;
  const int port = stack.server.port();
  const auto ask = [&](const Json& json) {
    return Client(port).ask(post("/v1/completions", json.dump()));
  };
  std::mutex mutex;
  std::vector<std::pair<Json, Texts>> answered;
  const auto use = [&](int client) {
    std::mt19937 random(client);
    for (int i = 0; i < kRequests; ++i) {
      Json json = random_request(random);
      const bool streams = random() % 2 == 0;
      json["stream"] = streams;
      if (random() % 5 == 0) {  // leaves in the middle, or sends what is refused
        if (random() % 2 == 0) json["temperature"] = -7;
        Client leaving(port);
        leaving.send(post("/v1/completions", json.dump()));
        if (random() % 2 == 0) leaving.receive();
        if (random() % 2 == 0) leaving.reset();
        continue;
      }
      const Response response = ask(json);
      EXPECT_EQ(response.status, 200) << json << response.body;
      EXPECT_EQ(Client(port).ask(get("/metrics")).status, 200);
      if (response.status != 200) return;
      const std::lock_guard lock(mutex);
      answered.emplace_back(json, texts_of(response, streams));
    }
  };
  std::vector<std::thread> clients;
  for (int client = 0; client < kClients; ++client) clients.emplace_back(use, client);
  for (std::thread& client : clients) client.join();

  EXPECT_GT(answered.size(), 200u);
  for (auto& [json, texts] : answered) {
    json["speculation"] = {{"draft", "off"}};
    json["stream"] = false;
    EXPECT_EQ(texts_of(ask(json), false), texts) << json;
  }
  EXPECT_TRUE(wait_until([&] {
    const SchedulerStatus status = stack.scheduler.status();
    return status.answers.empty() && status.free_pages == status.pages;
  }));
  EXPECT_GT(stack.scheduler.status().cancelled, 0);
  EXPECT_GT(stack.scheduler.status().counters.accepted, 0);
}

}  // namespace
}  // namespace outrider

#include "server/status_routes.h"

#include <gtest/gtest.h>

#include "http/router.h"
#include "server/fake_reply.h"
#include "server/fields.h"

namespace outrider {
namespace {

class StatusRoutes : public testing::Test {
 protected:
  HttpResponse get(const std::string& path, const std::string& query = "") const {
    const Router router(status_routes(sources_));
    const HttpHandler* handler = router.find("GET", path);
    if (!handler) return {.status = 404};
    const auto reply = std::make_shared<FakeReply>();
    (*handler)({.method = "GET", .path = path, .query = query, .headers = {}, .body = ""}, reply);
    return reply->sent.value_or(HttpResponse{.status = 500});
  }
  Json json(const std::string& path) const {
    const HttpResponse response = get(path);
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.content_type, "application/json");
    return Json::parse(response.body);
  }

  ServerState state_ = ServerState::ready;
  ServerProperties properties_ = {.model_name = "smollm2:135m",
                                  .model_path = "smollm2-135m.gguf",
                                  .chat_template = "{{ messages }}",
                                  .bos_token = "<s>",
                                  .eos_token = "</s>",
                                  .context = 2048,
                                  .n_running = 3,
                                  .drafts = true,
                                  .filters = {.top_k = 7, .temperature = 0.5f}};
  SchedulerStatus status_;
  StatusSources sources_ = {
      .version = "0.1.0",
      .state = [this] { return state_; },
      .properties = [this] { return properties_; },
      .status = [this] { return status_; },
      .metrics =
          [](const SchedulerStatus& status) {
            return "steps " + std::to_string(status.steps) + "\n";
          },
  };
};

TEST_F(StatusRoutes, StatusFollowsTheState) {
  struct Case {
    const char* path;
    int loading, ready, draining;
  };
  const Case cases[] = {
      {"/health", 503, 200, 503}, {"/v1/health", 503, 200, 503}, {"/version", 200, 200, 200},
      {"/props", 503, 200, 200},  {"/slots", 503, 200, 200},     {"/metrics", 503, 200, 200},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.path);
    state_ = ServerState::loading;
    const HttpResponse loading = get(c.path);
    EXPECT_EQ(loading.status, c.loading);
    if (c.loading == 503) {
      EXPECT_EQ(Json::parse(loading.body)["error"]["message"], "Loading model");
    }
    state_ = ServerState::ready;
    EXPECT_EQ(get(c.path).status, c.ready);
    state_ = ServerState::draining;
    EXPECT_EQ(get(c.path).status, c.draining);
  }
}

// The model is not there yet.
TEST_F(StatusRoutes, LoadingAsksNothing) {
  state_ = ServerState::loading;
  sources_.properties = nullptr;
  sources_.status = nullptr;
  sources_.metrics = nullptr;
  for (const char* path : {"/health", "/version", "/props", "/slots", "/metrics"})
    EXPECT_NO_THROW(get(path)) << path;
}

TEST_F(StatusRoutes, Bodies) {
  EXPECT_EQ(get("/health").body, R"({"status":"ok"})");
  EXPECT_EQ(get("/version").body, R"({"version":"0.1.0"})");
  status_.steps = 12;
  EXPECT_EQ(get("/metrics").body, "steps 12\n");
  EXPECT_EQ(get("/metrics").content_type, "text/plain; version=0.0.4; charset=utf-8");
}

TEST_F(StatusRoutes, Properties) {
  const Json props = json("/props");
  EXPECT_EQ(props["total_slots"], 3);
  EXPECT_EQ(props["model_alias"], "smollm2:135m");
  EXPECT_EQ(props["model_path"], "smollm2-135m.gguf");
  EXPECT_EQ(props["chat_template"], "{{ messages }}");
  EXPECT_EQ(props["bos_token"], "<s>");
  EXPECT_EQ(props["eos_token"], "</s>");
  EXPECT_EQ(props["build_info"], "outrider 0.1.0");
  EXPECT_EQ(props["default_generation_settings"]["n_ctx"], 2048);
  EXPECT_EQ(props["default_generation_settings"]["params"]["top_k"], 7);
  EXPECT_EQ(props["default_generation_settings"]["params"]["temperature"], 0.5);
  EXPECT_EQ(props["default_generation_settings"]["params"]["verify"], "coupled");
  properties_.chat_template = "\xff";  // a file may hold anything
  EXPECT_EQ(json("/props")["chat_template"], "\xEF\xBF\xBD");
}

TEST_F(StatusRoutes, SlotsShowCounts) {
  using enum SchedulerStatus::State;
  status_.answers = {
      {{7}, generating, 100, 64, 100, 12, 50},
      {{9}, prefilling, 200, 0, 128, 0, -1},
      {{11}, waiting, 300, 0, 0, 0, -1},
  };
  const Json slots = json("/slots");
  ASSERT_EQ(slots.size(), 3u);
  EXPECT_EQ(slots[0], Json::parse(R"({"id": 0, "n_ctx": 2048, "speculative": true,
      "is_processing": true, "id_task": 7, "state": "generating", "n_prompt_tokens": 100,
      "n_prompt_tokens_cached": 64, "n_prompt_tokens_read": 100,
      "next_token": {"has_next_token": true, "n_remain": 38, "n_decoded": 12}})"));
  EXPECT_EQ(slots[1]["id"], 1);
  EXPECT_EQ(slots[1]["id_task"], 9);
  EXPECT_EQ(slots[1]["state"], "reading");
  EXPECT_EQ(slots[1]["n_prompt_tokens_read"], 128);
  EXPECT_EQ(slots[1]["next_token"]["n_remain"], -1);
  EXPECT_EQ(slots[2], Json::parse(R"({"id": 2, "n_ctx": 2048, "speculative": true,
      "is_processing": false, "state": "idle"})"));
}

TEST_F(StatusRoutes, FailsOnNoSlotIfAsked) {
  using enum SchedulerStatus::State;
  struct Case {
    const char* name;
    int n_busy;
    const char* query;
    int status;
  };
  const Case cases[] = {
      {"idle", 2, "fail_on_no_slot=1", 200},
      {"busy", 3, "fail_on_no_slot=1", 503},
      {"busy, among others", 3, "a=b&fail_on_no_slot=1&c", 503},
      {"not asked", 3, "", 200},
      {"asked not to", 3, "fail_on_no_slot=0", 200},
      {"another name", 3, "no_fail_on_no_slot=1", 200},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    status_.answers.clear();
    for (int i = 0; i < c.n_busy; ++i) status_.answers.push_back({{1}, suspended, 1, 0, 1, 0, -1});
    EXPECT_EQ(get("/slots", c.query).status, c.status);
  }
}

}  // namespace
}  // namespace outrider

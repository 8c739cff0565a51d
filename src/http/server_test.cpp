#include "http/server_test.h"

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

namespace outrider {
namespace {

using namespace std::chrono_literals;

TEST_F(HttpServerTest, Answers) {
  start();
  struct Case {
    const char* name;
    std::string request;
    int status;
    std::string body;
    bool keeps_alive = true;
  };
  const Case cases[] = {
      {"GET", get("/health"), 200, "fine"},
      {"HEAD", "HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, ""},
      {"POST", post("/echo?q", "body"), 200, "/echo?q body"},
      {"empty body", post("/echo", ""), 200, "/echo? "},
      {"chunks",
       "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
       "Transfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n",
       200, "/echo? body"},
      {"decoded path", get("/echo/a%2Fb%20c?d%20e"), 200, "/echo/a/b c?d%20e "},
      {"absolute target", get("http://127.0.0.1/echo/a"), 200, "/echo/a? "},
      {"client closes", get("/health", "Connection: close\r\n"), 200, "fine", false},
      {"1.0", "GET /health HTTP/1.0\r\n\r\n", 200, "fine", false},
      {"1.0 kept alive", "GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 200, "fine"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Client client = connect();
    for (int round = 0; round < 2; ++round) {
      const Response response = client.ask(c.request);
      EXPECT_EQ(response.status, c.status);
      EXPECT_EQ(response.body, c.body);
      EXPECT_TRUE(response.is_whole);
      EXPECT_EQ(response.header("connection"), c.keeps_alive ? "keep-alive" : "close");
      EXPECT_EQ(response.header("date").size(), 29u);
      if (c.keeps_alive) continue;
      EXPECT_EQ(client.receive(), "");
      break;
    }
  }
  EXPECT_EQ(ask(cases[1].request).header("content-length"), "4");
  EXPECT_EQ(ask(cases[0].request).header("content-type"), "text/plain");
}

TEST_F(HttpServerTest, RefusesWhatNoRouteAnswers) {
  start();
  struct Case {
    const char* name;
    std::string request;
    int status;
    const char *allow, *type;
    bool keeps_alive;
  };
  const Case cases[] = {
      {"no path", get("/nowhere"), 404, "", "invalid_request_error", true},
      {"Anthropic's no path", get("/v1/messages/x"), 404, "", "not_found_error", true},
      {"no method", "DELETE /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, "GET, HEAD",
       "invalid_request_error", true},
      {"asterisk", "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "",
       "invalid_request_error", true},
      // The body is not read.
      {"body for no path", post("/nowhere", "body"), 404, "", "invalid_request_error", false},
      {"text", "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n", 415, "",
       "invalid_request_error", false},
      {"another host", "GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403, "",
       "permission_error", true},
      {"no request", "GET / HTTP/1.1\r\n\r\n", 400, "", "invalid_request_error", false},
      {"no request for Anthropic's", "GET /v1/messages HTTP/1.1\r\n\r\n", 400, "",
       "invalid_request_error", false},
      {"large body", "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999\r\n\r\n",
       413, "", "invalid_request_error", false},
      {"large body for Anthropic's",
       "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999\r\n\r\n", 413,
       "", "request_too_large", false},
      {"endless head", "GET / HTTP/1.1\r\nX: " + std::string(17000, 'a'), 431, "",
       "invalid_request_error", false},
      {"endless head for Anthropic's",
       "POST /v1/messages?beta=true HTTP/1.1\r\nX: " + std::string(17000, 'a'), 431, "",
       "invalid_request_error", false},
      {"endless target", "GET /" + std::string(17000, 'a'), 414, "", "invalid_request_error",
       false},
      {"bad chunk",
       "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
       "Transfer-Encoding: chunked\r\n\r\n-1\r\n",
       400, "", "invalid_request_error", false},
      {"another version", "GET / HTTP/3.0\r\n\r\n", 505, "", "server_error", false},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Client client = connect();
    const Response response = client.ask(c.request);
    EXPECT_EQ(response.status, c.status);
    EXPECT_EQ(response.header("allow"), c.allow);
    EXPECT_EQ(response.header("content-type"), "application/json");
    const auto body = nlohmann::json::parse(response.body);
    EXPECT_EQ(body["error"]["type"], c.type);
    EXPECT_EQ(body.contains("type"), c.request.find("/v1/messages") != std::string::npos);
    EXPECT_EQ(response.header("connection"), c.keeps_alive ? "keep-alive" : "close");
    if (c.keeps_alive) {
      EXPECT_EQ(client.ask(get("/health")).status, 200);
    } else {
      // What follows may be the refused request's body, so it is no request.
      client.send(get("/health"));
      EXPECT_EQ(client.receive_all(), "");
    }
  }
}

TEST_F(HttpServerTest, SaysWhatToUseInstead) {
  HttpServerOptions asked = options();
  asked.instead_of = [](std::string_view path) { return path == "/ping" ? "use /health" : ""; };
  start(std::move(asked));
  EXPECT_NE(ask(get("/ping")).body.find("there is nothing at /ping; use /health"),
            std::string::npos);
  EXPECT_NE(ask(get("/nowhere")).body.find("there is nothing at /nowhere\""), std::string::npos);
}

// The response reaches a client that sends a large body before it reads.
TEST_F(HttpServerTest, RefusalReachesClientThatGoesOnSending) {
  HttpServerOptions o = options();
  o.limits.request.body_bytes = 1000;
  start(o);
  for (int round = 0; round < 20; ++round) {
    Client client = connect();
    EXPECT_TRUE(client.send(post("/echo", std::string(std::size_t{8} << 20, 'a'))));
    const Response response = client.receive_response();
    EXPECT_EQ(response.status, 413);
    EXPECT_TRUE(response.is_whole);
  }
}

TEST_F(HttpServerTest, LargeBodies) {
  start();
  const std::string body((std::size_t{32} << 20) - 1, 'a');
  const Response response = ask(post("/echo", body + "b"));
  EXPECT_TRUE(response.body == "/echo? " + body + "b");
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  start();
  Client client = connect();
  // More than what is read ahead.
  const std::string body(100000, 'a');
  client.send(get("/hold") + get("/echo/1") + post("/echo", body) + get("/hold") + get("/nowhere") +
              get("/echo/2", "Connection: close\r\n") + get("/echo/3"));
  held_.take()->send({.body = "first"});
  EXPECT_EQ(client.receive_response().body, "first");
  EXPECT_EQ(client.receive_response().body, "/echo/1? ");
  EXPECT_TRUE(client.receive_response().body == "/echo? " + body);
  const auto reply = held_.take();
  reply->begin_stream("");
  reply->write("streamed");
  reply->end();
  EXPECT_EQ(client.receive_response().body, "streamed");
  EXPECT_EQ(client.receive_response().status, 404);
  EXPECT_EQ(client.receive_response().body, "/echo/2? ");
  EXPECT_EQ(client.receive_all(), "");
  EXPECT_EQ(held_.n_gone(), 0);
}

// What a client sends ahead stays with the system, except for a few kilobytes.
TEST_F(HttpServerTest, LittleIsReadAhead) {
  start();
  Client client = connect();
  client.send(get("/hold"));
  const auto reply = held_.take();
  constexpr std::size_t kMost = std::size_t{64} << 20;
  EXPECT_LT(client.send_until_full(kMost), kMost);
}

TEST_F(HttpServerTest, ContinuesOnlyWhatItWants) {
  HttpServerOptions o = options();
  o.guards.api_keys = {"key"};
  start(o);
  const std::string head =
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: 4\r\nExpect: 100-continue\r\n";
  {
    Client client = connect();
    client.send(head + "x-api-key: key\r\n\r\n");
    EXPECT_EQ(client.receive_head().status, 100);
    EXPECT_EQ(client.ask("body").body, "/echo? body");
    EXPECT_EQ(client.ask(get("/health")).status, 200);
  }
  {
    SCOPED_TRACE("the body came without waiting");
    Client client = connect();
    client.send(head + "x-api-key: key\r\n\r\nbody");
    EXPECT_EQ(client.receive_response().body, "/echo? body");
  }
  {
    SCOPED_TRACE("refused");
    EXPECT_EQ(ask(head + "x-api-key: other\r\n\r\n").status, 401);
  }
}

TEST_F(HttpServerTest, StreamsArriveAtOnce) {
  start();
  Client client = connect();
  client.send(get("/hold"));
  const auto reply = held_.take();
  reply->begin_stream("");
  const Response head = client.receive_head();
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.header("content-type"), "text/event-stream");
  EXPECT_EQ(head.header("cache-control"), "no-cache");
  EXPECT_EQ(head.header("x-accel-buffering"), "no");
  EXPECT_EQ(head.header("transfer-encoding"), "chunked");
  EXPECT_EQ(head.header("content-length"), "");
  for (int i = 0; i < 3; ++i) {
    reply->write("data: piece\n\n");
    EXPECT_EQ(client.receive_until("piece\n\n\r\n"), "d\r\ndata: piece\n\n\r\n");
  }
  reply->write("");  // would be the end
  reply->write("last");
  reply->end();
  EXPECT_EQ(client.receive_until("0\r\n\r\n"), "4\r\nlast\r\n0\r\n\r\n");
  EXPECT_EQ(client.ask(get("/health")).status, 200);
}

TEST_F(HttpServerTest, StreamsWithoutChunks) {
  start();
  {
    SCOPED_TRACE("HTTP/1.0");
    Client client = connect();
    client.send("GET /stream?abc HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    const Response response = client.receive_response();
    EXPECT_EQ(response.header("transfer-encoding"), "");
    EXPECT_EQ(response.header("connection"), "close");
    EXPECT_EQ(response.body, "abc");
  }
  {
    SCOPED_TRACE("HEAD");
    Client client = connect();
    EXPECT_EQ(client.ask("HEAD /stream?abc HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 200);
    EXPECT_EQ(client.ask(get("/health")).body, "fine");
    client.send("HEAD /hold HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const auto reply = held_.take();
    reply->begin_stream("beat");
    EXPECT_EQ(client.receive_response(false).status, 200);
    EXPECT_TRUE(held_.wait_for_gone(1));  // nobody wants the stream
    reply->write("x");
    reply->end();
    EXPECT_EQ(client.ask(get("/health")).body, "fine");
  }
}

TEST_F(HttpServerTest, SilentStreamsHaveHeartbeats) {
  HttpServerOptions o = options();
  o.times.heartbeat = 20ms;
  start(o);
  Client client = connect();
  client.send(get("/hold"));
  const auto reply = held_.take();
  reply->begin_stream(": beat\n\n");
  client.receive_head();
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(client.receive_until("beat\n\n\r\n"), "8\r\n: beat\n\n\r\n");
  reply->end();
  EXPECT_TRUE(client.receive_until("0\r\n\r\n").ends_with("0\r\n\r\n"));
  EXPECT_EQ(client.ask(get("/health")).body, "fine");
}

TEST_F(HttpServerTest, ClientsThatGo) {
  HttpServerOptions o = options();
  o.times.heartbeat = 5ms;
  start(o);
  struct Case {
    const char* name;
    bool is_stream;
    void (*leave)(Client&);
  };
  const Case cases[] = {
      {"closed", false, [](Client& c) { c.close(); }},
      {"reset", false, [](Client& c) { c.reset(); }},
      {"ended its input", false, [](Client& c) { c.end_input(); }},
      {"closed a stream", true, [](Client& c) { c.close(); }},
      {"reset a stream", true, [](Client& c) { c.reset(); }},
      {"ended its input in a stream", true, [](Client& c) { c.end_input(); }},
      {"closed after the next request", true,
       [](Client& c) {
         c.send(get("/health"));
         c.close();
       }},
  };
  int n_gone = 0;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Client client = connect();
    client.send(get("/hold"));
    const auto reply = held_.take();
    if (c.is_stream) {
      reply->begin_stream("beat");
      client.receive_until("beat");
    }
    EXPECT_EQ(held_.n_gone(), n_gone);
    EXPECT_EQ(server_->n_in_progress(), 1);
    c.leave(client);
    EXPECT_TRUE(held_.wait_for_gone(++n_gone));
    // Nobody is there to hear it.
    if (!c.is_stream) reply->begin_stream("");
    reply->write("x");
    reply->end();
    EXPECT_TRUE(wait_until([&] { return server_->n_in_progress() == 0; }));
  }
  const std::vector<HttpAccess> log = wait_for_log(std::size(cases));
  for (std::size_t i = 0; i < std::size(cases); ++i)
    EXPECT_EQ(log[i].status, cases[i].is_stream ? 200 : 499) << cases[i].name;
  EXPECT_EQ(held_.n_gone(), n_gone);
}

TEST_F(HttpServerTest, WhoIsGoneBeforeItIsAskedForIsReportedAtOnce) {
  start();
  std::shared_ptr<HttpReply> reply;
  {
    Client client = connect();
    client.send(get("/hold"));
    reply = held_.take();
  }
  ASSERT_TRUE(held_.wait_for_gone(1));
  bool is_gone = false;
  reply->on_gone([&] { is_gone = true; });
  EXPECT_TRUE(is_gone);
}

// Also if it sent more than is read ahead, so that nobody reads its end.
TEST_F(HttpServerTest, WhoSendsMuchAndGoesIsGone) {
  start();
  std::shared_ptr<HttpReply> reply;
  {
    Client client = connect();
    client.send(get("/hold") + std::string(70'000, 'x'));
    reply = held_.take();
  }
  EXPECT_TRUE(held_.wait_for_gone(1));
}

TEST_F(HttpServerTest, DocumentsAreMadeOnItsThreads) {
  start();
  for (const bool fails : {false, true}) {
    Client client = connect();
    client.send(get("/hold"));
    std::thread::id maker;
    held_.take()->send_made([&]() -> HttpResponse {
      maker = std::this_thread::get_id();
      if (fails) throw std::runtime_error("no memory");
      return {.body = "made"};
    });
    const Response response = client.receive_response();
    EXPECT_EQ(response.status, fails ? 500 : 200);
    EXPECT_NE(response.body.find(fails ? "the server failed: no memory" : "made"),
              response.body.npos);
    EXPECT_NE(maker, std::thread::id());
    EXPECT_NE(maker, std::this_thread::get_id());
  }
}

// Nor is a client gone that had its whole response.
TEST_F(HttpServerTest, AnsweredClientsAreNotGone) {
  start();
  std::shared_ptr<HttpReply> reply;
  {
    Client client = connect();
    client.send(get("/hold"));
    reply = held_.take();
    reply->send({.body = "all"});
    client.receive_response();
  }
  EXPECT_TRUE(wait_until([&] { return server_->n_in_progress() == 0; }));
  reply->on_gone([] { ADD_FAILURE(); });
  server_->stop();
  EXPECT_EQ(held_.n_gone(), 0);
}

// `printf 'GET ...' | nc -N` ends its input before it reads.
TEST_F(HttpServerTest, QuickResponsesReachClientsThatEndTheirInput) {
  start();
  for (const std::string& request : {get("/health"), post("/echo", std::string(100000, 'a')),
                                     get("/stream?abc"), get("/nowhere")}) {
    Client client = connect();
    client.send(request);
    client.end_input();
    EXPECT_TRUE(client.receive_response().is_whole);
    EXPECT_EQ(client.receive_all(), "");
  }
}

TEST_F(HttpServerTest, ClientsThatDoNotReadAreGone) {
  struct Case {
    const char* name;
    std::size_t unsent_bytes;
    std::chrono::milliseconds write_stall;
  };
  const Case cases[] = {{"too much", 100000, 30s}, {"too long", std::size_t{1} << 40, 50ms}};
  int n_gone = 0;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    HttpServerOptions o = options();
    o.limits.unsent_bytes = c.unsent_bytes;
    o.times.write_stall = c.write_stall;
    start(o);
    Client client = connect();
    client.send(get("/hold"));
    const auto reply = held_.take();
    reply->begin_stream("");
    ++n_gone;
    const std::string text(50000, 'a');
    // The system takes some megabytes before it makes us wait.
    for (int i = 0; i < 2000 && held_.n_gone() < n_gone; ++i) {
      reply->write(text);
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_TRUE(held_.wait_for_gone(n_gone));
    reply->write(text);
    reply->end();
    EXPECT_EQ(held_.n_gone(), n_gone);
  }
}

// The timers that the system keeps for the server's connections, in hundredths of a second; only
// those that ask a silent client's machine whether it is there.
std::vector<int> probe_timers(int port) {
  std::vector<int> timers;
  std::ifstream connections("/proc/net/tcp");
  for (std::string line; std::getline(connections, line);) {
    int local = 0, state = 0, timer = 0, ticks = 0;
    std::sscanf(line.c_str(), " %*d: %*8X:%X %*8X:%*X %X %*X:%*X %X:%X", &local, &state, &timer,
                &ticks);
    const bool is_established = state == 1, probes = timer == 2;
    if (local == port && is_established && probes) timers.push_back(ticks);
  }
  return timers;
}

TEST_F(HttpServerTest, SilentMachinesAreAskedWhetherTheyAreThere) {
  HttpServerOptions o = options();
  o.times.write_stall = 20s;
  start(o);
  Client client = connect();
  client.send(get("/hold"));
  const auto reply = held_.take();
  EXPECT_TRUE(wait_until([&] { return probe_timers(server_->port()).size() == 1; }));
  for (const int ticks : probe_timers(server_->port())) EXPECT_LE(ticks, 2000);
  reply->send({});
}

// What a route gives at once may be as large as it likes.
TEST_F(HttpServerTest, LargeResponses) {
  HttpServerOptions o = options();
  o.limits.unsent_bytes = 1000;  // of streams
  start(o);
  const std::string body(std::size_t{20} << 20, 'a');
  Client client = connect();
  client.send(get("/hold"));
  held_.take()->send({.body = body});
  EXPECT_TRUE(client.receive_response().body == body);
  EXPECT_EQ(client.ask(get("/health")).status, 200);
  EXPECT_EQ(held_.n_gone(), 0);
}

TEST_F(HttpServerTest, SlowRequests) {
  HttpServerOptions o = options();
  o.times.head = 30ms;
  o.times.body = 30ms;
  o.times.idle = 30ms;
  o.times.linger = 30ms;
  start(o);
  struct Case {
    const char* name;
    std::string sent;
    std::vector<int> statuses;  // of what comes before the end
  };
  const std::string body = post("/echo", "body");
  const Case cases[] = {
      {"nothing", "", {}},
      {"an empty line", "\r\n", {}},
      {"a first byte", "G", {408}},
      {"most of a head", get("/health").substr(0, get("/health").size() - 1), {408}},
      {"a head", body.substr(0, body.size() - 4), {408}},
      {"most of a body", body.substr(0, body.size() - 1), {408}},
      {"a request", body, {200}},
      {"a request and a half", body + body.substr(0, 10), {200, 408}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Client client = connect();
    client.send(c.sent);
    for (const int status : c.statuses) EXPECT_EQ(client.receive_response().status, status);
    EXPECT_EQ(client.receive_all(), "");
  }
  {
    SCOPED_TRACE("a body has a time of its own");
    o.times.head = 2 * kPatience;
    start(o);
    Client client = connect();
    client.send(body.substr(0, body.size() - 1));
    EXPECT_EQ(client.receive_response().status, 408);
    o.times.head = 30ms;
    start(o);
  }
  {
    SCOPED_TRACE("byte after byte");
    Client client = connect();
    EXPECT_TRUE(wait_until([&] {
      std::this_thread::sleep_for(5ms);
      return !client.send("x");
    }));
  }
  {
    SCOPED_TRACE("a response that takes longer");
    Client client = connect();
    client.send(get("/hold"));
    const auto reply = held_.take();
    std::this_thread::sleep_for(100ms);
    reply->send({.body = "late"});
    EXPECT_EQ(client.receive_response().body, "late");
  }
}

TEST_F(HttpServerTest, RoutesThatFail) {
  start();
  struct Case {
    const char* path;
    int status;
    const char* body;
  };
  const Case cases[] = {
      {"/fail?request", 422,
       R"({"error":{"message":"a \"field\"","type":"invalid_request_error","param":"field","code":"code"}})"},
      {"/v1/messages/fail?request", 422,
       R"({"type":"error","error":{"type":"invalid_request_error","message":"a \"field\""}})"},
      {"/fail?error", 500,
       R"({"error":{"message":"the server failed: two\\x0alines","type":"server_error","param":null,"code":null}})"},
      {"/v1/messages/fail?error", 500,
       R"({"type":"error","error":{"type":"api_error","message":"the server failed: two\\x0alines"}})"},
      {"/fail?number", 500,
       R"({"error":{"message":"the server failed","type":"server_error","param":null,"code":null}})"},
      {"/fail?nothing", 500,
       R"({"error":{"message":"the server failed to answer","type":"server_error","param":null,"code":null}})"},
      {"/fail?late", 200, "first"},
  };
  Client client = connect();
  for (const Case& c : cases) {
    SCOPED_TRACE(c.path);
    const Response response = client.ask(get(c.path));
    EXPECT_EQ(response.status, c.status);
    EXPECT_EQ(response.body, c.body);
  }
  // What was sent cannot be taken back: the client sees that the end is missing.
  const Response response = client.ask(get("/fail?stream"));
  EXPECT_EQ(response.body, "text");
  EXPECT_FALSE(response.is_whole);
  EXPECT_EQ(client.receive_all(), "");
}

TEST_F(HttpServerTest, DroppedReplies) {
  start();
  Client client = connect();
  client.send(get("/hold"));
  held_.take().reset();
  EXPECT_EQ(client.receive_response().status, 500);
  client.send(get("/hold"));
  auto reply = held_.take();
  reply->begin_stream("");
  reply->write("text");
  reply.reset();
  const Response response = client.receive_response();
  EXPECT_EQ(response.body, "text");
  EXPECT_FALSE(response.is_whole);
  EXPECT_EQ(held_.n_gone(), 0);
}

// What waits for the client's going may hold the reply.
TEST_F(HttpServerTest, RepliesInTheirOwnCallbacks) {
  start();
  for (const bool goes : {false, true}) {
    const auto kept = std::make_shared<int>();
    const std::weak_ptr<int> watched = kept;
    std::atomic<bool> is_gone = false;
    std::vector<HttpRoute> routes = {
        {"GET", "/", [&, kept](const HttpRequest&, std::shared_ptr<HttpReply> reply) {
           reply->on_gone([reply, kept, &is_gone] { is_gone = true; });
           if (!goes) reply->send({.body = "fine"});
         }}};
    HttpServer server({}, std::move(routes));
    server.start();
    Client client(server.port());
    if (goes) {
      client.send(get("/"));
      ASSERT_TRUE(wait_until([&] { return server.n_in_progress() == 1; }));
      client.close();
      EXPECT_TRUE(wait_until([&] { return is_gone.load(); }));
    } else {
      EXPECT_EQ(client.ask(get("/")).body, "fine");
    }
    EXPECT_TRUE(wait_until([&] { return kept.use_count() == 2; }));  // here and in the route
  }
}

TEST_F(HttpServerTest, LineEndsInHeadersAreReplaced) {
  start();
  const Response response = ask(get("/header/a%20%22%C3%A9"));
  EXPECT_EQ(response.header("x-a"), "/header/a \"\xc3\xa9");
  std::vector<HttpRoute> routes = {
      {"GET", "/", [](const HttpRequest&, std::shared_ptr<HttpReply> reply) {
         reply->send({.headers = {{"x-a", "a\r\nx-b: c"}}});
       }}};
  HttpServer server({}, std::move(routes));
  server.start();
  EXPECT_EQ(Client(server.port()).ask(get("/")).header("x-a"), "a  x-b: c");
}

TEST_F(HttpServerTest, PagesMayReadWhatIsAllowed) {
  HttpServerOptions o = options();
  o.guards.cors_origins = {"https://a.example"};
  start(o);
  const std::string origin = "Origin: https://a.example\r\n";
  for (const std::string& request :
       {get("/health", origin), get("/nowhere", origin), get("/stream?abc", origin),
        get("/fail?error", origin), post("/echo", "body", origin)}) {
    EXPECT_EQ(ask(request).header("access-control-allow-origin"), "https://a.example") << request;
  }
  const Response preflight =
      ask("OPTIONS /echo HTTP/1.1\r\nHost: localhost\r\nAccess-Control-Request-Method: POST\r\n" +
          origin + "\r\n");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.header("access-control-allow-origin"), "https://a.example");
  EXPECT_EQ(preflight.header("content-length"), "");
  EXPECT_EQ(ask(get("/health", "Origin: https://b.example\r\n")).status, 403);
}

TEST_F(HttpServerTest, RoutesLearnWhichKeyWasUsed) {
  HttpServerOptions o = options();
  o.guards.api_keys = {"first", "second"};
  std::vector<HttpRoute> routes = {
      {"GET", "/*", [](const HttpRequest& request, std::shared_ptr<HttpReply> reply) {
         reply->send({.body = request.api_key ? std::to_string(*request.api_key) : "none"});
       }}};
  HttpServer server(o, std::move(routes));
  server.start();
  Client client(server.port());
  EXPECT_EQ(client.ask(get("/a", "Authorization: Bearer second\r\n")).body, "1");
  EXPECT_EQ(client.ask(get("/a", "x-api-key: first\r\n")).body, "0");
  EXPECT_EQ(client.ask(get("/health")).body, "none");
  EXPECT_EQ(client.ask(get("/a")).status, 401);
  EXPECT_EQ(client.ask(get("/a", "x-api-key: third\r\n")).status, 401);
}

// A disk may be full.
TEST_F(HttpServerTest, AnswersWhateverBecomesOfTheLog) {
  HttpServerOptions o = options();
  o.access_log = [](const HttpAccess&) { throw std::runtime_error("no room"); };
  start(o);
  {
    Client client = connect();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(client.ask(get("/health")).status, 200);
    client.send(get("/hold"));
    const auto reply = held_.take();
    client.reset();
    EXPECT_TRUE(held_.wait_for_gone(1));
  }
  EXPECT_TRUE(wait_until([&] { return server_->n_in_progress() == 0; }));
  EXPECT_EQ(ask(get("/health")).status, 200);
  server_->stop();
}

TEST_F(HttpServerTest, AccessLogHoldsNothingOfTheUser) {
  start();
  std::size_t bytes = 0;
  {
    Client client = connect();
    client.send(get("/echo/a", "Authorization: Bearer secret\r\n"));
    bytes = client.receive_until("/echo/a? ").size();
    client.send(get("/echo/x%20y%22%C2%85%E2%80%A8%5C%25?key=secret"));
    client.receive_until("secret ");
    client.send(post("/echo", "secret"));
    client.receive_until("? secret");
    client.send("BREW /nowhere/" + std::string(5000, 'a') + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.receive_response();
    client.send("nonsense\r\n\r\n");
    client.receive_all();
  }
  const std::vector<HttpAccess> log = wait_for_log(5);
  EXPECT_EQ(log[0].method, "GET");
  EXPECT_EQ(log[0].path, "/echo/a");
  EXPECT_EQ(log[0].status, 200);
  EXPECT_EQ(log[0].bytes, bytes);
  EXPECT_GE(log[0].ms, 0);
  EXPECT_EQ(log[1].path, "/echo/x%20y%22%C2%85%E2%80%A8%5C%25");
  EXPECT_EQ(log[2].path, "/echo");
  EXPECT_EQ(log[3].method, "BREW");
  EXPECT_EQ(log[3].status, 404);
  EXPECT_EQ(log[3].path.substr(0, 12), "/nowhere/aaa");
  EXPECT_LT(log[3].path.size(), 300u);
  EXPECT_EQ(log[4].method, "");
  EXPECT_EQ(log[4].path, "");
  EXPECT_EQ(log[4].status, 400);
}

}  // namespace
}  // namespace outrider

#include "server/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/sanitizers.h"
#include "server/request_error.h"

namespace outrider {
namespace {

using namespace std::chrono_literals;

// Nothing here takes long; a test that waits this long has failed.
constexpr auto kPatience = 30s;

struct Answer {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case, as the server writes them
  std::string body;
  bool is_whole = false;  // its end came before the connection's

  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

// The client's end of a connection.
class Client {
 public:
  explicit Client(int port, const char* host = "127.0.0.1") {
    sockaddr_storage storage = {};
    socklen_t size;
    auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
    if (::inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
      v4->sin_family = AF_INET;
      v4->sin_port = htons(static_cast<std::uint16_t>(port));
      size = sizeof *v4;
    } else {
      ::inet_pton(AF_INET6, host, &v6->sin6_addr);
      v6->sin6_family = AF_INET6;
      v6->sin6_port = htons(static_cast<std::uint16_t>(port));
      size = sizeof *v6;
    }
    file_ = ::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(file_, reinterpret_cast<sockaddr*>(&storage), size) != 0) close();
  }
  Client(Client&& other) noexcept
      : file_(std::exchange(other.file_, -1)), unread_(std::move(other.unread_)) {}
  Client& operator=(Client&&) = delete;
  ~Client() { close(); }

  bool is_open() const { return file_ >= 0; }

  void close() {
    if (file_ >= 0) ::close(file_);
    file_ = -1;
  }

  // Closes without a farewell: the server's next packet is answered by a reset.
  void reset() {
    const linger none = {.l_onoff = 1, .l_linger = 0};
    ::setsockopt(file_, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    close();
  }

  void end_input() { ::shutdown(file_, SHUT_WR); }

  // False: the server closed the connection.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(file_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n < 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }

  // What there is, at least one byte; nothing: the connection ended.
  std::string receive() {
    if (!unread_.empty()) return std::exchange(unread_, {});
    pollfd ready = {.fd = file_, .events = POLLIN, .revents = 0};
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(kPatience).count();
    if (::poll(&ready, 1, static_cast<int>(ms)) == 0) throw std::runtime_error("no answer");
    char bytes[std::size_t{64} << 10];
    const ssize_t n = ::recv(file_, bytes, sizeof bytes, 0);
    return n > 0 ? std::string(bytes, static_cast<std::size_t>(n)) : "";
  }

  std::string receive_all() {
    std::string all;
    for (std::string bytes; !(bytes = receive()).empty();) all += bytes;
    return all;
  }

  // Everything up to and with `end`, or up to the connection's end.
  std::string receive_until(std::string_view end) {
    std::string all;
    while (all.find(end) == std::string::npos) {
      const std::string bytes = receive();
      if (bytes.empty()) return all;
      all += bytes;
    }
    const std::size_t size = all.find(end) + end.size();
    unread_ = all.substr(size);
    return all.substr(0, size);
  }

  std::string receive_bytes(std::size_t size) {
    std::string all;
    while (all.size() < size) {
      const std::string bytes = receive();
      if (bytes.empty()) return all;
      all += bytes;
    }
    unread_ = all.substr(size);
    return all.substr(0, size);
  }

  Answer receive_head() {
    Answer answer;
    const std::string head = receive_until("\r\n\r\n");
    if (!head.starts_with("HTTP/1.1 ")) return answer;
    answer.status = std::stoi(head.substr(9));
    for (std::size_t line = head.find("\r\n") + 2; line + 2 < head.size();) {
      const std::size_t colon = head.find(": ", line), end = head.find("\r\n", line);
      answer.headers[head.substr(line, colon - line)] = head.substr(colon + 2, end - colon - 2);
      line = end + 2;
    }
    return answer;
  }

  Answer receive_answer(bool has_body = true) {
    Answer answer = receive_head();
    if (answer.status == 0) return answer;
    if (!has_body || answer.status == 204) {
      answer.is_whole = true;
    } else if (answer.header("transfer-encoding") == "chunked") {
      for (;;) {
        const std::string line = receive_until("\r\n");
        if (!line.ends_with("\r\n")) return answer;
        const std::size_t size = std::stoul(line, nullptr, 16);
        const std::string piece = receive_bytes(size + 2);
        if (piece.size() < size + 2) return answer;
        answer.body += piece.substr(0, size);
        if (size == 0) break;
      }
      answer.is_whole = true;
    } else if (!answer.header("content-length").empty()) {
      const std::size_t size = std::stoul(answer.header("content-length"));
      answer.body = receive_bytes(size);
      answer.is_whole = answer.body.size() == size;
    } else {
      answer.body = receive_all();
    }
    return answer;
  }

  Answer ask(std::string_view request) {
    send(request);
    return receive_answer(!request.starts_with("HEAD"));
  }

 private:
  int file_ = -1;
  std::string unread_;
};

std::string get(std::string_view path, std::string_view headers = "") {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(headers) +
         "\r\n";
}

std::string post(std::string_view path, std::string_view body, std::string_view headers = "") {
  return "POST " + std::string(path) +
         " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n" + std::string(headers) + "\r\n" + std::string(body);
}

bool wait_until(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

// Replies of GET /hold and POST /hold, for the test to answer.
class Held {
 public:
  void add(std::shared_ptr<HttpReply> reply) {
    reply->on_gone([this] { ++n_gone_; });
    const std::lock_guard lock(mutex_);
    replies_.push_back(std::move(reply));
    added_.notify_all();
  }

  std::shared_ptr<HttpReply> take() {
    std::unique_lock lock(mutex_);
    if (!added_.wait_for(lock, kPatience, [&] { return !replies_.empty(); }))
      throw std::runtime_error("no request");
    auto reply = std::move(replies_.front());
    replies_.erase(replies_.begin());
    return reply;
  }

  int n_gone() const { return n_gone_; }
  bool wait_for_gone(int n) const {
    return wait_until([&] { return n_gone_ >= n; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable added_;
  std::vector<std::shared_ptr<HttpReply>> replies_;
  std::atomic<int> n_gone_ = 0;
};

class HttpServerTest : public testing::Test {
 protected:
  HttpServerOptions options() {
    HttpServerOptions options;
    options.access_log = [this](const HttpAccess& access) {
      const std::lock_guard lock(mutex_);
      log_.push_back(access);
    };
    return options;
  }

  std::vector<HttpRoute> routes() {
    const auto health = [](HttpRequest, std::shared_ptr<HttpReply> reply) {
      reply->send({.body = "fine", .content_type = "text/plain"});
    };
    const auto echo = [](HttpRequest request, std::shared_ptr<HttpReply> reply) {
      reply->send({.body = request.path + "?" + request.query + " " + request.body,
                   .content_type = "text/plain"});
    };
    const auto hold = [this](HttpRequest, std::shared_ptr<HttpReply> reply) {
      held_.add(std::move(reply));
    };
    const auto stream = [](HttpRequest request, std::shared_ptr<HttpReply> reply) {
      reply->begin_stream("");
      for (const char c : request.query) reply->write(std::string(1, c));
      reply->end();
    };
    const auto fail = [](HttpRequest request, std::shared_ptr<HttpReply> reply) {
      if (request.query == "request") throw RequestError(422, "code", "field", "a \"field\"");
      if (request.query == "error") throw std::runtime_error("two\nlines");
      if (request.query == "number") throw 1;
      if (request.query == "late") reply->send({.body = "first"});
      if (request.query == "stream") {
        reply->begin_stream("");
        reply->write("text");
      }
      if (request.query == "late" || request.query == "stream") throw std::runtime_error("x");
    };
    const auto header = [](HttpRequest request, std::shared_ptr<HttpReply> reply) {
      reply->send({.body = "", .headers = {{"x-a", request.path}}});
    };
    return {{"GET", "/health", health},  {"GET", "/echo/*", echo},
            {"POST", "/echo", echo},     {"GET", "/hold", hold},
            {"POST", "/hold", hold},     {"GET", "/stream", stream},
            {"GET", "/fail", fail},      {"GET", "/v1/messages/fail", fail},
            {"GET", "/header/*", header}};
  }

  HttpServer& start(HttpServerOptions options) {
    server_ = std::make_unique<HttpServer>(std::move(options), routes());
    server_->start();
    return *server_;
  }
  HttpServer& start() { return start(options()); }

  Client connect() { return Client(server_->port()); }
  Answer ask(std::string_view request) { return connect().ask(request); }

  std::vector<HttpAccess> log() {
    const std::lock_guard lock(mutex_);
    return log_;
  }
  // Once there are `n` lines.
  std::vector<HttpAccess> wait_for_log(std::size_t n) {
    EXPECT_TRUE(wait_until([&] { return log().size() >= n; }));
    return log();
  }

  std::mutex mutex_;
  std::vector<HttpAccess> log_;
  Held held_;
  std::unique_ptr<HttpServer> server_;
};

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
      const Answer answer = client.ask(c.request);
      EXPECT_EQ(answer.status, c.status);
      EXPECT_EQ(answer.body, c.body);
      EXPECT_TRUE(answer.is_whole);
      EXPECT_EQ(answer.header("connection"), c.keeps_alive ? "keep-alive" : "close");
      EXPECT_EQ(answer.header("date").size(), 29u);
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
    const Answer answer = client.ask(c.request);
    EXPECT_EQ(answer.status, c.status);
    EXPECT_EQ(answer.header("allow"), c.allow);
    EXPECT_EQ(answer.header("content-type"), "application/json");
    EXPECT_EQ(nlohmann::json::parse(answer.body)["error"]["type"], c.type);
    EXPECT_EQ(answer.header("connection"), c.keeps_alive ? "keep-alive" : "close");
    if (c.keeps_alive) {
      EXPECT_EQ(client.ask(get("/health")).status, 200);
    } else {
      // What follows may be the refused request's body, so it is no request.
      client.send(get("/health"));
      EXPECT_EQ(client.receive_all(), "");
    }
  }
}

// The answer reaches a client that sends a large body before it reads.
TEST_F(HttpServerTest, RefusalReachesClientThatGoesOnSending) {
  HttpServerOptions o = options();
  o.limits.request.body_bytes = 1000;
  start(o);
  for (int round = 0; round < 20; ++round) {
    Client client = connect();
    EXPECT_TRUE(client.send(post("/echo", std::string(std::size_t{8} << 20, 'a'))));
    const Answer answer = client.receive_answer();
    EXPECT_EQ(answer.status, 413);
    EXPECT_TRUE(answer.is_whole);
  }
}

TEST_F(HttpServerTest, LargeBodies) {
  start();
  const std::string body((std::size_t{32} << 20) - 1, 'a');
  const Answer answer = ask(post("/echo", body + "b"));
  EXPECT_TRUE(answer.body == "/echo? " + body + "b");
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  start();
  Client client = connect();
  // More than what is read ahead.
  const std::string body(100000, 'a');
  client.send(get("/hold") + get("/echo/1") + post("/echo", body) + get("/hold") + get("/nowhere") +
              get("/echo/2", "Connection: close\r\n") + get("/echo/3"));
  held_.take()->send({.body = "first"});
  EXPECT_EQ(client.receive_answer().body, "first");
  EXPECT_EQ(client.receive_answer().body, "/echo/1? ");
  EXPECT_TRUE(client.receive_answer().body == "/echo? " + body);
  const auto reply = held_.take();
  reply->begin_stream("");
  reply->write("streamed");
  reply->end();
  EXPECT_EQ(client.receive_answer().body, "streamed");
  EXPECT_EQ(client.receive_answer().status, 404);
  EXPECT_EQ(client.receive_answer().body, "/echo/2? ");
  EXPECT_EQ(client.receive_all(), "");
  EXPECT_EQ(held_.n_gone(), 0);
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
    EXPECT_EQ(client.receive_answer().body, "/echo? body");
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
  const Answer head = client.receive_head();
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
    const Answer answer = client.receive_answer();
    EXPECT_EQ(answer.header("transfer-encoding"), "");
    EXPECT_EQ(answer.header("connection"), "close");
    EXPECT_EQ(answer.body, "abc");
  }
  {
    SCOPED_TRACE("HEAD");
    Client client = connect();
    EXPECT_EQ(client.ask("HEAD /stream?abc HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 200);
    EXPECT_EQ(client.ask(get("/health")).body, "fine");
    client.send("HEAD /hold HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const auto reply = held_.take();
    reply->begin_stream("beat");
    EXPECT_EQ(client.receive_answer(false).status, 200);
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

// `printf 'GET ...' | nc -N` ends its input before it reads.
TEST_F(HttpServerTest, QuickAnswersReachClientsThatEndTheirInput) {
  start();
  for (const std::string& request : {get("/health"), post("/echo", std::string(100000, 'a')),
                                     get("/stream?abc"), get("/nowhere")}) {
    Client client = connect();
    client.send(request);
    client.end_input();
    EXPECT_TRUE(client.receive_answer().is_whole);
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

// What a route gives at once may be as large as it likes.
TEST_F(HttpServerTest, LargeAnswers) {
  HttpServerOptions o = options();
  o.limits.unsent_bytes = 1000;  // of streams
  start(o);
  const std::string body(std::size_t{20} << 20, 'a');
  Client client = connect();
  client.send(get("/hold"));
  held_.take()->send({.body = body});
  EXPECT_TRUE(client.receive_answer().body == body);
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
    for (const int status : c.statuses) EXPECT_EQ(client.receive_answer().status, status);
    EXPECT_EQ(client.receive_all(), "");
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
    SCOPED_TRACE("an answer that takes longer");
    Client client = connect();
    client.send(get("/hold"));
    const auto reply = held_.take();
    std::this_thread::sleep_for(100ms);
    reply->send({.body = "late"});
    EXPECT_EQ(client.receive_answer().body, "late");
  }
}

// Each byte may be the last that arrives, or that the client takes.
TEST_F(HttpServerTest, ConnectionsThatBreakAnywhere) {
  start();
  const std::string request =
      "POST /hold HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
      "application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
      "4\r\nbody\r\n0\r\n\r\n";
  const auto break_off = [](Client& client, std::size_t round) {
    if (round % 2 == 0) {
      client.reset();
    } else {
      client.close();
    }
  };
  for (std::size_t n = 0; n < request.size(); ++n) {
    Client client = connect();
    client.send(request.substr(0, n));
    break_off(client, n);
  }
  std::size_t size = 0;
  for (std::size_t n = 0; size == 0 || n <= size; ++n) {
    Client client = connect();
    client.send(get("/stream?abcdef"));
    if (n == 0) size = client.receive_until("0\r\n\r\n").size();
    client.receive_bytes(n);
    break_off(client, n);
  }
  EXPECT_GT(size, 100u);
  for (std::size_t n = 0; n <= request.size(); n += 10) {
    Client client = connect();
    client.send(request);
    const auto reply = held_.take();
    client.send(request.substr(0, n));
    if (n % 3 == 0) reply->begin_stream("");
    break_off(client, n);
  }
  EXPECT_TRUE(wait_until([&] { return server_->n_in_progress() == 0; }));
  EXPECT_EQ(ask(get("/health")).body, "fine");
  server_->stop();  // waits for every connection
}

TEST_F(HttpServerTest, ManyWritersAndClientsThatGo) {
  HttpServerOptions o = options();
  o.times.heartbeat = 1ms;
  start(o);
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  constexpr int kWriters = 4, kWrites = 300;
  for (int round = 0; round < 40; ++round) {
    Client client = connect();
    client.send(get("/hold"));
    const auto reply = held_.take();
    reply->begin_stream("");
    const bool goes = round % 2 == 1;
    std::vector<std::jthread> writers;
    for (int w = 0; w < kWriters; ++w) {
      writers.emplace_back([&, w] {
        for (int i = 0; i < kWrites; ++i) reply->write(std::string(1, static_cast<char>('a' + w)));
      });
    }
    if (goes) {
      client.receive_bytes(random() % 1000);
      client.reset();
    }
    for (std::jthread& writer : writers) writer.join();
    reply->end();
    if (goes) continue;
    const Answer answer = client.receive_answer();
    EXPECT_TRUE(answer.is_whole);
    for (int w = 0; w < kWriters; ++w)
      EXPECT_EQ(std::ranges::count(answer.body, static_cast<char>('a' + w)), kWrites);
  }
  EXPECT_TRUE(wait_until([&] { return server_->n_in_progress() == 0; }));
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
    const Answer answer = client.ask(get(c.path));
    EXPECT_EQ(answer.status, c.status);
    EXPECT_EQ(answer.body, c.body);
  }
  // What was sent cannot be taken back: the client sees that the end is missing.
  const Answer answer = client.ask(get("/fail?stream"));
  EXPECT_EQ(answer.body, "text");
  EXPECT_FALSE(answer.is_whole);
  EXPECT_EQ(client.receive_all(), "");
}

TEST_F(HttpServerTest, DroppedReplies) {
  start();
  Client client = connect();
  client.send(get("/hold"));
  held_.take().reset();
  EXPECT_EQ(client.receive_answer().status, 500);
  client.send(get("/hold"));
  auto reply = held_.take();
  reply->begin_stream("");
  reply->write("text");
  reply.reset();
  const Answer answer = client.receive_answer();
  EXPECT_EQ(answer.body, "text");
  EXPECT_FALSE(answer.is_whole);
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
        {"GET", "/", [&, kept](HttpRequest, std::shared_ptr<HttpReply> reply) {
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
  const Answer answer = ask(get("/header/a%20%22%C3%A9"));
  EXPECT_EQ(answer.header("x-a"), "/header/a \"\xc3\xa9");
  std::vector<HttpRoute> routes = {{"GET", "/", [](HttpRequest, std::shared_ptr<HttpReply> reply) {
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
  const Answer preflight =
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
      {"GET", "/*", [](HttpRequest request, std::shared_ptr<HttpReply> reply) {
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
    client.receive_answer();
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

TEST_F(HttpServerTest, ConnectionsBeyondTheLimitAreRefused) {
  HttpServerOptions o = options();
  o.limits.n_connections = 3;
  start(o);
  std::vector<Client> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(connect());
    EXPECT_EQ(clients.back().ask(get("/health")).status, 200);
  }
  const Answer refusal = ask(get("/health"));
  EXPECT_EQ(refusal.status, 503);
  EXPECT_EQ(refusal.header("retry-after"), "1");
  EXPECT_EQ(refusal.header("connection"), "close");
  EXPECT_EQ(clients[1].ask(get("/health")).status, 200);
  clients.pop_back();
  EXPECT_TRUE(wait_until([&] { return ask(get("/health")).status == 200; }));
}

// Half of the files are the clients'.
std::size_t files_at_most() {
  rlimit limit;
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

TEST_F(HttpServerTest, ThousandsOfConnections) {
  start();  // raises the limit
  const std::size_t n_clients = std::min<std::size_t>(3000, (files_at_most() - 400) / 2);
  std::vector<Client> clients;
  for (std::size_t i = 0; i < n_clients; ++i) clients.push_back(connect());
  for (int round = 0; round < 2; ++round) {
    for (Client& client : clients) client.send(get("/stream?abc") + get("/health"));
    for (Client& client : clients) {
      ASSERT_EQ(client.receive_answer().body, "abc");
      ASSERT_EQ(client.receive_answer().body, "fine");
    }
  }
  for (std::size_t i = 0; i < n_clients; ++i) clients[i].send(get("/hold"));
  std::vector<std::shared_ptr<HttpReply>> replies;
  for (std::size_t i = 0; i < n_clients; ++i) replies.push_back(held_.take());
  for (const auto& reply : replies) reply->begin_stream("");
  for (const auto& reply : replies) reply->write("x");
  for (const auto& reply : replies) reply->end();
  for (Client& client : clients) ASSERT_EQ(client.receive_answer().body, "x");
}

std::size_t resident_bytes() {
  std::size_t n_pages = 0;
  std::ifstream("/proc/self/statm") >> n_pages >> n_pages;
  return n_pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

TEST_F(HttpServerTest, IdleConnectionsCostLittle) {
  if (OUTRIDER_SANITIZES_MEMORY) GTEST_SKIP() << "the sanitizer takes memory of its own";
  start();
  const std::string request = post("/echo", std::string(200000, 'a'));
  // What the first ones leave to the others is not counted.
  std::vector<Client> clients;
  std::size_t before = 0;
  const std::size_t n_clients = std::min<std::size_t>(1100, (files_at_most() - 400) / 2);
  for (std::size_t i = 0; i < n_clients; ++i) {
    if (i == 100) before = resident_bytes();
    clients.push_back(connect());
    ASSERT_TRUE(clients.back().ask(request).is_whole);
  }
  const std::size_t after = resident_bytes();
  const double each = (static_cast<double>(after) - static_cast<double>(before)) /
                      static_cast<double>(n_clients - 100);
  RecordProperty("bytes_per_connection", static_cast<int>(each));
  EXPECT_LT(each, 64 << 10);
}

double cpu_seconds() {
  rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// The threads share their cores with those that compute. A thread that spins would take all of the
// time that passes; on a busy machine less, and then this test sees nothing.
void expect_sleep() {
  const double before = cpu_seconds();
  std::this_thread::sleep_for(300ms);
  EXPECT_LT(cpu_seconds() - before, 0.15);
}

TEST_F(HttpServerTest, SleepsWhenThereIsNothingToDo) {
  start();
  expect_sleep();
  Client idle = connect(), waiting = connect(), ahead = connect(), silent = connect();
  EXPECT_EQ(idle.ask(get("/health")).status, 200);
  waiting.send(get("/hold"));
  const auto first = held_.take();
  ahead.send(get("/hold") + std::string(100000, 'x'));
  const auto second = held_.take();
  silent.send(get("/hold"));
  const auto third = held_.take();
  third->begin_stream("beat");
  expect_sleep();
}

TEST_F(HttpServerTest, WithoutFreeFilesConnectionsWait) {
  start();
  rlimit limit;
  ::getrlimit(RLIMIT_NOFILE, &limit);
  Client first = connect();
  EXPECT_EQ(first.ask(get("/health")).status, 200);
  const rlimit few = {.rlim_cur = 40, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<Client> clients;
  for (;;) {
    clients.push_back(connect());
    if (!clients.back().is_open()) break;
    clients.back().send(get("/health"));
  }
  clients.pop_back();
  expect_sleep();
  EXPECT_EQ(first.ask(get("/health")).status, 200);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  for (Client& client : clients) EXPECT_EQ(client.receive_answer().status, 200);
}

TEST_F(HttpServerTest, RaisesTheLimitOfFiles) {
  rlimit limit;
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit few = {.rlim_cur = 64, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  start();
  EXPECT_EQ(files_at_most(), limit.rlim_max);
}

TEST_F(HttpServerTest, PortsThatCannotBeHad) {
  start();
  struct Case {
    const char* name;
    std::string host;
    int port;
    const char* message;
  };
  const Case cases[] = {
      {"in use", "127.0.0.1", server_->port(), "another program uses the port"},
      {"in use at one of two addresses", "localhost", server_->port(), "another program uses"},
      {"not ours", "192.0.2.1", 0, "no interface of this machine has the address"},
      {"no address", "256.1.1.1", 0, "cannot listen"},
      {"no name", "no.such.name.invalid", 0, "cannot listen"},
      {"negative", "127.0.0.1", -1, "expected 0 to 65535"},
      {"too large", "127.0.0.1", 65536, "expected 0 to 65535"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    HttpServerOptions o;
    o.host = c.host;
    o.port = c.port;
    try {
      HttpServer server(o, {});
      server.start();
      ADD_FAILURE() << "it was opened";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(c.message), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
  HttpServerOptions o;
  o.n_threads = 0;
  EXPECT_THROW(HttpServer(o, {}), Error);
}

TEST_F(HttpServerTest, HostsOfBothFamilies) {
  const int v6 = ::socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 loopback = {};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_addr = in6addr_loopback;
  const bool has_v6 =
      v6 >= 0 && ::bind(v6, reinterpret_cast<sockaddr*>(&loopback), sizeof loopback) == 0;
  if (v6 >= 0) ::close(v6);
  struct Case {
    const char* host;
    bool v4, v6;
  };
  const Case cases[] = {{"127.0.0.1", true, false},
                        {"0.0.0.0", true, false},
                        {"localhost", true, true},
                        {"::1", false, true},
                        {"::", true, true}};
  for (const Case& c : cases) {
    if (!has_v6 && !c.v4) continue;
    if (!has_v6 && std::string(c.host) == "::") continue;
    SCOPED_TRACE(c.host);
    HttpServerOptions o = options();
    o.host = c.host;
    start(o);
    const auto answers = [&](const char* address) {
      Client client(server_->port(), address);
      return client.is_open() && client.ask(get("/health")).status == 200;
    };
    EXPECT_EQ(answers("127.0.0.1"), c.v4);
    EXPECT_EQ(answers("::1"), c.v6 && has_v6);
  }
}

TEST_F(HttpServerTest, Drains) {
  start();
  const int port = server_->port();
  Client fresh = connect(), idle = connect(), half = connect(), waiting = connect(),
         streaming = connect();
  EXPECT_EQ(idle.ask(get("/health")).status, 200);
  const std::string request = post("/echo", "body");
  half.send(request.substr(0, request.size() - 1));
  waiting.send(get("/hold") + get("/health"));
  const auto first = held_.take();
  streaming.send(get("/hold"));
  const auto second = held_.take();
  second->begin_stream("");
  streaming.receive_head();
  EXPECT_EQ(server_->n_in_progress(), 2);

  server_->stop_accepting();
  EXPECT_EQ(idle.receive_all(), "");
  EXPECT_EQ(fresh.receive_all(), "");
  EXPECT_FALSE(Client(port).is_open());
  EXPECT_EQ(server_->n_in_progress(), 2);

  half.send("y");
  const Answer last = half.receive_answer();
  EXPECT_EQ(last.body, "/echo? body");
  EXPECT_EQ(last.header("connection"), "close");
  EXPECT_EQ(half.receive_all(), "");

  first->send({.body = "answer"});
  const Answer answer = waiting.receive_answer();
  EXPECT_EQ(answer.body, "answer");
  EXPECT_EQ(answer.header("connection"), "close");
  EXPECT_EQ(waiting.receive_all(), "");

  second->write("x");
  EXPECT_EQ(streaming.receive_until("x\r\n"), "1\r\nx\r\n");
  second->end();
  EXPECT_EQ(streaming.receive_all(), "0\r\n\r\n");
  EXPECT_TRUE(wait_until([&] { return server_->n_in_progress() == 0; }));
  EXPECT_EQ(held_.n_gone(), 0);
  server_->stop();
  server_->stop();
}

TEST_F(HttpServerTest, StopsAndStartsAgainOnThePort) {
  int port = 0;
  for (int round = 0; round < 3; ++round) {
    HttpServerOptions o = options();
    o.port = port;
    start(o);
    port = server_->port();
    Client waiting = connect(), streaming = connect(), idle = connect();
    EXPECT_EQ(idle.ask(get("/health")).status, 200);
    waiting.send(get("/hold"));
    const auto first = held_.take();
    streaming.send(get("/hold"));
    const auto second = held_.take();
    second->begin_stream("beat");
    server_.reset();
    EXPECT_EQ(held_.n_gone(), 2 * round + 2);
    EXPECT_EQ(waiting.receive_all(), "");
    EXPECT_FALSE(streaming.receive_answer().is_whole);
    // Replies outlive the server.
    first->send({.body = "late"});
    second->write("late");
    second->end();
  }
  HttpServer never_started({}, {});
}

TEST_F(HttpServerTest, StopsUnderLoad) {
  for (int round = 0; round < 20; ++round) {
    start();
    const int port = server_->port();
    std::atomic<bool> stops = false;
    std::vector<std::thread> clients;
    for (int i = 0; i < 4; ++i) {
      clients.emplace_back([&] {
        while (!stops) {
          Client client(port);
          for (int n = 0; n < 3 && client.is_open(); ++n)
            if (client.ask(n == 1 ? get("/stream?abc") : get("/health")).status != 200) break;
        }
      });
    }
    std::this_thread::sleep_for(3ms);
    server_.reset();
    stops = true;
    for (std::thread& client : clients) client.join();
  }
}

}  // namespace
}  // namespace outrider

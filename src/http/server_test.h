// What tests of the server share: a client that sees every byte, and a server with some routes.

#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "http/request_error.h"
#include "http/server.h"

namespace outrider {

// Nothing in these tests takes long; a test that waits this long has failed.
constexpr auto kPatience = std::chrono::seconds(30);

struct Response {
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
  explicit Client(int port, const char* host = "127.0.0.1")
      : Client(std::string(host).find(':') == std::string::npos ? AF_INET : AF_INET6, nullptr) {
    connect(port, host);
  }
  // Not yet connected.
  Client(int family, std::nullptr_t) : file_(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  Client(Client&& other) noexcept
      : file_(std::exchange(other.file_, -1)), unread_(std::move(other.unread_)) {}
  Client& operator=(Client&&) = delete;
  ~Client() { close(); }

  void connect(int port, const char* host = "127.0.0.1") {
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
    if (::connect(file_, reinterpret_cast<sockaddr*>(&storage), size) != 0) close();
  }

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

  // How many bytes the server and the system take before nothing more goes for a while; stops at
  // `most`.
  std::size_t send_until_full(std::size_t most) {
    const std::string bytes(std::size_t{64} << 10, 'x');
    std::size_t n_sent = 0;
    for (pollfd ready = {.fd = file_, .events = POLLOUT, .revents = 0};
         n_sent<most&& ::poll(&ready, 1, 100)> 0;) {
      const ssize_t n = ::send(file_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n > 0) n_sent += static_cast<std::size_t>(n);
    }
    return n_sent;
  }

  // What there is, at least one byte; nothing: the connection ended.
  std::string receive() {
    if (!unread_.empty()) return std::exchange(unread_, {});
    pollfd ready = {.fd = file_, .events = POLLIN, .revents = 0};
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(kPatience).count();
    if (::poll(&ready, 1, static_cast<int>(ms)) == 0) throw std::runtime_error("no response");
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

  Response receive_head() {
    Response response;
    const std::string head = receive_until("\r\n\r\n");
    if (!head.starts_with("HTTP/1.1 ")) return response;
    response.status = std::stoi(head.substr(9));
    for (std::size_t line = head.find("\r\n") + 2; line + 2 < head.size();) {
      const std::size_t colon = head.find(": ", line), end = head.find("\r\n", line);
      response.headers[head.substr(line, colon - line)] = head.substr(colon + 2, end - colon - 2);
      line = end + 2;
    }
    return response;
  }

  Response receive_response(bool has_body = true) {
    Response response = receive_head();
    if (response.status == 0) return response;
    if (!has_body || response.status == 204) {
      response.is_whole = true;
    } else if (response.header("transfer-encoding") == "chunked") {
      for (;;) {
        const std::string line = receive_until("\r\n");
        if (!line.ends_with("\r\n")) return response;
        const std::size_t size = std::stoul(line, nullptr, 16);
        const std::string piece = receive_bytes(size + 2);
        if (piece.size() < size + 2) return response;
        response.body += piece.substr(0, size);
        if (size == 0) break;
      }
      response.is_whole = true;
    } else if (!response.header("content-length").empty()) {
      const std::size_t size = std::stoul(response.header("content-length"));
      response.body = receive_bytes(size);
      response.is_whole = response.body.size() == size;
    } else {
      response.body = receive_all();
    }
    return response;
  }

  Response ask(std::string_view request) {
    send(request);
    return receive_response(!request.starts_with("HEAD"));
  }

 private:
  int file_ = -1;
  std::string unread_;
};

inline std::string get(std::string_view path, std::string_view headers = "") {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(headers) +
         "\r\n";
}

inline std::string post(std::string_view path, std::string_view body,
                        std::string_view headers = "") {
  return "POST " + std::string(path) +
         " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n" + std::string(headers) + "\r\n" + std::string(body);
}

inline bool wait_until(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
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
    const auto health = [](const HttpRequest&, std::shared_ptr<HttpReply> reply) {
      reply->send({.body = "fine", .content_type = "text/plain"});
    };
    const auto echo = [](const HttpRequest& request, std::shared_ptr<HttpReply> reply) {
      reply->send({.body = request.path + "?" + request.query + " " + request.body,
                   .content_type = "text/plain"});
    };
    const auto hold = [this](const HttpRequest&, std::shared_ptr<HttpReply> reply) {
      held_.add(std::move(reply));
    };
    const auto stream = [](const HttpRequest& request, std::shared_ptr<HttpReply> reply) {
      reply->begin_stream("");
      for (const char c : request.query) reply->write(std::string(1, c));
      reply->end();
    };
    const auto fail = [](const HttpRequest& request, std::shared_ptr<HttpReply> reply) {
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
    const auto header = [](const HttpRequest& request, std::shared_ptr<HttpReply> reply) {
      reply->send({.body = "", .headers = {{"x-a", request.path}}});
    };
    const auto block = [this](const HttpRequest& request, std::shared_ptr<HttpReply> reply) {
      ++n_blocked_;
      std::unique_lock lock(mutex_);
      unblocked_.wait(lock, [&] { return is_unblocked_; });
      reply->send({.body = std::to_string(request.body.size()), .content_type = "text/plain"});
    };
    return {
        {"GET", "/health", health},  {"GET", "/echo/*", echo}, {"POST", "/block", block},
        {"POST", "/echo", echo},     {"GET", "/hold", hold},   {"POST", "/hold", hold},
        {"GET", "/stream", stream},  {"GET", "/fail", fail},   {"GET", "/v1/messages/fail", fail},
        {"GET", "/header/*", header}};
  }

  HttpServer& start(HttpServerOptions options) {
    server_ = std::make_unique<HttpServer>(std::move(options), routes());
    server_->start();
    return *server_;
  }
  HttpServer& start() { return start(options()); }

  Client connect() { return Client(server_->port()); }
  Response ask(std::string_view request) { return connect().ask(request); }

  std::vector<HttpAccess> log() {
    const std::lock_guard lock(mutex_);
    return log_;
  }
  // Once there are `n` lines.
  std::vector<HttpAccess> wait_for_log(std::size_t n) {
    EXPECT_TRUE(wait_until([&] { return log().size() >= n; }));
    return log();
  }

  // Of POST /block.
  void unblock() {
    const std::lock_guard lock(mutex_);
    is_unblocked_ = true;
    unblocked_.notify_all();
  }
  std::atomic<int> n_blocked_ = 0;

  std::mutex mutex_;
  std::condition_variable unblocked_;
  bool is_unblocked_ = false;
  std::vector<HttpAccess> log_;
  Held held_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace outrider

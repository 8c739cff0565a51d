// A request and its answer as routes see them, whatever carries them (http_server.h, or a test).

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace outrider {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // of the target, without the query, percent-decoded
  std::string query;   // what follows '?'
  HttpHeaders headers;
  std::string body;

  // The first header of this name, in any case; nothing: there is none.
  std::optional<std::string_view> header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  HttpHeaders headers = {};
};

// Where the answer to one request goes: either send() once, or begin_stream(), write() any number
// of times and end(). Any thread; every call returns at once. A client that is gone makes all calls
// do nothing.
class HttpReply {
 public:
  virtual ~HttpReply() = default;

  virtual void send(HttpResponse response) = 0;

  // Status 200, server-sent events, chunked. `heartbeat` is written whenever nothing else was for
  // ten seconds.
  virtual void begin_stream(std::string heartbeat) = 0;
  virtual void write(std::string text) = 0;
  virtual void end() = 0;

  // Called once, on some thread, if the client goes away before the answer's end; at once if it is
  // gone. Must not block.
  virtual void on_gone(std::function<void()> gone) = 0;
};

// Called on a thread of the server, which it may keep busy for as long as reading and checking the
// request takes; the answer may come later, from any thread. What it throws becomes status 500.
using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<HttpReply>)>;

}  // namespace outrider

// A request and its response as routes see them, whatever carries them (server.h, or a test).

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
  // Which of the server's keys the client showed; nothing: the server has no keys, or the path
  // needs none.
  std::optional<std::size_t> api_key = {};

  // The first header of this name, in any case; nothing: there is none.
  std::optional<std::string_view> header(std::string_view name) const;
};

// ASCII letters match in either case.
bool equals_ignoring_case(std::string_view a, std::string_view b);

struct HttpResponse {
  int status = 200;
  std::string body = {};
  std::string content_type = "application/json";
  HttpHeaders headers = {};
};

// Where the response to one request goes: either send() or send_made() once, or begin_stream(),
// write() any number of times and end(). Any thread; every call returns at once. A client that is
// gone makes all calls do nothing. Whoever drops a reply without a response gives status 500; a
// stream without its end then breaks off, so that the client notices.
class HttpReply {
 public:
  virtual ~HttpReply() = default;

  virtual void send(HttpResponse response) = 0;
  // `make` is called on a thread of the server, if the client is still there: for long documents,
  // which the caller has no time to write. What it throws becomes status 500.
  virtual void send_made(std::function<HttpResponse()> make) = 0;

  // Status 200, server-sent events. `heartbeat` is written whenever nothing else was for ten
  // seconds (HttpTimes::heartbeat); empty: nothing is.
  virtual void begin_stream(std::string heartbeat) = 0;
  // A client that reads too slowly for what is written is given up, and then it is gone.
  virtual void write(std::string text) = 0;
  virtual void end() = 0;

  // Called once, on some thread, if the client goes away before send() or end(); at once if it is
  // gone. Must neither block nor throw. One for each reply; it may hold the reply.
  virtual void on_gone(std::function<void()> gone) = 0;
};

// Called on a thread of the server, which it may keep busy for as long as reading and checking the
// request takes; the response may come later, from any thread. A RequestError that it throws
// becomes its status, another exception status 500.
using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<HttpReply>)>;

// A row of the table of a server's routes. A path that ends in "/*" stands for all that go on after
// its slash ("/v1/models/*"). The row of the whole path comes first, then the longest that fits. A
// route for GET answers HEAD, too; it sees the method, and its body is not sent.
struct HttpRoute {
  std::string method;
  std::string path;
  HttpHandler handler;
};

}  // namespace outrider

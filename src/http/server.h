// HTTP/1.1 over TCP for a table of routes: connections, limits, guards (guards.h), streams of
// server-sent events, draining.
//
// A connection's requests are answered one after another, in their order; a further one waits,
// unread beyond a few kilobytes, until the response before it is complete.
//
// Routes are called on the connections' threads, and for long bodies on a thread of their own.
//
// A client counts as gone when its connection breaks, when it stops reading
// (HttpTimes::write_stall, HttpLimits::unsent_bytes), and when it ends its input while it waits for
// a response. Closing a connection and closing one direction of it look alike from here, and
// clients (curl, browsers, the SDKs of OpenAI and Anthropic) only ever do the former, so that going
// on would mean to compute for nobody. A response that a route gave before it returned reaches a
// client that ended its input, as `nc -N` does, in any case.

#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "http/guards.h"
#include "http/http.h"
#include "http/request_parser.h"

namespace outrider {

struct HttpLimits {
  RequestLimits request = {};
  // Beyond: status 503. Fewer if the process may not open as many files.
  std::size_t n_connections = 4096;
  // Of the bodies of all requests that are being received, together, and of long ones until their
  // route has read them; beyond, status 503.
  std::size_t all_bodies_bytes = std::size_t{256} << 20;
  // Of a stream, written by the route and not yet taken by the system; beyond, the client is gone.
  std::size_t unsent_bytes = std::size_t{4} << 20;
};

struct HttpTimes {
  // From a request's first byte, or the connection's beginning, to the end of the head; else 408.
  std::chrono::milliseconds head = std::chrono::seconds(10);
  std::chrono::milliseconds body = std::chrono::seconds(60);  // from the head on; else 408
  std::chrono::milliseconds idle = std::chrono::seconds(75);  // between requests
  // The client reads nothing, or its machine no longer acknowledges anything.
  std::chrono::milliseconds write_stall = std::chrono::seconds(30);
  std::chrono::milliseconds heartbeat = std::chrono::seconds(10);  // of a silent stream
  // How long a client may go on sending after a response that ends the connection. If we closed at
  // once, its system could drop the response before the client reads it.
  std::chrono::milliseconds linger = std::chrono::seconds(5);
};

// One response, for an access log: without query, headers and bodies, which hold keys and texts.
// Method and path are printable ASCII without spaces, quotes and backslashes, other bytes as %XX,
// so that no request can forge a line; long ones are cut, and empty means that none was read.
struct HttpAccess {
  std::string method;
  std::string path;
  int status = 0;         // 499: the client went away before there was one
  std::size_t bytes = 0;  // of the response, as far as it was sent, with its head
  double ms = 0;          // from the whole request to the last byte of the response
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // an address, a name, "localhost", "0.0.0.0", "::"
  int port = 0;                    // 0: the system chooses
  int n_threads = 2;               // they sleep unless there is something to do
  GuardOptions guards = {};
  HttpLimits limits = {};
  HttpTimes times = {};
  // Called on a thread of the server, after each response; must not block, and what it throws is
  // ignored.
  std::function<void(const HttpAccess&)> access_log = {};
  // What a client that asks for a path without a route is told besides; empty: nothing. Any thread.
  std::function<std::string_view(std::string_view path)> instead_of = {};
};

class HttpServer {
 public:
  // Throws Error for options that make no sense. Opens nothing yet.
  HttpServer(HttpServerOptions options, std::vector<HttpRoute> routes);
  // stop()
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Opens the port, also raises the process's limit of open files as far as it may, and starts the
  // threads. Throws Error if the port cannot be had. Once.
  void start();
  // For requests that come from now on. Any thread.
  void set_routes(std::vector<HttpRoute> routes);
  // Once started, the one that was opened; and whether only programs of this machine reach it.
  int port() const;
  bool is_loopback() const;

  // Closes the port and the connections that wait for a request. Requests that were begun are
  // answered, then their connections are closed, too.
  void stop_accepting();
  // Requests that are being answered.
  int n_in_progress() const;
  // Closes everything: clients of responses in progress are gone. Waits for handlers that are
  // running, so that no handler, on_gone or access_log may call it. Replies may outlive the server;
  // they do nothing.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace outrider

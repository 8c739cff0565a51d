// One connection of an HttpServer, from its first byte to its end. Only the server includes this.

#pragma once

#include <atomic>
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/strand.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "base/stopwatch.h"
#include "http/exchange.h"
#include "http/guards.h"
#include "http/request_parser.h"
#include "http/router.h"
#include "http/server.h"

namespace outrider {

using Strand = boost::asio::strand<boost::asio::io_context::executor_type>;
using Socket = boost::asio::basic_stream_socket<boost::asio::ip::tcp, Strand>;

class HttpConnection;

// What the connections of a server share; outlives them.
struct ConnectionContext {
  ConnectionContext(const HttpServerOptions& options, const CurrentRouter& router,
                    const Guards& guards, boost::asio::io_context& long_requests,
                    std::function<void(HttpConnection*)> closed)
      : options(options),
        router(router),
        guards(guards),
        long_requests(long_requests),
        closed(std::move(closed)) {}

  const HttpServerOptions& options;
  const CurrentRouter& router;
  const Guards& guards;
  boost::asio::io_context& long_requests;       // routes of long requests are called there
  std::function<void(HttpConnection*)> closed;  // each connection calls it once, at its end
  std::atomic<bool> is_draining = false;
  std::atomic<int> n_in_progress = 0;
  // Of requests that are being received, and of long ones until their route has read them.
  std::atomic<std::size_t> n_body_bytes = 0;
};

// Public functions may be called on any thread; all else happens on the socket's strand. Each step
// of a connection holds it alive, so it lives until it is closed and its last step has been called.
class HttpConnection final : public ResponseSender,
                             public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(Socket socket, ConnectionContext& context);

  void start();
  // One connection too many: answers 503 and closes.
  void start_refused();
  // Closes unless a request has begun.
  void drain();
  void stop();

  void exchange_changed() override;
  void exchange_overflowed() override;

 private:
  // idle -> head -> body -> response -> idle or linger. Times out in each, and is closed from any.
  enum class Stage { idle, head, body, response, linger, closed };
  using Clock = std::chrono::steady_clock;
  using Timer = boost::asio::basic_waitable_timer<Clock, boost::asio::wait_traits<Clock>, Strand>;
  using BoostError = boost::system::error_code;

  // `step` for the strand: not called once the connection is closed; if it throws, that closes it.
  template <typename Step>
  auto guarded(Step step);
  template <typename Step>
  void post(Step step);
  void close();
  void close_unless_asked();

  // Input.
  void await_input();
  void read();
  void await_end();
  void input_ended();
  void await_request();
  void parse();
  // Once the head is there. False: the request was refused.
  bool admit();
  // Counts what the connection holds of a body.
  void hold_body(std::size_t n_bytes);
  void call_route();
  void call_long_route(HttpRequest request, std::shared_ptr<HttpReply> reply);
  // A response of the server's own.
  void refuse(HttpResponse response);

  // Output.
  void begin_response();
  void add_head(int status, std::string_view content_type, const HttpHeaders& headers);
  void add_response(HttpResponse response);
  HttpResponse made(const std::function<HttpResponse()>& make) const;
  void add_stream_head(std::string heartbeat);
  void add_stream_text(std::string_view text);
  void send_more();
  void write();
  void finish_response();
  void report_response();
  void linger();

  // Deadlines. There is one at a time; moving it costs nothing but a look at the clock.
  void set_deadline(std::chrono::milliseconds from_now);
  void clear_deadline() { deadline_ = Clock::time_point::max(); }
  void arm_timer();
  void deadline_passed();

  ConnectionContext& context_;
  Socket socket_;
  Timer timer_, end_timer_;
  Clock::time_point deadline_ = Clock::time_point::max();
  Clock::time_point timer_end_ = Clock::time_point::max();  // max(): nobody waits for the timer
  Stage stage_ = Stage::idle;

  std::string unread_;  // input that no parser took yet
  bool awaits_input_ = false;
  std::unique_ptr<RequestParser> parser_;  // from the first byte of a request to its last
  std::size_t n_body_bytes_ = 0;
  std::shared_ptr<const Router> router_;  // when the request came
  const HttpHandler* route_ = nullptr;

  // The response in progress.
  struct ResponseState {
    std::string method, path;
    HttpHeaders cors_headers;
    bool keeps_alive = false, is_chunked = false, is_head = false;
    Stopwatch stopwatch;
    int status = 499;  // until one is sent
    std::size_t bytes = 0;
    bool is_stream = false;
    std::string heartbeat;
    bool is_complete = false;  // nothing follows what is in unsent_
  };
  std::unique_ptr<ResponseState> response_;
  std::shared_ptr<Exchange> exchange_;  // as long as there is a response
  std::string unsent_;
  std::size_t n_sent_ = 0;  // of unsent_
  bool is_writing_ = false;
};

}  // namespace outrider

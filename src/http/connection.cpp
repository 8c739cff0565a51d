#include "http/connection.h"

#include <fmt/format.h>
#include <poll.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <ctime>
#include <exception>
#include <utility>

#include "base/bytes.h"
#include "http/error_body.h"
#include "http/request_headers.h"

namespace outrider {
namespace {

namespace asio = boost::asio;

// A request with a longer body has a route that takes long: a megabyte of text, a tenth of a
// second.
constexpr std::size_t kLongBodyBytes = std::size_t{256} << 10;

// Input that is read ahead of the response in progress.
constexpr std::size_t kReadAheadBytes = std::size_t{16} << 10;
// How often to look whether a client is there of which no more is read.
constexpr std::chrono::milliseconds kEndLooks{200};

std::string_view reason_of(int status) {
  switch (status) {
    case 200: return "OK";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 412: return "Precondition Failed";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 422: return "Unprocessable Content";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
  }
  return "";  // may be empty, and clients do not read it
}

// "Sun, 06 Nov 1994 08:49:37 GMT", in every locale.
std::string http_date() {
  constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm t;
  ::gmtime_r(&now, &t);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[t.tm_wday], t.tm_mday,
                     kMonths[t.tm_mon], t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
}

// A value may come from a request: a line's end in it would begin another header.
void add_header(std::string& head, std::string_view name, std::string_view value) {
  head += name;
  head += ": ";
  for (const char c : value) head += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  head += "\r\n";
}

// For one word of a line: see HttpAccess.
std::string percent_encoded(std::string_view text) {
  constexpr std::size_t kBytesMax = 256;
  std::string out;
  for (const char c : text) {
    if (out.size() >= kBytesMax) return out + "...";
    if (c > ' ' && c < 0x7f && c != '"' && c != '\\' && c != '%') {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

// Bytes that count as long as this lives.
struct HeldBytes {
  HeldBytes(std::atomic<std::size_t>& total, std::size_t n) : total(total), n(n) { total += n; }
  ~HeldBytes() { total -= n; }
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;

  std::atomic<std::size_t>& total;
  const std::size_t n;
};

void respond_by(const HttpHandler& route, HttpRequest request, Exchange& exchange,
                const std::shared_ptr<HttpReply>& reply) {
  const std::string path = request.path;
  try {
    route(std::move(request), reply);
  } catch (const RequestError& error) {
    exchange.fail(error_response(path, error));
  } catch (const std::exception& error) {
    exchange.fail(error_response(
        path, 500, fmt::format("the server failed: {}", printable(error.what(), 300))));
  } catch (...) {
    exchange.fail(error_response(path, 500, "the server failed"));
  }
}

}  // namespace

HttpConnection::HttpConnection(Socket socket, ConnectionContext& context)
    : context_(context),
      socket_(std::move(socket)),
      timer_(socket_.get_executor()),
      end_timer_(socket_.get_executor()) {}

template <typename Step>
auto HttpConnection::guarded(Step step) {
  return [self = shared_from_this(), step = std::move(step)](auto... results) {
    if (self->stage_ == Stage::closed) return;
    try {
      step(results...);
    } catch (const std::exception&) {  // out of memory
      self->close();
    }
  };
}

template <typename Step>
void HttpConnection::post(Step step) {
  asio::post(socket_.get_executor(), guarded(std::move(step)));
}

void HttpConnection::start() {
  post([this] {
    BoostError ignored;
    socket_.non_blocking(true, ignored);
    socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
    set_deadline(context_.options.times.head);
    await_input();
  });
}

void HttpConnection::start_refused() {
  post([this] {
    BoostError ignored;
    socket_.non_blocking(true, ignored);
    refuse(error_response("", 503,
                          "the server has as many connections as it may have; try again later"));
  });
}

void HttpConnection::drain() {
  post([this] {
    if (stage_ == Stage::idle) close_unless_asked();
  });
}

void HttpConnection::stop() {
  post([this] { close(); });
}

void HttpConnection::exchange_changed() {
  post([this] { send_more(); });
}

void HttpConnection::exchange_overflowed() {
  stop();
}

void HttpConnection::close() {
  if (stage_ == Stage::closed) return;
  const std::shared_ptr<HttpConnection> self = shared_from_this();
  stage_ = Stage::closed;
  hold_body(0);
  // Before the client sees the end: no route is called for it then.
  if (response_) report_response();
  BoostError ignored;
  socket_.close(ignored);
  timer_.cancel(ignored);
  end_timer_.cancel(ignored);
  context_.closed(this);
}

// A request may have come that nobody read yet.
void HttpConnection::close_unless_asked() {
  BoostError ignored;
  if (socket_.available(ignored) == 0) close();
}

// Waiting takes no memory: there is a buffer only once there is something to read.
void HttpConnection::await_input() {
  if (stage_ == Stage::response && unread_.size() >= kReadAheadBytes) return await_end();
  if (awaits_input_) return;
  awaits_input_ = true;
  socket_.async_wait(Socket::wait_read, guarded([this](BoostError error) {
                       awaits_input_ = false;
                       if (error) return close();
                       read();
                     }));
}

void HttpConnection::read() {
  char bytes[std::size_t{64} << 10];
  BoostError error;
  const std::size_t n_bytes = socket_.read_some(asio::buffer(bytes), error);
  if (error == asio::error::would_block || stage_ == Stage::linger) {
    if (error && error != asio::error::would_block) return close();
    return await_input();
  }
  if (error == asio::error::eof) return input_ended();
  if (error) return close();
  unread_.append(bytes, n_bytes);
  if (stage_ == Stage::idle) {
    await_request();
  } else if (stage_ != Stage::response) {
    parse();
  } else {
    await_input();
  }
}

// No more is read ahead, so that only the system knows whether the client has left, if the end of
// what it sent has come.
void HttpConnection::await_end() {
  end_timer_.expires_after(kEndLooks);
  end_timer_.async_wait(guarded([this](BoostError error) {
    if (error || stage_ != Stage::response || unread_.size() < kReadAheadBytes) return;
    pollfd socket{socket_.native_handle(), POLLRDHUP, 0};
    if (poll(&socket, 1, 0) > 0) return input_ended();
    await_end();
  }));
}

void HttpConnection::input_ended() {
  if (stage_ != Stage::response || !exchange_->is_complete()) return close();
  response_->keeps_alive = false;
}

void HttpConnection::await_request() {
  if (!unread_.empty()) {
    stage_ = Stage::head;
    parser_ = std::make_unique<RequestParser>(context_.options.limits.request);
    set_deadline(context_.options.times.head);
    return parse();
  }
  stage_ = Stage::idle;
  unsent_.shrink_to_fit();
  set_deadline(context_.options.times.idle);
  await_input();
}

void HttpConnection::parse() {
  try {
    while (!parser_->is_complete()) {
      const std::size_t n_bytes = parser_->parse(unread_);
      if (n_bytes == 0) return await_input();
      unread_.erase(0, n_bytes);
      hold_body(parser_->request().body.size());
      if (context_.n_body_bytes > context_.options.limits.all_bodies_bytes)
        throw RequestError(503, "", "", "too many long requests at once; try again later");
      if (stage_ == Stage::head && parser_->has_head() && !admit()) return;
    }
  } catch (const RequestError& error) {
    return refuse(error_response(parser_->request().path, error));
  }
  call_route();
}

void HttpConnection::hold_body(std::size_t n_bytes) {
  context_.n_body_bytes += n_bytes - n_body_bytes_;
  n_body_bytes_ = n_bytes;
}

bool HttpConnection::admit() {
  HttpRequest& request = parser_->request();
  if (auto response = context_.guards.check(request)) {
    refuse(std::move(*response));
    return false;
  }
  router_ = context_.router.get();
  route_ = router_->find(request.method, request.path);
  if (route_ == nullptr) {
    const std::string allowed = router_->allowed(request.path);
    const auto& instead_of = context_.options.instead_of;
    const std::string_view instead = instead_of ? instead_of(request.path) : "";
    HttpResponse refusal =
        allowed.empty() ? error_response(request.path, 404,
                                         fmt::format("there is nothing at {}{}{}", request.path,
                                                     instead.empty() ? "" : "; ", instead))
                        : error_response(request.path, 405,
                                         fmt::format("{} answers to {}", request.path, allowed));
    if (!allowed.empty()) refusal.headers.emplace_back("allow", allowed);
    refuse(std::move(refusal));
    return false;
  }
  if (auto response = refuse_headers(request)) {
    refuse(std::move(*response));
    return false;
  }
  stage_ = Stage::body;
  set_deadline(context_.options.times.body);
  if (parser_->expects_continue() && !parser_->is_complete() && unread_.empty()) {
    unsent_ = "HTTP/1.1 100 Continue\r\n\r\n";
    write();
  }
  return true;
}

void HttpConnection::call_route() {
  begin_response();
  HttpRequest request = std::move(parser_->request());
  parser_.reset();
  // Held until after what the route throws: dropped before, it would answer itself.
  const auto reply = std::make_shared<ExchangeReply>(
      exchange_, error_response(request.path, 500, "the server failed to answer"));
  if (request.body.size() > kLongBodyBytes) return call_long_route(std::move(request), reply);
  respond_by(*route_, std::move(request), *exchange_, reply);
  await_input();
}

// Others shall not wait for it. The next request may come before the route returns, so that all it
// needs goes along. Nobody looks whether the client leaves before its turn; only stop() ends that.
void HttpConnection::call_long_route(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  auto held = std::make_shared<HeldBytes>(context_.n_body_bytes, request.body.size());
  asio::post(
      context_.long_requests,
      [self = shared_from_this(), router = router_, route = route_, exchange = exchange_,
       held = std::move(held), request = std::move(request), reply = std::move(reply)]() mutable {
        if (!exchange->is_gone()) respond_by(*route, std::move(request), *exchange, reply);
        held.reset();
        self->post([connection = self.get(), exchange] {
          if (connection->exchange_ == exchange) connection->await_input();
        });
      });
}

void HttpConnection::refuse(HttpResponse response) {
  begin_response();
  parser_.reset();
  exchange_->send(std::move(response));
}

void HttpConnection::begin_response() {
  stage_ = Stage::response;
  clear_deadline();
  hold_body(0);
  unread_.shrink_to_fit();  // a response may take minutes, and the next request as long
  ++context_.n_in_progress;
  response_ = std::make_unique<ResponseState>();
  exchange_ = std::make_shared<Exchange>(*this, context_.options.limits.unsent_bytes);
  if (!parser_) return;
  const HttpRequest& request = parser_->request();
  response_->method = request.method;
  response_->path = request.path;
  response_->cors_headers = context_.guards.cors_headers(request);
  response_->is_head = request.method == "HEAD";
  response_->is_chunked = !parser_->is_http_1_0();
  // Without the whole request, nobody knows where the next one begins.
  response_->keeps_alive = parser_->is_complete() && parser_->keeps_alive();
}

void HttpConnection::add_head(int status, std::string_view content_type,
                              const HttpHeaders& headers) {
  if (context_.is_draining) response_->keeps_alive = false;
  response_->status = status;
  unsent_ += fmt::format("HTTP/1.1 {} {}\r\n", status, reason_of(status));
  add_header(unsent_, "date", http_date());
  if (!content_type.empty()) add_header(unsent_, "content-type", content_type);
  for (const auto& [name, value] : headers) add_header(unsent_, name, value);
  for (const auto& [name, value] : response_->cors_headers) add_header(unsent_, name, value);
  // Said in any case, as HTTP/1.0 and 1.1 differ in what silence means.
  add_header(unsent_, "connection", response_->keeps_alive ? "keep-alive" : "close");
  unsent_ += "\r\n";
}

void HttpConnection::add_response(HttpResponse response) {
  const bool has_body = response.status != 204 && response.status != 304;
  if (has_body)
    response.headers.emplace_back("content-length", std::to_string(response.body.size()));
  add_head(response.status, response.content_type, response.headers);
  if (!response_->is_head) unsent_ += response.body;
}

HttpResponse HttpConnection::made(const std::function<HttpResponse()>& make) const {
  try {
    return make();
  } catch (const std::exception& error) {
    return error_response(response_->path, 500,
                          fmt::format("the server failed: {}", printable(error.what(), 300)));
  }
}

void HttpConnection::add_stream_head(std::string heartbeat) {
  response_->is_stream = true;
  response_->heartbeat = std::move(heartbeat);
  // The last one is for nginx, which would collect the stream.
  HttpHeaders headers = {{"cache-control", "no-cache"}, {"x-accel-buffering", "no"}};
  if (response_->is_chunked) {
    headers.emplace_back("transfer-encoding", "chunked");
  } else {
    response_->keeps_alive = false;
  }
  add_head(200, "text/event-stream", headers);
  if (response_->is_head) response_->is_complete = true;
}

void HttpConnection::add_stream_text(std::string_view text) {
  if (response_->is_head || text.empty()) return;
  if (response_->is_chunked) unsent_ += fmt::format("{:x}\r\n", text.size());
  unsent_ += text;
  if (response_->is_chunked) unsent_ += "\r\n";
}

// All that there is since the last call, in one piece.
void HttpConnection::send_more() {
  if (is_writing_ || stage_ != Stage::response) return;
  Exchange::Piece piece = exchange_->take();
  if (piece.make) piece.response = made(piece.make);
  if (piece.response) add_response(std::move(*piece.response));
  if (piece.stream_head) add_stream_head(std::move(*piece.stream_head));
  add_stream_text(piece.text);
  if (piece.is_last) {
    response_->is_complete = true;
    if (piece.breaks_off) response_->keeps_alive = false;
    if (response_->is_stream && response_->is_chunked && !response_->is_head && !piece.breaks_off)
      unsent_ += "0\r\n\r\n";
  }
  if (!unsent_.empty()) return write();
  if (response_->is_complete) return finish_response();
  if (response_->is_stream && !response_->heartbeat.empty()) {
    set_deadline(context_.options.times.heartbeat);
  } else {
    clear_deadline();
  }
}

void HttpConnection::write() {
  is_writing_ = true;
  if (stage_ == Stage::response) set_deadline(context_.options.times.write_stall);
  socket_.async_write_some(asio::buffer(unsent_) + n_sent_,
                           guarded([this](BoostError error, std::size_t n_bytes) {
                             is_writing_ = false;
                             if (error) return close();
                             n_sent_ += n_bytes;
                             if (response_) response_->bytes += n_bytes;
                             if (n_sent_ < unsent_.size()) return write();
                             unsent_.clear();
                             n_sent_ = 0;
                             send_more();
                           }));
}

void HttpConnection::finish_response() {
  const bool keeps_alive = response_->keeps_alive && !context_.is_draining;
  report_response();
  if (keeps_alive) {
    await_request();
  } else {
    linger();
  }
}

void HttpConnection::report_response() {
  exchange_->leave();
  exchange_.reset();
  const std::unique_ptr<ResponseState> response = std::move(response_);
  --context_.n_in_progress;
  if (!context_.options.access_log) return;
  try {
    context_.options.access_log({.method = percent_encoded(response->method),
                                 .path = percent_encoded(response->path),
                                 .status = response->status,
                                 .bytes = response->bytes,
                                 .ms = response->stopwatch.ms()});
  } catch (const std::exception&) {  // the response was given, whatever becomes of the line
  }
}

void HttpConnection::linger() {
  stage_ = Stage::linger;
  unread_.clear();
  BoostError ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  set_deadline(context_.options.times.linger);
  await_input();
}

void HttpConnection::set_deadline(std::chrono::milliseconds from_now) {
  deadline_ = Clock::now() + from_now;
  if (deadline_ < timer_end_) arm_timer();
}

// The timer may end before the deadline, which moves at every write; then it is set again.
void HttpConnection::arm_timer() {
  timer_end_ = deadline_;
  timer_.expires_at(timer_end_);
  timer_.async_wait(guarded([this](BoostError error) {
    if (error) return;  // set anew
    timer_end_ = Clock::time_point::max();
    if (deadline_ == Clock::time_point::max()) return;
    if (Clock::now() < deadline_) return arm_timer();
    clear_deadline();
    deadline_passed();
  }));
}

void HttpConnection::deadline_passed() {
  if (stage_ == Stage::idle) return close_unless_asked();
  if (stage_ == Stage::linger || is_writing_) return close();
  if (stage_ == Stage::response) {
    add_stream_text(response_->heartbeat);
    return write();
  }
  if (stage_ == Stage::head && unread_.empty()) return close();
  refuse(error_response(parser_->request().path, 408,
                        stage_ == Stage::head ? "the request's head did not come in time"
                                              : "the request's body did not come in time"));
}

}  // namespace outrider

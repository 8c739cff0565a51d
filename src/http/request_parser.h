// The bytes of one HTTP/1.0 or 1.1 request become an HttpRequest.
//
// Boost.Beast reads the grammar (RFC 9112). Added is what it accepts although programs between
// client and server may read it differently, so that one request could be taken for two (request
// smuggling), and what routes and guards rely on: one Host, a decoded path.

#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "http/http.h"

namespace outrider {

struct RequestLimits {
  std::size_t head_bytes = std::size_t{16} << 10;   // request line and headers; else 431
  std::size_t target_bytes = std::size_t{8} << 10;  // else 414
  std::size_t n_headers = 100;                      // else 431
  std::size_t body_bytes = std::size_t{32} << 20;   // else 413, before the body is read
};

class RequestParser {
 public:
  explicit RequestParser(const RequestLimits& limits);
  ~RequestParser();

  // `bytes` is the connection's input from the byte on that the calls before did not take. Takes a
  // part and returns its size; stops once after the head, and at the end of the request. 0: needs
  // more bytes. Throws RequestError if this is no request or one beyond the limits: nobody knows
  // then where the next one begins, and the connection must be closed.
  std::size_t parse(std::string_view bytes);

  bool has_head() const;
  bool is_complete() const;

  // As far as it was read, also after an error. What a target in absolute form names as host
  // replaces the header Host.
  HttpRequest& request();
  // Valid once the head is there.
  bool is_http_1_0() const;
  bool keeps_alive() const;       // by version and the header Connection
  bool expects_continue() const;  // the client waits for 100 before it sends the body

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace outrider

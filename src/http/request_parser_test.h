// A request's bytes as a connection gives them to the parser, for its test and its fuzz target.

#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "http/request_error.h"
#include "http/request_parser.h"

namespace outrider {

struct ParseOutcome {
  int status = 0;  // of the refusal; 0: none
  bool is_complete = false;
  HttpRequest request;
  bool keeps_alive = false;
  std::size_t n_left = 0;  // bytes that belong to the next request

  auto key() const {
    return std::tuple(status, is_complete, request.method, request.path, request.query,
                      request.headers, request.body, keeps_alive, n_left);
  }
};

// Input that arrives in pieces of these sizes, then the rest.
inline ParseOutcome parse_in_pieces(std::string_view bytes,
                                    const std::vector<std::size_t>& pieces = {},
                                    const RequestLimits& limits = {}) {
  RequestParser parser(limits);
  std::string unread;
  ParseOutcome outcome;
  std::size_t n_given = 0, piece = 0;
  try {
    while (!parser.is_complete()) {
      const std::size_t n_taken = parser.parse(unread);
      unread.erase(0, n_taken);
      if (n_taken > 0) continue;
      if (n_given == bytes.size()) break;
      const std::size_t size = piece < pieces.size() ? pieces[piece++] : bytes.size();
      unread += bytes.substr(n_given, size);
      n_given = std::min(bytes.size(), n_given + size);
    }
  } catch (const RequestError& error) {
    outcome.status = error.status;
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
    outcome.request.path = parser.request().path;
    return outcome;
  }
  outcome.is_complete = parser.is_complete();
  outcome.request = parser.request();
  outcome.keeps_alive = parser.keeps_alive();
  outcome.n_left = unread.size() + bytes.size() - n_given;
  return outcome;
}

}  // namespace outrider

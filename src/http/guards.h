// What a request must have before any route sees it: an API key, a page that may call us, a body of
// JSON. The body is not looked at, so requests are checked before it is read.

#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "http/http.h"

namespace outrider {

struct GuardOptions {
  // Any one of them opens every path, as `Authorization: Bearer KEY` or `x-api-key: KEY`. None:
  // nobody is asked for a key.
  std::vector<std::string> api_keys = {};
  // Pages that may read responses (CORS): exact origins like "https://chat.example", or "*". None:
  // browsers keep responses from pages of other origins.
  std::vector<std::string> cors_origins = {};
};

class Guards {
 public:
  // is_loopback: only programs of this machine reach the server. Without keys, it then also refuses
  // what a browser sends on behalf of a page from elsewhere: other hosts in Host, which is what a
  // page has whose name was pointed here (DNS rebinding), and other origins. Throws Error for an
  // empty key.
  Guards(const GuardOptions& options, bool is_loopback);

  // The response, if the request ends here: a refusal, or what a browser asks before the request of
  // a page (preflight). Else sets request.api_key. GET /health needs no key.
  std::optional<HttpResponse> check(HttpRequest& request) const;

  // Headers of every response to this request, so that the page's browser lets it read them.
  HttpHeaders cors_headers(const HttpRequest& request) const;

 private:
  using Digest = std::array<unsigned char, 32>;  // SHA-256

  static Digest digest_of(std::string_view key);
  std::optional<HttpResponse> check_origin(const HttpRequest& request) const;
  // Takes the same time for any key: compares digests, which tell nothing of the key's length or
  // beginning, and always with all of them.
  std::optional<std::size_t> key_of(const HttpRequest& request) const;
  bool may_read(std::string_view origin) const;

  std::vector<Digest> keys_;
  std::vector<std::string> cors_origins_;
  bool is_loopback_;
};

// "localhost", 127.0.0.0/8 or [::1], in any case, with or without a port: a value of Host.
bool is_loopback_host(std::string_view host);

}  // namespace outrider

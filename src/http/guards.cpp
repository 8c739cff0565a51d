#include "http/guards.h"

#include <arpa/inet.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"
#include "http/error_body.h"
#include "http/request_headers.h"

namespace outrider {
namespace {

// The key in `Bearer KEY`.
std::optional<std::string_view> bearer_key(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (!equals_ignoring_case(authorization.substr(0, kScheme.size()), kScheme)) return std::nullopt;
  const std::size_t begin = authorization.find_first_not_of(' ', kScheme.size());
  if (begin == std::string_view::npos) return std::nullopt;
  return authorization.substr(begin);
}

// "http://localhost:3000"; browsers send "null" for pages without an origin, such as files.
bool is_loopback_origin(std::string_view origin) {
  const std::size_t scheme = origin.find("://");
  return scheme != std::string_view::npos && is_loopback_host(origin.substr(scheme + 3));
}

// Header names that a page asks for, as it sent them: they may be any, and * does not stand for
// Authorization.
bool is_name_list(std::string_view text) {
  return std::ranges::all_of(text, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == ',' || c == ' ';
  });
}

}  // namespace

bool is_loopback_host(std::string_view host) {
  const std::size_t port = host.find(':', host.starts_with('[') ? host.find(']') : 0);
  const std::string name(host.substr(0, port));
  if (port != std::string_view::npos &&
      !std::ranges::all_of(host.substr(port + 1), [](char c) { return c >= '0' && c <= '9'; }))
    return false;
  in_addr address;
  return equals_ignoring_case(name, "localhost") || name == "[::1]" ||
         (::inet_pton(AF_INET, name.c_str(), &address) == 1 &&
          (ntohl(address.s_addr) >> 24) == 127);
}

Guards::Guards(const GuardOptions& options, bool is_loopback)
    : cors_origins_(options.cors_origins), is_loopback_(is_loopback) {
  for (const std::string& key : options.api_keys) {
    if (key.empty())
      throw Error("an API key is empty, so that everybody would have it; choose one");
    keys_.push_back(digest_of(key));
  }
}

Guards::Digest Guards::digest_of(std::string_view key) {
  Digest digest;
  unsigned length = 0;
  CHECK(EVP_Digest(key.data(), key.size(), digest.data(), &length, EVP_sha256(), nullptr) == 1 &&
        length == digest.size());
  return digest;
}

std::optional<HttpResponse> Guards::check(HttpRequest& request) const {
  if (auto refusal = check_origin(request)) return refusal;
  const auto origin = request.header("origin");
  if (request.method == "OPTIONS" && origin && may_read(*origin) &&
      request.header("access-control-request-method")) {
    HttpResponse preflight{.status = 204, .body = "", .content_type = ""};
    preflight.headers = {{"access-control-allow-methods", "GET, POST, PUT, PATCH, DELETE"},
                         {"access-control-max-age", "3600"}};
    const auto names = request.header("access-control-request-headers");
    if (names && is_name_list(*names))
      preflight.headers.emplace_back("access-control-allow-headers", *names);
    return preflight;
  }
  const bool is_health =
      (request.method == "GET" || request.method == "HEAD") && request.path == "/health";
  if (!keys_.empty() && !is_health) {
    request.api_key = key_of(request);
    if (!request.api_key) {
      HttpResponse refusal =
          error_response(request.path, 401,
                         "this server needs an API key that it knows; send it as \"Authorization: "
                         "Bearer KEY\" or \"x-api-key: KEY\"",
                         "invalid_api_key");
      refusal.headers.emplace_back("www-authenticate", "Bearer");
      return refusal;
    }
  }
  // A page can post text or forms anywhere without asking; JSON needs a preflight.
  if (request.method != "POST") return std::nullopt;
  switch (body_type(request.header("content-type").value_or(""))) {
    case BodyType::json: return std::nullopt;
    case BodyType::other_charset:
      return error_response(request.path, 415, "Content-Type: JSON is read in UTF-8 alone");
    case BodyType::other_type: break;
  }
  return error_response(request.path, 415, "POST needs the header Content-Type: application/json");
}

std::optional<HttpResponse> Guards::check_origin(const HttpRequest& request) const {
  if (!is_loopback_ || !keys_.empty()) return std::nullopt;
  const std::string_view host = request.header("host").value_or("localhost");
  if (!is_loopback_host(host)) {
    return error_response(request.path, 403,
                          fmt::format("Host \"{}\" is not this machine; without an API key the "
                                      "server answers to localhost and 127.0.0.1 only",
                                      printable(host)));
  }
  const auto origin = request.header("origin");
  if (origin && !is_loopback_origin(*origin) && !may_read(*origin)) {
    return error_response(request.path, 403,
                          fmt::format("pages of \"{}\" may not use this server; allow the origin "
                                      "for CORS, or set an API key",
                                      printable(*origin)));
  }
  return std::nullopt;
}

std::optional<std::size_t> Guards::key_of(const HttpRequest& request) const {
  const auto authorization = request.header("authorization");
  const std::optional<std::string_view> shown[] = {
      authorization ? bearer_key(*authorization) : std::nullopt, request.header("x-api-key")};
  std::optional<std::size_t> found;
  for (const auto& key : shown) {
    if (!key) continue;
    const Digest digest = digest_of(*key);
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      const bool is_equal = CRYPTO_memcmp(digest.data(), keys_[i].data(), digest.size()) == 0;
      if (is_equal) found = i;
    }
  }
  return found;
}

bool Guards::may_read(std::string_view origin) const {
  return std::ranges::any_of(cors_origins_, [&](const std::string& allowed) {
    return allowed == "*" || allowed == origin;
  });
}

HttpHeaders Guards::cors_headers(const HttpRequest& request) const {
  if (cors_origins_.empty()) return {};
  HttpHeaders headers = {{"vary", "origin"}};
  const auto origin = request.header("origin");
  if (origin && may_read(*origin)) {
    headers.emplace_back("access-control-allow-origin", *origin);
    headers.emplace_back("access-control-expose-headers", "*");
  }
  return headers;
}

}  // namespace outrider

#include "http/error_body.h"

#include <nlohmann/json.hpp>

namespace outrider {
namespace {

using Json = nlohmann::ordered_json;

std::string_view openai_type(int status) {
  switch (status) {
    case 403: return "permission_error";
    case 429: return "rate_limit_error";
    case 503: return "service_unavailable_error";
  }
  // A wrong key, too: it has the code invalid_api_key.
  return status < 500 ? "invalid_request_error" : "server_error";
}

std::string_view anthropic_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    case 504: return "timeout_error";
  }
  return status < 500 ? "invalid_request_error" : "api_error";
}

// Messages may quote bytes of a request that are not UTF-8.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json text_or_null(std::string_view text) {
  return text.empty() ? Json() : Json(text);
}

}  // namespace

std::string openai_error_body(int status, std::string_view message, std::string_view code,
                              std::string_view param) {
  return text_of({{"error",
                   {{"message", message},
                    {"type", openai_type(status)},
                    {"param", text_or_null(param)},
                    {"code", text_or_null(code)}}}});
}

std::string anthropic_error_body(int status, std::string_view message) {
  return text_of(
      {{"type", "error"}, {"error", {{"type", anthropic_type(status)}, {"message", message}}}});
}

HttpResponse error_response(std::string_view path, int status, std::string_view message,
                            std::string_view code, std::string_view param) {
  constexpr std::string_view kMessages = "/v1/messages";
  const bool is_anthropic = path.starts_with(kMessages) &&
                            (path.size() == kMessages.size() || path[kMessages.size()] == '/');
  HttpResponse response{.status = status,
                        .body = is_anthropic ? anthropic_error_body(status, message)
                                             : openai_error_body(status, message, code, param)};
  if (status == 429 || status == 503) response.headers.emplace_back("retry-after", "1");
  return response;
}

HttpResponse error_response(std::string_view path, const RequestError& error) {
  return error_response(path, error.status, error.what(), error.code, error.param);
}

}  // namespace outrider

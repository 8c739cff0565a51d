#include "http/request_headers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/bytes.h"
#include "http/error_body.h"

namespace outrider {
namespace {

std::string_view without_space(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// The elements of a list, which may stand in several lines (RFC 9110, section 5.6.1).
std::vector<std::string_view> elements(const HttpRequest& request, std::string_view name) {
  std::vector<std::string_view> result;
  for (const auto& [key, value] : request.headers) {
    if (!equals_ignoring_case(key, name)) continue;
    for (std::string_view rest = value;;) {
      const std::size_t comma = rest.find(',');
      const std::string_view element = without_space(rest.substr(0, comma));
      if (!element.empty()) result.push_back(element);
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  }
  return result;
}

bool is_token_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

// Takes `name=value` or `name="value"` from the beginning; nothing: it is none.
struct Parameter {
  std::string name, value;
};
std::optional<Parameter> take_parameter(std::string_view& text) {
  Parameter parameter;
  while (!text.empty() && is_token_char(text.front())) {
    parameter.name += text.front();
    text.remove_prefix(1);
  }
  if (parameter.name.empty() || !text.starts_with('=')) return std::nullopt;
  text.remove_prefix(1);
  if (!text.starts_with('"')) {
    while (!text.empty() && is_token_char(text.front())) {
      parameter.value += text.front();
      text.remove_prefix(1);
    }
    if (parameter.value.empty()) return std::nullopt;
    return parameter;
  }
  for (text.remove_prefix(1); !text.empty() && text.front() != '"'; text.remove_prefix(1)) {
    if (text.front() == '\\') text.remove_prefix(1);
    if (text.empty()) return std::nullopt;
    parameter.value += text.front();
  }
  if (text.empty()) return std::nullopt;
  text.remove_prefix(1);
  return parameter;
}

// Names of UTF-8, and of a part of it.
bool is_utf8(std::string_view charset) {
  return std::ranges::any_of(
      std::vector<std::string_view>{"utf-8", "utf8", "us-ascii"},
      [&](std::string_view name) { return equals_ignoring_case(charset, name); });
}

HttpResponse refusal(const HttpRequest& request, int status, std::string_view message) {
  return error_response(request.path, status, message);
}

// RFC 9110, section 8.4: each coding has to be undone before the content is what its type says.
std::optional<HttpResponse> refuse_coding(const HttpRequest& request) {
  for (const std::string_view coding : elements(request, "content-encoding")) {
    if (equals_ignoring_case(coding, "identity")) continue;
    HttpResponse response =
        refusal(request, 415,
                fmt::format("Content-Encoding: \"{}\" is not decoded; send the body as it is",
                            printable(coding)));
    response.headers.emplace_back("accept-encoding", "identity");
    return response;
  }
  return std::nullopt;
}

// RFC 9110, section 13. No document has an entity tag, so that none matches one.
std::optional<HttpResponse> refuse_condition(const HttpRequest& request) {
  const auto must_match = elements(request, "if-match"),
             must_differ = elements(request, "if-none-match");
  if (!must_match.empty() && must_match != std::vector<std::string_view>{"*"})
    return refusal(request, 412, "If-Match: documents of this server have no entity tags");
  if (std::ranges::find(must_differ, "*") == must_differ.end()) return std::nullopt;
  if (request.method == "GET" || request.method == "HEAD")
    return HttpResponse{.status = 304, .body = "", .content_type = ""};
  return refusal(request, 412, "If-None-Match: * asks for what is not there yet");
}

}  // namespace

BodyType body_type(std::string_view content_type) {
  const std::size_t semicolon = content_type.find(';');
  if (!equals_ignoring_case(without_space(content_type.substr(0, semicolon)), "application/json"))
    return BodyType::other_type;
  if (semicolon == std::string_view::npos) return BodyType::json;
  for (std::string_view rest = content_type.substr(semicolon); !rest.empty();) {
    rest = without_space(rest);
    if (!rest.starts_with(';')) return BodyType::other_type;
    rest.remove_prefix(1);
    rest = without_space(rest);
    if (rest.empty() || rest.starts_with(';')) continue;  // no parameter
    const std::optional<Parameter> parameter = take_parameter(rest);
    if (!parameter) return BodyType::other_type;
    if (equals_ignoring_case(parameter->name, "charset") && !is_utf8(parameter->value))
      return BodyType::other_charset;
  }
  return BodyType::json;
}

std::optional<HttpResponse> refuse_headers(const HttpRequest& request) {
  for (const char* name : {"Content-Type", "Authorization"}) {
    const auto is_it = [&](const auto& header) { return equals_ignoring_case(header.first, name); };
    if (std::ranges::count_if(request.headers, is_it) > 1)
      return refusal(request, 400, fmt::format("the request has several headers {}", name));
  }
  if (request.header("content-range"))
    return refusal(request, 400, "Content-Range: a part of a body is not taken; send all of it");
  if (auto coding = refuse_coding(request)) return coding;
  return refuse_condition(request);
}

const std::vector<HeaderRow>& header_rows() {
  using enum HeaderRow::Use;
  static const std::vector<HeaderRow> rows = {
      {{"Content-Length"},
       obeyed,
       "one number; others, and one beside `Transfer-Encoding`, are 400"},
      {{"Transfer-Encoding"},
       obeyed,
       "`chunked`; other codings are 501, `chunked` twice and any coding in HTTP/1.0 are 400"},
      {{"Content-Type"},
       obeyed,
       "of a POST: `application/json`, with no `charset` but UTF-8; others are 415, several are "
       "400"},
      {{"Content-Encoding"}, refused, "415, except `identity`: no coding is undone"},
      {{"Content-Range"}, refused, "400: a part would be taken for the whole"},
      {{"Expect"}, obeyed, "`100-continue`, in HTTP/1.1; others are 417"},
      {{"If-Match"}, obeyed, "`*`; entity tags are 412, as no document has one"},
      {{"If-None-Match"}, obeyed, "`*` is 304 for GET and HEAD, else 412; no entity tag matches"},
      {{"Host"}, obeyed, "one; without an API key on this machine only its names, else 403"},
      {{"Authorization"}, obeyed, "`Bearer KEY`; several are 400"},
      {{"Connection", "Proxy-Connection"}, obeyed, "`close` and `keep-alive`"},
      {{"Close", "Keep-Alive"}, without_effect, "HTTP/1.1 gives them no meaning"},
      {{"Trailer"}, without_effect, "fields behind a chunked body are dropped"},
      {{"TE"}, without_effect, "answers have no trailer and no coding but `chunked`"},
      {{"Upgrade"}, without_effect, "the answer is HTTP/1.1, as it may be"},
      {{"Range", "If-Range"}, without_effect, "answers are whole, as they may be"},
      {{"If-Modified-Since", "If-Unmodified-Since"},
       without_effect,
       "no document has a date of change"},
      {{"Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language"},
       without_effect,
       "a document has one form, in UTF-8; `stream` asks for events"},
      {{"Content-Language", "Content-Location"}, without_effect, "they do not change the body"},
      {{"MIME-Version"}, without_effect, "a body is no MIME message"},
      {{"Max-Forwards", "Via", "Proxy-Authorization"}, without_effect, "nothing is forwarded"},
      {{"Date", "From", "Referer", "User-Agent"}, without_effect, "they tell of the client"},
      {{"Accept-Ranges", "Allow", "Authentication-Info", "ETag", "Last-Modified", "Location",
        "Proxy-Authenticate", "Proxy-Authentication-Info", "Retry-After", "Server", "Vary",
        "WWW-Authenticate"},
       without_effect,
       "they belong to answers"},
  };
  return rows;
}

}  // namespace outrider

// What a request's headers mean here: every field of RFC 9110 and RFC 9112 is obeyed, refused, or
// without effect for a reason.

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/http.h"

namespace outrider {

// What documents say of it; its test holds the server to each row.
struct HeaderRow {
  enum class Use { obeyed, refused, without_effect };

  std::vector<std::string> names;
  Use use;
  std::string meaning;  // what is obeyed, what is refused, why there is no effect
};
const std::vector<HeaderRow>& header_rows();

// Whether a POST's Content-Type says JSON in UTF-8, which is all that is read.
enum class BodyType { json, other_charset, other_type };
BodyType body_type(std::string_view content_type);

// The response to a request whose route is there but whose headers ask for what the server does not
// do: 400, 412, 415, or 304 for a condition of GET that says so. The body need not be there yet.
std::optional<HttpResponse> refuse_headers(const HttpRequest& request);

}  // namespace outrider

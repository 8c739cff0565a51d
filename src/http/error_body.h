// The JSON of errors, as the clients of two APIs read it.

#pragma once

#include <string>
#include <string_view>

#include "http/http.h"
#include "http/request_error.h"

namespace outrider {

// {"error": {"message", "type", "param", "code"}}: OpenAI's, where `type` follows from the status
// and an empty code or param is null. Clients tell errors apart by status and code.
std::string openai_error_body(int status, std::string_view message, std::string_view code = {},
                              std::string_view param = {});

// {"type": "error", "error": {"type", "message"}}: Anthropic's.
std::string anthropic_error_body(int status, std::string_view message);

// Either, with a Retry-After where the client may come again (429, 503), by the path of the
// request: Anthropic's for /v1/messages and below, else OpenAI's.
HttpResponse error_response(std::string_view path, int status, std::string_view message,
                            std::string_view code = {}, std::string_view param = {});
HttpResponse error_response(std::string_view path, const RequestError& error);

}  // namespace outrider

// A request that is refused. Each group of routes gives it its own JSON shape.

#pragma once

#include <string>

#include "base/error.h"

namespace outrider {

class RequestError : public Error {
 public:
  // status: 4xx or 5xx. code: OpenAI's error code ("context_length_exceeded"), or empty. param: the
  // field that is wrong ("messages[2].content"), or empty.
  RequestError(int status, std::string code, std::string param, const std::string& message)
      : Error("{}", message), status(status), code(std::move(code)), param(std::move(param)) {}

  const int status;
  const std::string code, param;
};

}  // namespace outrider

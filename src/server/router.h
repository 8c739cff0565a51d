// Which route answers a request.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"

namespace outrider {

class Router {
 public:
  explicit Router(std::vector<HttpRoute> routes);

  // nullptr: none does. Lives as long as the router.
  const HttpHandler* find(std::string_view method, std::string_view path) const;
  // The methods that the path answers to, as in the header Allow ("GET, HEAD"); empty: none.
  std::string allowed(std::string_view path) const;

 private:
  // Rows of whole paths first, then those with more of the path before those with less.
  std::vector<HttpRoute> routes_;
};

}  // namespace outrider

// Which route answers a request.

#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/http.h"

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

// The router of the moment: what a server answers changes while it loads, serves and drains.
// Thread-safe.
class CurrentRouter {
 public:
  explicit CurrentRouter(std::vector<HttpRoute> routes) { set(std::move(routes)); }
  void set(std::vector<HttpRoute> routes) {
    auto router = std::make_shared<const Router>(std::move(routes));
    const std::lock_guard lock(mutex_);
    router_.swap(router);
  }
  std::shared_ptr<const Router> get() const {
    const std::lock_guard lock(mutex_);
    return router_;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Router> router_;
};

}  // namespace outrider

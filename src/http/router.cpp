#include "http/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace outrider {
namespace {

bool is_prefix(const HttpRoute& route) {
  return route.path.ends_with("/*");
}

bool fits(const HttpRoute& route, std::string_view path) {
  if (!is_prefix(route)) return path == route.path;
  const std::string_view prefix = std::string_view(route.path).substr(0, route.path.size() - 1);
  return path.size() > prefix.size() && path.starts_with(prefix);
}

}  // namespace

Router::Router(std::vector<HttpRoute> routes) : routes_(std::move(routes)) {
  const auto rank = [](const HttpRoute& route) {
    return std::tuple(is_prefix(route), -static_cast<std::ptrdiff_t>(route.path.size()));
  };
  std::ranges::stable_sort(routes_, {}, rank);
}

const HttpHandler* Router::find(std::string_view method, std::string_view path) const {
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  for (const HttpRoute& route : routes_)
    if (route.method == wanted && fits(route, path)) return &route.handler;
  return nullptr;
}

std::string Router::allowed(std::string_view path) const {
  std::vector<std::string_view> methods;
  for (const HttpRoute& route : routes_) {
    if (!fits(route, path) || std::ranges::count(methods, route.method) > 0) continue;
    methods.push_back(route.method);
    if (route.method == "GET") methods.push_back("HEAD");
  }
  return fmt::format("{}", fmt::join(methods, ", "));
}

}  // namespace outrider

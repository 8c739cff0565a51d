// Routes that clients of other servers ask for and that this one does not have.

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace outrider {

struct MissingRoute {
  std::string path;     // "/*" at the end stands for all below it
  std::string instead;  // what to do
};
const std::vector<MissingRoute>& missing_routes();

// What a client that asks for `path`, where there is no route, is told; empty: nothing.
std::string_view instead_of(std::string_view path);

}  // namespace outrider

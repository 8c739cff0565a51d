#include "server/http.h"

#include <algorithm>
#include <cctype>

namespace outrider {

std::optional<std::string_view> HttpRequest::header(std::string_view name) const {
  const auto same = [](unsigned char a, unsigned char b) {
    return std::tolower(a) == std::tolower(b);
  };
  for (const auto& [key, value] : headers)
    if (std::ranges::equal(key, name, same)) return value;
  return std::nullopt;
}

}  // namespace outrider

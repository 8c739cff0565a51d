#include "jinja/text.h"

#include <algorithm>
#include <utility>

namespace outrider::jinja {

Text::Text(std::string bytes, bool user) : bytes_(std::move(bytes)) {
  if (user && !bytes_.empty()) user_runs_.push_back({0, bytes_.size()});
}

void Text::append(std::string_view bytes, bool user) {
  if (bytes.empty()) return;
  const std::size_t begin = bytes_.size();
  bytes_.append(bytes);
  if (!user) return;
  if (!user_runs_.empty() && user_runs_.back().end == begin) {
    user_runs_.back().end = bytes_.size();
  } else {
    user_runs_.push_back({begin, bytes_.size()});
  }
}

void Text::append(const Text& other, std::size_t begin, std::size_t end) {
  other.stretches(begin, end, [this](std::string_view bytes, bool user) { append(bytes, user); });
}

std::size_t Text::first_run_past(std::size_t position) const {
  const auto run = std::upper_bound(user_runs_.begin(), user_runs_.end(), position,
                                    [](std::size_t p, const Run& r) { return p < r.end; });
  return static_cast<std::size_t>(run - user_runs_.begin());
}

}  // namespace outrider::jinja

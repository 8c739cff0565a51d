#include "speculation/drafters/successors.h"

#include <algorithm>

namespace outrider {

Successors::Successors(int vocabulary)
    : table_(static_cast<std::size_t>(vocabulary) * kPerToken, kNone) {}

void Successors::learn(Token token, std::span<const Candidate> best) {
  const std::size_t first = static_cast<std::size_t>(token) * kPerToken;
  if (token < 0 || first >= table_.size() || best.empty()) return;
  for (std::size_t i = 0; i < kPerToken; ++i)
    table_[first + i] = i < best.size() ? best[i].token : kNone;
}

std::span<const Token> Successors::after(Token token) const {
  const std::size_t first = static_cast<std::size_t>(token) * kPerToken;
  if (token < 0 || first >= table_.size()) return {};
  const std::span<const Token> all = std::span(table_).subspan(first, kPerToken);
  return all.first(std::ranges::find(all, kNone) - all.begin());
}

void Successors::clear() {
  std::ranges::fill(table_, kNone);
}

}  // namespace outrider

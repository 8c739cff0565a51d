#include "text/special_tokens.h"

#include <algorithm>
#include <utility>

namespace outrider {

SpecialTokens::SpecialTokens(const Vocabulary& vocabulary,
                             std::string (*normalize)(std::string_view)) {
  for (Token token = 0; token < vocabulary.size(); ++token) {
    const TokenKind kind = vocabulary.kind(token);
    if (kind != TokenKind::control && kind != TokenKind::user_defined) continue;
    std::string text = normalize(vocabulary.text(token));
    if (text.empty() || text.size() > kBytesMax) continue;
    entries_.push_back({std::move(text), token, kind == TokenKind::control});
  }
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const Entry& a, const Entry& b) { return a.text < b.text; });
  entries_.erase(std::unique(entries_.begin(), entries_.end(),
                             [](const Entry& a, const Entry& b) { return a.text == b.text; }),
                 entries_.end());
  for (const Entry& entry : entries_) ++first_byte_[static_cast<unsigned char>(entry.text[0]) + 1];
  for (std::size_t byte = 0; byte < 256; ++byte) first_byte_[byte + 1] += first_byte_[byte];
}

std::optional<SpecialTokens::Match> SpecialTokens::longest_at(std::string_view text,
                                                              std::size_t begin,
                                                              std::size_t control_end) const {
  // [first, last): the entries whose first n bytes are those of the text. They are sorted, so the
  // entry of n bytes, if any, is the first.
  const auto byte = static_cast<unsigned char>(text[begin]);
  auto first = entries_.begin() + first_byte_[byte];
  auto last = entries_.begin() + first_byte_[byte + 1u];
  std::optional<Match> longest;
  for (std::size_t n = 1; first != last; ++n) {
    if (first->text.size() == n) {
      if (!first->is_control || begin + n <= control_end) longest = {first->token, n};
      ++first;
    }
    if (begin + n == text.size()) break;
    const auto next = static_cast<unsigned char>(text[begin + n]);
    const auto at_n = [n](const Entry& e) { return static_cast<unsigned char>(e.text[n]); };
    first = std::partition_point(first, last, [&](const Entry& e) { return at_n(e) < next; });
    last = std::partition_point(first, last, [&](const Entry& e) { return at_n(e) == next; });
  }
  return longest;
}

}  // namespace outrider

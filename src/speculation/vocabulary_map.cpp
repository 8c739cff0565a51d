#include "speculation/vocabulary_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "base/utf8.h"

namespace outrider {
namespace {

constexpr double kOverlapMin = 0.2;  // of a pair of models that can draft

bool is_control(TokenKind kind) {
  return kind == TokenKind::control;
}

// What tells a token from others: its bytes; nothing if it stands for none.
std::string key(const Tokenizer& tokenizer, Token token) {
  const TokenKind kind = tokenizer.kind(token);
  if (kind == TokenKind::unknown || kind == TokenKind::unused) return {};
  // No text begins with byte FF.
  if (is_control(kind)) return '\xFF' + std::string(tokenizer.text(token));
  return tokenizer.bytes(token);
}

}  // namespace

VocabularyMap::VocabularyMap(const Tokenizer& target, const Tokenizer& draft)
    : target_(target), draft_(draft) {
  for (Token token = 0; token < draft.size(); ++token)
    if (std::string bytes = key(draft, token); !bytes.empty())
      draft_bytes_.try_emplace(std::move(bytes), token);
  std::unordered_set<Token> seen;
  for (Token token = 0; token < target.size(); ++token)
    if (const auto same = own(token); same && seen.insert(*same).second) {
      common_.push_back(token);
      own_of_common_.push_back(*same);
    }
}

std::optional<Token> VocabularyMap::own(Token target) const {
  if (target < 0 || target >= target_.size()) return std::nullopt;
  const std::string bytes = key(target_, target);
  if (bytes.empty()) return std::nullopt;
  const auto found = draft_bytes_.find(bytes);
  if (found == draft_bytes_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::string> VocabularyMap::problem() const {
  if (overlap() >= kOverlapMin) return std::nullopt;
  return fmt::format("the vocabularies have {} tokens in common, {:.0f}% of the smaller one",
                     common_.size(), 100 * overlap());
}

double VocabularyMap::overlap() const {
  const int smaller = std::min(target_.size(), draft_.size());
  return smaller == 0 ? 0 : std::min(1.0, static_cast<double>(common_.size()) / smaller);
}

void VocabularyMap::read(Token target, std::vector<Token>& own_tokens) const {
  if (const auto same = own(target)) {
    own_tokens.push_back(*same);
    return;
  }
  if (target < 0 || target >= target_.size()) return;
  const std::string bytes = target_.bytes(target, /*show_special=*/true);
  if (is_well_formed(bytes)) {
    const std::vector<Token> tokens = draft_.encode(bytes);
    own_tokens.insert(own_tokens.end(), tokens.begin(), tokens.end());
    return;
  }
  for (const char byte : bytes)
    if (const auto found = draft_bytes_.find(std::string(1, byte)); found != draft_bytes_.end())
      own_tokens.push_back(found->second);
}

}  // namespace outrider

#include "speculation/vocabulary_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace outrider {
namespace {

constexpr double kOverlapMin = 0.2;  // of a pair of models that can draft
constexpr Token kNone = -1;

bool is_byte(const Tokenizer& tokenizer, Token token) {
  return tokenizer.kind(token) == TokenKind::byte;
}

// What tells a token from others: its bytes; nothing if it stands for none.
std::string key(const Tokenizer& tokenizer, Token token) {
  switch (tokenizer.kind(token)) {
    case TokenKind::unknown:
    case TokenKind::unused: return {};
    // No text begins with byte FF.
    case TokenKind::control: return '\xFF' + std::string(tokenizer.text(token));
    default: return tokenizer.bytes(token);
  }
}

// All tokens, byte tokens last.
std::vector<Token> in_order(const Tokenizer& tokenizer) {
  std::vector<Token> tokens;
  for (const bool bytes : {false, true})
    for (Token token = 0; token < tokenizer.size(); ++token)
      if (is_byte(tokenizer, token) == bytes) tokens.push_back(token);
  return tokens;
}

}  // namespace

VocabularyMap::VocabularyMap(const Tokenizer& target, const Tokenizer& draft)
    : n_target_(target.size()), n_draft_(draft.size()), own_(target.size(), kNone) {
  std::vector<std::string> keys(n_draft_);
  std::unordered_map<std::string_view, Token> by_key;
  for (const Token token : in_order(draft)) {
    keys[token] = key(draft, token);
    if (!keys[token].empty()) by_key.try_emplace(keys[token], token);
  }
  const auto find = [&](std::string_view bytes) {
    const auto found = by_key.find(bytes);
    return found == by_key.end() ? kNone : found->second;
  };
  for (Token token = 0; token < n_target_; ++token)
    if (const std::string bytes = key(target, token); !bytes.empty()) own_[token] = find(bytes);
  const auto name = [&](std::optional<Token> theirs, std::optional<Token> ours) {
    if (theirs && ours && *theirs < n_target_ && own_[*theirs] == kNone) own_[*theirs] = *ours;
  };
  name(target.bos, draft.bos);
  name(target.eos, draft.eos);
  if (draft.add_bos && !target.add_bos) first_ = draft.bos;

  std::vector<bool> has_name(n_draft_);
  for (const Token token : in_order(target)) {
    if (own_[token] == kNone || has_name[own_[token]]) continue;
    has_name[own_[token]] = true;
    common_.push_back({own_[token], token});
  }
  std::ranges::sort(common_);

  for (Token token = 0; token < n_target_; ++token) {
    if (own_[token] != kNone) {
      read_.push_back(own_[token]);
    } else {
      const std::string bytes = target.bytes(token, /*show_special=*/true);
      for (std::string_view rest = bytes; !rest.empty();) {
        std::size_t n = rest.size();
        while (n > 0 && find(rest.substr(0, n)) == kNone) --n;
        if (n > 0) read_.push_back(find(rest.substr(0, n)));
        rest.remove_prefix(std::max<std::size_t>(n, 1));
      }
    }
    end_.push_back(read_.size());
  }
}

std::optional<Token> VocabularyMap::own(Token target) const {
  if (target < 0 || target >= n_target_ || own_[target] == kNone) return std::nullopt;
  return own_[target];
}

std::span<const Token> VocabularyMap::read(Token target) const {
  if (target < 0 || target >= n_target_) return {};
  const std::size_t first = target == 0 ? 0 : end_[target - 1];
  return std::span(read_).subspan(first, end_[target] - first);
}

double VocabularyMap::overlap() const {
  const int smaller = std::min(n_target_, n_draft_);
  return smaller == 0 ? 0 : static_cast<double>(n_common()) / smaller;
}

std::optional<std::string> VocabularyMap::problem() const {
  if (overlap() >= kOverlapMin) return std::nullopt;
  return fmt::format("the vocabularies have {} tokens in common, {:.0f}% of the smaller one",
                     n_common(), 100 * overlap());
}

void VocabularyMap::name_outputs(LoadOptions& options) const {
  for (const auto& [own, target] : common_) {
    options.output_ids.push_back(own);
    options.output_names.push_back(target);
  }
  options.n_names = n_target_;
}

}  // namespace outrider

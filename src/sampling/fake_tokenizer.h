// A tokenizer for tests: a vocabulary given as strings. Text is cut greedily into the longest
// entries. Those of `control` are control tokens.

#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/tokenizer.h"

namespace outrider {

class FakeTokenizer : public Tokenizer {
 public:
  explicit FakeTokenizer(std::vector<std::string> entries) : entries_(std::move(entries)) {}

  using Tokenizer::encode;
  std::vector<Token> encode(std::span<const TextPiece> pieces) const override {
    std::vector<Token> tokens;
    for (const TextPiece& piece : pieces)
      for (std::size_t at = 0; at < piece.text.size();) {
        Token longest = 0;
        for (Token token = 1; token < size(); ++token)
          if (piece.text.compare(at, entries_[token].size(), entries_[token]) == 0 &&
              (longest == 0 || entries_[token].size() > entries_[longest].size()))
            longest = token;
        CHECK(piece.text.compare(at, entries_[longest].size(), entries_[longest]) == 0);
        tokens.push_back(longest);
        at += entries_[longest].size();
      }
    return tokens;
  }
  std::string bytes(Token token, bool show_special) const override {
    return kind(token) == TokenKind::control && !show_special ? "" : entries_.at(token);
  }
  int size() const override { return static_cast<int>(entries_.size()); }
  TokenKind kind(Token token) const override {
    return std::ranges::find(control, token) == control.end() ? TokenKind::normal
                                                              : TokenKind::control;
  }
  std::string_view text(Token token) const override { return entries_.at(token); }

  std::vector<Token> control;

 private:
  std::vector<std::string> entries_;
};

}  // namespace outrider

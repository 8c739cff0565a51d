// The entries of a vocabulary, read from metadata and checked.

#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/token.h"
#include "formats/listed_metadata.h"
#include "text/flat_index.h"
#include "text/tokenizer.h"

namespace outrider {

class Vocabulary {
 public:
  // From tokenizer.ggml.tokens and .token_type (absent: all normal). Entries with the known names
  // of end tokens (Tokenizer::end_tokens) become control tokens. Copies what it needs. Throws Error
  // where it is malformed: texts are UTF-8, and no two but empty ones are equal.
  explicit Vocabulary(const Metadata& metadata);

  int size() const { return static_cast<int>(kinds_.size()); }
  TokenKind kind(Token token) const { return kinds_[checked(token)]; }
  std::string_view text(Token token) const {
    const std::size_t index = checked(token);
    return std::string_view(texts_).substr(begins_[index], begins_[index + 1] - begins_[index]);
  }

  // The entry with this text; of empty ones the first.
  std::optional<Token> find(std::string_view text) const;
  std::optional<Token> find_normal(std::string_view text) const;

  // The entry of kind byte for this byte, and back.
  std::optional<Token> byte_token(unsigned char byte) const { return byte_tokens_[byte]; }
  unsigned char byte_value(Token byte_token) const;

  // The id under one of the keys "..._token_id"; where the file has none, or one that is no token
  // of this vocabulary, that of the tokenizer's list, if any.
  std::optional<Token> special_id(const ListedMetadata& file, std::string_view name) const;
  // A line for each such key whose id is no token, or in whose place the list's is taken.
  std::vector<std::string> id_warnings(const ListedMetadata& file) const;

  // What generation ends at: see Tokenizer::end_tokens.
  std::vector<Token> end_tokens(const ListedMetadata& file) const;

 private:
  Vocabulary(const Metadata& metadata, const std::vector<std::string>& tokens);
  std::size_t checked(Token token) const;

  std::string texts_;                // all entries, one after the other
  std::vector<std::size_t> begins_;  // [size + 1] into texts_
  std::vector<TokenKind> kinds_;
  FlatIndex index_;  // of text
  std::array<std::optional<Token>, 256> byte_tokens_;
};

}  // namespace outrider

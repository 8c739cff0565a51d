// What the tokenizers have in common: the vocabulary, and the splitting of text at special tokens.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/special_tokens.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace outrider {

class VocabularyTokenizer : public Tokenizer {
 public:
  using Tokenizer::encode;
  std::vector<Token> encode(std::span<const TextPiece> pieces) const final;
  std::string bytes(Token token, bool show_special) const final;
  int size() const final { return vocabulary_.size(); }
  TokenKind kind(Token token) const final { return vocabulary_.kind(token); }
  std::string_view text(Token token) const final { return vocabulary_.text(token); }

 protected:
  // `normalize` prepares well-formed text before anything is looked for in it.
  // `add_bos_by_default` holds where the file has no add_bos_token.
  VocabularyTokenizer(const ListedMetadata& file, std::string (*normalize)(std::string_view),
                      bool add_bos_by_default);

  const Vocabulary& vocabulary() const { return vocabulary_; }

  // Throws Error if a text, as it is to be merged, has more than 2 GiB.
  static void check_length(std::string_view text);

 private:
  // Normalized text between special tokens, not empty; `at_start` if nothing came before it.
  virtual void encode_stretch(std::string_view stretch, bool at_start,
                              std::vector<Token>& out) const = 0;
  // The bytes that the text of a normal or user_defined entry stands for.
  virtual std::string entry_bytes(Token token) const = 0;

  Vocabulary vocabulary_;
  std::string (*normalize_)(std::string_view);
  SpecialTokens special_tokens_;
};

}  // namespace outrider

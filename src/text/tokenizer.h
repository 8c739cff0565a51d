// Text to tokens and back, from a model file's own vocabulary.

#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/token.h"
#include "formats/checkpoint.h"

namespace outrider {

enum class TokenKind { normal, unknown, control, user_defined, unused, byte };

// A stretch of text to tokenize. Special tokens are recognised only in text that the program wrote itself (a chat
// template's), never in a user's.
struct TextPiece {
  std::string text;
  bool parse_special = false;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ill-formed UTF-8 becomes U+FFFD per maximal subpart first (Unicode 15, section 3.9). No BOS is added. Pieces are split
  // only where a special token stands: "ab" + "c" without one in between gives the tokens of "abc".
  virtual std::vector<Token> encode(std::span<const TextPiece> pieces) const = 0;
  std::vector<Token> encode(std::string_view text, bool parse_special = false) const;

  // The bytes of one token as they stand in running text: "" for a control token unless `show_special`. Concatenated
  // bytes of a sequence are its text (SentencePiece's leading space is kept: these models have add_space_prefix false
  // or the first encode added it, and callers strip it by text, not by token).
  virtual std::string bytes(Token token, bool show_special = false) const = 0;

  virtual int size() const = 0;
  virtual TokenKind kind(Token token) const = 0;
  virtual std::string_view text(Token token) const = 0;  // the vocabulary's entry, as in the file

  std::optional<Token> bos, eos, unknown, padding;
  bool add_bos = false;          // the model expects BOS at the start of a text
  std::vector<Token> end_tokens;  // eos, eot, eom of the metadata: generation ends at any of them
};

// By tokenizer.ggml.model: "gpt2" (byte-level BPE with the pre-tokenizer named by tokenizer.ggml.pre) or "llama"
// (SentencePiece-style merges by score, with byte fallback). Throws Error on anything malformed or unknown.
std::unique_ptr<Tokenizer> make_tokenizer(const Metadata& metadata);

// Nothing if every id that both have means the same (text and kind); else a line that names the first that differs.
std::optional<std::string> vocabulary_difference(const Tokenizer& a, const Tokenizer& b);

}  // namespace outrider

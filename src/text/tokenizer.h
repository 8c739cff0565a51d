// Text to tokens and back, from a model file's own vocabulary.

#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/token.h"
#include "formats/listed_metadata.h"

namespace outrider {

// The kind of a vocabulary's entry, which says how text is encoded to it:
//   normal        by the vocabulary's merges
//   user_defined  ordinary text that is always one token, also in a user's text (Gemma's runs of
//                 spaces and line ends and its HTML tags, Qwen's <tool_call>)
//   control       only in a piece with parse_special
//   byte          where a character is not in the vocabulary; written <0x00> to <0xFF>
//   unknown       where bytes are missing too
//   unused        never
enum class TokenKind { normal, unknown, control, user_defined, unused, byte };

// A piece of text to tokenize. Control tokens are recognised only in text that the program wrote
// itself (a chat template's), never in a user's.
struct TextPiece {
  std::string text;
  bool parse_special = false;
};

// Immutable once made; all members may be called from several threads at once.
// A Token argument must lie in [0, size()).
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Ill-formed UTF-8 becomes U+FFFD per maximal subpart first (Unicode 15, section 3.9), in each
  // piece by itself. No BOS is added. Tokens reach across pieces: "ab" + "c" gives the tokens of
  // "abc". Only a user_defined or control token splits the text, found from left to right, the
  // longest first; all of a control token must lie in pieces with parse_special. The text between
  // them is brought into the model's own normal form (NFC for Qwen2 and others, pre_tokenizer.h),
  // so decoding gives it in that form. Throws Error if the text is longer than 2 GiB.
  virtual std::vector<Token> encode(std::span<const TextPiece> pieces) const = 0;
  std::vector<Token> encode(std::string_view text, bool parse_special = false) const;
  // A text from its beginning: BOS in front if the model expects it (add_bos) and the text, or the
  // chat template that wrote it, does not begin with it.
  std::vector<Token> encode_whole(std::span<const TextPiece> pieces) const;

  // The bytes of one token in running text: "" for a control, unknown or unused token unless
  // `show_special`. Concatenated bytes of a sequence are its text (SentencePiece's leading space is
  // kept: these models have add_space_prefix false or the first encode added it, and callers strip
  // it by text, not by token).
  virtual std::string bytes(Token token, bool show_special = false) const = 0;
  // The concatenated bytes.
  std::string decode(std::span<const Token> tokens, bool show_special = false) const;

  virtual int size() const = 0;
  virtual TokenKind kind(Token token) const = 0;
  virtual std::string_view text(Token token) const = 0;  // the vocabulary's entry, as in the file

  std::optional<Token> bos, eos;
  bool add_bos = false;  // the model expects BOS at the start of a text
  // A line for what the file says of its vocabulary and is not followed.
  std::vector<std::string> warnings;

  // Generation ends at any of them; ascending. The metadata's eos, eot and eom; and, as files often
  // name only one of several, every entry that is known under one of these names: <|im_end|>,
  // <|endoftext|>, <|eot_id|>, <|eom_id|>, <|end|>, <|end_of_text|>, <end_of_turn>, <|return|>,
  // <|call|>, <EOT>, <turn|>, <end_of_utterance>, DeepSeek's end of sentence. Such an entry is a
  // control token even where the file calls it normal or user_defined. GLM's <|user|> and
  // <|observation|> end as well. Where <|return|> and <|call|> exist, <|end|> does not end.
  std::vector<Token> end_tokens;
};

// By tokenizer.ggml.model: "gpt2" (byte-level BPE with the pre-tokenizer `pre` or, where that is
// empty, the one that tokenizer.ggml.pre names) or "llama" (SentencePiece-style merges by score,
// with byte fallback): byte_bpe.h, sentencepiece.h. Keeps nothing of `metadata`. Throws Error on
// anything malformed or unknown.
std::unique_ptr<Tokenizer> make_tokenizer(const Metadata& metadata, std::string_view pre = "");
// The keys of the file's kind of tokenizer; none if there is no such kind.
std::vector<TakenKey> tokenizer_keys(const Metadata& metadata);

// Nothing if every id that both have has the same meaning (text and kind); else one line that names
// the first that differs.
std::optional<std::string> vocabulary_difference(const Tokenizer& a, const Tokenizer& b);

}  // namespace outrider

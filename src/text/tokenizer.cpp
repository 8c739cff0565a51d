#include "text/tokenizer.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"
#include "text/byte_bpe.h"
#include "text/sentencepiece.h"
#include "text/tokenizer_keys.h"

namespace outrider {
namespace {

std::string_view name(TokenKind kind) {
  switch (kind) {
    case TokenKind::normal: return "normal";
    case TokenKind::unknown: return "unknown";
    case TokenKind::control: return "control";
    case TokenKind::user_defined: return "user_defined";
    case TokenKind::unused: return "unused";
    case TokenKind::byte: return "byte";
  }
  return "";
}

struct Kind {
  std::string_view model;  // tokenizer.ggml.model
  std::vector<MetadataKey> (*keys)();
  std::unique_ptr<Tokenizer> (*make)(const ListedMetadata& file, std::string_view pre);
};

constexpr const char* kPrefix = "tokenizer.ggml.";

const Kind* find_kind(std::string_view model) {
  static constexpr Kind kKinds[] = {{"gpt2", byte_bpe_keys, make_byte_bpe},
                                    {"llama", sentencepiece_keys, make_sentencepiece}};
  const auto* found = std::ranges::find(kKinds, model, &Kind::model);
  return found == std::end(kKinds) ? nullptr : found;
}

}  // namespace

std::vector<Token> Tokenizer::encode_whole(std::span<const TextPiece> pieces) const {
  std::vector<Token> tokens = encode(pieces);
  const bool has_bos = bos && !tokens.empty() && tokens.front() == *bos;
  if (add_bos && bos && !has_bos) tokens.insert(tokens.begin(), *bos);
  return tokens;
}

std::vector<Token> Tokenizer::encode(std::string_view text, bool parse_special) const {
  const TextPiece piece{std::string(text), parse_special};
  return encode(std::span(&piece, 1));
}

std::string Tokenizer::decode(std::span<const Token> tokens, bool show_special) const {
  std::string text;
  for (const Token token : tokens) text += bytes(token, show_special);
  return text;
}

std::unique_ptr<Tokenizer> make_tokenizer(const Metadata& metadata, std::string_view pre) {
  const Kind* kind = find_kind(metadata.require_string("tokenizer.ggml.model"));
  if (kind == nullptr) {
    throw Error(
        "{}: tokenizer.ggml.model is \"{}\", which is not supported in this version; choose a "
        "model of one of these: gpt2, llama",
        metadata.origin(), printable(metadata.require_string("tokenizer.ggml.model")));
  }
  const ListedMetadata file(metadata, kPrefix, kind->keys());
  std::unique_ptr<Tokenizer> tokenizer = kind->make(file, pre);
  const std::vector<std::string> unknown = file.unknown_keys();
  tokenizer->warnings.insert(tokenizer->warnings.end(), unknown.begin(), unknown.end());
  return tokenizer;
}

std::vector<TakenKey> tokenizer_keys(const Metadata& metadata) {
  const MetadataValue* model = metadata.find("tokenizer.ggml.model");
  const auto* name = model ? std::get_if<std::string>(model) : nullptr;
  const Kind* kind = name ? find_kind(*name) : nullptr;
  if (kind == nullptr) return {};
  return taken_keys(ListedMetadata(metadata, kPrefix, kind->keys()));
}

std::optional<std::string> vocabulary_difference(const Tokenizer& a, const Tokenizer& b) {
  const auto describe = [](const Tokenizer& t, Token token) {
    return fmt::format("\"{}\" ({})", printable(t.text(token)), name(t.kind(token)));
  };
  for (Token token = 0; token < std::min(a.size(), b.size()); ++token) {
    if (a.text(token) != b.text(token) || a.kind(token) != b.kind(token)) {
      return fmt::format("token {} is {} in one vocabulary and {} in the other", token,
                         describe(a, token), describe(b, token));
    }
  }
  return std::nullopt;
}

}  // namespace outrider

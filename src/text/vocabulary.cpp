#include "text/vocabulary.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>

#include "base/bytes.h"
#include "base/error.h"
#include "base/utf8.h"

namespace outrider {
namespace {

constexpr std::string_view kEndOfTurnNames[] = {
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<|return|>",
    "<|call|>",
    "<EOT>",
    "<turn|>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
};

bool is_end_of_turn(std::string_view text) {
  return std::find(std::begin(kEndOfTurnNames), std::end(kEndOfTurnNames), text) !=
         std::end(kEndOfTurnNames);
}

const std::vector<std::string>& require_tokens(const Metadata& metadata) {
  const auto* tokens = metadata.strings("tokenizer.ggml.tokens");
  if (tokens == nullptr || tokens->empty()) {
    throw Error(
        "{}: tokenizer.ggml.tokens is {}; the file holds no vocabulary, convert the model again",
        metadata.origin(), tokens == nullptr ? "missing" : "empty");
  }
  if (tokens->size() > std::size_t{std::numeric_limits<Token>::max()}) {
    throw Error("{}: tokenizer.ggml.tokens has {} entries, at most {} are possible",
                metadata.origin(), tokens->size(), std::numeric_limits<Token>::max());
  }
  const auto ill_formed = std::find_if_not(tokens->begin(), tokens->end(),
                                           [](const auto& t) { return is_well_formed(t); });
  if (ill_formed != tokens->end()) {
    throw Error(
        "{}: tokenizer.ggml.tokens[{}] is \"{}\", which is no UTF-8; convert the model again",
        metadata.origin(), ill_formed - tokens->begin(), printable(*ill_formed));
  }
  return *tokens;
}

// GGUF's numbers are SentencePiece's.
std::optional<TokenKind> kind_from_gguf(std::int64_t number) {
  switch (number) {
    case 1: return TokenKind::normal;
    case 2: return TokenKind::unknown;
    case 3: return TokenKind::control;
    case 4: return TokenKind::user_defined;
    case 5: return TokenKind::unused;
    case 6: return TokenKind::byte;
    default: return std::nullopt;
  }
}

std::vector<TokenKind> read_kinds(const Metadata& metadata, std::size_t n_tokens) {
  const auto* numbers = metadata.integers("tokenizer.ggml.token_type");
  if (numbers == nullptr) return std::vector<TokenKind>(n_tokens, TokenKind::normal);
  if (numbers->size() != n_tokens) {
    throw Error(
        "{}: tokenizer.ggml.token_type has {} entries for {} tokens; convert the model again",
        metadata.origin(), numbers->size(), n_tokens);
  }
  std::vector<TokenKind> kinds;
  kinds.reserve(n_tokens);
  for (const std::int64_t number : *numbers) {
    const auto kind = kind_from_gguf(number);
    if (!kind) {
      throw Error(
          "{}: tokenizer.ggml.token_type[{}] is {}, expected 1 to 6; convert the model again",
          metadata.origin(), kinds.size(), number);
    }
    kinds.push_back(*kind);
  }
  return kinds;
}

std::optional<unsigned char> hexadecimal(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return std::nullopt;
}

// "<0x0A>" is byte 10.
std::optional<unsigned char> parse_byte(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  const auto high = hexadecimal(text[3]);
  const auto low = hexadecimal(text[4]);
  if (!high || !low) return std::nullopt;
  return *high * 16 + *low;
}

std::uint64_t hash_of(std::string_view text) {
  return std::hash<std::string_view>()(text);
}

}  // namespace

Vocabulary::Vocabulary(const Metadata& metadata) : Vocabulary(metadata, require_tokens(metadata)) {}

Vocabulary::Vocabulary(const Metadata& metadata, const std::vector<std::string>& tokens)
    : index_(tokens.size()) {
  kinds_ = read_kinds(metadata, tokens.size());

  std::size_t n_bytes = 0;
  for (const std::string& token : tokens) n_bytes += token.size();
  texts_.reserve(n_bytes);
  begins_.reserve(tokens.size() + 1);
  for (const std::string& token : tokens) {
    begins_.push_back(texts_.size());
    texts_ += token;
  }
  begins_.push_back(texts_.size());

  for (Token token = 0; token < size(); ++token) {
    const std::string_view entry = text(token);
    TokenKind& kind = kinds_[token];
    if ((kind == TokenKind::normal || kind == TokenKind::user_defined) && is_end_of_turn(entry))
      kind = TokenKind::control;
    if (kind == TokenKind::byte) {
      const auto byte = parse_byte(entry);
      if (!byte) {
        throw Error(
            "{}: token {} is a byte and reads \"{}\", expected <0x00> to <0xFF>; convert the model "
            "again",
            metadata.origin(), token, printable(entry));
      }
      if (!byte_tokens_[*byte]) byte_tokens_[*byte] = token;
    }
    const Token same = index_.find_or_insert(hash_of(entry), token,
                                             [&](Token other) { return text(other) == entry; });
    if (same != token && !entry.empty()) {
      throw Error("{}: tokenizer.ggml.tokens[{}] and [{}] are both \"{}\"; convert the model again",
                  metadata.origin(), same, token, printable(entry));
    }
  }
}

std::size_t Vocabulary::checked(Token token) const {
  CHECK(token >= 0 && token < size());
  return static_cast<std::size_t>(token);
}

std::optional<Token> Vocabulary::find(std::string_view text) const {
  return index_.find(hash_of(text), [&](Token token) { return this->text(token) == text; });
}

std::optional<Token> Vocabulary::find_normal(std::string_view text) const {
  const auto token = find(text);
  return token && kind(*token) == TokenKind::normal ? token : std::nullopt;
}

unsigned char Vocabulary::byte_value(Token byte_token) const {
  const auto byte = parse_byte(text(byte_token));
  CHECK(byte);
  return *byte;
}

namespace {

// Some files write -1 or 2^32 - 1 for "none".
bool is_within(std::int64_t id, int size) {
  return id >= 0 && id < size;
}

}  // namespace

std::optional<Token> Vocabulary::special_id(const ListedMetadata& file,
                                            std::string_view name) const {
  const std::optional<std::int64_t> given = file.metadata().integer(file.key(name));
  if (given && is_within(*given, size())) return static_cast<Token>(*given);
  const MetadataKey* row = find_key(file.keys(), name);
  CHECK(row != nullptr);
  const auto* default_id = std::get_if<double>(&row->otherwise);
  if (default_id == nullptr || !is_within(static_cast<std::int64_t>(*default_id), size()))
    return std::nullopt;
  return static_cast<Token>(*default_id);
}

std::vector<std::string> Vocabulary::id_warnings(const ListedMetadata& file) const {
  std::vector<std::string> lines;
  for (const MetadataKey& row : file.keys()) {
    if (row.use != KeyUse::computes || !row.name.ends_with("_token_id")) continue;
    const std::string key = file.key(row.name);
    const std::optional<std::int64_t> given = file.metadata().integer(key);
    if (given && is_within(*given, size())) continue;
    const std::optional<Token> taken = special_id(file, row.name);
    if (!given && !taken) continue;
    lines.push_back(fmt::format(
        "{}: {}: {}", file.origin(),
        given ? fmt::format("{} is {}, but the vocabulary has {} tokens", key, *given, size())
              : fmt::format("{} is missing", key),
        taken ? fmt::format("token {}, \"{}\", is taken", *taken, printable(text(*taken)))
              : "it is ignored"));
  }
  return lines;
}

std::vector<Token> Vocabulary::end_tokens(const ListedMetadata& file) const {
  std::vector<Token> ends;
  for (const std::string_view name : {"eos_token_id", "eot_token_id", "eom_token_id"})
    if (const auto token = special_id(file, name)) ends.push_back(*token);
  const auto find_control = [&](std::string_view name) {
    const auto token = find(name);
    return token && kind(*token) == TokenKind::control ? token : std::nullopt;
  };
  for (const std::string_view name : kEndOfTurnNames)
    if (const auto token = find_control(name)) ends.push_back(*token);
  // GLM ends where it wants to hear the user or a tool's result.
  if (find("[gMASK]")) {
    for (const char* name : {"<|user|>", "<|observation|>"})
      if (const auto token = find_control(name)) ends.push_back(*token);
  }
  // In Harmony's format a message ends with <|end|>, an answer with the other two.
  if (find_control("<|return|>") && find_control("<|call|>")) {
    if (const auto end = find_control("<|end|>")) std::erase(ends, *end);
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

}  // namespace outrider

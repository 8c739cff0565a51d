#include "text/byte_bpe.h"

#include <array>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "base/utf8.h"
#include "text/flat_index.h"
#include "text/merge.h"
#include "text/normal_form.h"
#include "text/pre_tokenizer.h"
#include "text/vocabulary_tokenizer.h"

namespace outrider {
namespace {

constexpr bool writes_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// The character that writes each byte: all are below U+0144.
constexpr std::array<std::uint16_t, 256> kCharacterOfByte = [] {
  std::array<std::uint16_t, 256> characters{};
  std::uint16_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte)
    characters[byte] = writes_itself(byte) ? static_cast<std::uint16_t>(byte) : next++;
  return characters;
}();

constexpr std::array<std::int16_t, 0x144> kByteOfCharacter = [] {
  std::array<std::int16_t, 0x144> bytes{};
  for (std::int16_t& byte : bytes) byte = -1;
  for (int byte = 0; byte < 256; ++byte)
    bytes[kCharacterOfByte[byte]] = static_cast<std::int16_t>(byte);
  return bytes;
}();

std::string written(unsigned char byte) {
  std::string text;
  append_utf8(text, kCharacterOfByte[byte]);
  return text;
}

// The bytes that an entry writes; nothing if it holds a character that writes none.
std::optional<std::string> read_written(std::string_view text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    if (c.code >= kByteOfCharacter.size() || kByteOfCharacter[c.code] < 0) return std::nullopt;
    bytes += static_cast<char>(kByteOfCharacter[c.code]);
    at += c.n_bytes;
  }
  return bytes;
}

std::string as_it_is(std::string_view text) {
  return std::string(text);
}

class ByteBpe final : public VocabularyTokenizer {
 public:
  ByteBpe(const ListedMetadata& file, std::string_view pre)
      : VocabularyTokenizer(file, as_it_is, /*add_bos_by_default=*/false),
        pre_tokenizer_(pre.empty() ? pre_of(file) : std::string(pre), file.origin()),
        rule_index_(merges_of(file.metadata()).size()) {
    for (int byte = 0; byte < 256; ++byte)
      byte_entries_[byte] = vocabulary().find_normal(written(static_cast<unsigned char>(byte)));
    read_rules(file.metadata());
    if (!file.has("add_bos_token")) add_bos = pre_tokenizer_.adds_bos() && bos;
    if (pre_tokenizer_.is_default())
      warnings.push_back(
          fmt::format("{}: its pre-tokenizer is \"default\", which says nothing of the model: "
                      "tokens may differ "
                      "from those that it was trained with; convert the model again or name "
                      "another pre-tokenizer",
                      file.origin()));
  }

 private:
  struct Rule {  // left and right become result
    Token left, right, result;
  };
  using Rank = std::int32_t;  // of a rule: its place in rules_

  static std::string pre_of(const ListedMetadata& file) {
    if (file.has("pre")) return file.text("pre");
    throw Error(
        Remedy::tokenizer_pre,
        "{}: key {} is missing, so how its text is cut is not known; convert the model again, "
        "or name its pre-tokenizer",
        file.origin(), file.key("pre"));
  }

  static const std::vector<std::string>& merges_of(const Metadata& metadata) {
    const auto* merges = metadata.strings("tokenizer.ggml.merges");
    if (merges == nullptr)
      throw Error("{}: tokenizer.ggml.merges is missing; convert the model again",
                  metadata.origin());
    return *merges;
  }

  void read_rules(const Metadata& metadata) {
    const std::vector<std::string>& merges = merges_of(metadata);
    rules_.reserve(merges.size());
    std::string joined;
    for (std::size_t i = 0; i < merges.size(); ++i) {
      const std::string_view merge = merges[i];
      const std::size_t space = merge.find(' ', 1);
      if (space == merge.npos || space + 1 == merge.size()) {
        throw Error(
            "{}: tokenizer.ggml.merges[{}] is \"{}\", expected two parts with a space between "
            "them; "
            "convert the model again",
            metadata.origin(), i, printable(merge));
      }
      const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
      joined.assign(left).append(right);
      Token found[3] = {};
      bool all_normal = true;
      for (std::size_t k = 0;
           const std::string_view part : {left, right, std::string_view(joined)}) {
        const auto token = vocabulary().find(part);
        if (!token) {
          throw Error(
              "{}: tokenizer.ggml.merges[{}] needs \"{}\", which is not in the vocabulary; convert "
              "the model again",
              metadata.origin(), i, printable(part));
        }
        all_normal = all_normal && kind(*token) == TokenKind::normal;
        found[k++] = *token;
      }
      if (!all_normal) continue;
      const Rule rule{found[0], found[1], found[2]};
      const auto rank = static_cast<Rank>(rules_.size());
      rules_.push_back(rule);
      rule_index_.find_or_insert(key(rule.left, rule.right), rank, [&](Rank other) {
        return rules_[other].left == rule.left && rules_[other].right == rule.right;
      });
    }
  }

  static std::uint64_t key(Token left, Token right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 |
           static_cast<std::uint32_t>(right);
  }

  void encode_stretch(std::string_view stretch, bool, std::vector<Token>& out) const override {
    const auto find_merge = [this](const Symbol& a, const Symbol& b) -> std::optional<Merge<Rank>> {
      const auto rank = rule_index_.find(key(a.token, b.token), [&](Rank r) {
        return rules_[r].left == a.token && rules_[r].right == b.token;
      });
      if (!rank) return std::nullopt;
      return Merge<Rank>{*rank, rules_[*rank].result};
    };
    std::optional<std::string> composed;
    if (pre_tokenizer_.composes()) composed = to_nfc(stretch);
    if (composed) check_length(stretch = *composed);
    Merger<Rank> merger;
    std::vector<Symbol> symbols;
    for (const std::string_view word : pre_tokenizer_.split(stretch)) {
      if (pre_tokenizer_.ignores_merges()) {
        if (const auto entry = entry_of(word)) {
          out.push_back(*entry);
          continue;
        }
      }
      symbols.clear();
      for (const char c : word) {
        const auto entry = byte_entries_[static_cast<unsigned char>(c)];
        if (entry) symbols.push_back({*entry, static_cast<std::uint32_t>(symbols.size()), 1});
      }
      merger.merge(symbols, find_merge, out);
    }
  }

  // The entry that writes a whole word.
  std::optional<Token> entry_of(std::string_view word) const {
    std::string entry;
    for (const char c : word) entry += written(static_cast<unsigned char>(c));
    return vocabulary().find_normal(entry);
  }

  std::string entry_bytes(Token token) const override {
    const std::string_view entry = text(token);
    std::optional<std::string> bytes;
    if (kind(token) == TokenKind::normal) bytes = read_written(entry);
    return bytes ? *std::move(bytes) : std::string(entry);
  }

  PreTokenizer pre_tokenizer_;
  std::array<std::optional<Token>, 256> byte_entries_;
  std::vector<Rule> rules_;  // best first
  FlatIndex rule_index_;     // of a rule's left and right
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_bpe(const ListedMetadata& file, std::string_view pre) {
  return std::make_unique<ByteBpe>(file, pre);
}

}  // namespace outrider

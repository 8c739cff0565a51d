#include "text/sentencepiece.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <tuple>

#include "base/bytes.h"
#include "base/error.h"
#include "base/utf8.h"
#include "text/merge.h"
#include "text/vocabulary_tokenizer.h"

namespace outrider {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  for (;;) {
    const std::size_t found = text.find(from);
    out += text.substr(0, found);
    if (found == text.npos) return out;
    out += to;
    text.remove_prefix(found + from.size());
  }
}

std::string write_spaces(std::string_view text) {
  return replaced(text, " ", kSpace);
}

struct Priority {
  std::uint32_t score_rank;
  std::uint32_t left_characters, right_characters;
  Token token;

  bool operator<(const Priority& other) const {
    return std::tie(score_rank, other.left_characters, other.right_characters, token) <
           std::tie(other.score_rank, left_characters, right_characters, other.token);
  }
};

class SentencePiece final : public VocabularyTokenizer {
 public:
  explicit SentencePiece(const ListedMetadata& file)
      : VocabularyTokenizer(file, write_spaces, /*add_bos_by_default=*/true),
        add_space_prefix_(file.boolean("add_space_prefix")) {
    rank_scores(file.metadata());
    unknown_ = vocabulary().special_id(file, "unknown_token_id");
    for (Token token = 0; token < size() && !unknown_; ++token)
      if (kind(token) == TokenKind::unknown) unknown_ = token;
    for (int byte = 0; byte < 256 && !unknown_; ++byte) {
      if (!vocabulary().byte_token(static_cast<unsigned char>(byte))) {
        throw Error(
            "{}: the vocabulary has neither an unknown token nor the byte token <0x{:02X}>; "
            "convert the "
            "model again",
            file.origin(), byte);
      }
    }
  }

 private:
  void rank_scores(const Metadata& metadata) {
    const auto* scores = metadata.numbers("tokenizer.ggml.scores");
    if (scores == nullptr)
      throw Error("{}: tokenizer.ggml.scores is missing; convert the model again",
                  metadata.origin());
    if (scores->size() != static_cast<std::size_t>(size())) {
      throw Error("{}: tokenizer.ggml.scores has {} entries for {} tokens; convert the model again",
                  metadata.origin(), scores->size(), size());
    }
    const auto bad =
        std::find_if(scores->begin(), scores->end(), [](double s) { return std::isnan(s); });
    if (bad != scores->end()) {
      throw Error("{}: tokenizer.ggml.scores[{}] is not a number; convert the model again",
                  metadata.origin(), bad - scores->begin());
    }
    std::vector<Token> order;
    for (Token token = 0; token < size(); ++token) {
      if (kind(token) != TokenKind::normal) continue;
      order.push_back(token);
      n_bytes_max_ = std::max(n_bytes_max_, text(token).size());
    }
    std::sort(order.begin(), order.end(),
              [&](Token a, Token b) { return (*scores)[a] > (*scores)[b]; });
    score_rank_.resize(scores->size());
    std::uint32_t rank = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (i > 0 && (*scores)[order[i]] != (*scores)[order[i - 1]]) ++rank;
      score_rank_[order[i]] = rank;
    }
  }

  void encode_stretch(std::string_view stretch, bool at_start,
                      std::vector<Token>& out) const override {
    if (at_start && add_space_prefix_) {
      encode_prefixed(std::string(kSpace).append(stretch), out);
    } else {
      encode_prefixed(stretch, out);
    }
  }

  void encode_prefixed(std::string_view text, std::vector<Token>& out) const {
    std::vector<Symbol> symbols;
    for (std::uint32_t i = 0; i < text.size();) {
      const auto n_bytes = static_cast<std::uint32_t>(utf8_step(text.substr(i)).n_bytes);
      append_character(text.substr(i, n_bytes), i, symbols);
      i += n_bytes;
    }
    Merger<Priority>().merge(
        symbols,
        [&](const Symbol& a, const Symbol& b) -> std::optional<Merge<Priority>> {
          if (a.n_bytes + b.n_bytes > n_bytes_max_ || kind(a.token) != TokenKind::normal ||
              kind(b.token) != TokenKind::normal)
            return std::nullopt;
          const auto token = vocabulary().find_normal(text.substr(a.begin, a.n_bytes + b.n_bytes));
          if (!token) return std::nullopt;
          const auto characters = [&](const Symbol& s) {
            return static_cast<std::uint32_t>(n_characters(text.substr(s.begin, s.n_bytes)));
          };
          return Merge<Priority>{{score_rank_[*token], characters(a), characters(b), *token},
                                 *token};
        },
        out);
  }

  void append_character(std::string_view character, std::uint32_t begin,
                        std::vector<Symbol>& symbols) const {
    const auto n_bytes = static_cast<std::uint32_t>(character.size());
    if (const auto entry = vocabulary().find_normal(character)) {
      symbols.push_back({*entry, begin, n_bytes});
      return;
    }
    const auto byte_token = [&](char c) {
      return vocabulary().byte_token(static_cast<unsigned char>(c));
    };
    if (std::all_of(character.begin(), character.end(),
                    [&](char c) { return byte_token(c).has_value(); })) {
      for (std::uint32_t i = 0; i < n_bytes; ++i)
        symbols.push_back({*byte_token(character[i]), begin + i, 1});
    } else if (!symbols.empty() && symbols.back().token == *unknown_) {
      symbols.back().n_bytes += n_bytes;
    } else {
      symbols.push_back({*unknown_, begin, n_bytes});
    }
  }

  std::string entry_bytes(Token token) const override { return replaced(text(token), kSpace, " "); }

  bool add_space_prefix_;
  std::optional<Token> unknown_;
  std::size_t n_bytes_max_ = 0;  // of the longest normal entry
  std::vector<std::uint32_t>
      score_rank_;  // of normal entries: 0 for the highest score, equal for equal ones
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentencepiece(const ListedMetadata& file, std::string_view pre) {
  auto tokenizer = std::make_unique<SentencePiece>(file);
  if (!pre.empty())
    tokenizer->warnings.push_back(fmt::format(
        "{}: the pre-tokenizer \"{}\" has no effect: vocabularies of SentencePiece need none",
        file.origin(), printable(pre)));
  return tokenizer;
}

}  // namespace outrider

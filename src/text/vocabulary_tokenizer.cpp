#include "text/vocabulary_tokenizer.h"

#include <cstdint>
#include <limits>

#include "base/error.h"
#include "base/utf8.h"

namespace outrider {

VocabularyTokenizer::VocabularyTokenizer(const ListedMetadata& file,
                                         std::string (*normalize)(std::string_view),
                                         bool add_bos_by_default)
    : vocabulary_(file.metadata()), normalize_(normalize), special_tokens_(vocabulary_, normalize) {
  bos = vocabulary_.special_id(file, "bos_token_id");
  eos = vocabulary_.special_id(file, "eos_token_id");
  warnings = vocabulary_.id_warnings(file);
  const auto add_bos_token = file.metadata().boolean(file.key("add_bos_token"));
  if (add_bos_token.value_or(false) && !bos) {
    throw Error(
        "{}: tokenizer.ggml.add_bos_token is true, but tokenizer.ggml.bos_token_id names no token; "
        "convert the model again",
        file.origin());
  }
  add_bos = add_bos_token.value_or(add_bos_by_default) && bos;
  end_tokens = vocabulary_.end_tokens(file);
}

void VocabularyTokenizer::check_length(std::string_view text) {
  if (text.size() > std::size_t{std::numeric_limits<std::int32_t>::max()})
    throw Error("a text of {} bytes is too long to tokenize: at most 2 GiB", text.size());
}

std::vector<Token> VocabularyTokenizer::encode(std::span<const TextPiece> pieces) const {
  struct Stretch {
    std::size_t begin, end;
  };
  std::string text;
  std::vector<Stretch>
      with_control;  // parts of `text` that may hold control tokens, neighbours joined
  for (const TextPiece& piece : pieces) {
    const std::size_t begin = text.size();
    text += normalize_(well_formed(piece.text));
    if (!piece.parse_special) continue;
    if (!with_control.empty() && with_control.back().end == begin) {
      with_control.back().end = text.size();
    } else {
      with_control.push_back({begin, text.size()});
    }
  }
  check_length(text);

  std::vector<Token> tokens;
  std::size_t stretch_begin = 0;
  const auto end_stretch = [&](std::size_t end) {
    if (end > stretch_begin) {
      encode_stretch(std::string_view(text).substr(stretch_begin, end - stretch_begin),
                     stretch_begin == 0, tokens);
    }
  };
  auto allowed = with_control.begin();
  for (std::size_t i = 0; i < text.size();) {
    while (allowed != with_control.end() && allowed->end <= i) ++allowed;
    const bool is_allowed = allowed != with_control.end() && allowed->begin <= i;
    const auto match = special_tokens_.longest_at(text, i, is_allowed ? allowed->end : i);
    if (!match) {
      ++i;
      continue;
    }
    end_stretch(i);
    tokens.push_back(match->token);
    i += match->n_bytes;
    stretch_begin = i;
  }
  end_stretch(text.size());
  return tokens;
}

std::string VocabularyTokenizer::bytes(Token token, bool show_special) const {
  switch (kind(token)) {
    case TokenKind::normal:
    case TokenKind::user_defined: return entry_bytes(token);
    case TokenKind::byte: return std::string(1, static_cast<char>(vocabulary_.byte_value(token)));
    case TokenKind::control:
    case TokenKind::unknown:
    case TokenKind::unused: break;
  }
  return show_special ? std::string(text(token)) : "";
}

}  // namespace outrider

// Makes a vocabulary from the input and text from the rest of it: either an Error, or the text is
// encoded and decoded.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace {

using namespace outrider;

class Input {
 public:
  Input(const std::uint8_t* bytes, std::size_t n)
      : rest_(reinterpret_cast<const char*>(bytes), n) {}

  unsigned char byte() {
    if (rest_.empty()) return 0;
    const auto first = static_cast<unsigned char>(rest_[0]);
    rest_.remove_prefix(1);
    return first;
  }
  std::string text(std::size_t n) {
    const std::string_view taken = rest_.substr(0, n);
    rest_.remove_prefix(taken.size());
    return std::string(taken);
  }
  std::string rest() { return text(rest_.size()); }

 private:
  std::string_view rest_;
};

constexpr const char* kPreTokenizers[] = {"smollm", "qwen2",  "llama-bpe",    "tekken",
                                          "gpt-4o", "qwen35", "deepseek-llm", "deepseek-v3"};

// Mostly well-formed metadata, as nothing else passes the checks; each key may be damaged.
Metadata make_metadata(Input& input) {
  const unsigned flags = input.byte() | input.byte() << 8u;
  const auto flag = [&](unsigned bit) { return (flags >> bit & 1u) != 0; };
  const bool bpe = flag(0);
  std::vector<std::string> tokens, merges;
  std::vector<double> scores;
  std::vector<std::int64_t> kinds;
  const bool may_repeat = input.byte() == 255;  // which is an Error
  std::set<std::string> taken;
  const auto add = [&](std::string text, std::int64_t kind, double score) {
    if (!taken.insert(text).second && !may_repeat) return;
    tokens.push_back(std::move(text));
    kinds.push_back(kind);
    scores.push_back(score);
  };
  if (flag(1)) add("<unk>", 2, 0);
  for (int byte = 0; flag(2) && byte < 256; ++byte) {
    const char* digits = "0123456789ABCDEF";
    add({'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'}, 6, 0);
  }
  if (flag(3)) {
    for (char letter = '!'; letter <= '~'; ++letter) add({letter}, 1, -letter % 7);
    for (const char* other : {"\u0120", "\u010A", "\u2581", "\u00C3", "\u00A9", "\u00E9"})
      add(other, 1, -9);
  }
  for (unsigned n = input.byte(); n > 0; --n) {
    const unsigned shape = input.byte();
    std::string text = input.text(shape & 7u);
    if (shape & 8u && !tokens.empty()) {  // what a merge of two earlier entries would give
      const std::string left = tokens[input.byte() % tokens.size()];
      const std::string right = tokens[input.byte() % tokens.size()];
      if (left.size() + right.size() > 64) continue;
      text = left + right;
      merges.push_back(left + " " + right);
    }
    const std::int64_t kind = shape & 16u ? input.byte() % 8 : 1;
    add(std::move(text), kind, static_cast<signed char>(input.byte()));
  }
  if (flag(4)) merges.push_back(input.text(input.byte() % 8u));
  if (flag(5)) kinds.resize(input.byte(), 1);
  if (flag(6)) scores.resize(input.byte(), std::numeric_limits<double>::quiet_NaN());

  Metadata metadata("fuzz");
  metadata.insert("tokenizer.ggml.model", std::string(bpe ? "gpt2" : "llama"));
  metadata.insert("tokenizer.ggml.pre",
                  std::string(kPreTokenizers[(flags >> 7 & 1u) | (flags >> 13 & 6u)]));
  metadata.insert("tokenizer.ggml.tokens", std::move(tokens));
  if (!flag(8)) metadata.insert("tokenizer.ggml.token_type", std::move(kinds));
  metadata.insert("tokenizer.ggml.scores", std::move(scores));
  metadata.insert("tokenizer.ggml.merges", std::move(merges));
  if (flag(9)) metadata.insert("tokenizer.ggml.add_space_prefix", flag(10));
  if (flag(11)) metadata.insert("tokenizer.ggml.add_bos_token", flag(12));
  const char* ids[] = {"bos", "eos", "eot", "eom", "unknown", "padding"};
  for (unsigned i = 0; flag(13) && i < std::size(ids); ++i) {
    metadata.insert("tokenizer.ggml." + std::string(ids[i]) + "_token_id",
                    std::int64_t{static_cast<signed char>(input.byte())});
  }
  return metadata;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  Input input(bytes, n);
  try {
    const auto tokenizer = make_tokenizer(make_metadata(input));
    CHECK(!vocabulary_difference(*tokenizer, *tokenizer));
    std::vector<TextPiece> pieces;
    for (unsigned k = input.byte() % 4u; k > 0; --k) {
      const bool parse_special = input.byte() % 2 != 0;
      pieces.push_back({input.text(input.byte()), parse_special});
    }
    pieces.push_back({input.rest(), true});

    StreamDecoder decoder(*tokenizer);
    std::string shown, text;
    for (const Token token : tokenizer->encode(pieces)) {
      shown += decoder.push(token);
      text += tokenizer->bytes(token);
      CHECK(tokenizer->kind(token) != TokenKind::unused);
    }
    shown += decoder.finish();
    CHECK(shown == well_formed(text));
  } catch (const Error&) {
  }
  return 0;
}

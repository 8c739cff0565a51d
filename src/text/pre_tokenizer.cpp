#include "text/pre_tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/error.h"

namespace outrider {
namespace {

struct KnownPreTokenizer {
  std::string_view name;
  const char* expression;
};

// White space is written out, [\t-\r\x{85}\p{Z}], as PCRE2's \s also takes U+180E and leaves
// U+0085.
#define SPACE "\\t-\\r\\x{85}\\p{Z}"
constexpr KnownPreTokenizer kKnown[] = {
    // Each digit is a word; between digits GPT-2's expression holds. So a digit ends the text for
    // its look-ahead, and (?!\S) there is (?![^\s\p{N}]) here.
    {"smollm",
     "\\p{N}"
     "|'s|'t|'re|'ve|'m|'ll|'d"
     "| ?\\p{L}+"
     "| ?[^" SPACE "\\p{L}\\p{N}]+"
     "|[" SPACE "]+(?![^" SPACE "\\p{N}])"
     "|[" SPACE "]+"},
    {"qwen2",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
     "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
     "|\\p{N}"
     "| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n]*"
     "|[" SPACE "]*[\\r\\n]+"
     "|[" SPACE "]+(?![^" SPACE "])"
     "|[" SPACE "]+"},
};
#undef SPACE

const KnownPreTokenizer& find_known(std::string_view name, std::string_view origin) {
  std::string names;
  for (const KnownPreTokenizer& known : kKnown) {
    if (known.name == name) return known;
    if (!names.empty()) names += ", ";
    names += known.name;
  }
  throw Error(
      "{}: tokenizer.ggml.pre is \"{}\", which is not supported in this version; choose a model of "
      "one of these: {}",
      origin, printable(name), names);
}

struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

}  // namespace

PreTokenizer::PreTokenizer(std::string_view name, std::string_view origin) {
  const std::string_view expression = find_known(name, origin).expression;
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                            PCRE2_UTF | PCRE2_UCP, &error, &error_offset, nullptr));
  CHECK(code_ != nullptr);
  // Where there is no JIT the interpreter gives the same words.
  pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
}

std::vector<std::string_view> PreTokenizer::split(std::string_view text) const {
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(
      pcre2_match_data_create_from_pattern(code_.get(), nullptr));
  const std::unique_ptr<pcre2_match_context, FreeMatch> context(
      pcre2_match_context_create(nullptr));
  CHECK(match != nullptr && context != nullptr);
  // One backtrack a character and alternative, and few alternatives.
  const std::size_t n_steps_max = 1'000'000 + 16 * text.size();
  pcre2_set_match_limit(context.get(),
                        static_cast<std::uint32_t>(std::min<std::size_t>(n_steps_max, UINT32_MAX)));

  std::vector<std::string_view> words;
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(match.get());
  for (std::size_t begin = 0; begin < text.size();) {
    const int status =
        pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), begin,
                    PCRE2_NO_UTF_CHECK, match.get(), context.get());
    if (status == PCRE2_ERROR_MATCHLIMIT || status == PCRE2_ERROR_JIT_STACKLIMIT ||
        status == PCRE2_ERROR_HEAPLIMIT || status == PCRE2_ERROR_NOMEMORY) {
      throw Error("a text of {} bytes needs too many steps to cut into words (PCRE2 error {})",
                  text.size(), status);
    }
    // Every character matches one of the alternatives, so words leave no gaps.
    CHECK(status > 0 && found[0] == begin && found[1] > begin);
    words.push_back(text.substr(begin, found[1] - begin));
    begin = found[1];
  }
  return words;
}

}  // namespace outrider

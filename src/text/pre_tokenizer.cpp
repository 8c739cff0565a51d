#include "text/pre_tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/error.h"

namespace outrider {
namespace {

// White space is written out, [\t-\r\x{85}\p{Z}], as PCRE2's \s also takes U+180E and leaves
// U+0085.
#define SPACE "\\t-\\r\\x{85}\\p{Z}"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TRAILING_SPACE "|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"
// Words of the kinds that GPT-4o's expression begins with: with capitals first, then without.
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED_WORDS(end) \
  "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" end "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" end
// Ends of lines go with signs and with the white space before them.
#define SIGNS_AND_LINES(line_ends) \
  "| ?[^" SPACE "\\p{L}\\p{N}]+[" line_ends "]*|[" SPACE "]*[\\r\\n]+" TRAILING_SPACE

constexpr const char* kDigit = "\\p{N}";
constexpr const char* kThreeDigits = "\\p{N}{1,3}";
constexpr const char* kDigits = "\\p{N}+";
constexpr const char* kGpt2 =
    "'s|'t|'re|'ve|'m|'ll|'d"
    "| ?\\p{L}+"
    "| ?\\p{N}+"
    "| ?[^" SPACE "\\p{L}\\p{N}]+" TRAILING_SPACE;
constexpr const char* kQwen2 = CONTRACTION
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
    "|\\p{N}" SIGNS_AND_LINES("\\r\\n");
constexpr const char* kQwen35 = CONTRACTION
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+"
    "|\\p{N}"
    "| ?[^" SPACE "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|[" SPACE "]*[\\r\\n]+" TRAILING_SPACE;
constexpr const char* kLlama3 = CONTRACTION
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
    "|\\p{N}{1,3}" SIGNS_AND_LINES("\\r\\n");
constexpr const char* kSeedCoder = CONTRACTION
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
    "|\\p{N}"
    "| ?[^" SPACE "\\p{L}\\p{N}]+|[" SPACE "]*[\\r\\n]+" TRAILING_SPACE;
constexpr const char* kMiniCpm5 = CONTRACTION
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
    "|\\p{N}+" SIGNS_AND_LINES("\\r\\n");
constexpr const char* kTekken = CASED_WORDS("") "|\\p{N}" SIGNS_AND_LINES("\\r\\n/");
constexpr const char* kGpt4o =
    CASED_WORDS(CONTRACTION "?") "|\\p{N}{1,3}" SIGNS_AND_LINES("\\r\\n/");

// DeepSeek's lists of characters, as published.
// clang-format off
constexpr const char* kLineEnd = "[\\r\\n]";
constexpr const char* kDeepseekLetters =
    "[" SPACE "]?["
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚ"
    "Ḁ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻ"
    "Ȿ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
    "]+";
// clang-format on
constexpr const char* kDeepseekSigns = "[" SPACE "]?[!-/:-~！-／：-～‘-‟　-。]+";
constexpr const char* kDeepseekAsian = "[一-龥ࠀ-一가-\\x{D7FF}]+";
constexpr const char* kDeepseekV3 =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
    "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*|[" SPACE "]*[\\r\\n]+" TRAILING_SPACE;

constexpr const char* kDefaultName = "default";

struct KnownPreTokenizer {
  std::vector<std::string_view> names;   // of tokenizer.ggml.pre
  std::vector<const char*> expressions;  // in this order
  bool composes = false, ignores_merges = false, adds_bos = false;
};

std::span<const KnownPreTokenizer> known_pre_tokenizers() {
  static const KnownPreTokenizer kKnown[] = {
      {.names = {"gpt-2", "phi-2", "exaone4", "gigachat", "trillion", "granite-docling", "mellum",
                 "a.x-4.0"},
       .expressions = {kGpt2}},
      {.names = {kDefaultName},
       .expressions = {"[\\p{P}$+<=>^~|]+", kGpt2, kDigits, "[0-9][0-9][0-9]"}},
      {.names = {"olmo", "mpt"}, .expressions = {kGpt2}, .composes = true},
      {.names = {"smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b"},
       .expressions = {kDigit, kGpt2}},
      {.names = {"command-r"}, .expressions = {kDigit, kGpt2}, .composes = true},
      {.names = {"qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan"},
       .expressions = {kQwen2},
       .composes = true},
      {.names = {"megrez", "solar-open", "grok-2"}, .expressions = {kQwen2}},
      {.names = {"qwen35"}, .expressions = {kQwen35}, .composes = true},
      {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2",
                 "midm-2.0"},
       .expressions = {kLlama3},
       .ignores_merges = true,
       .adds_bos = true},
      {.names = {"glm4"}, .expressions = {kLlama3}, .ignores_merges = true},
      {.names = {"chatglm-bpe", "dbrx", "smaug-bpe"}, .expressions = {kLlama3}},
      {.names = {"minicpm5"}, .expressions = {kThreeDigits, kMiniCpm5}, .ignores_merges = true},
      {.names = {"seed-coder"}, .expressions = {kSeedCoder}},
      {.names = {"tekken"}, .expressions = {kTekken}, .ignores_merges = true, .adds_bos = true},
      {.names = {"gpt-4o", "llama4", "kanana2"}, .expressions = {kGpt4o}},
      {.names = {"deepseek-llm"},
       .expressions = {kLineEnd, kDeepseekLetters, kDeepseekSigns, "[" SPACE "]+$", kDeepseekAsian,
                       kDigits}},
      {.names = {"deepseek-coder"},
       .expressions = {kLineEnd, "[" SPACE "]?\\p{L}+", "[" SPACE "]?\\p{P}+", kDeepseekAsian,
                       kDigit}},
      {.names = {"deepseek-v3"},
       .expressions = {kThreeDigits, "[一-龥぀-ゟ゠-ヿ]+", kDeepseekV3}},
  };
  return kKnown;
}
#undef SPACE
#undef CONTRACTION
#undef TRAILING_SPACE
#undef UPPER
#undef LOWER
#undef CASED_WORDS
#undef SIGNS_AND_LINES

const KnownPreTokenizer& find_known(std::string_view name, std::string_view origin) {
  std::vector<std::string_view> names;
  for (const KnownPreTokenizer& known : known_pre_tokenizers()) {
    if (std::ranges::find(known.names, name) != known.names.end()) return known;
    names.insert(names.end(), known.names.begin(), known.names.end());
  }
  throw Error(Remedy::tokenizer_pre,
              "{}: the pre-tokenizer \"{}\" (tokenizer.ggml.pre) is not supported in this version; "
              "choose a "
              "model of one of these, or name one: {}",
              origin, printable(name), fmt::join(names, ", "));
}

struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

class Matcher {
 public:
  // For texts of n_bytes together.
  Matcher(const pcre2_code& code, std::size_t n_bytes)
      : code_(code),
        match_(pcre2_match_data_create_from_pattern(&code, nullptr)),
        context_(pcre2_match_context_create(nullptr)) {
    CHECK(match_ != nullptr && context_ != nullptr);
    // One backtrack a character and alternative, and few alternatives.
    const std::size_t n_steps_max = 1'000'000 + 16 * n_bytes;
    pcre2_set_match_limit(
        context_.get(), static_cast<std::uint32_t>(std::min<std::size_t>(n_steps_max, UINT32_MAX)));
  }

  // Appends the matches, and what is between them.
  void cut(std::string_view word, std::vector<std::string_view>& out) {
    const PCRE2_SIZE* found = pcre2_get_ovector_pointer(match_.get());
    for (std::size_t begin = 0; begin < word.size();) {
      const int status = pcre2_match(&code_, reinterpret_cast<PCRE2_SPTR>(word.data()), word.size(),
                                     begin, PCRE2_NO_UTF_CHECK, match_.get(), context_.get());
      if (status == PCRE2_ERROR_NOMATCH) {
        out.push_back(word.substr(begin));
        return;
      }
      if (status == PCRE2_ERROR_MATCHLIMIT || status == PCRE2_ERROR_JIT_STACKLIMIT ||
          status == PCRE2_ERROR_HEAPLIMIT || status == PCRE2_ERROR_NOMEMORY) {
        throw Error("a text of {} bytes needs too many steps to cut into words (PCRE2 error {})",
                    word.size(), status);
      }
      CHECK(status > 0 && found[0] >= begin && found[1] > found[0]);
      if (found[0] > begin) out.push_back(word.substr(begin, found[0] - begin));
      out.push_back(word.substr(found[0], found[1] - found[0]));
      begin = found[1];
    }
  }

 private:
  const pcre2_code& code_;
  const std::unique_ptr<pcre2_match_data, FreeMatch> match_;
  const std::unique_ptr<pcre2_match_context, FreeMatch> context_;
};

}  // namespace

PreTokenizer::PreTokenizer(std::string_view name, std::string_view origin) {
  const KnownPreTokenizer& known = find_known(name, origin);
  composes_ = known.composes;
  ignores_merges_ = known.ignores_merges;
  adds_bos_ = known.adds_bos;
  is_default_ = name == kDefaultName;
  for (const std::string_view expression : known.expressions) {
    int error = 0;
    PCRE2_SIZE error_offset = 0;
    stages_.emplace_back(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()),
                                       expression.size(), PCRE2_UTF | PCRE2_UCP, &error,
                                       &error_offset, nullptr));
    CHECK(stages_.back() != nullptr);
    // Where there is no JIT the interpreter gives the same words.
    pcre2_jit_compile(stages_.back().get(), PCRE2_JIT_COMPLETE);
  }
}

std::vector<std::string_view> PreTokenizer::split(std::string_view text) const {
  std::vector<std::string_view> words;
  if (!text.empty()) words.push_back(text);
  for (const auto& stage : stages_) {
    std::vector<std::string_view> cut;
    cut.reserve(words.size());
    Matcher matcher(*stage, text.size());
    for (const std::string_view word : words) matcher.cut(word, cut);
    words = std::move(cut);
  }
  return words;
}

}  // namespace outrider

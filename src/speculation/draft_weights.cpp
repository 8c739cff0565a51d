#include "speculation/draft_weights.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/numbers.h"
#include "base/plain_text.h"
#include "numerics/encode.h"
#include "speculation/draft_vocabulary.h"

namespace outrider {
namespace {

constexpr const char* kQuantize = "--draft-quantize";
constexpr const char* kVocabulary = "--draft-vocab";
constexpr const char* kQuantizeUsual = "q4_128";
constexpr const char* kVocabularyUsual = "32768";

std::string lower_name(TensorType type) {
  std::string name(traits(type).name);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

// "q4_0" and so on, off.
std::vector<std::string> quantize_choices() {
  std::vector<std::string> names;
  for (const TensorType type : encodable_types()) names.push_back(lower_name(type));
  names.emplace_back("off");
  return names;
}

std::optional<TensorType> parse_quantize(std::string_view text) {
  if (text == "off") return std::nullopt;
  for (const TensorType type : encodable_types())
    if (text == lower_name(type)) return type;
  throw Error("expected {}", fmt::join(quantize_choices(), " or "));
}

struct Vocabulary {
  std::optional<int> size;  // nothing: all
  std::string corpus;       // a file of text; empty: none
};

Vocabulary parse_vocabulary(std::string_view text) {
  const auto equals = text.find('=');
  const std::string_view size = text.substr(0, equals);
  const bool has_file = equals != std::string_view::npos;
  if (has_file && (size == "all" || equals + 1 == text.size()))
    throw Error("expected a number, and a file after =, as in 32768=letters.txt");
  Vocabulary vocabulary;
  if (has_file) vocabulary.corpus = text.substr(equals + 1);
  if (size == "all") return vocabulary;
  vocabulary.size = parse_number<int>(size);
  if (!vocabulary.size) throw Error("expected a whole number or all");
  if (*vocabulary.size < 1) throw Error("at least 1");
  return vocabulary;
}

std::string_view value_of(const DrafterFlagValues& flags, const char* flag, const char* usual) {
  const auto given = flags.find(flag);
  return given == flags.end() ? std::string_view(usual) : std::string_view(given->second);
}

}  // namespace

std::vector<DrafterFlag> draft_weight_flags() {
  return {{.name = kQuantize,
           .value = "TYPE",
           .standard = kQuantizeUsual,
           .help = "type in which a draft model's larger weights are encoded when it is loaded; "
                   "off: as in its file",
           .choices = quantize_choices(),
           .check = [](std::string_view value) { parse_quantize(value); }},
          {.name = kVocabulary,
           .value = "N[=FILE]",
           .standard = kVocabularyUsual,
           .help = "how many tokens a draft model may propose: the N most frequent of the text in "
                   "FILE and then of the vocabulary, and all tokens of the text in progress; all: "
                   "no limit. A head that names its tokens keeps those; others have 16384 where "
                   "nothing is given. Of no effect on a draft model of another vocabulary",
           .choices = {},
           .check = [](std::string_view value) { parse_vocabulary(value); }}};
}

std::optional<TensorType> draft_type(const DrafterFlagValues& flags) {
  return parse_quantize(value_of(flags, kQuantize, kQuantizeUsual));
}

void limit_outputs(LoadOptions& options, const Tokenizer& tokenizer, int vocabulary,
                   const DrafterFlagValues& flags, int usual) {
  auto [size, corpus] = parse_vocabulary(value_of(flags, kVocabulary, kVocabularyUsual));
  if (usual > 0 && !flags.contains(kVocabulary)) size = usual;
  if (!size || *size >= vocabulary) return;
  std::vector<Token> tokens;
  if (!corpus.empty()) {
    const MappedFile file(corpus);
    tokens = tokenizer.encode(plain_text(
        {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, corpus));
  }
  options.output_ids = frequent_tokens(tokenizer, tokens, *size);
  options.output_room = kDraftTokensOfTexts;
}

}  // namespace outrider

// How a draft model is asked for and loaded.

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/numbers.h"
#include "base/plain_text.h"
#include "numerics/encode.h"
#include "speculation/draft_vocabulary.h"
#include "speculation/drafter_kind.h"
#include "speculation/drafters/model.h"

namespace outrider {

const DrafterKind& model_kind();

namespace {

constexpr const char* kQuantize = "--draft-quantize";
constexpr const char* kVocabulary = "--draft-vocab";

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

LoadOptions load_options(LoadOptions options, const Tokenizer& target, const ModelSpec& spec,
                         const Tokenizer& tokenizer, const DrafterFlagValues& flags) {
  const DrafterKind& kind = model_kind();
  options.requantize = parse_quantize(flag_value(kind, flags, kQuantize));
  if (vocabulary_difference(target, tokenizer)) {
    const VocabularyMap vocabulary(target, tokenizer);
    if (const auto problem = vocabulary.problem())
      throw Error("the draft model cannot draft for this model: {}; choose one of the same family",
                  *problem);
    vocabulary.name_outputs(options);
    return options;
  }
  const auto [size, corpus] = parse_vocabulary(flag_value(kind, flags, kVocabulary));
  if (!size || *size >= spec.vocabulary) return options;
  std::vector<Token> tokens;
  if (!corpus.empty()) {
    const MappedFile file(corpus);
    tokens = tokenizer.encode(plain_text(
        {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, corpus));
  }
  options.output_ids = frequent_tokens(tokenizer, tokens, *size);
  options.output_room = kDraftTokensOfTexts;
  return options;
}

std::unique_ptr<Drafter> make(const DrafterContext& context) {
  ModelDrafterOptions options{.target_vocabulary = context.vocabulary};
  if (!context.model->options().output_names.empty()) {
    options.vocabulary =
        std::make_shared<VocabularyMap>(context.tokenizer, *context.model_tokenizer);
    if (context.note)
      context.note(fmt::format(
          "draft model {}: of another vocabulary, it proposes the {} tokens that both have "
          "({:.0f}% "
          "of the smaller one)",
          context.value, options.vocabulary->n_common(), 100 * options.vocabulary->overlap()));
  }
  return std::make_unique<ModelDrafter>(context.model, std::move(options));
}

}  // namespace

const DrafterKind& model_kind() {
  static const DrafterKind kind{
      .name = "model",
      .value = "MODEL",
      .help = "a small model, best of the same vocabulary",
      .flags =
          {{.name = kQuantize,
            .value = "TYPE",
            .standard = "q4_128",
            .help = "type in which a draft model's larger weights are encoded when it is loaded; "
                    "off: as in its file",
            .choices = quantize_choices(),
            .check = [](std::string_view value) { parse_quantize(value); }},
           {.name = kVocabulary,
            .value = "N[=FILE]",
            .standard = "32768",
            .help = "how many tokens a draft model may propose: the N most frequent of the text in "
                    "FILE and then of the vocabulary, and all tokens of the text in progress; all: "
                    "no limit. Of no effect on a draft model of another vocabulary",
            .choices = {},
            .check = [](std::string_view value) { parse_vocabulary(value); }}},
      .load_options = load_options,
      .make = make};
  return kind;
}

}  // namespace outrider

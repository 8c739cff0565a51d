// parallel=MODEL: a draft model that guesses several tokens in one pass. PARD, An et al. 2025,
// arXiv:2504.18583: after the text come rows of a mask token, one for each further token that it
// guesses.

#include "base/error.h"
#include "base/numbers.h"
#include "speculation/drafter_kind.h"
#include "speculation/drafters/model.h"

namespace outrider {

const DrafterKind& model_kind();
const DrafterKind& parallel_kind();

namespace {

constexpr const char* kMask = "--draft-mask";
constexpr const char* kMaskOfFile = "file";
constexpr int kTokens = 8;  // that the published models were trained for

int parse_mask(std::string_view text) {
  const auto token = parse_number<int>(text);
  if (!token || *token < 0) throw Error("expected the number of a token, or file");
  return *token;
}

Token mask_of(const DrafterContext& context) {
  const std::string_view flag = flag_value(parallel_kind(), context.flags, kMask);
  std::optional<std::int64_t> mask;
  if (flag != kMaskOfFile)
    mask = parse_mask(flag);
  else if (context.model_metadata)
    mask = context.model_metadata->integer(
        context.model_metadata->require_string("general.architecture") + ".pard_token");
  if (!mask)
    throw Error(
        "parallel={}: the file names no mask token (pard_token), so it may be no model of "
        "this kind; {} N names one",
        context.value, kMask);
  const int vocabulary = context.model->spec().vocabulary;
  if (*mask < 0 || *mask >= vocabulary)
    throw Error("parallel={}: mask token {} does not exist, the model has {}", context.value, *mask,
                vocabulary);
  return static_cast<Token>(*mask);
}

}  // namespace

const DrafterKind& parallel_kind() {
  static const DrafterKind kind{
      .name = "parallel",
      .value = "MODEL",
      .is_automatic = false,
      .help = "a small model that was trained to guess several tokens in one pass (PARD)",
      .flags = {{.name = kMask,
                 .value = "N",
                 .standard = kMaskOfFile,
                 .help = "token that stands for one that is not known yet; file: the one that the "
                         "file names",
                 .choices = {},
                 .check =
                     [](std::string_view value) {
                       if (value != kMaskOfFile) parse_mask(value);
                     }}},
      .load_options =
          [](LoadOptions options, const Tokenizer& target, const ModelSpec& spec,
             const Tokenizer& tokenizer, const DrafterFlagValues& flags) {
            if (const auto difference = vocabulary_difference(target, tokenizer))
              throw Error("parallel: the draft model's vocabulary is not the model's: {}",
                          *difference);
            return model_kind().load_options(std::move(options), target, spec, tokenizer, flags);
          },
      .make = [](const DrafterContext& context) -> std::unique_ptr<Drafter> {
        return std::make_unique<ModelDrafter>(
            context.model, ModelDrafterOptions{.target_vocabulary = context.vocabulary,
                                               .memory_bytes = 0,
                                               .mask = mask_of(context),
                                               .n_parallel = kTokens,
                                               .name = "parallel"});
      }};
  return kind;
}

}  // namespace outrider

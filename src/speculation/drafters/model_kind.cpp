// How a draft model is asked for and loaded.

#include "base/error.h"
#include "speculation/draft_weights.h"
#include "speculation/drafter_kind.h"
#include "speculation/drafters/model.h"

namespace outrider {

const DrafterKind& model_kind();

namespace {

LoadOptions load_options(LoadOptions options, const Tokenizer& target, const ModelSpec& spec,
                         const Tokenizer& tokenizer, const DrafterFlagValues& flags) {
  options.requantize = draft_type(flags);
  if (vocabulary_difference(target, tokenizer)) {
    const VocabularyMap vocabulary(target, tokenizer);
    if (const auto problem = vocabulary.problem())
      throw Error("the draft model cannot draft for this model: {}; choose one of the same family",
                  *problem);
    vocabulary.name_outputs(options);
    return options;
  }
  limit_outputs(options, tokenizer, spec.vocabulary, flags);
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
  static const DrafterKind kind{.name = "model",
                                .value = "MODEL",
                                .help = "a small model, best of the same vocabulary",
                                .flags = draft_weight_flags(),
                                .load_options = load_options,
                                .make = make};
  return kind;
}

}  // namespace outrider

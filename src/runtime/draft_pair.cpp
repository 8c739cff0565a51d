#include "runtime/draft_pair.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "formats/known_pairs.h"
#include "runtime/drafter_registry.h"
#include "runtime/head_file.h"
#include "speculation/vocabulary_map.h"

namespace outrider {

DraftPair compare_models(const OpenedModel& target, const BackendFactory& target_factory,
                         const OpenedModel& draft, const BackendFactory& draft_factory,
                         const DrafterFlagValues& flags) {
  constexpr double kCostMax = 1;  // a draft model that reads as much as its target brings nothing
  const auto template_of = [](const OpenedModel& model) {
    return model.model.checkpoint->metadata.string("tokenizer.chat_template");
  };
  const auto kinds = drafter_kinds();
  const DrafterKind& kind =
      **std::ranges::find_if(kinds, [](const DrafterKind* each) { return each->name == "model"; });
  const LoadOptions loaded;
  DraftPair pair{.problem = {},
                 .has_same_template = template_of(target) == template_of(draft),
                 .is_known = is_known_pair(known_model(target.model.checkpoint->metadata),
                                           known_model(draft.model.checkpoint->metadata))};
  if (vocabulary_difference(*target.tokenizer, *draft.tokenizer)) {
    const VocabularyMap vocabulary(*target.tokenizer, *draft.tokenizer);
    pair.overlap = vocabulary.overlap();
    pair.problem = vocabulary.problem();
    if (pair.problem) return pair;
  }
  const LoadOptions drafting =
      kind.load_options(loaded, *target.tokenizer, draft.model.spec, *draft.tokenizer, flags);
  pair.cost_ratio = static_cast<double>(draft_factory.memory_need(draft.model, drafting).weights) /
                    static_cast<double>(target_factory.memory_need(target.model, loaded).weights);
  if (pair.cost_ratio >= kCostMax)
    pair.problem =
        fmt::format("it costs {:.2f} of the model, and must be much cheaper", pair.cost_ratio);
  return pair;
}

HeadPair describe_head(const std::string& name, const OpenedModel& target,
                       const BackendFactory& factory, const LoadOptions& loaded,
                       const DrafterFlagValues& flags, const Progress& progress) {
  Head head = open_head(name, target);
  const auto kinds = drafter_kinds();
  const DrafterKind& kind =
      **std::ranges::find(kinds, drafter_of_head(*head.model.checkpoint), &DrafterKind::name);
  const LoadOptions drafting = kind.head_options(head, *target.tokenizer, flags);
  const ModelSpec& spec = head.model.spec;
  const bool is_medusa = spec.medusa.has_value();
  HeadPair pair{.kind = head.kind,
                .producer = head.producer,
                .taps = taps_of(spec, target.model.spec),
                .n_layers = is_medusa ? spec.medusa->n_heads : spec.n_layers(),
                .n_tokens = drafting.output_ids.empty()
                                ? spec.vocabulary
                                : static_cast<int>(drafting.output_ids.size()),
                .made_for = head.made_for,
                .block = spec.block};
  if (spec.block)
    for (const LayerSpec& layer : spec.layers) pair.windows.push_back(attention_of(layer)->window);
  if (pair.made_for)
    pair.is_for_this_file = pair.made_for->file ==
                            sha256_of_files(target.model.checkpoint->files, target.name, progress);
  const auto need_with = [&](Model model) {
    LoadOptions options = loaded;
    options.head = std::make_shared<const HeadToLoad>(HeadToLoad{std::move(model), drafting});
    return factory.memory_need(target.model, options);
  };
  const MemoryNeed alone = factory.memory_need(target.model, loaded);
  pair.both = need_with(head.model);
  pair.memory = {.weights = pair.both.weights - alone.weights,
                 .cache = pair.both.cache - alone.cache,
                 .working = pair.both.working - alone.working};
  // Levels go on from the head's own state: features are for the text's tokens alone.
  Model of_level = head.model;
  if (spec.block || (spec.eagle && spec.eagle->fused == EagleInput::Fused::features))
    of_level.weights[static_cast<std::size_t>(Role::feature_fusion)] = nullptr;
  pair.cost_ratio = static_cast<double>(need_with(of_level).weights - alone.weights) /
                    static_cast<double>(alone.weights);
  return pair;
}

}  // namespace outrider

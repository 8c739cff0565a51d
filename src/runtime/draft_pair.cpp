#include "runtime/draft_pair.h"

#include <algorithm>

#include "base/error.h"
#include "formats/known_pairs.h"
#include "runtime/drafter_registry.h"
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

}  // namespace outrider

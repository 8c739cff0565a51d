// Whether a model or a head can draft for a model, and what that is expected to cost.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "model/backend.h"
#include "model/made_for.h"
#include "runtime/opened_model.h"
#include "speculation/drafter_kind.h"

namespace outrider {

struct DraftPair {
  std::optional<std::string> problem;  // why it cannot; nothing: it can
  // Share of the smaller vocabulary that both have; nothing: it is the same vocabulary.
  std::optional<double> overlap = {};
  // Whether both files hold the same chat template. The draft model reads the target's either way,
  // and is right less often if it was not trained on it.
  bool has_same_template = false;
  bool is_known = false;  // formats/known_pairs.h names them as a pair
  // Bytes of weights that a pass of the draft model reads, as it is loaded for drafting, over the
  // target's: the ratio of their T(1), where memory bounds both.
  double cost_ratio = 0;
};

// flags: of the drafter "model".
DraftPair compare_models(const OpenedModel& target, const BackendFactory& target_factory,
                         const OpenedModel& draft, const BackendFactory& draft_factory,
                         const DrafterFlagValues& flags);

// A head beside its target.
struct HeadPair {
  std::string kind;        // as people call it: "EAGLE-3"
  std::string producer;    // by whose conventions its file was read
  std::vector<int> taps;   // what it reads of the target (kEmbeddingTap in model/spec.h)
  int n_layers = 0;        // its own; of Medusa's heads, how many there are
  int n_tokens = 0;        // that it can propose
  MemoryNeed memory = {};  // what it takes beside the target
  MemoryNeed both = {};
  // The model that it was made for, by its own word, and whether that is the target's file.
  std::optional<MadeFor> made_for = {};
  bool is_for_this_file = false;
  // What guesses blocks, with the windows of its layers.
  std::optional<BlockInput> block = {};
  std::vector<std::optional<int>> windows = {};
  // Bytes of weights that one level of drafts reads, or a block, or all of Medusa's heads, as they
  // are loaded, over the target's.
  double cost_ratio = 0;
};

// `name`: of the head's file (head_file.h). `loaded`: how the target is loaded. flags: of the
// drafter that runs the head. `progress` is told of hashing the target's file, if the head names
// one. Throws Error if the head is not the target's.
HeadPair describe_head(const std::string& name, const OpenedModel& target,
                       const BackendFactory& factory, const LoadOptions& loaded,
                       const DrafterFlagValues& flags, const Progress& progress);

}  // namespace outrider

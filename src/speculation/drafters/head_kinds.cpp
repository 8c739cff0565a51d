// eagle=HEAD, mtp=HEAD, dflash=HEAD, dspark=HEAD and medusa=HEAD: how heads are asked for and
// loaded.

#include <numeric>

#include "speculation/draft_weights.h"
#include "speculation/drafter_kind.h"
#include "speculation/drafters/block.h"
#include "speculation/drafters/eagle.h"
#include "speculation/drafters/medusa.h"

namespace outrider {

const DrafterKind& eagle_kind();
const DrafterKind& mtp_kind();
const DrafterKind& dflash_kind();
const DrafterKind& dspark_kind();
const DrafterKind& medusa_kind();

namespace {

// Outputs where neither the head nor a flag says which. A level of a head is so cheap that all
// outputs would be most of it: 15 to 21 % of T(1).
constexpr int kOutputs = 16384;

LoadOptions head_options(const Head& head, const Tokenizer& tokenizer,
                         const DrafterFlagValues& flags) {
  LoadOptions options;
  options.requantize = draft_type(flags);
  const int vocabulary = head.model.spec.vocabulary;
  if (!head.output_rows.empty()) {
    options.output_ids = head.output_rows;
    return options;
  }
  if (head.output_tokens.empty()) {
    limit_outputs(options, tokenizer, vocabulary, flags, kOutputs);
    return options;
  }
  options.output_ids.resize(head.output_tokens.size());
  std::iota(options.output_ids.begin(), options.output_ids.end(), 0);
  options.output_names = head.output_tokens;
  options.n_names = vocabulary;
  return options;
}

DrafterKind head_kind(const char* name, const char* help, decltype(DrafterKind::make) make) {
  return {.name = name,
          .value = "HEAD",
          .help = help,
          .head_options = head_options,
          .make = make,
          .uses_target = true};
}

using MadeDrafter = std::unique_ptr<Drafter>;

}  // namespace

const DrafterKind& eagle_kind() {
  static const DrafterKind kind =
      head_kind("eagle", "a head that goes on from the model's own layers (EAGLE)",
                [](const DrafterContext& context) -> MadeDrafter {
                  return std::make_unique<EagleDrafter>(context.target, "eagle");
                });
  return kind;
}

const DrafterKind& mtp_kind() {
  static const DrafterKind kind = [] {
    DrafterKind mtp = head_kind("mtp", "the model's own layer for multi-token prediction",
                                [](const DrafterContext& context) -> MadeDrafter {
                                  return std::make_unique<EagleDrafter>(context.target, "mtp");
                                });
    mtp.value_is_optional = true;
    return mtp;
  }();
  return kind;
}

const DrafterKind& dflash_kind() {
  static const DrafterKind kind =
      head_kind("dflash", "a head that guesses a block of tokens in one pass (DFlash)",
                [](const DrafterContext& context) -> MadeDrafter {
                  return std::make_unique<BlockDrafter>(context.target, "dflash");
                });
  return kind;
}

const DrafterKind& dspark_kind() {
  static const DrafterKind kind = head_kind(
      "dspark",
      "a head that guesses a block, in which each token depends on the one before (DSpark)",
      [](const DrafterContext& context) -> MadeDrafter {
        return std::make_unique<BlockDrafter>(context.target, "dspark");
      });
  return kind;
}

const DrafterKind& medusa_kind() {
  static const DrafterKind kind = head_kind(
      "medusa", "heads that each guess one further token from the model's last state (Medusa)",
      [](const DrafterContext& context) -> MadeDrafter {
        return std::make_unique<MedusaDrafter>(context.target);
      });
  return kind;
}

}  // namespace outrider

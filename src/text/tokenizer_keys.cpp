#include "text/tokenizer_keys.h"

#include <span>

namespace outrider {
namespace {

constexpr KeyUse kUnsupported = KeyUse::unsupported, kHarmless = KeyUse::harmless;
constexpr std::string_view kInfill = "of infilling; a prompt holds such tokens itself",
                           kBert = "of BERT's tokenizer",
                           kPairs = "of encoders, which put it between or behind texts",
                           kBpe = "of byte-level BPE", kSentencepiece = "of SentencePiece";

constexpr MetadataKey kShared[] = {
    {.name = "model"},
    {.name = "tokens"},
    {.name = "token_type", .otherwise = Computed{"all are normal"}},
    {.name = "eot_token_id", .otherwise = Computed{"found by its name"}},
    {.name = "eom_token_id", .otherwise = Computed{"found by its name"}},
    {.name = "suppress_tokens", .use = kUnsupported, .otherwise = Computed{"none"}},
    {.name = "padding_token_id", .use = kHarmless, .why = "texts of a batch need no padding"},
    {.name = "add_eos_token", .use = kHarmless, .why = "a prompt has not ended"},
    {.name = "add_sep_token", .use = kHarmless, .why = kPairs},
    {.name = "seperator_token_id", .use = kHarmless, .why = kPairs},
    {.name = "cls_token_id", .use = kHarmless, .why = kBert},
    {.name = "mask_token_id", .use = kHarmless, .why = kBert},
    {.name = "token_type_count", .use = kHarmless, .why = kBert},
    {.name = "normalizer.", .use = kHarmless, .why = kBert},
    {.name = "fim_pre_token_id", .use = kHarmless, .why = kInfill},
    {.name = "fim_suf_token_id", .use = kHarmless, .why = kInfill},
    {.name = "fim_mid_token_id", .use = kHarmless, .why = kInfill},
    {.name = "fim_pad_token_id", .use = kHarmless, .why = kInfill},
    {.name = "fim_rep_token_id", .use = kHarmless, .why = kInfill},
    {.name = "fim_sep_token_id", .use = kHarmless, .why = kInfill},
    {.name = "prefix_token_id", .use = kHarmless, .why = kInfill},
    {.name = "suffix_token_id", .use = kHarmless, .why = kInfill},
    {.name = "middle_token_id", .use = kHarmless, .why = kInfill},
    {.name = "added_tokens", .use = kHarmless, .why = "they are among the tokens, too"},
};

constexpr MetadataKey kByteBpe[] = {
    {.name = "pre"},
    {.name = "merges"},
    // llama.cpp's default is 11, Falcon's.
    {.name = "bos_token_id", .otherwise = Computed{"none"}},
    {.name = "eos_token_id", .otherwise = Computed{"found by its name"}},
    {.name = "add_bos_token", .otherwise = Computed{"as the pre-tokenizer has it"}},
    {.name = "unknown_token_id", .use = kHarmless, .why = "every byte has a token"},
    {.name = "scores", .use = kHarmless, .why = kSentencepiece},
    {.name = "add_space_prefix", .use = kHarmless, .why = kSentencepiece},
    {.name = "remove_extra_whitespaces", .use = kHarmless, .why = kSentencepiece},
    {.name = "precompiled_charsmap", .use = kHarmless, .why = kSentencepiece},
};

constexpr MetadataKey kSentencePiece[] = {
    {.name = "scores"},
    {.name = "bos_token_id", .otherwise = 1.0},
    {.name = "eos_token_id", .otherwise = 2.0},
    {.name = "unknown_token_id", .otherwise = Computed{"the first of type unknown"}},
    {.name = "add_bos_token", .otherwise = 1.0},
    {.name = "add_space_prefix", .otherwise = 1.0},
    {.name = "remove_extra_whitespaces", .use = kUnsupported, .otherwise = 0.0},
    {.name = "precompiled_charsmap", .use = kUnsupported, .otherwise = Computed{"none"}},
    {.name = "pre", .use = kHarmless, .why = kBpe},
    {.name = "merges", .use = kHarmless, .why = kBpe},
};

std::vector<MetadataKey> with_shared(std::span<const MetadataKey> own) {
  std::vector<MetadataKey> keys(own.begin(), own.end());
  keys.insert(keys.end(), std::begin(kShared), std::end(kShared));
  return keys;
}

}  // namespace

std::vector<MetadataKey> byte_bpe_keys() {
  return with_shared(kByteBpe);
}

std::vector<MetadataKey> sentencepiece_keys() {
  return with_shared(kSentencePiece);
}

}  // namespace outrider

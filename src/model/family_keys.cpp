#include "model/family_keys.h"

namespace outrider {
namespace {

constexpr KeyUse kLimits = KeyUse::limits, kUnsupported = KeyUse::unsupported,
                 kHarmless = KeyUse::harmless;
constexpr std::string_view kExperts = "of experts, which a dense model lacks";

constexpr MetadataKey kCommonKeys[] = {
    {.name = "context_length", .use = kLimits},
    {.name = "embedding_length"},
    {.name = "block_count"},
    {.name = "nextn_predict_layers", .otherwise = 0.0},
    {.name = "nextn.", .use = kHarmless, .why = "of the layer for prediction (--draft mtp)"},
    {.name = "pard_token",
     .use = kHarmless,
     .why = "of draft models that guess several tokens in one pass (--draft parallel=MODEL)"},
    {.name = "feed_forward_length", .may_be_by_layer = true},
    {.name = "hidden_activation", .otherwise = Computed{"the family's"}},
    {.name = "attention.head_count", .may_be_by_layer = true},
    {.name = "attention.head_count_kv",
     .otherwise = SameAs{"attention.head_count"},
     .may_be_by_layer = true},
    {.name = "attention.key_length",
     .otherwise = Computed{"embedding_length / attention.head_count"}},
    {.name = "attention.value_length",
     .otherwise = Computed{"embedding_length / attention.head_count"}},
    {.name = "attention.layer_norm_rms_epsilon"},
    {.name = "attention.layer_norm_epsilon",
     .use = kHarmless,
     .why = "of layer norms; the family has RMS norms"},
    {.name = "attention.sliding_window", .otherwise = 0.0},
    {.name = "attention.causal", .use = kUnsupported, .otherwise = 1.0},

    {.name = "rope.dimension_count", .otherwise = SameAs{"attention.key_length"}},
    {.name = "rope.freq_base", .otherwise = 10000.0},
    {.name = "rope.scaling.type", .otherwise = std::string_view("linear")},
    {.name = "rope.scaling.factor", .otherwise = SameAs{"rope.scale_linear"}},
    {.name = "rope.scale_linear", .otherwise = 1.0},
    {.name = "rope.scaling.original_context_length", .otherwise = SameAs{"context_length"}},
    {.name = "rope.scaling.attn_factor", .otherwise = 1.0},
    {.name = "rope.scaling.yarn_ext_factor", .otherwise = 1.0},
    {.name = "rope.scaling.yarn_attn_factor",
     .otherwise = Computed{"0.1 ln(factor) + 1, over the same with yarn_log_multiplier"}},
    {.name = "rope.scaling.yarn_beta_fast", .otherwise = 32.0},
    {.name = "rope.scaling.yarn_beta_slow", .otherwise = 1.0},
    {.name = "rope.scaling.yarn_log_multiplier", .otherwise = 0.0},

    {.name = "attention.key_length_swa",
     .use = kUnsupported,
     .otherwise = SameAs{"attention.key_length"}},
    {.name = "attention.value_length_swa",
     .use = kUnsupported,
     .otherwise = SameAs{"attention.value_length"}},
    {.name = "rope.dimension_count_swa",
     .use = kUnsupported,
     .otherwise = SameAs{"rope.dimension_count"}},
    {.name = "attention.sliding_window_pattern",
     .use = kUnsupported,
     .otherwise = Computed{"none, as all layers are alike"}},
    {.name = "expert_count", .use = kUnsupported, .otherwise = 0.0},
    {.name = "expert_used_count", .use = kUnsupported, .otherwise = 0.0},
    {.name = "expert_group_count", .use = kUnsupported, .otherwise = 0.0},
    {.name = "expert_group_used_count", .use = kHarmless, .why = kExperts},
    {.name = "expert_gating_func", .use = kHarmless, .why = kExperts},
    {.name = "pooling_type", .use = kUnsupported, .otherwise = 0.0},

    {.name = "vocab_size", .use = kHarmless, .why = "rows of token_embd.weight are counted"},
    {.name = "embedding_length_out", .use = kHarmless, .why = "of models of embeddings"},
    {.name = "classifier.", .use = kHarmless, .why = "of classifiers, whose tensors are refused"},
    {.name = "rope.scaling.finetuned", .use = kHarmless, .why = "how the model was trained"},
    {.name = "rope.scaling.alpha",
     .use = kHarmless,
     .why = "converters have multiplied rope.freq_base by it"},
    {.name = "tensor_data_layout", .use = kHarmless, .why = "nothing reads it"},
    {.name = "mm.", .use = kHarmless, .why = "of images and sound, which are left out"},
    {.name = "vision.", .use = kHarmless, .why = "of images and sound, which are left out"},
    {.name = "audio.", .use = kHarmless, .why = "of images and sound, which are left out"},
};

}  // namespace

std::span<const MetadataKey> common_keys() {
  return kCommonKeys;
}

}  // namespace outrider

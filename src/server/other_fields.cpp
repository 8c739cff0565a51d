#include "server/other_fields.h"

#include <initializer_list>
#include <utility>

namespace outrider {
namespace {

using Names = std::initializer_list<const char*>;
using Values = std::vector<std::string>;

class RefusedList {
 public:
  void add(Names names, const Values& accepted = {}, const std::string& remedy = {}) {
    for (const char* name : names) fields_.push_back({name, accepted, remedy});
  }
  std::vector<RefusedField> take() { return std::move(fields_); }

 private:
  std::vector<RefusedField> fields_;
};

// The order of our filters (numerics/choice.h), as llama.cpp names it, with or without those that
// are off here.
const Values kOurOrder = {
    R"(["penalties","dry","top_n_sigma","top_k","typ_p","top_p","min_p","xtc","temperature"])",
    R"(["penalties","dry","top_k","typ_p","top_p","min_p","xtc","temperature"])",
    R"(["dry","top_k","typ_p","top_p","min_p","xtc","temperature"])",
    R"(["top_k","typ_p","top_p","min_p","temperature"])",
    R"("edskypmxt")",
    R"("edkypmxt")",
};

std::vector<RefusedField> make_refused() {
  RefusedList list;
  // How tokens are chosen.
  list.add(
      {"mirostat_mode", "dry_multiplier", "xtc_probability", "dynatemp_range", "top_a",
       "epsilon_cutoff", "eta_cutoff", "smoothing_factor", "no_repeat_ngram_size", "penalty_alpha"},
      {"0"});
  list.add({"mirostat"}, {"0", "false"});
  list.add({"top_n_sigma", "nsigma"}, {"-1", "0"});
  list.add({"adaptive_target"}, {"-1"});
  list.add({"min_keep"}, {"0", "1"});
  list.add({"tfs", "tfs_z", "typ_p", "typical", "rep_pen", "guidance_scale", "num_beams",
            "encoder_repetition_penalty", "best_of", "length_penalty"},
           {"1"});
  list.add({"samplers"}, kOurOrder);
  list.add({"penalize_nl", "penalize_newline", "do_sample"}, {"true"});
  list.add({"use_beam_search", "early_stopping", "watermarking"}, {"false"});
  list.add({"negative_prompt"}, {R"("")"});
  list.add({"lora", "logits_processors"}, {"[]"});
  list.add({"vllm_xargs"}, {"{}"});
  list.add({"min_p", "presence_penalty", "frequency_penalty"}, {"0"});
  list.add({"typical_p", "repeat_penalty", "repetition_penalty"}, {"1"});
  list.add({"repeat_last_n", "rep_pen_range", "repetition_penalty_range", "sampler_order",
            "custom_logit_processor"});
  list.add({"dynamic_temperature"}, {"false"});
  list.add({"logit_bias"}, {"{}"});
  list.add({"prediction"});
  // Which tokens there may be.
  list.add({"grammar"}, {R"("")"});
  list.add({"guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs",
            "structural_tag", "json_schema", "output_format", "allowed_token_ids", "regex", "ebnf",
            "chat_format", "chat_parser"});
  list.add({"response_format"}, {R"({"type": "text"})"});
  list.add({"format"}, {R"("")"});
  list.add({"bad_words", "banned_tokens", "banned_strings", "custom_token_bans"}, {"[]"});
  // Where the answer ends.
  list.add({"n_predict", "num_predict"}, {"-1"}, "write it as `max_tokens`");
  list.add({"max_completion_tokens", "max_tokens_to_sample", "max_new_tokens", "max_length"}, {},
           "write it as `max_tokens`");
  list.add({"stop_words"}, {"[]"}, "write it as `stop`");
  list.add({"random_seed"}, {}, "write it as `seed`");
  list.add({"t_max_predict_ms"}, {"-1", "0"});
  list.add({"min_tokens", "n_indent"}, {"0"});
  list.add({"stop_token_ids"}, {"[]"});
  list.add({"stop"}, {"[]"}, "write it as `stop_sequences`");
  list.add({"stop_sequences"}, {"[]"}, "write it as `stop`");
  list.add({"ignore_eos", "ban_eos_token", "include_stop_str_in_output"}, {"false"});
  list.add({"repetition_detection"});
  list.add({"thinking_token_budget", "thinking_budget", "thinking_budget_tokens",
            "reasoning_budget_tokens"},
           {"-1"});
  list.add({"reasoning_budget_message"}, {R"("")"});
  // What the prompt is.
  list.add({"chat_template", "truncate_prompt_tokens", "prompt_embeds", "compaction", "thread",
            "container"});
  list.add({"documents", "images", "image_data", "context", "mcp_servers"}, {"[]"});
  list.add({"system", "system_prompt"}, {R"("")"}, "put it into the messages or the prompt");
  list.add({"template", "suffix", "generation_prompt", "prompt"}, {R"("")"});
  list.add({"raw", "add_special_tokens", "continue_final_message"}, {"false"});
  list.add({"add_generation_prompt"}, {"true"});
  list.add({"messages"}, {"[]"}, "use /v1/chat/completions");
  list.add({"tools"}, {"[]"});
  list.add({"functions"}, {"[]"}, "write them as `tools`");
  list.add({"parallel_tool_calls"}, {"true"});
  list.add({"tool_choice"}, {R"("none")", R"("auto")"});
  list.add({"function_call"}, {R"("none")", R"("auto")"}, "write it as `tool_choice`");
  list.add({"chat_template_kwargs", "options", "output_config"}, {"{}"});
  list.add({"reasoning_effort"});
  list.add({"reasoning", "think", "thinking", "enable_thinking"}, {},
           "in chats, `reasoning_effort` and `chat_template_kwargs` say it");
  list.add({"verbosity"}, {R"("medium")"});
  list.add({"web_search_options"});
  // What the answer tells.
  list.add({"n", "n_cmpl", "num_return_sequences"}, {"1"});
  list.add({"n_probs", "top_logprobs"}, {"0"});
  list.add({"logprobs"}, {"false"});
  list.add({"prompt_logprobs", "logprob_token_ids", "audio", "moderation"});
  list.add({"thinking_forced_open", "reasoning_in_content", "post_sampling_probs", "return_tokens",
            "return_token_ids", "return_prompt_text", "return_tokens_as_token_ids", "echo",
            "_debug_render_only"},
           {"false"});
  list.add({"skip_special_tokens", "spaces_between_special_tokens", "include_reasoning",
            "parse_tool_calls"},
           {"true"});
  list.add({"reasoning_format"}, {R"("auto")", R"("deepseek")"});
  list.add({"modalities"}, {R"(["text"])"});
  list.add({"speed"}, {R"("standard")"});
  return list.take();
}

std::vector<HarmlessField> make_harmless() {
  std::vector<HarmlessField> fields;
  const auto add = [&](Names names, const char* reason = "") {
    for (const char* name : names) fields.push_back({name, reason});
  };
  add({"user", "store", "metadata", "service_tier", "prompt_cache_key", "prompt_cache_options",
       "prompt_cache_retention", "safety_identifier", "cache_control", "cache_prompt", "request_id",
       "session_id", "inference_geo", "diagnostics", "user_profile_id", "workspace_id"});
  add({"id_slot", "slot_id", "n_cache_reuse", "keep_alive", "kv_transfer_params",
       "ec_transfer_params", "backend_sampling", "timings_per_token", "return_progress", "verbose",
       "sse_ping_interval", "stream_interval", "response_fields"});
  add({"num_ctx", "num_batch", "num_gpu", "num_thread", "main_gpu", "use_mmap", "use_mlock"},
      "the server's own settings hold");
  add({"n_keep", "num_keep", "n_discard", "truncate", "shift", "truncation_side",
       "context_management"},
      "nothing is taken out of a prompt");
  add({"mirostat_tau",
       "mirostat_eta",
       "dry_base",
       "dry_allowed_length",
       "dry_penalty_last_n",
       "dry_sequence_breakers",
       "xtc_threshold",
       "dynatemp_exponent",
       "adaptive_decay",
       "smoothing_curve",
       "grammar_lazy",
       "grammar_triggers",
       "grammar_type",
       "preserved_tokens",
       "guided_decoding_backend",
       "guided_whitespace_pattern",
       "reasoning_control",
       "reasoning_budget_start_tag",
       "reasoning_budget_end_tag",
       "reasoning_budget_end_tags",
       "media_io_kwargs",
       "mm_processor_kwargs"},
      "it belongs to what is refused unless it is off");
  add({"billing_policy", "fallback_credit_token"}, "nobody is billed");
  add({"fallbacks"}, "the model declines no request");
  add({"stream_options"}, "streams tell the usage anyway");
  return fields;
}

}  // namespace

const std::vector<RefusedField>& refused_fields() {
  static const std::vector<RefusedField> fields = make_refused();
  return fields;
}

const std::vector<HarmlessField>& harmless_fields() {
  static const std::vector<HarmlessField> fields = make_harmless();
  return fields;
}

}  // namespace outrider

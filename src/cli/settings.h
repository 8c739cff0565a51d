// The flags and arguments of a command line, with defaults for those not given.

#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "formats/catalog.h"
#include "model/backend.h"
#include "numerics/choice.h"
#include "runtime/sampling_defaults.h"
#include "speculation/drafter_kind.h"
#include "speculation/verifier.h"

namespace outrider {

enum class ColorMode { automatic, always, never };

struct Settings {
  std::vector<std::string> arguments;        // all words that are not flags
  std::set<std::string, std::less<>> given;  // flags, by the names that messages use

  std::string model = default_model().name;
  std::optional<std::string> model_draft;
  bool offline = false;
  std::string tokenizer_pre;  // empty: the model file's
  std::optional<int> threads, ctx_size;
  int batch_size = 512;
  CacheType cache_type = CacheType::f16;

  std::vector<std::string> prompt;
  std::optional<std::string> prompt_file, prompts_file, chat_file;
  std::optional<std::string> system_prompt;
  bool raw = false, no_special = false;
  std::optional<std::string> chat_template_file;
  std::string chat_template_kwargs;  // a JSON object; empty: none
  std::optional<bool> reasoning;

  std::optional<int> predict;
  std::vector<std::string> stop;
  bool ignore_eos = false;

  FilterSettings filters;
  int repeat_last_n = 64;
  std::vector<TokenBias> logit_bias;
  std::optional<std::uint64_t> seed;

  std::vector<std::string> draft;
  DrafterFlagValues drafter_flags;  // those that were given
  int draft_rows = 16, draft_depth = 16, draft_width = 4;
  bool planner_automatic = true;
  std::string verifier{kVerifierNames[0]};
  TypicalAcceptance typical_acceptance;
  std::optional<std::string> typical_flag;  // of these two, one that was given

  std::string host = "127.0.0.1";
  int port = 8080, parallel = 8, queue_max = 256, drain_seconds = 30, http_threads = 2;
  int request_seconds = 3600;
  bool share_cache = false;  // among API keys
  std::vector<std::string> aliases, api_keys, cors_origins;
  std::optional<std::string> api_key_file;
  std::optional<std::uint64_t> cache_memory;  // bytes
  std::optional<double> pause_ms_max;

  int repetitions = 1, depth = 0;
  std::optional<std::string> trace_file, log_file;
  std::optional<int> chunks;
  std::optional<std::string> logits_out, kl_divergence_base, out;
  std::optional<std::string> data, features;
  std::vector<std::string> without;
  std::uint64_t tokens = 1'000'000;
  double hours = 1;
  bool steps = false;
  bool json = false, csv = false, keep_learned = false, stored_profile = false, full = false,
       quiet = false, verbose = false, all = false, profile = false, help = false;
  ColorMode color = ColorMode::automatic;
};

}  // namespace outrider

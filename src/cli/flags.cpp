#include "cli/flags.h"

#include <algorithm>
#include <climits>
#include <limits>

#include "base/numbers.h"
#include "base/threads.h"
#include "cli/failure.h"
#include "formats/parse_json.h"
#include "runtime/drafter_registry.h"
#include "runtime/runtime.h"
#include "sampling/sampling.h"

namespace outrider {
namespace {

// What a flag does with its value, and the default of the field that it sets.
struct SettingsField {
  std::function<void(Settings&, std::string_view)> read;
  std::string standard;
  std::vector<std::string> choices = {};
};

template <typename T>
std::string standard_text(const T& value) {
  return fmt::format("{}", value);
}
template <typename T>
std::string standard_text(const std::optional<T>&) {
  return "";
}

template <typename T>
T in_range(std::string_view text, T least, T most) {
  const auto value = parse_number<T>(text);
  if (!value) {
    throw UsageError("expected {}", std::is_floating_point_v<T> ? "a number" : "a whole number");
  }
  if (*value < least) throw UsageError("at least {}", least);
  if (*value > most) throw UsageError("at most {}", most);
  return *value;
}

SettingsField integer(int Settings::*field, int least, int most = INT_MAX) {
  return {[=](Settings& settings, std::string_view text) {
            settings.*field = in_range(text, least, most);
          },
          standard_text(Settings{}.*field)};
}

SettingsField optional_integer(std::optional<int> Settings::*field, int least, int most,
                               std::string standard) {
  return {[=](Settings& settings, std::string_view text) {
            settings.*field = in_range(text, least, most);
          },
          std::move(standard)};
}

// `standard` holds the default where neither the user nor the model gives a value.
template <typename T>
SettingsField filter(std::optional<T> FilterSettings::*field, T Filters::*standard, T least,
                     T most) {
  return {[=](Settings& settings, std::string_view text) {
            settings.filters.*field = in_range(text, least, most);
          },
          standard_text(Filters{}.*standard)};
}

SettingsField temperature() {
  return {[](Settings& settings, std::string_view text) {
            const auto value = in_range(text, 0.0f, kFilterMax);
            if (!temperature_in_range(value))
              throw UsageError("0, or at least {}", kTemperatureMin);
            settings.filters.temperature = value;
          },
          standard_text(Filters{}.temperature)};
}

SettingsField typical_acceptance(const char* flag, double TypicalAcceptance::*field, double most) {
  return {[=](Settings& settings, std::string_view text) {
            settings.typical_acceptance.*field = in_range(text, 0.0, most);
            settings.typical_flag = flag;
          },
          standard_text(TypicalAcceptance{}.*field)};
}

SettingsField text(std::string Settings::*field) {
  return {[=](Settings& settings, std::string_view text) { settings.*field = text; },
          Settings{}.*field};
}

SettingsField optional_text(std::optional<std::string> Settings::*field) {
  return {[=](Settings& settings, std::string_view text) { settings.*field = text; }, ""};
}

SettingsField texts(std::vector<std::string> Settings::*field, bool may_be_empty) {
  return {[=](Settings& settings, std::string_view text) {
            if (text.empty() && !may_be_empty) throw UsageError("must not be empty");
            (settings.*field).emplace_back(text);
          },
          ""};
}

// Commas between them, as in llama-server.
void add_aliases(Settings& settings, std::string_view text) {
  while (true) {
    const std::size_t end = std::min(text.find(','), text.size());
    if (end == 0) throw UsageError("must not be empty");
    settings.aliases.emplace_back(text.substr(0, end));
    if (end == text.size()) return;
    text.remove_prefix(end + 1);
  }
}

SettingsField on(bool Settings::*field) {
  return {[=](Settings& settings, std::string_view) { settings.*field = true; }, ""};
}

// One of a few words; the first is the default.
template <typename T>
SettingsField choice(T Settings::*field, std::vector<std::pair<std::string, T>> values) {
  std::vector<std::string> names;
  for (const auto& value : values) names.push_back(value.first);
  return {[=](Settings& settings, std::string_view text) {
            for (const auto& [name, value] : values) {
              if (name == text) {
                settings.*field = value;
                return;
              }
            }
            throw UsageError("expected {}", fmt::join(names, " or "));
          },
          names[0], names};
}

// llama.cpp's form: TOKEN(+|-)BIAS.
void add_bias(Settings& settings, std::string_view text) {
  const auto sign = text.find_first_of("+-");
  std::optional<Token> token;
  std::optional<float> bias;
  if (sign != std::string_view::npos) {
    token = parse_number<Token>(text.substr(0, sign));
    bias = text.substr(sign) == "-inf" ? -std::numeric_limits<float>::infinity()
                                       : parse_number<float>(text.substr(sign));
  }
  if (!token || *token < 0 || !bias) {
    throw UsageError("expected a token's number and what to add, as in 15043+1 or 15043-inf");
  }
  settings.logit_bias.push_back({*token, *bias});
}

// A drafter's own flag: its text is checked and kept until the drafter is made.
SettingsField drafter_field(const DrafterFlag& flag) {
  return {[&flag](Settings& settings, std::string_view text) {
            if (flag.check) flag.check(text);
            settings.drafter_flags[flag.name] = text;
          },
          flag.standard, flag.choices};
}

void set_template_variables(Settings& settings, std::string_view text) {
  try {
    if (!parse_json(text, "x").is_object()) throw UsageError("expected a JSON object");
  } catch (const Error&) {
    throw UsageError("expected a JSON object");
  }
  settings.chat_template_kwargs = text;
}

// 512M, 8G, 1.5G, or bytes.
void set_cache_memory(Settings& settings, std::string_view text) {
  std::uint64_t unit = 1;
  if (!text.empty()) {
    const auto letter = std::string_view("KMGT").find(text.back());
    if (letter != std::string_view::npos) {
      unit = std::uint64_t{1} << (10 * (letter + 1));
      text.remove_suffix(1);
    }
  }
  const auto number = parse_number<double>(text);
  if (!number || !(*number > 0) || *number * static_cast<double>(unit) > 1e15)
    throw UsageError("expected a size, as in 512M or 8G");
  settings.cache_memory = static_cast<std::uint64_t>(*number * static_cast<double>(unit));
}

void set_pause(Settings& settings, std::string_view text) {
  settings.pause_ms_max = in_range(text, 1.0, 1e6);
}

void set_seed(Settings& settings, std::string_view text) {
  if (text == "-1") {  // llama.cpp's way to ask for a random one
    settings.seed.reset();
    return;
  }
  settings.seed = in_range<std::uint64_t>(text, 0, ~std::uint64_t{0});
}

std::vector<Flag> make_flags() {
  using enum FlagGroup;
  using enum FlagSet;

  std::vector<Flag> list;
  const auto add = [&](std::vector<std::string> names, std::string value, FlagGroup group,
                       FlagSet set, SettingsField field, std::string help) {
    list.push_back({std::move(names), std::move(value), std::move(field.standard), std::move(help),
                    group, set, std::move(field.read), std::move(field.choices)});
  };

  add({"-m", "--model"}, "MODEL", model, loading, text(&Settings::model),
      "a name of the catalogue, downloaded if it is missing, or a .gguf file");
  add({"-md", "--model-draft"}, "MODEL", model, generating, optional_text(&Settings::model_draft),
      "a smaller model, best of the same vocabulary, or a learned head; --draft auto then uses it "
      "as a drafter");
  add({"--offline"}, "", model, loading, on(&Settings::offline), "never download a model");
  add({"--tokenizer-pre"}, "NAME", model, loading, text(&Settings::tokenizer_pre),
      "how text is cut into words before it becomes tokens (tokenizer.ggml.pre), where the model "
      "file does not say it or says it wrong");
  add({"-t", "--threads"}, "N", model, loading,
      optional_integer(&Settings::threads, 1, 1024, "physical cores that this process may use"),
      "number of threads that compute");
  add({"-c", "--ctx-size"}, "N", model, generating,
      optional_integer(&Settings::ctx_size, 1, 1 << 20,  // as far as rope's tables are exact
                       fmt::format("what the model was trained for, at most {}, less if memory is "
                                   "short",
                                   kContextMax)),
      "tokens of context: prompt and answer together");
  add({"-b", "--batch-size"}, "N", model, generating, integer(&Settings::batch_size, 1, 4096),
      "prompt tokens read in one pass, at most");
  add({"--cache-type"}, "TYPE", model, loading,
      choice<CacheType>(
          &Settings::cache_type,
          {{"f16", CacheType::f16}, {"q8_0", CacheType::q8_0}, {"f32", CacheType::f32}}),
      "how keys and values are stored: q8_0 takes half the memory of f16, f32 twice as much");

  add({"-p", "--prompt"}, "TEXT", prompt, named, texts(&Settings::prompt, true),
      "the prompt; - reads standard input; may be repeated for prove");
  add({"-f", "--file"}, "FILE", prompt, named, optional_text(&Settings::prompt_file),
      "a file with the prompt in UTF-8, without its last line end, CR LF counting as LF; - is "
      "standard input");
  add({"--prompts"}, "FILE", prompt, named, optional_text(&Settings::prompts_file),
      "a file of prompts: JSON lines with prompt and, optionally, group and prediction, or the "
      "format of Spec-Bench");
  add({"--chat"}, "FILE", prompt, named, optional_text(&Settings::chat_file),
      "a conversation as OpenAI messages in JSON, written by the model's template; - is standard "
      "input");
  add({"-sys", "--system-prompt"}, "TEXT", prompt, generating,
      optional_text(&Settings::system_prompt), "the system message that begins the conversation");
  add({"--chat-template-file"}, "FILE", prompt, generating,
      optional_text(&Settings::chat_template_file),
      "a chat template in Jinja, instead of the one in the model file");
  add({"--chat-template-kwargs"}, "JSON", prompt, generating,
      SettingsField{set_template_variables, ""},
      "variables for the chat template, as in '{\"enable_thinking\": false}'");
  add({"--reasoning"}, "HOW", prompt, generating,
      choice<std::optional<bool>>(&Settings::reasoning,
                                  {{"auto", std::nullopt}, {"on", true}, {"off", false}}),
      "whether the model reasons before it answers, where its chat template can say so");
  add({"--raw"}, "", prompt, generating, on(&Settings::raw),
      "no chat template: the model continues the prompt as it is; special tokens in it are "
      "recognised");
  add({"--no-special"}, "", prompt, generating, on(&Settings::no_special),
      "treat special tokens in a raw prompt as plain text");

  add({"-n", "--n-predict", "--predict"}, "N", generation, generating,
      optional_integer(&Settings::predict, -1, INT_MAX, "-1; prove and bench generate: 256"),
      "tokens to generate, at most; -1: until the answer ends");
  add({"--stop"}, "TEXT", generation, generating, texts(&Settings::stop, false),
      "end the answer before this text; may be repeated");
  add({"--ignore-eos"}, "", generation, generating, on(&Settings::ignore_eos),
      "continue where the model would end");
  add({"--repeat"}, "N", generation, named, integer(&Settings::repetitions, 1, 1000),
      "how often everything is measured");
  add({"--keep-learned"}, "", generation, named, on(&Settings::keep_learned),
      "drafters keep what earlier answers taught them");
  add({"--stored-profile"}, "", generation, named, on(&Settings::stored_profile),
      "each --draft begins with what `run` has learned with it here; nothing is stored");
  add({"--full"}, "", generation, named, on(&Settings::full),
      "without a prompt: longer answers and more samples");
  add({"-d", "--n-depth", "--depth"}, "N", generation, named,
      integer(&Settings::depth, 0, (1 << 20) - 512), "positions of text before each pass");

  add({"--chunks"}, "N", generation, named, optional_integer(&Settings::chunks, 1, INT_MAX, "all"),
      "chunks of the text, at most");
  add({"--data"}, "FILE", prompt, named, optional_text(&Settings::data),
      "prompts to learn from, in the formats of --prompts (default: half of them the model's own, "
      "half built from texts on this machine)");
  add({"--without"}, "FILE", prompt, named, texts(&Settings::without, false),
      "prompts to measure with, in the formats of --prompts: no text is learned from that shares "
      "13 words in a row with one of them; may be repeated");
  add({"--tokens"}, "N", generation, named,
      SettingsField{[](Settings& settings, std::string_view text) {
                      settings.tokens = in_range<std::uint64_t>(text, 1, 1'000'000'000'000);
                    },
                    standard_text(Settings{}.tokens)},
      "tokens of answers, at least; train: as many as two fifths of --hours give");
  add({"--hours"}, "H", generation, named,
      SettingsField{[](Settings& settings, std::string_view text) {
                      settings.hours = in_range(text, 0.01, 10'000.0);
                    },
                    standard_text(Settings{}.hours)},
      "how long all of it may take: two fifths for answers, then training, then measuring");
  add({"--features"}, "FOLDER", prompt, named, optional_text(&Settings::features),
      "learn from this folder, which features has made, instead of making one");
  add({"-o", "--out"}, "FILE", output, named, optional_text(&Settings::out),
      "the file or folder to write");
  add({"--logits-out"}, "FILE", output, named, optional_text(&Settings::logits_out),
      "store the logits of all predictions as a matrix in NumPy's format (.npy)");
  add({"--kl-divergence-base"}, "FILE", output, named, optional_text(&Settings::kl_divergence_base),
      "compare with the logits of this file, which --logits-out stored");

  add({"-s", "--seed"}, "N", sampling, generating, SettingsField{set_seed, "random, and printed"},
      "seed of the random choices: the same seed gives the same text. With --verify rejection only "
      "for a single prompt, with --budget fixed and the same drafters, flags and build");
  add({"--temperature", "--temp"}, "T", sampling, generating, temperature(),
      "randomness of choices; 0: always the best token");
  add({"--top-k"}, "N", sampling, generating,
      filter(&FilterSettings::top_k, &Filters::top_k, 0, INT_MAX),
      "only the N best tokens; 0: all");
  add({"--typical-p", "--typical"}, "P", sampling, generating,
      filter(&FilterSettings::typical_p, &Filters::typical_p, 0.0f, 1.0f),
      "only the most typical tokens whose probabilities add up to P; 1: all");
  add({"--top-p"}, "P", sampling, generating,
      filter(&FilterSettings::top_p, &Filters::top_p, 0.0f, 1.0f),
      "only the best tokens whose probabilities add up to P; 1: all");
  add({"--min-p"}, "P", sampling, generating,
      filter(&FilterSettings::min_p, &Filters::min_p, 0.0f, 1.0f),
      "only tokens at least P times as probable as the best; 0: all");
  add({"--repeat-penalty"}, "X", sampling, generating,
      filter(&FilterSettings::repeat_penalty, &Filters::repeat_penalty, kRepeatPenaltyMin,
             kFilterMax),
      "makes tokens of the recent text less likely; 1: off");
  add({"--repeat-last-n"}, "N", sampling, generating, integer(&Settings::repeat_last_n, -1),
      "how many recent tokens the penalties apply to; 0: none, -1: all");
  add({"--presence-penalty"}, "X", sampling, generating,
      filter(&FilterSettings::presence_penalty, &Filters::presence_penalty, -kFilterMax,
             kFilterMax),
      "subtracted once from the logit of a token of the recent text");
  add({"--frequency-penalty"}, "X", sampling, generating,
      filter(&FilterSettings::frequency_penalty, &Filters::frequency_penalty, -kFilterMax,
             kFilterMax),
      "subtracted from a token's logit each time that it appears in the recent text");
  add({"--logit-bias"}, "TOKEN±X", sampling, generating, SettingsField{add_bias, ""},
      "add X to a token's logit, as in 15043+1 or 15043-inf; may be repeated");

  add({"--draft"}, "HOW", speculation, generating, texts(&Settings::draft, false),
      fmt::format("off, auto, or drafters joined by +: {}; may be repeated for prove and bench "
                  "generate, which take all, too: off, each drafter and auto (default: auto; for "
                  "these two: off and auto)",
                  drafter_names()));
  for (const DrafterKind* kind : drafter_kinds())
    for (const DrafterFlag& flag : kind->flags)
      add({flag.name}, flag.value, speculation, generating, drafter_field(flag), flag.help);
  add({"--draft-rows"}, "N", speculation, generating, integer(&Settings::draft_rows, 0, 64),
      "drafted tokens checked in one pass, at most, and rows that look ahead (lookahead) among "
      "them");
  add({"--draft-depth"}, "N", speculation, generating, integer(&Settings::draft_depth, 1, 64),
      "length of a draft in tokens, at most");
  add({"--draft-width"}, "N", speculation, generating, integer(&Settings::draft_width, 1, 64),
      "alternatives drafted for one token, at most");
  add({"--budget"}, "HOW", speculation, generating,
      choice<bool>(&Settings::planner_automatic, {{"auto", true}, {"fixed", false}}),
      "auto: check the drafts that pay by measured time; fixed: always use the limits as given");
  add({"--verify"}, "HOW", speculation, generating,
      choice<std::string>(
          &Settings::verifier,
          {{"coupled", "coupled"}, {"rejection", "rejection"}, {"typical", "typical"}}),
      "which drafted tokens become text. coupled: those that the model would say with this seed, "
      "as plain decoding would; rejection: by rejection sampling, which keeps the model's "
      "distribution; typical: those that are probable enough, which is lossy: the distribution "
      "changes");
  add({"--typical-epsilon"}, "P", speculation, generating,
      typical_acceptance("--typical-epsilon", &TypicalAcceptance::epsilon, 1),
      "with --verify typical: a drafted token that is more probable than P is accepted (unlike "
      "--typical-p, which filters)");
  add({"--typical-delta"}, "X", speculation, generating,
      typical_acceptance("--typical-delta", &TypicalAcceptance::delta, kFilterMax),
      "the same for X times exp(-entropy) of the model's distribution, where that is less than P");

  add({"--steps"}, "", output, generating, on(&Settings::steps),
      "each pass on standard error: rows, accepted drafts, time, and the drafts as a tree: who "
      "drafted what, and what the model says after it");
  add({"--host"}, "ADDRESS", server, named, text(&Settings::host),
      "address to listen on; 0.0.0.0 or ::, all of this machine's, which others can reach");
  add({"--port"}, "N", server, named, integer(&Settings::port, 0, 65535),
      "port to listen on; 0: a free one, which is printed");
  add({"-a", "--alias"}, "NAME", server, named, SettingsField{add_aliases, ""},
      "a name that requests may give the model, and that answers carry; *: any; may be repeated, "
      "or hold several names with commas");
  add({"-np", "--parallel"}, "N", server, named, integer(&Settings::parallel, 1, 256),
      "requests that are answered at once; others wait. features and train: answers at a time, 32 "
      "unless given");
  add({"--cache-memory"}, "SIZE", server, named, SettingsField{set_cache_memory, ""},
      "memory for the keys and values of all requests, as in 8G (default: what all need at their "
      "longest, at most half of what is available)");
  add({"--max-pause-ms"}, "MS", server, named, SettingsField{set_pause, ""},
      "how long answers in progress may wait for a step that also reads a prompt, its drafts left "
      "out (default: less than twice as long as without, more where most requests read)");
  add({"--max-queue"}, "N", server, named, integer(&Settings::queue_max, 1, 1 << 20),
      "requests that may wait; others get status 429");
  add({"--request-seconds"}, "N", server, named, integer(&Settings::request_seconds, 1, 1 << 30),
      "how long a request may take with its waiting; then its answer ends as at a token limit, or "
      "gets status 503 if it has not begun");
  add({"--drain-seconds"}, "N", server, named, integer(&Settings::drain_seconds, 0, 86400),
      "how long answers in progress may go on after SIGTERM or Ctrl-C; a second one ends them");
  add({"--api-key"}, "KEY", server, named, texts(&Settings::api_keys, false),
      "requests must show this key; may be repeated. Others can see it in the list of processes: "
      "--api-key-file is safer");
  add({"--api-key-file"}, "FILE", server, named, optional_text(&Settings::api_key_file),
      "a file with a key on each line");
  add({"--share-cache"}, "", server, named, on(&Settings::share_cache),
      "requests with different keys share cached prompts and what drafts are made from");
  add({"--cors-origin"}, "ORIGIN", server, named, texts(&Settings::cors_origins, false),
      "a web page's origin, as in https://chat.example, whose scripts may ask; *: any; may be "
      "repeated");
  add({"--threads-http"}, "N", server, named, integer(&Settings::http_threads, 1, 64),
      "threads that read requests and write answers");

  add({"--json"}, "", output, loading, on(&Settings::json), "one JSON document on standard output");
  add({"--csv"}, "", output, named, on(&Settings::csv),
      "a line per answer on standard output, comma-separated");
  add({"--all"}, "", output, named, on(&Settings::all),
      "list: also models that can be downloaded; inspect: also long values and every tensor; bench "
      "curve: every number of rows; bench generate: also what drafts of this acceptance should "
      "give");
  add({"--profile"}, "", output, named, on(&Settings::profile),
      "also the time of each operation, for 1, 4, 8 and 16 rows");
  add({"--trace"}, "FILE", output, generating, optional_text(&Settings::trace_file),
      "write a line of JSON for each step: what was drafted, checked and accepted");
  add({"--log-file"}, "FILE", output, loading, optional_text(&Settings::log_file),
      "append errors and what --verbose shows to this file");
  add({"-q", "--quiet"}, "", output, loading, on(&Settings::quiet),
      "nothing on standard error but errors");
  add({"-v", "--verbose"}, "", output, loading, on(&Settings::verbose), "more on standard error");
  add({"--color"}, "WHEN", output, every,
      choice<ColorMode>(&Settings::color, {{"auto", ColorMode::automatic},
                                           {"always", ColorMode::always},
                                           {"never", ColorMode::never}}),
      "show accepted draft tokens in colour; auto: on a terminal, unless NO_COLOR is set");
  add({"-h", "--help"}, "", output, every, on(&Settings::help), "print this help and exit");
  return list;
}

}  // namespace

std::string_view title(FlagGroup group) {
  switch (group) {
    case FlagGroup::model: return "Model";
    case FlagGroup::prompt: return "Prompt";
    case FlagGroup::generation: return "Generation";
    case FlagGroup::sampling: return "Sampling";
    case FlagGroup::speculation: return "Speculation";
    case FlagGroup::server: return "Server";
    case FlagGroup::output: return "Output";
  }
  return "";
}

std::span<const Flag> flags() {
  static const std::vector<Flag> list = make_flags();
  return list;
}

}  // namespace outrider

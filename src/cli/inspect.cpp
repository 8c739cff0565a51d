#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json.h"
#include "cli/model_name.h"
#include "formats/known_pairs.h"
#include "runtime/draft_pair.h"
#include "runtime/head_file.h"
#include "runtime/memory.h"
#include "text/vocabulary_fingerprint.h"

namespace outrider {
namespace {

constexpr std::size_t kShownMax = 60;  // characters of a value, without --all

template <typename T>
constexpr bool is_list = false;
template <typename T>
constexpr bool is_list<std::vector<T>> = true;

// Long lists (a vocabulary) as their length and first members, unless `all`.
Json value_json(const MetadataValue& value, bool all) {
  return std::visit(
      [&](const auto& x) -> Json {
        using T = std::decay_t<decltype(x)>;
        if constexpr (is_list<T>) {
          constexpr std::size_t kMembers = 8;
          Json list = Json::array();
          for (std::size_t i = 0; i < x.size() && (all || i < kMembers); ++i) {
            list.push_back(static_cast<typename T::value_type>(x[i]));
          }
          if (list.size() == x.size()) return list;
          return {{"length", x.size()}, {"first", list}};
        } else {
          return x;
        }
      },
      value);
}

std::string value_text(const MetadataValue& value, bool all) {
  std::string text = json_text(value_json(value, all));
  if (all || text.size() <= kShownMax) return text;
  text.resize(kShownMax);
  text.resize(text.size() - unfinished_suffix(text));  // whole characters
  return text + "…";
}

std::string shape_text(const TensorView& tensor) {
  return fmt::format("{}", fmt::join(tensor.shape, " x "));
}

// What becomes of the keys of a file: those of its family, if the model can be run, and of its
// tokenizer.
struct KeyReport {
  std::vector<TakenKey> keys;
  std::vector<std::string> warnings;
  std::string tokenizer_problem;
  std::string vocabulary;  // its fingerprint

  // "" for a key that is used; why another one is not.
  std::string why_unused(const std::string& name) const {
    for (const TakenKey& key : keys) {
      if (stands_for(key.name, name) && key.row.use == KeyUse::harmless)
        return std::string(key.row.why);
    }
    return {};
  }
  // Whether what the file lacks has a default worth showing.
  static bool has_default(const TakenKey& key) {
    const bool is_used = key.row.use == KeyUse::computes || key.row.use == KeyUse::limits;
    return is_used && !key.is_in_file && !std::holds_alternative<Required>(key.row.otherwise);
  }
};

KeyReport key_report(const Checkpoint& checkpoint, const std::optional<Model>& model,
                     const std::string& tokenizer_pre) {
  KeyReport report;
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  if (model) {
    append(report.keys, taken_keys(*model));
    append(report.warnings, model->warnings);
  }
  try {
    append(report.keys, tokenizer_keys(checkpoint.metadata));
    const auto tokenizer = make_tokenizer(checkpoint.metadata, tokenizer_pre);
    report.vocabulary = hex_of(vocabulary_fingerprint(*tokenizer));
    const auto chat_template = make_chat_template(checkpoint.metadata, *tokenizer);
    append(report.warnings, text_warnings(checkpoint.metadata, *tokenizer, chat_template.get()));
    if (chat_template && chat_template->problem())
      report.warnings.push_back(*chat_template->problem());
  } catch (const Error& error) {
    report.tokenizer_problem = message_of(error);
  }
  return report;
}

// How well the model of -md suits this one. Throws Error if one of them cannot be run.
DraftPair pair_of(const Machine& machine, const Settings& settings, const std::string& name,
                  Console& console) {
  const TextSettings text{.tokenizer_pre = settings.tokenizer_pre};
  const OpenedModel target =
      open_model(checked_model_name(name), pull_options(settings, console), text);
  const OpenedModel draft =
      open_model(checked_model_name(*settings.model_draft), pull_options(settings, console), text);
  console.clear();
  return compare_models(target, machine.choose_factory(target.model), draft,
                        machine.choose_factory(draft.model), settings.drafter_flags);
}

// What the head of -md costs. Throws Error if it is not this model's.
HeadPair head_pair_of(const Machine& machine, const Settings& settings, const std::string& name,
                      const std::string& head_name, const LoadOptions& loaded, Console& console) {
  const OpenedModel target = open_model(checked_model_name(name), pull_options(settings, console),
                                        {.tokenizer_pre = settings.tokenizer_pre});
  HeadPair head = describe_head(head_name, target, machine.choose_factory(target.model), loaded,
                                settings.drafter_flags, console.progress());
  console.clear();
  return head;
}

Json json_of(const MemoryNeed& need) {
  return {{"bytes", need.total()},
          {"weights", need.weights},
          {"cache", need.cache},
          {"working", need.working}};
}

bool fits(const MemoryNeed& need) {
  return need.total() <= plannable_memory_bytes();
}

// "layers"; what Medusa's are is heads.
std::string parts_text(const HeadPair& head) {
  const char* const part = head.kind == "Medusa" ? "head" : "layer";
  return fmt::format("{}{}", part, head.n_layers == 1 ? "" : "s");
}

// "the embedding, layers 2, 5, the last norm".
std::string taps_text(std::span<const int> taps, int n_layers) {
  std::vector<std::string> names;
  const auto is_layer = [&](int tap) { return tap != kEmbeddingTap && tap != n_layers; };
  bool is_first = true;
  for (const int tap : taps) {
    if (!is_layer(tap)) {
      names.push_back(tap == kEmbeddingTap ? "the embedding" : "the last norm");
      continue;
    }
    const char* const word = std::ranges::count_if(taps, is_layer) > 1 ? "layers " : "layer ";
    names.push_back(fmt::format("{}{}", std::exchange(is_first, false) ? word : "", tap));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

// What a head says that it was made for, as its config.json does, and whether that is this file.
Json json_of(const MadeFor& made_for, bool is_this_file) {
  Json json = {{"name", made_for.name},
               {"file", made_for.file},
               {"vocabulary", made_for.vocabulary},
               {"embedding", made_for.embedding},
               {"layers", made_for.n_layers},
               {"vocabulary_size", made_for.vocabulary_size},
               {"is_this_file", is_this_file}};
  if (made_for.agreement) {
    json["agreement"] = {{"right", made_for.agreement->right},
                         {"places", made_for.agreement->places}};
    if (!made_for.type.empty()) json["agreement"]["type"] = made_for.type;
  }
  return json;
}

std::string text_of(const MadeFor& made_for, bool is_this_file) {
  std::string text =
      fmt::format("  made for {}, {}", printable(made_for.name),
                  is_this_file ? "this very file" : "another file of this shape and vocabulary");
  if (made_for.agreement)
    text += fmt::format("; right at {:.0f}% of {} places of a sample text{}{}",
                        100 * made_for.agreement->share(), made_for.agreement->places,
                        made_for.type.empty() ? "" : " as " + printable(made_for.type),
                        is_this_file ? "" : " with that file");
  return text + "\n";
}

const char* cost_unit(const HeadPair& head) {
  if (head.block) return "a block";
  return head.kind == "Medusa" ? "a draft" : "a level of drafts";
}

// windows: of each layer, all with the same one where they have one.
Json json_of(const BlockInput& block, std::span<const std::optional<int>> windows) {
  Json json = {{"rows", block.n_rows},
               {"guesses", block.n_guesses()},
               {"mask", block.mask},
               {"windows", Json::array()},
               {"markov_rank", block.successor_rank},
               {"markov_memory", block.successors_remember},
               {"confidence", block.has_confidence}};
  for (const std::optional<int>& window : windows)
    json["windows"].push_back(window ? Json(*window) : Json());
  return json;
}

std::string text_of(const BlockInput& block, std::span<const std::optional<int>> windows) {
  std::string text = fmt::format("  a block of {} rows guesses {} tokens; the mask is token {}",
                                 block.n_rows, block.n_guesses(), block.mask);
  if (const auto n = std::ranges::count_if(windows, &std::optional<int>::has_value); n > 0)
    text += fmt::format("; {} of {} layers {} a window of {}", n, windows.size(),
                        n == 1 ? "has" : "have",
                        **std::ranges::find_if(windows, &std::optional<int>::has_value));
  if (block.successor_rank > 0)
    text += fmt::format("; Markov head of rank {}{}", block.successor_rank,
                        block.successors_remember ? " with a memory" : "");
  return text + (block.has_confidence ? "; states its confidence\n" : "\n");
}

std::string text_of(const HeadPair& head, const Model& target, int context) {
  std::string text =
      fmt::format("  {} of {}: {} {}, reads the outputs of {} (of {})\n", head.kind, head.producer,
                  head.n_layers, parts_text(head), taps_text(head.taps, target.spec.n_layers()),
                  target.spec.n_layers());
  if (head.block) text += text_of(*head.block, head.windows);
  text += head.n_tokens == target.spec.vocabulary
              ? fmt::format("  can propose all {} tokens", head.n_tokens)
              : fmt::format("  can propose {} of {} tokens", head.n_tokens, target.spec.vocabulary);
  text += fmt::format("; {} costs about {:.3f} of the model's pass\n", cost_unit(head),
                      head.cost_ratio);
  if (head.made_for) text += text_of(*head.made_for, head.is_for_this_file);
  text += fmt::format("  {} more for a context of {}: weights {}, cache {}, working {}\n",
                      human_bytes(head.memory.total()), context, human_bytes(head.memory.weights),
                      human_bytes(head.memory.cache), human_bytes(head.memory.working));
  text += fmt::format("  with the model {}: {}\n", human_bytes(head.both.total()),
                      fits(head.both) ? "fits" : "does not fit; choose a shorter context (-c)");
  return text;
}

int inspect(const Machine& machine, const Settings& settings) {
  if (!settings.arguments.empty() && settings.given.contains("--model")) {
    throw UsageError("{}: --model {} is given, too; inspect shows one model", settings.arguments[0],
                     settings.model);
  }
  Console console(settings);
  const std::string& name = settings.arguments.empty() ? settings.model : settings.arguments[0];
  const auto checkpoint =
      open_checkpoint(checked_model_name(name), pull_options(settings, console));
  console.clear();

  // A file can be readable without being a model that this program runs: show it, with the reason.
  std::optional<Model> model;
  std::string problem;
  try {
    model = interpret_checkpoint(checkpoint);
  } catch (const Error& error) {
    problem = error.what();
  }
  std::optional<MemoryNeed> need;
  LoadOptions options;
  if (model) {
    options.cache_type = settings.cache_type;
    options.context =
        settings.ctx_size.value_or(std::min(model->spec.context_trained, kContextMax));
    need = machine.choose_factory(*model).memory_need(*model, options);
  }

  const KeyReport keys = key_report(*checkpoint, model, settings.tokenizer_pre);
  if (problem.empty()) problem = keys.tokenizer_problem;
  const KnownModel* const known = model ? known_model(checkpoint->metadata) : nullptr;
  std::optional<DraftPair> pair;
  std::optional<HeadPair> head;
  const bool has_own_head =
      !settings.model_draft && problem.empty() && has_prediction_layer(*checkpoint);
  const std::string head_name = has_own_head ? checkpoint->path : settings.model_draft.value_or("");
  std::string own_head_problem;
  if (has_own_head) {
    try {
      head = head_pair_of(machine, settings, name, head_name, options, console);
    } catch (const Error& error) {
      own_head_problem = error.what();
    }
  } else if (names_head(head_name)) {
    head = head_pair_of(machine, settings, name, head_name, options, console);
  } else if (settings.model_draft) {
    pair = pair_of(machine, settings, name, console);
  }
  const bool can_load_own_head = has_own_head && head.has_value();

  if (settings.json) {
    Json document = {{"path", checkpoint->path}};
    Json& metadata = document["metadata"] = Json::object();
    for (const auto& [key, value] : checkpoint->metadata.entries()) {
      metadata[key] = value_json(value, settings.all);
    }
    Json& defaults = document["defaults"] = Json::object();
    Json& unused = document["unused"] = Json::object();
    for (const TakenKey& key : keys.keys)
      if (KeyReport::has_default(key)) defaults[key.name] = key.default_text;
    for (const auto& [key, value] : checkpoint->metadata.entries())
      if (const std::string why = keys.why_unused(key); !why.empty()) unused[key] = why;
    document["warnings"] = keys.warnings;
    Json& tensors = document["tensors"] = Json::array();
    for (const TensorView& tensor : checkpoint->tensors) {
      tensors.push_back({{"name", tensor.name},
                         {"type", traits(tensor.type).name},
                         {"shape", tensor.shape},
                         {"bytes", tensor.bytes.size()}});
    }
    if (model) document["left_out"] = left_out_texts(*model, can_load_own_head);
    if (need) {
      document["bytes_per_token"] = bytes_per_token(*model);
      document["weights_per_token"] = weights_per_token(*model);
      document["memory"] = {{"context", options.context}, {"bytes", need->total()},
                            {"weights", need->weights},   {"cache", need->cache},
                            {"working", need->working},   {"available", plannable_memory_bytes()}};
    }
    if (!keys.vocabulary.empty()) document["vocabulary"] = keys.vocabulary;
    if (!problem.empty()) document["problem"] = problem;
    if (known)
      document["known_as"] = {
          {"name", known->name}, {"drafts", known->drafts}, {"heads", known->heads}};
    if (pair) {
      document["draft"] = {{"model", *settings.model_draft},
                           {"can_draft", !pair->problem},
                           {"known_pair", pair->is_known},
                           {"vocabulary_overlap", pair->overlap.value_or(1)},
                           {"same_template", pair->has_same_template},
                           {"cost_ratio", pair->cost_ratio}};
      if (pair->problem) document["draft"]["problem"] = *pair->problem;
    }
    if (head) {
      document["draft"] = {{"head", head_name},
                           {"kind", head->kind},
                           {"producer", head->producer},
                           {"layers", head->n_layers},
                           {"reads", head->taps},
                           {"tokens", head->n_tokens},
                           {"memory", json_of(head->memory)},
                           {"fits", fits(head->both)},
                           {"cost_ratio", head->cost_ratio}};
      if (head->block) document["draft"]["block"] = json_of(*head->block, head->windows);
      if (head->made_for)
        document["draft"]["made_for"] = json_of(*head->made_for, head->is_for_this_file);
    }
    if (!own_head_problem.empty())
      document["draft"] = {{"head", head_name}, {"problem", own_head_problem}};
    write_json(document);
    return kDone;
  }

  std::string text = fmt::format("{}\n\nmetadata\n", checkpoint->path);
  for (const auto& [key, value] : checkpoint->metadata.entries()) {
    const std::string why = keys.why_unused(key);
    text += fmt::format("  {} = {}{}\n", printable(key), value_text(value, settings.all),
                        why.empty() ? "" : fmt::format("  (not used: {})", why));
  }
  if (!keys.keys.empty()) text += "\nnot in the file, by default\n";
  for (const TakenKey& key : keys.keys)
    if (KeyReport::has_default(key)) text += fmt::format("  {} = {}\n", key.name, key.default_text);
  if (!keys.warnings.empty()) text += "\n";
  for (const std::string& line : keys.warnings) text += fmt::format("warning: {}\n", line);
  std::map<std::string_view, std::pair<std::size_t, std::uint64_t>> types;  // count, bytes
  for (const TensorView& tensor : checkpoint->tensors) {
    auto& [count, bytes] = types[traits(tensor.type).name];
    ++count;
    bytes += tensor.bytes.size();
  }
  text += fmt::format("\n{} tensors\n", checkpoint->tensors.size());
  for (const auto& [type, total] : types) {
    text += fmt::format("  {:5} {:4}  {}\n", type, total.first, human_bytes(total.second));
  }
  if (settings.all) {
    for (const TensorView& tensor : checkpoint->tensors) {
      text += fmt::format("  {}  {}  [{}]\n", printable(tensor.name), traits(tensor.type).name,
                          shape_text(tensor));
    }
  }
  if (model)
    if (const auto unused = left_out_texts(*model, can_load_own_head); !unused.empty())
      text += fmt::format("\nnot used: {}\n", fmt::join(unused, ", "));
  if (need) {
    text += fmt::format(
        "\nmemory\n  {} for a context of {}: weights {}, cache {}, working {}\n"
        "  {} available\n  {} of weights read per token\n",
        human_bytes(need->total()), options.context, human_bytes(need->weights),
        human_bytes(need->cache), human_bytes(need->working), human_bytes(plannable_memory_bytes()),
        human_bytes(bytes_per_token(*model)));
  }
  if (!problem.empty()) text += fmt::format("\ncannot be run: {}\n", problem);
  if (known && !(known->drafts.empty() && known->heads.empty())) {
    text += fmt::format("\n{}\n", known->name);
    if (!known->drafts.empty())
      text += fmt::format("  draft models that suit: {}\n", fmt::join(known->drafts, ", "));
    if (!known->heads.empty())
      text += fmt::format("  heads that were made for it: {}\n", fmt::join(known->heads, ", "));
  }
  if (pair) {
    text += fmt::format("\n{} as a draft model\n", *settings.model_draft);
    const std::string vocabulary =
        !pair->overlap ? "the same vocabulary"
                       : fmt::format(
                             "{:.0f}% of the smaller vocabulary are in both, and only "
                             "such tokens are drafted",
                             100 * pair->overlap.value());
    text += pair->problem
                ? fmt::format("  cannot draft: {}\n", *pair->problem)
                : fmt::format("  can draft: {}; a pass costs about {:.2f} of the model's\n",
                              vocabulary, pair->cost_ratio);
    if (pair->is_known) text += "  a known pair of models\n";
    if (!pair->has_same_template)
      text += "  another chat template: it may be right less often in chats\n";
  }
  if (head)
    text += fmt::format("\n{}\n{}",
                        has_own_head ? "its layer for prediction as a draft head (--draft mtp)"
                                     : fmt::format("{} as a draft head", head_name),
                        text_of(*head, *model, options.context));
  if (!own_head_problem.empty())
    text += fmt::format("\nits layer for prediction cannot draft: {}\n", own_head_problem);
  write_output(text);
  return kDone;
}

}  // namespace

Command inspect_command() {
  return {
      .name = "inspect",
      .arguments = "[MODEL]",
      .arguments_max = 1,
      .summary = "show what a model file contains and needs",
      .description =
          "Shows metadata, what holds where the file says nothing, tensors and the memory that the "
          "model needs to run. A file that can "
          "be read but not run is shown too, with the reason (--json: problem), and exit status "
          "0. Where the model is a known one, also which other models can draft for it; with -md "
          "whether that one or that head can, and what a head takes.",
      .flags = {"--model", "--model-draft", "--offline", "--tokenizer-pre", "--ctx-size",
                "--cache-type", "--draft-quantize", "--draft-vocab", "--json", "--all"},
      .run = inspect};
}

}  // namespace outrider

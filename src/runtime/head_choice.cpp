#include "runtime/head_choice.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "formats/config_file.h"
#include "formats/sample_text.h"
#include "speculation/head_agreement.h"

namespace outrider {
namespace {

constexpr std::size_t kTokens = 1024;
constexpr TensorType kLargerType = TensorType::q8_0;

std::string name_of(const std::optional<TensorType>& type) {
  return type ? std::string(traits(*type).name) : std::string();
}

std::optional<TensorType> type_named(const std::string& name) {
  for (const TensorTypeTraits& type : all_tensor_types())
    if (type.name == name) return type.type;
  return std::nullopt;
}

}  // namespace

nlohmann::json json_of(const HeadChoice& choice) {
  return {{"reading", choice.reading},
          {"type", choice.type},
          {"agreement", choice.agreement},
          {"places", choice.places}};
}

std::optional<HeadChoice> head_choice_from(const nlohmann::json& json) {
  try {
    return HeadChoice{.reading = json.at("reading"),
                      .type = json.at("type"),
                      .agreement = json.at("agreement"),
                      .places = json.at("places")};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::optional<HeadToLoad> head_as_chosen(const Head& head, const LoadOptions& options,
                                         const HeadChoice& choice) {
  HeadToLoad chosen{.model = head.model, .options = options};
  chosen.options.requantize = type_named(choice.type);
  if (choice.reading.empty()) return chosen;
  const auto reading = std::ranges::find(head.other_readings, choice.reading, &Head::Reading::name);
  if (reading == head.other_readings.end()) return std::nullopt;
  chosen.model.spec.eagle = reading->input;
  return chosen;
}

Agreement agreement_of(const HeadChoice& choice) {
  return {.right = static_cast<int>(std::lround(choice.agreement * choice.places)),
          .places = choice.places};
}

std::optional<HeadChoice> choice_named_by(const Head& head, const LoadOptions& options,
                                          bool tries_types) {
  if (!head.made_for || !head.made_for->agreement) return std::nullopt;
  const std::string& named = head.made_for->type;
  std::string type = name_of(options.requantize);
  if (tries_types && !named.empty() && named != type) {
    if (!options.requantize || named != name_of(kLargerType)) return std::nullopt;
    type = named;
  }
  return HeadChoice{.reading = {},
                    .type = std::move(type),
                    .agreement = head.made_for->agreement->share(),
                    .places = head.made_for->agreement->places};
}

void write_agreement(const std::filesystem::path& head, const HeadChoice& choice) {
  change_config(head, [&](nlohmann::ordered_json& config) {
    const auto object = config.find("outrider");
    if (object == config.end() || !object->is_object())
      throw Error("{}: its config.json has no object \"outrider\", which outrider train writes",
                  head.string());
    const Agreement agreement = agreement_of(choice);
    (*object)["agreement"] = {
        {"right", agreement.right}, {"places", agreement.places}, {"type", choice.type}};
  });
}

HeadChoice choose_head(Backend& target, const Tokenizer& tokenizer, const Head& head,
                       const LoadOptions& options, bool tries_types, const LoadProgress& progress) {
  std::vector<Token> text = tokenizer.encode(kSampleText);
  text.resize(std::min(text.size(), kTokens));
  HeadChoice best{.reading = {}, .type = name_of(options.requantize)}, loaded = best;
  std::vector<bool> right = measure_agreement(target, text, progress);
  const auto load = [&](const HeadChoice& choice) {
    target.replace_head(*head_as_chosen(head, options, choice));
    loaded = choice;
  };
  const auto try_out = [&](HeadChoice choice) {
    load(choice);
    std::vector<bool> found = measure_agreement(target, text, progress);
    if (!is_clearly_better(right, found)) return;
    best = std::move(choice);
    right = std::move(found);
  };
  for (const Head::Reading& reading : head.other_readings)
    try_out({.reading = reading.name, .type = best.type});
  if (tries_types && options.requantize)
    try_out({.reading = best.reading, .type = name_of(kLargerType)});
  if (loaded.reading != best.reading || loaded.type != best.type) load(best);
  best.agreement = share_of_right(right);
  best.places = static_cast<int>(right.size());
  return best;
}

}  // namespace outrider

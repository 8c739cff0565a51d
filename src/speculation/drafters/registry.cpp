#include "speculation/drafters/registry.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/nearest_name.h"
#include "speculation/drafters/lookup.h"
#include "speculation/drafters/model.h"

namespace outrider {
namespace {

std::unique_ptr<Drafter> make_lookup(const DraftChoice&, const DraftContext& context) {
  return std::make_unique<LookupDrafter>(
      LookupOptions{.memory_bytes = context.memory_bytes / context.n_sequences});
}

std::unique_ptr<Drafter> make_model(const DraftChoice& choice, const DraftContext& context) {
  DraftModel draft = context.load_model(choice.value);
  if (const auto difference = vocabulary_difference(*context.tokenizer, *draft.tokenizer))
    throw Error(
        "draft model {}: its vocabulary is not the target's: {}; choose a draft model of the "
        "same family",
        choice.value, *difference);
  return std::make_unique<ModelDrafter>(std::move(draft.backend), context.vocabulary);
}

using MakeDrafter = std::unique_ptr<Drafter> (*)(const DraftChoice&, const DraftContext&);

struct Entry {
  std::string_view name;
  bool takes_value;
  MakeDrafter make;  // null: not available in this version
};

constexpr Entry kDrafters[] = {
    {"lookup", false, make_lookup},  //
    {"model", true, make_model},     //
    {"suffix", false, nullptr},      //
    {"rest", true, nullptr},         //
    {"lookahead", false, nullptr},   //
    {"recycle", false, nullptr},     //
    {"self", false, nullptr},        //
    {"prediction", true, nullptr},   //
    {"medusa", true, nullptr},       //
    {"eagle", true, nullptr},        //
    {"mtp", false, nullptr},
};

const Entry* find(std::string_view name) {
  const auto entry = std::ranges::find(kDrafters, name, &Entry::name);
  return entry == std::end(kDrafters) ? nullptr : entry;
}

// A name ends before '=', '+' or the end.
std::string_view leading_name(std::string_view text) {
  return text.substr(0, text.find_first_of("=+"));
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  for (std::size_t plus = text.find('+'); plus != text.npos; plus = text.find('+', plus + 1))
    if (find(leading_name(text.substr(plus + 1)))) {
      parts.push_back(text.substr(begin, plus - begin));
      begin = plus + 1;
    }
  parts.push_back(text.substr(begin));
  return parts;
}

[[noreturn]] void refuse(std::string_view part) {
  if (!part.empty() && part.find_first_not_of("0123456789") == part.npos)
    throw Error("--draft {}: names drafters, not a number; for the depth write --draft-depth {}",
                part, part);
  std::vector<std::string> names{"off", "auto"};
  for (const Entry& entry : kDrafters)
    if (entry.make) names.emplace_back(entry.name);
  // In "lookup+modle=x" it is "modle" that is unknown.
  std::string_view name = leading_name(part);
  while (find(name) && name.size() < part.size() && part[name.size()] == '+')
    name = leading_name(part = part.substr(name.size() + 1));
  throw Error("--draft: no drafter is called \"{}\"{}; there are off, auto, lookup and model=M",
              name, did_you_mean(name, names));
}

DraftChoice parse_part(std::string_view part, std::string_view model_draft) {
  const std::size_t equals = part.find('=');
  DraftChoice choice{std::string(part.substr(0, equals)),
                     equals == part.npos ? "" : std::string(part.substr(equals + 1))};
  const Entry* entry = find(choice.name);
  if (!entry) refuse(part);
  if (!entry->make) throw Error("--draft {}: not available in this version", choice.name);
  if (!entry->takes_value && equals != part.npos)
    throw Error("--draft {}: takes no value, but \"{}\" was given", choice.name, choice.value);
  if (entry->takes_value && choice.value.empty()) choice.value = model_draft;
  if (entry->takes_value && choice.value.empty())
    throw Error("--draft {0}: names no model; write {0}=MODEL or give --model-draft", choice.name);
  return choice;
}

}  // namespace

std::vector<DraftChoice> parse_draft(std::string_view text, std::string_view model_draft) {
  std::vector<DraftChoice> choices;
  if (text == "off") return choices;
  if (text == "auto") {
    choices.push_back({"lookup", ""});
    if (!model_draft.empty()) choices.push_back({"model", std::string(model_draft)});
    return choices;
  }
  for (std::string_view part : split(text)) {
    choices.push_back(parse_part(part, model_draft));
    if (std::ranges::count(choices, choices.back().name, &DraftChoice::name) > 1)
      throw Error("--draft {}: {} is named twice", text, choices.back().name);
  }
  return choices;
}

std::vector<std::unique_ptr<Drafter>> make_drafters(const std::vector<DraftChoice>& choices,
                                                    const DraftContext& context) {
  std::vector<std::unique_ptr<Drafter>> drafters;
  for (const DraftChoice& choice : choices) {
    const Entry* entry = find(choice.name);
    CHECK(entry && entry->make);
    drafters.push_back(entry->make(choice, context));
  }
  return drafters;
}

}  // namespace outrider

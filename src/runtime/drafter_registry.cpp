#include "runtime/drafter_registry.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/nearest_name.h"
#include "runtime/head_file.h"

// The kinds in the order in which --draft auto asks them: lookup stands for lookup_kind(), which
// the drafter's file defines.
// clang-format off
#define OUTRIDER_DRAFTERS(row) \
  row(lookup)                  \
  row(prediction)              \
  row(rest)                    \
  row(lookahead)               \
  row(self)                    \
  row(model)                   \
  row(parallel)                \
  row(eagle)                   \
  row(mtp)                     \
  row(dflash)                  \
  row(dspark)                  \
  row(medusa)
// clang-format on

namespace outrider {

#define DECLARE(name) const DrafterKind& name##_kind();
OUTRIDER_DRAFTERS(DECLARE)
#undef DECLARE

std::span<const DrafterKind* const> drafter_kinds() {
#define ADDRESS(name) &name##_kind(),
  static const DrafterKind* const kinds[] = {OUTRIDER_DRAFTERS(ADDRESS)};
#undef ADDRESS
  return kinds;
}

namespace {

const DrafterKind* find(std::string_view name) {
  for (const DrafterKind* kind : drafter_kinds())
    if (kind->name == name || (!name.empty() && kind->other_name == name)) return kind;
  return nullptr;
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
  std::vector<std::string> names{"off", "auto"};
  for (const DrafterKind* kind : drafter_kinds()) names.push_back(kind->name);
  // In "lookup+modle=x" it is "modle" that is unknown.
  std::string_view name = leading_name(part);
  while (find(name) && name.size() < part.size() && part[name.size()] == '+')
    name = leading_name(part = part.substr(name.size() + 1));
  throw Error("no drafter is called \"{}\"{}; there are off, auto, {}", name,
              did_you_mean(name, names), drafter_names());
}

DraftChoice parse_part(std::string_view part, std::string_view draft_model) {
  const std::size_t equals = part.find('=');
  const std::string_view name = part.substr(0, equals);
  DraftChoice choice{find(name), equals == part.npos ? "" : std::string(part.substr(equals + 1))};
  if (!choice.kind) refuse(part);
  const bool is_optional = choice.kind->value_is_prediction || choice.kind->value_is_optional;
  if (is_optional && equals == part.npos) {
    if (choice.kind->runs_head() && head_kind(draft_model) == choice.kind->name)
      choice.value = draft_model;
    return choice;
  }
  if (choice.kind->of_value) choice.kind = choice.kind->of_value(choice.value);
  if (choice.kind->value.empty()) {
    if (equals != part.npos)
      throw Error("{}: takes no value, but \"{}\" was given", name, choice.value);
    return choice;
  }
  if (choice.value.empty() && choice.kind->names_file()) choice.value = draft_model;
  if (choice.value.empty() && choice.kind->names_file())
    throw Error(Remedy::draft_model, "{0}: names no model; write {0}={1} or choose a draft model",
                name, choice.kind->value);
  if (choice.value.empty())
    throw Error("{0}: lacks a value; write {0}={1}", name, choice.kind->value);
  const std::string_view head = choice.kind->names_file() ? head_kind(choice.value) : "";
  if (!head.empty() && head != choice.kind->name)
    throw Error("{0}: {1} is a learned head that another drafter runs; write {2}={1}", name,
                choice.value, head);
  return choice;
}

}  // namespace

std::vector<DraftChoice> parse_draft(std::string_view text, std::string_view draft_model) {
  std::vector<DraftChoice> choices;
  if (text == "off") return choices;
  if (text == "auto") {
    const std::string_view head = head_kind(draft_model);
    for (const DrafterKind* kind : drafter_kinds()) {
      if (!kind->is_automatic) continue;
      if (kind->value.empty() || kind->value_is_prediction) choices.push_back({kind, ""});
      const bool is_meant = head.empty() ? kind->runs_model() : kind->name == head;
      if (is_meant && !draft_model.empty()) choices.push_back({kind, std::string(draft_model)});
    }
    return choices;
  }
  for (std::string_view part : split(text)) {
    choices.push_back(parse_part(part, draft_model));
    const auto name = [](const DraftChoice& choice) { return choice.kind->name; };
    if (std::ranges::count(choices, name(choices.back()), name) > 1)
      throw Error("{}: {} is named twice", text, choices.back().kind->name);
  }
  return choices;
}

std::string drafter_names() {
  std::vector<std::string> names;
  for (const DrafterKind* kind : drafter_kinds()) names.push_back(kind->usage());
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace outrider

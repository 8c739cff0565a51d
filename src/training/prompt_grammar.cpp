#include "training/prompt_grammar.h"

#include <algorithm>
#include <charconv>
#include <map>

namespace outrider {
namespace {

using Choices = std::map<std::string, std::string, std::less<>>;  // by slot

const PhraseList& list_of(std::string_view name) {
  const std::span<const PhraseList> lists = prompt_phrases();
  const auto at = std::find_if(lists.begin(), lists.end(),
                               [&](const PhraseList& list) { return list.name == name; });
  CHECK(at != lists.end());
  return *at;
}

// "name" of "name" and of "name 2".
std::string_view list_name(std::string_view slot) {
  const bool has_number = slot.size() > 2 && slot[slot.size() - 2] == ' ' && slot.back() <= '9';
  return has_number ? slot.substr(0, slot.size() - 2) : slot;
}

int number(std::string_view digits) {
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  CHECK(error == std::errc() && end == digits.data() + digits.size());
  return value;
}

std::string fill(std::string_view phrase, SeededRandom& random, std::span<const SlotValue> values,
                 Choices& choices);

std::string slot_text(std::string_view slot, SeededRandom& random,
                      std::span<const SlotValue> values, Choices& choices) {
  for (const SlotValue& value : values) {
    if (value.first == slot) return std::string(value.second);
  }
  if (slot[0] >= '0' && slot[0] <= '9') {
    const std::size_t dash = slot.find('-'), colon = std::min(slot.find(':'), slot.size());
    CHECK(dash < colon);
    const int step = colon < slot.size() ? number(slot.substr(colon + 1)) : 1;
    const int first = number(slot.substr(0, dash));
    const int last = number(slot.substr(dash + 1, colon - dash - 1));
    return std::to_string(first + step * random.between(0, (last - first) / step));
  }
  if (const auto at = choices.find(slot); at != choices.end()) return at->second;
  const std::string_view name = list_name(slot);
  const PhraseList& list = list_of(name);
  // Another one than the same list gave before; after some tries it does not matter.
  std::string text;
  for (int tries = 0; tries < 20; ++tries) {
    text = fill(random.one_of(list.phrases), random, values, choices);
    const bool is_new = std::none_of(choices.begin(), choices.end(), [&](const auto& choice) {
      return list_name(choice.first) == name && choice.second == text;
    });
    if (is_new) break;
  }
  choices.emplace(slot, text);
  return text;
}

std::string fill(std::string_view phrase, SeededRandom& random, std::span<const SlotValue> values,
                 Choices& choices) {
  std::string text;
  while (!phrase.empty()) {
    const std::size_t begin = std::min(phrase.find('{'), phrase.size());
    text += phrase.substr(0, begin);
    phrase.remove_prefix(begin);
    if (phrase.empty()) break;
    const std::size_t end = phrase.find('}');
    CHECK(end != phrase.npos && end > 1);
    text += slot_text(phrase.substr(1, end - 1), random, values, choices);
    phrase.remove_prefix(end + 1);
  }
  return text;
}

}  // namespace

std::string filled(std::string_view phrase, SeededRandom& random,
                   std::span<const SlotValue> values) {
  Choices choices;
  return fill(phrase, random, values, choices);
}

std::string phrase_of(std::string_view list, SeededRandom& random,
                      std::span<const SlotValue> values) {
  return filled(random.one_of(list_of(list).phrases), random, values);
}

}  // namespace outrider

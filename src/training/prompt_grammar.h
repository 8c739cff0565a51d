// Prompts in our own words: a phrase with slots, each filled from a list, so that few lines of
// lists give millions of texts.

#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "training/seeded_random.h"

namespace outrider {

// A list's name and its phrases. A phrase may have slots:
//   {name}     a phrase of the list `name`, filled in turn; the same one wherever the slot stands
//              again in the text
//   {name 2}   likewise, but another phrase than {name}'s
//   {3-12}     a number of this range; a new one each time
//   {10-90:10} a number of 10, 20, ... 90
struct PhraseList {
  std::string_view name;
  std::vector<std::string_view> phrases;
};

// All lists: prompt_phrases.cpp.
std::span<const PhraseList> prompt_phrases();

// A value for a slot that no list fills; it is not searched for slots.
using SlotValue = std::pair<std::string_view, std::string_view>;

// The phrase with its slots filled. Aborts for a slot that neither `values` nor a list fills.
std::string filled(std::string_view phrase, SeededRandom& random,
                   std::span<const SlotValue> values = {});

// A phrase of the list of this name, filled.
std::string phrase_of(std::string_view list, SeededRandom& random,
                      std::span<const SlotValue> values = {});

}  // namespace outrider

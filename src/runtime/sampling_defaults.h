// Filters of a request: what it says, then what the server's flags say, then what the model's file
// recommends, then ours.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "numerics/choice.h"

namespace outrider {

// The most that a request may say for temperature and penalties, and the least repeat_penalty.
inline constexpr float kFilterMax = 1e6f;
inline constexpr float kRepeatPenaltyMin = 0.01f;

// What a request says; it may leave out anything.
struct FilterSettings {
  std::optional<int> top_k = {};
  std::optional<float> temperature = {}, top_p = {}, min_p = {}, typical_p = {};
  std::optional<float> repeat_penalty = {}, presence_penalty = {}, frequency_penalty = {};

  // With what `others` say where these leave something out.
  FilterSettings or_else(const FilterSettings& others) const;
};

// A file recommends by the keys general.sampling.*, as llama.cpp writes them. A value there that
// lies outside what a request may say, or is no number, counts as none.
Filters filters_for(const FilterSettings& settings, const Metadata& metadata);
// A line for each recommendation of a file that is not followed and would change answers.
std::vector<std::string> sampling_warnings(const Metadata& metadata);

}  // namespace outrider

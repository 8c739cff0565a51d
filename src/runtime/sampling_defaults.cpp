#include "runtime/sampling_defaults.h"

#include <fmt/format.h>

#include "sampling/sampling.h"

namespace outrider {

FilterSettings FilterSettings::or_else(const FilterSettings& others) const {
  FilterSettings all = *this;
  const auto fill = [&](auto FilterSettings::*filter) {
    if (!(all.*filter)) all.*filter = others.*filter;
  };
  fill(&FilterSettings::top_k);
  for (const auto filter :
       {&FilterSettings::temperature, &FilterSettings::top_p, &FilterSettings::min_p,
        &FilterSettings::typical_p, &FilterSettings::repeat_penalty,
        &FilterSettings::presence_penalty, &FilterSettings::frequency_penalty})
    fill(filter);
  return all;
}

Filters filters_for(const FilterSettings& settings, const Metadata& metadata) {
  const auto from_file = [&](const char* key, float standard, float least, float most) {
    const double value =
        metadata.number(fmt::format("general.sampling.{}", key)).value_or(standard);
    return value >= least && value <= most ? static_cast<float>(value) : standard;
  };
  const Filters standard;
  Filters filters;
  const float temperature = from_file("temp", standard.temperature, 0, kFilterMax);
  filters.temperature = settings.temperature.value_or(
      temperature_in_range(temperature) ? temperature : standard.temperature);
  filters.top_k = settings.top_k.value_or(
      static_cast<int>(from_file("top_k", static_cast<float>(standard.top_k), 0, kFilterMax)));
  filters.top_p = settings.top_p.value_or(from_file("top_p", standard.top_p, 0, 1));
  filters.min_p = settings.min_p.value_or(from_file("min_p", standard.min_p, 0, 1));
  filters.typical_p = settings.typical_p.value_or(standard.typical_p);
  filters.repeat_penalty = settings.repeat_penalty.value_or(
      from_file("penalty_repeat", standard.repeat_penalty, kRepeatPenaltyMin, kFilterMax));
  filters.presence_penalty = settings.presence_penalty.value_or(standard.presence_penalty);
  filters.frequency_penalty = settings.frequency_penalty.value_or(standard.frequency_penalty);
  return filters;
}

}  // namespace outrider

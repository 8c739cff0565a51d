#include "cli/limit_samples.h"

#include <algorithm>

#include "base/error.h"

namespace outrider {

void LimitSamples::add(MachineLimits limits) {
  CHECK(rounds_.empty() || rounds_[0].read_rates.size() == limits.read_rates.size());
  rounds_.push_back(std::move(limits));
}

std::vector<LimitSamples::Pattern> LimitSamples::patterns() const {
  std::vector<Pattern> patterns;
  for (std::size_t i = 0; !rounds_.empty() && i < rounds_[0].read_rates.size(); ++i) {
    std::vector<double> gbs;
    for (const MachineLimits& round : rounds_) gbs.push_back(round.read_rates[i].gbs);
    patterns.push_back({rounds_[0].read_rates[i].pattern, spread(gbs)});
  }
  return patterns;
}

LimitSamples::Pattern LimitSamples::reading() const {
  const std::vector<Pattern> all = patterns();
  CHECK(!all.empty());
  return *std::ranges::max_element(all, {}, [](const Pattern& p) { return p.gbs.median; });
}

std::vector<double> LimitSamples::reading_gbs() const {
  const std::string best = reading().name;
  std::vector<double> gbs;
  for (const MachineLimits& round : rounds_)
    gbs.push_back(
        std::ranges::find(round.read_rates, best, &MachineLimits::ReadRate::pattern)->gbs);
  return gbs;
}

std::vector<LimitSamples::Unit> LimitSamples::units() const {
  const auto unit = [&](const char* key, const char* title, double MachineLimits::*field) {
    std::vector<double> tera;
    for (const MachineLimits& round : rounds_) tera.push_back(round.*field);
    return Unit{key, title, spread(tera)};
  };
  return {unit("int8_tops", "int8, VNNI", &MachineLimits::int8_tops),
          unit("avx2_tops", "int8, AVX2", &MachineLimits::avx2_tops),
          unit("amx_tops", "int8, AMX", &MachineLimits::amx_tops),
          unit("f32_tflops", "float fma", &MachineLimits::f32_tflops)};
}

LimitSamples::Unit LimitSamples::unit(std::string_view key) const {
  for (const Unit& unit : units()) {
    if (unit.key == key) return unit;
  }
  CHECK(false);
}

}  // namespace outrider

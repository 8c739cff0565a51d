#include "runtime/sampling_defaults.h"

#include <gtest/gtest.h>

namespace outrider {
namespace {

TEST(SamplingDefaults, ARequestComesBeforeItsFileAndTheFileBeforeUs) {
  Metadata metadata("m.gguf");
  metadata.insert("general.sampling.temp", 0.5);
  metadata.insert("general.sampling.top_k", std::int64_t{7});
  metadata.insert("general.sampling.top_p", 1.5);  // out of range: as if it were not there
  const Filters filters = filters_for({.temperature = 0.25f}, metadata);
  EXPECT_EQ(filters.temperature, 0.25f);
  EXPECT_EQ(filters.top_k, 7);
  EXPECT_EQ(filters.top_p, Filters().top_p);
  EXPECT_EQ(filters.min_p, Filters().min_p);
  EXPECT_EQ(filters_for({}, metadata).temperature, 0.5f);
}

TEST(SamplingDefaults, EveryFilterMayComeFromTheOthers) {
  const FilterSettings others = {.top_k = 1,
                                 .temperature = 0.0f,
                                 .top_p = 0.25f,
                                 .min_p = 0.5f,
                                 .typical_p = 0.75f,
                                 .repeat_penalty = 1.5f,
                                 .presence_penalty = -1.0f,
                                 .frequency_penalty = 2.0f};
  const FilterSettings asked = {.top_k = 0, .top_p = 1.0f};
  const FilterSettings all = asked.or_else(others);
  EXPECT_EQ(all.top_k, 0);
  EXPECT_EQ(all.top_p, 1.0f);
  EXPECT_EQ(all.temperature, 0.0f);
  EXPECT_EQ(all.min_p, 0.5f);
  EXPECT_EQ(all.typical_p, 0.75f);
  EXPECT_EQ(all.repeat_penalty, 1.5f);
  EXPECT_EQ(all.presence_penalty, -1.0f);
  EXPECT_EQ(all.frequency_penalty, 2.0f);
}

}  // namespace
}  // namespace outrider

#include "runtime/sampling_defaults.h"

#include <fmt/format.h>
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

TEST(SamplingDefaults, WhatAFileRecommendsInVainIsNamed) {
  using Case = std::pair<const char*, MetadataValue>;
  const Case silent[] = {{"temp", 0.5},
                         {"temp", std::int64_t{0}},
                         {"top_k", std::int64_t{0}},
                         {"xtc_probability", 0.0},
                         {"mirostat", std::int64_t{0}},
                         {"mirostat_tau", 5.0},
                         {"penalty_last_n", std::int64_t{64}}};
  const Case named[] = {{"temp", -1.0},
                        {"temp", 1e-30},
                        {"temp", std::string("x")},
                        {"top_k", std::int64_t{-5}},
                        {"top_p", 1.5},
                        {"min_p", 2.0},
                        {"penalty_repeat", 0.0},
                        {"mirostat", std::int64_t{2}},
                        {"xtc_probability", 0.5},
                        {"penalty_last_n", std::int64_t{10}},
                        {"sequence", std::string("top_k")},
                        {"no_such_key", 1.0}};
  const auto metadata_of = [](const Case& c) {
    Metadata metadata("m.gguf");
    metadata.insert(fmt::format("general.sampling.{}", c.first), c.second);
    return metadata;
  };
  for (const Case& c : silent) EXPECT_TRUE(sampling_warnings(metadata_of(c)).empty()) << c.first;
  for (const Case& c : named) {
    SCOPED_TRACE(c.first);
    const Metadata metadata = metadata_of(c);
    ASSERT_EQ(sampling_warnings(metadata).size(), 1u);
    EXPECT_NE(sampling_warnings(metadata)[0].find(c.first), std::string::npos);
    const Filters filters = filters_for({}, metadata), standard;
    EXPECT_EQ(filters.temperature, standard.temperature);
    EXPECT_EQ(filters.top_k, standard.top_k);
    EXPECT_EQ(filters.repeat_penalty, standard.repeat_penalty);
  }
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

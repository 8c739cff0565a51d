#include "runtime/profile.h"

#include <gtest/gtest.h>

#include "speculation/budget.h"

namespace outrider {
namespace {

Profile profile() {
  Budget budget({}, 2);
  for (const int rows : {1, 2, 8}) budget.curve().measure(rows, 30 + rows);
  budget.curve().measure_one_logit_row(8, 31);
  Profile profile{.tuning = "avx512 processor", .learned = budget.learned()};
  profile.learned.drafters[1].passes = {{.rows = 1, .ms = 7.5}, {.rows = 64, .ms = 80}};
  profile.learned.drafters[1].yield = {12, 1.5, 2.5, 2};
  return profile;
}

TEST(Profile, ComesBackAsItWas) {
  const auto json = json_of(profile());
  const auto back = profile_from(nlohmann::json::parse(json.dump()));
  ASSERT_TRUE(back);
  EXPECT_EQ(json_of(*back), json);
  EXPECT_EQ(back->tuning, "avx512 processor");
  EXPECT_EQ(back->learned.passes[2].ms, 38);
  EXPECT_EQ(back->learned.passes[2].weight, 1);
  EXPECT_EQ(back->learned.logits_ms, 1);
  EXPECT_EQ(back->learned.attention_ms, profile().learned.attention_ms);
  EXPECT_EQ(back->learned.drafters[1].passes[1].rows, 64);
  EXPECT_EQ(back->learned.drafters[1].yield.tokens, 1.5);
}

// Whatever is missing, of another type or impossible makes the document none.
TEST(Profile, RefusesWhatItCannotHaveWritten) {
  const auto good = json_of(profile());
  ASSERT_TRUE(profile_from(good));
  const auto refuses = [&](auto change) {
    nlohmann::json json = good;
    change(json);
    EXPECT_FALSE(profile_from(json)) << json.dump();
  };
  for (const char* field : {"tuning", "passes", "logits", "attention", "drafters"}) {
    refuses([&](auto& json) { json.erase(field); });
    refuses([&](auto& json) { json[field] = -7; });
  }
  refuses([](auto& json) { json["passes"][1][1] = 0; });
  refuses([](auto& json) { json["passes"][1][1] = nullptr; });
  refuses([](auto& json) { json["passes"][1][0] = 1; });  // twice the same rows
  refuses([](auto& json) { json["passes"][1][2] = 0; });
  refuses([](auto& json) { json["passes"][1] = {2, 32}; });
  refuses([](auto& json) { json["drafters"][0]["levels"][0][2] = -1; });
  refuses([](auto& json) { json["drafters"][0]["confidences"][0][0] = 1e9; });
  refuses([](auto& json) { json["drafters"][1]["yield"][1] = -1; });
  refuses([](auto& json) { json["drafters"][1].erase("passes"); });
  EXPECT_FALSE(profile_from(nlohmann::json::array()));
  EXPECT_FALSE(profile_from("text"));
}

}  // namespace
}  // namespace outrider

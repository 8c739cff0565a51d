#include "runtime/profile.h"

#include <gtest/gtest.h>

#include "speculation/planner.h"

namespace outrider {
namespace {

Profile profile() {
  CostCurve curve;
  for (const int rows : {1, 2, 8}) curve.measure(rows, 30 + rows);
  curve.measure_one_logit_row(8, 31);
  Profile profile{.tuning = "avx512 processor", .learned = Planner({}, curve, 2).learned()};
  profile.learned.passes = curve.points();
  profile.learned.logits_ms = curve.logits_ms();
  profile.learned.attention_ms = curve.attention_ms();
  profile.learned.drafters[1].passes = {{.rows = 1, .ms = 7.5}, {.rows = 64, .ms = 80}};
  profile.learned.drafters[1].acceptance.recent = {-0.5, 1.5, 3};
  profile.learned.speed = 1.25;
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
  EXPECT_EQ(back->learned.drafters[1].acceptance.recent.best_guess, 1.5);
  EXPECT_EQ(back->learned.speed, 1.25);
  EXPECT_EQ(back->learned.bank, Guard::bank_max());
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
  for (const char* field :
       {"tuning", "passes", "logits", "attention", "drafters", "answers", "speed", "bank"}) {
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
  refuses([](auto& json) { json["drafters"][1]["shifts"][1] = 1e9; });
  refuses([](auto& json) { json["drafters"][1]["riders"][1] = -1; });
  refuses([](auto& json) { json["drafters"][1].erase("passes"); });
  EXPECT_FALSE(profile_from(nlohmann::json::array()));
  EXPECT_FALSE(profile_from("text"));
}

}  // namespace
}  // namespace outrider

#include "base/nearest_name.h"

#include <gtest/gtest.h>

#include <vector>

namespace outrider {
namespace {

TEST(NearestName, Distance) {
  struct Case {
    const char *a, *b;
    std::size_t distance;
  };
  const Case cases[] = {
      {"", "", 0},
      {"", "abc", 3},
      {"abc", "", 3},
      {"abc", "abc", 0},
      {"abc", "ABC", 0},
      {"kitten", "sitting", 3},
      {"lookup", "lokup", 1},
      {"lookup", "lookpu", 1},
      {"ca", "abc", 3},  // optimal string alignment; a free mix of edits would need 2
      {"flaw", "lawn", 2},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(edit_distance(c.a, c.b), c.distance) << c.a << " " << c.b;
    EXPECT_EQ(edit_distance(c.b, c.a), c.distance) << c.b << " " << c.a;
  }
}

TEST(NearestName, OffersWhatWasProbablyMeant) {
  const std::vector<std::string> names = {"smollm2:135m", "qwen2.5-coder:1.5b",
                                          "qwen2.5-coder:0.5b", "gemma3:270m"};
  EXPECT_EQ(nearest_name("smollm2-135m", names), "smollm2:135m");
  EXPECT_EQ(nearest_name("Gemma3:270M", names), "gemma3:270m");
  EXPECT_EQ(nearest_name("qwen2.5-coder:2.5b", names),
            "qwen2.5-coder:1.5b");                          // the first of equals
  EXPECT_EQ(nearest_name("gemma3", names), "gemma3:270m");  // begins so
  EXPECT_EQ(nearest_name("qwen", names), std::nullopt);     // two begin so
  EXPECT_EQ(nearest_name("llama3:8b", names), std::nullopt);
  EXPECT_EQ(nearest_name("", names), std::nullopt);
  EXPECT_EQ(nearest_name("x", {}), std::nullopt);
  EXPECT_EQ(nearest_name(std::string(100000, 'x'), names), std::nullopt);
  EXPECT_EQ(did_you_mean("gema3:270m", names), "; did you mean \"gemma3:270m\"?");
  EXPECT_EQ(did_you_mean("zzz", names), "");
}

}  // namespace
}  // namespace outrider

#include "formats/parse_json.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace outrider {
namespace {

std::string problem_of(const std::string& text) {
  try {
    parse_json(text, "x.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string nested(int levels) {
  return std::string(levels, '[') + "1" + std::string(levels, ']');
}

TEST(ParseJson, RefusesWhatIsNone) {
  EXPECT_EQ(parse_json(R"({"a": [1, "b"]})", "x.json")["a"][1].get<std::string>(), "b");
  EXPECT_EQ(problem_of(nested(64)), "");
  EXPECT_EQ(problem_of(nested(65)), "x.json: JSON nested more than 64 levels deep");
  EXPECT_EQ(problem_of(std::string(1'000'000, '[')),
            "x.json: JSON nested more than 64 levels deep");
  EXPECT_EQ(problem_of("[1e999]"), "x.json: JSON with a number that is too large");
  EXPECT_EQ(problem_of(""), "x.json: not valid JSON at byte 1");
  EXPECT_EQ(problem_of("[1] 2"), "x.json: not valid JSON at byte 5");
  EXPECT_EQ(problem_of("[\"\xff\"]"), "x.json: not valid JSON at byte 3");
}

}  // namespace
}  // namespace outrider

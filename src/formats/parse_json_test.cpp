#include "formats/parse_json.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace outrider {
namespace {

template <typename Parse>
std::string problem_of(const Parse& parse, const std::string& text) {
  try {
    parse(text, "x.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string nested(int levels, const std::string& open, const std::string& close) {
  std::string text = "1";
  for (int i = 0; i < levels; ++i) text = open + text + close;
  return text;
}

template <typename Parse>
void expect_refusals(const Parse& parse) {
  EXPECT_EQ(problem_of(parse, nested(64, "[", "]")), "");
  const std::string too_deep = "x.json: JSON nested more than 64 levels deep";
  EXPECT_EQ(problem_of(parse, nested(65, "[", "]")), too_deep);
  EXPECT_EQ(problem_of(parse, nested(64, "{\"a\":", "}")), "");
  EXPECT_EQ(problem_of(parse, nested(65, "{\"a\":", "}")), too_deep);
  EXPECT_EQ(problem_of(parse, std::string(1'000'000, '[')), too_deep);
  EXPECT_EQ(problem_of(parse, "[1e999]"), "x.json: JSON with a number that is too large");
  EXPECT_EQ(problem_of(parse, "[-1e999]"), "x.json: JSON with a number that is too large");
  EXPECT_EQ(problem_of(parse, ""), "x.json: not valid JSON at byte 1");
  EXPECT_EQ(problem_of(parse, "[1] 2"), "x.json: not valid JSON at byte 5");
  EXPECT_EQ(problem_of(parse, "[NaN]"), "x.json: not valid JSON at byte 2");
  EXPECT_EQ(problem_of(parse, "{\"a\""), "x.json: not valid JSON at byte 5");
  EXPECT_EQ(problem_of(parse, "[\"\xff\"]"), "x.json: not valid JSON at byte 3");
  EXPECT_EQ(problem_of(parse, "[\"\\ud800\"]"), "x.json: not valid JSON at byte 9");
}

TEST(ParseJson, RefusesWhatIsNone) {
  expect_refusals(parse_json);
  expect_refusals(parse_ordered_json);
}

TEST(ParseJson, BuildsTheSameTreeInEitherWay) {
  const std::string text =
      R"({"b": [1, -2, 2.5, 18446744073709551615, "é\u0000", null, true, {}, []], "a": {"c": {}}})";
  EXPECT_EQ(parse_json(text, "x")["b"][3].get<std::uint64_t>(), 18446744073709551615u);
  EXPECT_EQ(nlohmann::json(parse_ordered_json(text, "x")), parse_json(text, "x"));
  EXPECT_EQ(parse_ordered_json(text, "x").begin().key(), "b");
  EXPECT_EQ(parse_ordered_json("7", "x"), 7);
}

// Each looked for among the earlier ones, so many keys would take half a minute.
TEST(ParseJson, ReadsManyKeysAtOnce) {
  std::string text = "{";
  constexpr int kKeys = 100'000;
  for (int i = 0; i < kKeys; ++i) text += fmt::format("\"{}\":0,", i);
  text.back() = '}';
  EXPECT_EQ(parse_ordered_json(text, "x").size(), kKeys);
  text.back() = ',';
  EXPECT_EQ(problem_of(parse_ordered_json, text + "\"7\":1}"),
            "x.json: JSON object with the key '7' twice");
}

}  // namespace
}  // namespace outrider

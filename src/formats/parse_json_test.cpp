#include "formats/parse_json.h"

#include <gtest/gtest.h>

#include <limits>

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
  EXPECT_EQ(problem_of(parse, "[1e99999]"), "x.json: JSON with a number that is too large");
  EXPECT_EQ(problem_of(parse, "[-1e99999]"), "x.json: JSON with a number that is too large");
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

TEST(ParseJson, KeepsTheDigitsOfAllIntegers) {
  const std::string digits(4000, '7');
  for (const std::string& text :
       {std::string("9007199254740993"), std::string("-9223372036854775808"),
        std::string("9223372036854775808"), std::string("-9223372036854775809"),
        std::string("18446744073709551615"), std::string("18446744073709551616"), digits,
        "-" + digits, "{\"a\":[" + digits + ",{\"b\":" + digits + "}]}"}) {
    EXPECT_EQ(dump_json(parse_ordered_json(text, "x")), text);
    EXPECT_TRUE(is_json_text(text));
  }
  const nlohmann::ordered_json wide = parse_ordered_json("18446744073709551616", "x");
  EXPECT_EQ(literal_text(wide), "18446744073709551616");
  EXPECT_EQ(json_type(wide), "number");
  EXPECT_EQ(json_type(parse_json("18446744073709551616", "x")), "number");
  EXPECT_EQ(literal_text(parse_ordered_json("18446744073709551615", "x")), std::nullopt);
  EXPECT_EQ(problem_of(parse_json, std::string(5000, '7')),
            "x.json: JSON with a number that is too large");
}

// The expected are what Python's json.dumps makes of them.
TEST(ParseJson, FloatsAreWrittenAsInPython) {
  const std::pair<const char*, const char*> cases[] = {
      {"-0", "0"},
      {"-0.0", "-0.0"},
      {"1.0", "1.0"},
      {"2.50", "2.5"},
      {"1E2", "100.0"},
      {"123456789012345", "123456789012345"},
      {"1e15", "1000000000000000.0"},
      {"1e16", "1e+16"},
      {"123456789012345678.0", "1.2345678901234568e+17"},
      {"0.0001", "0.0001"},
      {"0.00001", "1e-05"},
      {"1e-7", "1e-07"},
      {"5e-324", "5e-324"},
      {"2.2250738585072011e-308", "2.225073858507201e-308"},
      {"-1e-400", "-0.0"},
      {"9007199254740992.9999", "9007199254740992.0"},
      {"9007199254740993.0000000000000000000001", "9007199254740994.0"},  // rounded once
      {"1.7976931348623157e308", "1.7976931348623157e+308"},
  };
  for (const auto& [text, written] : cases)
    EXPECT_EQ(dump_json(parse_ordered_json(text, "x")), written) << text;
}

TEST(ParseJson, WritesTrees) {
  const std::string text =
      R"({"b":[1,-2,2.5,"é\u0000\"",null,true,{},[]],"a":{"c\n":{"d":[[]]}},"":""})";
  EXPECT_EQ(dump_json(parse_ordered_json(text, "x")), text);
  EXPECT_EQ(dump_json({{"a", json_literal("{\"x\": 1.50}")}}), "{\"a\":{\"x\": 1.50}}");
  EXPECT_EQ(dump_json({{"a\xff", "b\xff"}}), "{\"a\xef\xbf\xbd\":\"b\xef\xbf\xbd\"}");
  EXPECT_EQ(dump_json(std::numeric_limits<double>::infinity()), "null");
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

// What a double would change stands for itself.
TEST(ParseJson, NoNumberIsRounded) {
  for (const char* text : {"1e400", "-1e400", "1e-400", "-1.5e-400", "2.9999999999999999999",
                           "3.0000000000000000000001", "-1.0000000000000000001",
                           "9007199254740992.5", "1234567890123456789.5e0"}) {
    EXPECT_EQ(literal_text(parse_ordered_json(text, "x")), text);
  }
  EXPECT_EQ(dump_json(parse_ordered_json("[1e400,-1e400]", "x")), "[1e400,-1e400]");
  for (const char* text : {"0.0", "-0.0", "0e5", "0.000e-9", "3.0", "3.00e0", "0.5e1", "1e22",
                           "1.5", "1200e-2", "12.50e1", "0.1", "1e-300", "2.5e-1"}) {
    EXPECT_EQ(literal_text(parse_ordered_json(text, "x")), std::nullopt) << text;
    EXPECT_TRUE(parse_ordered_json(text, "x").is_number_float()) << text;
  }
}

}  // namespace
}  // namespace outrider

#include "text/json_scanner.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "formats/parse_json.h"

namespace outrider {
namespace {

TEST(JsonScanner, FindsWhereAValueEnds) {
  struct Case {
    const char* name;
    std::string text;
    std::optional<std::string> expected;  // nothing: not a value
  };
  const Case cases[] = {
      {"object", R"({"a": {"b": [1, "}", {}]}})", R"({"a": {"b": [1, "}", {}]}})"},
      {"white space", " \n{ }\t", "{ }"},
      {"escapes", R"("\"\\\/\b\f\n\r\t\u00e9\uD83D\uDE00")",
       R"("\"\\\/\b\f\n\r\t\u00e9\uD83D\uDE00")"},
      {"control characters in strings", "{\"a\": \"x\ny\t\x01\"}", R"({"a": "x\ny\t\u0001"})"},
      {"between, they are what they are", "{\n\"a\":\t1\r}", "{\n\"a\":\t1\r}"},
      {"number", "-1.5e+3", "-1.5e+3"},
      {"integer of any length", std::string(4000, '7'), std::string(4000, '7')},
      {"literal", "null", "null"},
      {"characters", "\"日本\x7f\"", "\"日本\x7f\""},
      {"nothing", "", {}},
      {"white space alone", " ", {}},
      {"open", "{\"a\": 1", {}},
      {"trailing comma", "[1,]", {}},
      {"comma first", "[,1]", {}},
      {"key without a value", R"({"a"})", {}},
      {"a key that is no string", "{1: 2}", {}},
      {"no comma", "[1 2]", {}},
      {"two values", "1 2", {}},
      {"text after it", "{}x", {}},
      {"wrong bracket", "[}", {}},
      {"single quotes", "{'a': 1}", {}},
      {"Python's literals", "True", {}},
      {"leading zero", "01", {}},
      {"no double", "1e999", "1e999"},
      {"unknown escape", R"("\x")", {}},
      {"unknown digit", R"("\u00g0")", {}},
      {"half a pair", R"("\ud83d")", {}},
      {"half a pair, then another escape", R"("\ud83d\n")", {}},
      {"the second half alone", R"("\ude00")", {}},
      {"two first halves", R"("\ud83d\ud83d\ude00")", {}},
      {"deepest",
       std::string(JsonScanner::kDepthMax, '[') + std::string(JsonScanner::kDepthMax, ']'),
       std::string(JsonScanner::kDepthMax, '[') + std::string(JsonScanner::kDepthMax, ']')},
      {"too deep", std::string(49, '[') + std::string(49, ']'), {}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(scanned_json(c.text), c.expected);
    if (c.expected) {
      EXPECT_NO_THROW(parse_json(*c.expected, "test"));
    }
  }
}

// Over random texts that are often values, or nearly: the same as the parser says.
TEST(JsonScanner, TakesWhatTheParserTakes) {
  const unsigned seed = 3;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto below = [&](unsigned n) { return random() % n; };
  const char* atoms[] = {"{",  "}",    "[",    "]",  ",",    ":",      "\"a\"",   "\"",
                         "\\", "u",    "00e9", "1",  "-0.5", "e2",     "true",    "n",
                         " ",  "null", "é",    "{}", "[]",   "\"b\":", "\"k\": 1"};
  int n_taken = 0;
  for (int round = 0; round < 50000; ++round) {
    std::string text;
    for (unsigned n = 1 + below(7); n > 0; --n) text += atoms[below(std::size(atoms))];
    bool parsed = true;
    try {
      parse_json(text, "test");
    } catch (const Error&) {
      parsed = false;
    }
    ASSERT_EQ(scanned_json(text).has_value(), parsed) << text;
    n_taken += parsed;
  }
  EXPECT_GT(n_taken, 500);
}

}  // namespace
}  // namespace outrider

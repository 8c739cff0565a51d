// What every table of fields is held to, for tests of requests.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "server/fields.h"

namespace outrider {

// `body` with this field besides, or instead of what it has.
inline std::string with_field(const std::string& body, const std::string& field,
                              const std::string& value) {
  Json json = Json::parse(body);
  json.erase(field);
  std::string text = json.dump();
  text.pop_back();
  return text + (json.empty() ? "" : ",") + Json(field).dump() + ":" + value + "}";
}

// How a body is refused; nothing: it is not.
template <typename Read>
std::optional<RequestError> refusal(const Read& read, const std::string& body) {
  try {
    read(body);
    return std::nullopt;
  } catch (const RequestError& error) {
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    return error;
  }
}

// A field and what an obeyed one brings.
template <typename Request>
struct FieldCase {
  std::string field, value;
  std::function<bool(const Request&)> obeyed;
};

// Each case holds, and every obeyed row has one. `body` is a request with what is required.
template <typename Request, typename Read>
void expect_obeyed(const std::vector<FieldRow>& rows, const Read& read, const std::string& body,
                   const std::vector<FieldCase<Request>>& cases) {
  std::set<std::string> tested, obeyed;
  for (const FieldCase<Request>& c : cases) {
    SCOPED_TRACE(c.field + ": " + c.value);
    tested.insert(c.field);
    const std::string changed = with_field(body, c.field, c.value);
    const auto error = refusal(read, changed);
    EXPECT_FALSE(error) << error->what();
    if (error) continue;
    EXPECT_TRUE(c.obeyed(read(changed)));
    if (Json::parse(body).contains(c.field)) continue;
    EXPECT_FALSE(c.obeyed(read(body))) << "so it is without the field, too";
  }
  for (const FieldRow& row : rows)
    if (row.use == FieldUse::obeyed) obeyed.insert(row.name);
  EXPECT_EQ(tested, obeyed);
}

// What clients send by mistake or to break things.
inline const std::vector<std::string>& odd_values() {
  static const std::vector<std::string> values = [] {
    std::vector<std::string> values = {"null",
                                       "true",
                                       "false",
                                       "0",
                                       "-1",
                                       "1",
                                       "-0.0",
                                       "0.5",
                                       "1e-300",
                                       "1e300",
                                       "-1e300",
                                       "2147483647",
                                       "2147483648",
                                       "-2147483649",
                                       "9223372036854775808",
                                       "18446744073709551616",
                                       R"("")",
                                       R"("x")",
                                       R"("\u0000")",
                                       R"("😀")",
                                       "[]",
                                       "[[]]",
                                       "[null]",
                                       "[-1]",
                                       "[1e300]",
                                       R"([""])",
                                       R"(["x"])",
                                       "[{}]",
                                       R"([{"type":"text"}])",
                                       R"([{"type":7}])",
                                       "{}",
                                       R"({"":0})",
                                       R"({"x":null})",
                                       R"({"type":"text"})",
                                       R"({"0":1e300})",
                                       R"({"role":[]})"};
    std::string deep = "[", wide = "[";
    for (int i = 0; i < 30; ++i) deep = "[" + deep;
    deep += std::string(31, ']');
    for (int i = 0; i < 2000; ++i) wide += "0,";
    values.push_back(deep);
    values.push_back(wide + "0]");
    values.push_back('"' + std::string(100'000, 'x') + '"');
    return values;
  }();
  return values;
}

inline bool is_accepted(const FieldRow& row, const std::string& value) {
  if (value == "null") return true;
  return std::ranges::any_of(row.accepted, [&](const std::string& accepted) {
    return Json::parse(accepted) == Json::parse(value);
  });
}

// Whether the words for what a field takes name the value's type.
inline bool names_type_of(const Json& value, const std::string& takes) {
  const std::string whole = takes.substr(0, takes.find(" with "));  // not what is in an object
  const auto names = [&](const char* words) { return whole.find(words) != std::string::npos; };
  switch (value.type()) {
    case Json::value_t::null: return true;  // is as if the field were missing
    case Json::value_t::object: return names("an object");
    case Json::value_t::array: return names("a list");
    case Json::value_t::string: return names("a string") || whole.starts_with('"');
    case Json::value_t::boolean: return names("a boolean") || names("or false");
    default: return names("an integer") || names("a number");
  }
}

// `value` is read or refused as the row has it, by its name.
inline void expect_row_holds(const FieldRow& row, const std::string& value,
                             const std::optional<RequestError>& error) {
  switch (row.use) {
    case FieldUse::obeyed:
      EXPECT_TRUE(error || names_type_of(Json::parse(value), row.takes)) << row.takes;
      break;
    case FieldUse::harmless: EXPECT_FALSE(error) << error->what(); break;
    case FieldUse::refused:
      EXPECT_EQ(!error, is_accepted(row, value));
      EXPECT_EQ(error ? error->code : "unsupported_value", "unsupported_value");
      break;
  }
  if (error && value != "null") {
    EXPECT_EQ(error->param.substr(0, row.name.size()), row.name);
  }
}

// For every field, whatever its value.
template <typename Read>
void expect_rows_hold(const std::vector<FieldRow>& rows, const Read& read,
                      const std::string& body) {
  ASSERT_FALSE(refusal(read, body));
  EXPECT_FALSE(refusal(read, with_field(body, "no_such_field", "null")));
  EXPECT_FALSE(refusal(read, with_field(body, "no_such_field", "0")));
  std::set<std::string> names;
  for (const FieldRow& row : rows) {
    SCOPED_TRACE(row.name);
    EXPECT_TRUE(names.insert(row.name).second) << "twice";
    EXPECT_FALSE(row.takes.empty());
    std::vector<std::string> values = odd_values();
    values.insert(values.end(), row.accepted.begin(), row.accepted.end());
    for (const std::string& value : values) {
      SCOPED_TRACE(value.substr(0, 100));
      expect_row_holds(row, value, refusal(read, with_field(body, row.name, value)));
    }
  }
}

// Where an object inside a request stands.
struct PartCase {
  std::string title;
  std::string body;  // of a request, with PART in the object's place
  std::string path;  // of the object: errors' fields begin with it
  std::string part;  // what is required of the object
};

// For every field of every such object.
template <typename Read>
void expect_parts_hold(const std::vector<PartRows>& parts, const Read& read,
                       const std::vector<PartCase>& cases) {
  ASSERT_EQ(parts.size(), cases.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const PartCase& c = cases[i];
    SCOPED_TRACE(c.title);
    EXPECT_EQ(parts[i].title, c.title);
    const auto read_part = [&](const std::string& part) {
      std::string body = c.body;
      body.replace(body.find("PART"), std::string_view("PART").size(), part);
      try {
        read(body);
      } catch (const RequestError& error) {
        const std::string before = c.path + ".";
        EXPECT_TRUE(error.param.starts_with(before)) << error.param;
        throw RequestError(error.status, error.code,
                           error.param.substr(std::min(before.size(), error.param.size())),
                           error.what());
      }
    };
    expect_rows_hold(parts[i].rows, read_part, c.part);
  }
}

// Bodies that are no request at all.
template <typename Read>
void expect_no_request(const Read& read) {
  for (const std::string& body :
       {std::string(), std::string("null"), std::string("[]"), std::string("7"),
        std::string("\"x\""), std::string("{"), std::string("{\"model\":}"),
        std::string("{\"model\":\"\xff\"}"), std::string("{\"model\":NaN}"),
        std::string("{\"model\":1e999}"), std::string("{\"n\":1,\"n\":1}"), std::string("{}"),
        std::string(1'000'000, '['), "{\"x\":" + std::string(1'000'000, '['),
        std::string("{\"a\0b\":1}", 9)}) {
    SCOPED_TRACE(body.substr(0, 100));
    EXPECT_TRUE(refusal(read, body));
  }
}

}  // namespace outrider

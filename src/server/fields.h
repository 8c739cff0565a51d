// A request's JSON, read by tables. A table says for each field of an object what it takes and
// whether it is obeyed; documents and tests are made from the same rows.

#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/request_error.h"

namespace outrider {

using Json = nlohmann::ordered_json;

inline constexpr int kIntMax = std::numeric_limits<int>::max();

// The body of a request: a JSON object. RequestError (400) for anything else.
Json parse_body(std::string_view body);

// Hears of a member that no row of a table names, by its place in the request without numbers
// ("messages[].id"): bytes of the request, short.
using UnknownFieldListener = std::function<void(const std::string& place)>;

// A value in a request's JSON and where it stands. The JSON must outlive it, and so must `unknown`,
// which is told of members that no row names. A value of another kind is refused with RequestError
// (400), which says where, what was found and what was expected.
class FieldValue {
 public:
  static constexpr std::size_t kAnyNumber = ~std::size_t{0};

  explicit FieldValue(const Json& json, const UnknownFieldListener& unknown, std::string path = {})
      : json_(&json), unknown_(&unknown), path_(std::move(path)) {}

  const Json& json() const { return *json_; }
  const std::string& path() const { return path_; }  // "messages[2].content"; empty: the body

  // Takes 2 and 2.0 alike.
  std::int64_t integer(std::int64_t least, std::int64_t most) const;
  double number(double least, double most) const;
  bool boolean() const;
  const std::string& text() const;
  std::string text(std::size_t bytes_max) const;

  // One after another: of a list with so many items, of an object with so many members.
  void each_item(const std::function<void(const FieldValue&)>& visit, std::size_t least = 0,
                 std::size_t most = kAnyNumber) const;
  void each_member(const std::function<void(const std::string& key, const FieldValue&)>& visit,
                   std::size_t most = kAnyNumber) const;
  void check_object(std::size_t members_max = kAnyNumber) const;
  // A member of an object; null counts as missing.
  std::optional<FieldValue> find(std::string_view key) const;
  FieldValue at(std::string_view key) const;  // refused if it is missing

  // "PATH: found SUCH, expected THIS".
  [[noreturn]] void expected(std::string_view what) const;
  // "PATH: SUCH is not supported; REMEDY", with the code unsupported_value.
  [[noreturn]] void unsupported(std::string_view remedy) const;
  // "PATH: PROBLEM".
  [[noreturn]] void refuse(std::string_view problem) const;
  // Tells the listener.
  void ignore() const;

 private:
  void check_size(std::size_t least, std::size_t most) const;

  const Json* json_;
  const UnknownFieldListener* unknown_;  // may be empty
  std::string path_;
};

// RequestError (400) that names `path`, if there is one.
[[noreturn]] void refuse_field(const std::string& path, std::string_view problem);
// A text as messages show it: quoted, and cut if it is long.
std::string in_quotes(std::string_view text);

enum class FieldUse {
  obeyed,
  harmless,  // accepted and without effect: nobody who sends it misses anything
  refused    // accepted only as it would be if it were missing
};

// What documents say of a field.
struct FieldRow {
  std::string name;
  FieldUse use;
  std::string takes;  // "an integer from 1 to 128"
  std::string meaning = {};
  std::vector<std::string> accepted = {};  // of a refused one: values as JSON, besides null
};

// The rows of an object inside a request, and what documents call it.
struct PartRows {
  std::string title;
  std::vector<FieldRow> rows;
};

// How a field is read into a struct.
template <typename Request>
struct FieldReader {
  std::string takes;
  std::function<void(const FieldValue&, Request&)> read;
};

template <typename Request>
struct Field {
  FieldRow row;
  std::function<void(const FieldValue&, Request&)> read;  // null: nothing is
};

// The values, written as JSON, that a refused field may have: what it would be if it were missing.
class AcceptedValues {
 public:
  explicit AcceptedValues(const std::vector<std::string>& accepted);
  // RequestError (400) for all others, which says what to do instead, if there is something.
  void check(const FieldValue& value, std::string_view remedy) const;
  const std::string& text() const { return text_; }

 private:
  std::vector<Json> values_;
  std::string text_;
};

// The fields of an object.
template <typename Request>
class FieldTable {
 public:
  template <typename Part = Request>  // a base of it
  void obeyed(std::string name, FieldReader<Part> reader, std::string meaning = {}) {
    FieldRow row{std::move(name), FieldUse::obeyed, std::move(reader.takes), std::move(meaning)};
    fields_.push_back({std::move(row), std::move(reader.read)});
  }
  void harmless(std::string name, std::string meaning = {}) {
    fields_.push_back({{std::move(name), FieldUse::harmless, "anything", std::move(meaning)}, {}});
  }
  void refused(std::string name, const std::vector<std::string>& accepted = {},
               std::string meaning = {}) {
    AcceptedValues values(accepted);
    FieldRow row{std::move(name), FieldUse::refused, values.text(), std::move(meaning), accepted};
    const auto check = [values, remedy = row.meaning](const FieldValue& value, Request&) {
      values.check(value, remedy);
    };
    fields_.push_back({std::move(row), check});
  }
  // All fields of a part of the request.
  template <typename Part>
  void add(const FieldTable<Part>& other) {
    for (const Field<Part>& field : other.fields()) fields_.push_back({field.row, field.read});
  }

  // Rows of `others`, which must outlive this, for names that this has not.
  void fall_back_on(const FieldTable& others) { others_ = &others; }

  // Reads each field of `object`. Null counts as missing, whatever the field. One that no row names
  // is ignored.
  void read(const FieldValue& object, Request& request) const {
    object.each_member([&](const std::string& key, const FieldValue& value) {
      if (value.json().is_null()) return;
      const Field<Request>* const field = find(key);
      if (!field) return value.ignore();
      if (field->read) field->read(value, request);
    });
  }

  // Its own.
  const std::vector<Field<Request>>& fields() const { return fields_; }
  // All.
  std::vector<FieldRow> rows() const {
    std::vector<FieldRow> rows;
    for (const Field<Request>& field : fields_) rows.push_back(field.row);
    if (others_)
      for (const Field<Request>& field : others_->fields_)
        if (find(field.row.name) == &field) rows.push_back(field.row);
    return rows;
  }

 private:
  const Field<Request>* find(std::string_view name) const {
    for (const Field<Request>& field : fields_)
      if (field.row.name == name) return &field;
    return others_ ? others_->find(name) : nullptr;
  }

  std::vector<Field<Request>> fields_;
  const FieldTable* others_ = nullptr;
};

// "an integer from 1 to 128", "a number from 0 to 2".
std::string integer_text(std::int64_t least, std::int64_t most);
std::string number_text(double least, double most);
// "a", "b" or "c"
std::string words_text(const std::vector<std::string>& words);

// Readers of members; ranges include both ends.
template <typename Request, typename T>
FieldReader<Request> integer_field(T Request::*member, int least, int most) {
  return {integer_text(least, most), [=](const FieldValue& value, Request& request) {
            request.*member = static_cast<int>(value.integer(least, most));
          }};
}
template <typename Request>
FieldReader<Request> boolean_field(bool Request::*member) {
  return {"a boolean",
          [=](const FieldValue& value, Request& request) { request.*member = value.boolean(); }};
}
template <typename Request, typename T>
FieldReader<Request> text_field(T Request::*member) {
  return {"a string",
          [=](const FieldValue& value, Request& request) { request.*member = value.text(); }};
}

// One of a few words.
template <typename Request>
FieldReader<Request> word_field(std::string Request::*member,
                                const std::vector<std::string>& words) {
  const std::string takes = words_text(words);
  return {takes, [=](const FieldValue& value, Request& request) {
            if (std::ranges::find(words, value.text()) == words.end()) value.expected(takes);
            request.*member = value.text();
          }};
}

// One of a few words, the only ones that are supported; the request keeps nothing of it.
template <typename Request>
FieldReader<Request> supported_word_field(const std::vector<std::string>& words) {
  const std::string takes = words_text(words);
  return {takes, [=](const FieldValue& value, Request&) {
            if (std::ranges::find(words, value.text()) == words.end())
              value.unsupported("send " + takes);
          }};
}

}  // namespace outrider

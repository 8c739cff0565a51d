// The values of a template: Python's, as far as templates meet them. Immutable but for namespaces,
// like in jinja2's ImmutableSandboxedEnvironment.
//
// All values that a rendering makes live in its Arena until it ends. A Value is a small handle
// without ownership: copying is free, cycles do no harm, nothing is destroyed recursively, and what
// TemplateLimits::value_bytes counts is what is held.

#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/text.h"

namespace outrider::jinja {

class Object;
class Runtime;
struct Mapping;
struct Sequence;

class Value {
 public:
  enum class Kind : std::uint8_t {
    undefined,
    none,
    boolean,
    integer,       // of 64 bits
    wide_integer,  // one that they do not hold
    number,
    text,
    sequence,
    mapping,
    object
  };

  // Undefined; `hint` says why, in the words of an error, and outlives the value. Null where no
  // name is known.
  explicit Value(const std::string* hint = nullptr) : kind_(Kind::undefined), hint_(hint) {}
  static Value none() { return with(Kind::none); }
  static Value boolean(bool b) {
    Value v = with(Kind::boolean);
    v.boolean_ = b;
    return v;
  }
  static Value integer(std::int64_t i) {
    Value v = with(Kind::integer);
    v.integer_ = i;
    return v;
  }
  // Runtime::integer makes the right kind of integer. `digits`: without zeros in front, after a
  // '-' or not.
  static Value wide_integer(const Text& digits) {
    Value v = with(Kind::wide_integer);
    v.text_ = &digits;
    return v;
  }
  static Value number(double d) {
    Value v = with(Kind::number);
    v.number_ = d;
    return v;
  }
  explicit Value(const Text& text) : kind_(Kind::text), text_(&text) {}
  explicit Value(const Sequence& sequence) : kind_(Kind::sequence), sequence_(&sequence) {}
  explicit Value(const Mapping& mapping) : kind_(Kind::mapping), mapping_(&mapping) {}
  explicit Value(Object& object) : kind_(Kind::object), object_(&object) {}

  Kind kind() const { return kind_; }
  bool is_undefined() const { return kind_ == Kind::undefined; }
  bool is_none() const { return kind_ == Kind::none; }
  bool is_text() const { return kind_ == Kind::text; }
  // An integer of 64 bits as Python counts them: a bool is one.
  bool is_integral() const { return kind_ == Kind::integer || kind_ == Kind::boolean; }
  bool is_wide() const { return kind_ == Kind::wide_integer; }
  bool is_numeric() const { return is_integral() || is_wide() || kind_ == Kind::number; }

  // Each of these needs its kind.
  const std::string* hint() const { return hint_; }
  bool as_boolean() const { return boolean_; }
  std::int64_t as_integer() const {
    return kind_ == Kind::boolean ? boolean_ : integer_;
  }                                                                // is_integral
  const std::string& as_digits() const { return text_->bytes(); }  // is_wide
  double as_number() const { return number_; }
  const Text& as_text() const { return *text_; }
  const Sequence& as_sequence() const { return *sequence_; }
  const Mapping& as_mapping() const { return *mapping_; }
  Object& as_object() const { return *object_; }

 private:
  static Value with(Kind kind) {
    Value v;
    v.kind_ = kind;
    return v;
  }

  Kind kind_;
  union {
    const std::string* hint_;
    bool boolean_;
    std::int64_t integer_;
    double number_;
    const Text* text_;
    const Sequence* sequence_;
    const Mapping* mapping_;
    Object* object_;
  };
};

enum class SequenceKind {
  list,
  tuple,
  range,      // printed as `label`
  view,       // of a dict; `label` is "dict_items", ...
  generator,  // what map, select and others give: no length, no subscripts, read once
};

struct Sequence {
  SequenceKind kind = SequenceKind::list;
  std::vector<Value> items;
  std::string label;
  mutable std::size_t n_read = 0;  // of a generator
};

// A dict, in order of insertion. Look-ups are linear: these have a handful of keys, and each step
// is counted.
struct Mapping {
  std::vector<std::pair<Value, Value>> entries;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};

// What is neither data nor text: namespaces, macros, methods, the `loop` of a loop.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  // Undefined (without a hint) if there is no such attribute.
  virtual Value attribute(Runtime&, std::string_view /*name*/) { return Value(); }
  virtual bool callable() const { return false; }
  virtual Value call(Runtime& runtime, const Arguments& arguments);  // fails
};

class Namespace final : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  Value attribute(Runtime& runtime, std::string_view name) override;
  void set(Runtime& runtime, std::string_view name, Value value);

 private:
  std::vector<std::pair<std::string_view, Value>> entries_;
};

class Arena {
 public:
  const Text& keep(Text text) { return texts_.emplace_back(std::move(text)); }
  const Sequence& keep(Sequence sequence) { return sequences_.emplace_back(std::move(sequence)); }
  const Mapping& keep(Mapping mapping) { return mappings_.emplace_back(std::move(mapping)); }
  const std::string& keep(std::string text) { return strings_.emplace_back(std::move(text)); }
  template <typename T>
  T& keep(std::unique_ptr<T> object) {
    T& kept = *object;
    objects_.push_back(std::move(object));
    return kept;
  }

 private:
  std::deque<Text> texts_;
  std::deque<Sequence> sequences_;
  std::deque<Mapping> mappings_;
  std::deque<std::string> strings_;
  std::vector<std::unique_ptr<Object>> objects_;
};

// ---- What Python does with any value. All of these count their steps and fail through the
// runtime.

// "str", "int", "list", "dict", ... as Python's messages name them.
std::string_view type_name(Value value);
bool truthy(Value value);
// a == b; lists and dicts by their items.
bool equal(Runtime& runtime, Value a, Value b);
// a < b; fails where Python has no order.
bool less(Runtime& runtime, Value a, Value b);
// item in container.
bool contains(Runtime& runtime, Value item, Value container);
// The items of a list, characters of a string, keys of a dict, none of undefined; reads a generator
// to its end. The span lives as long as the arena. Fails for values that are not iterable.
std::span<const Value> items(Runtime& runtime, Value value);
// float(value) of a number: the nearest one; fails for integers beyond all of them.
double to_float(Runtime& runtime, Value value);
// len(value); fails for values without one.
std::int64_t length(Runtime& runtime, Value value);
// Whether a dict may have this key: not a list or a dict.
bool hashable(Value value);
// The value of `key`, or null.
const Value* find(Runtime& runtime, const Mapping& mapping, Value key);
// str(value): a string is itself.
const Text& str(Runtime& runtime, Value value);
// repr(value).
const Text& repr(Runtime& runtime, Value value);
// json.dumps with ensure_ascii etc. as given; indent < 0 is none.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  int indent = -1;
  std::string item_separator = ", ", key_separator = ": ";
};
const Text& json(Runtime& runtime, Value value, const JsonStyle& style);

}  // namespace outrider::jinja

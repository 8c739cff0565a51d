#include <algorithm>

#include "jinja/builtins.h"
#include "jinja/runtime.h"
#include "jinja/unicode.h"

namespace outrider::jinja {
namespace {

using Kind = Value::Kind;

bool is_defined(Runtime&, Value input, const Arguments&) {
  return !input.is_undefined();
}
bool is_undefined(Runtime&, Value input, const Arguments&) {
  return input.is_undefined();
}
bool is_none(Runtime&, Value input, const Arguments&) {
  return input.is_none();
}
bool is_boolean(Runtime&, Value input, const Arguments&) {
  return input.kind() == Kind::boolean;
}
bool is_true(Runtime&, Value input, const Arguments&) {
  return input.kind() == Kind::boolean && input.as_boolean();
}
bool is_false(Runtime&, Value input, const Arguments&) {
  return input.kind() == Kind::boolean && !input.as_boolean();
}
bool is_integer(Runtime&, Value input, const Arguments&) {
  return input.kind() == Kind::integer || input.is_wide();
}
bool is_float(Runtime&, Value input, const Arguments&) {
  return input.kind() == Kind::number;
}
bool is_number(Runtime&, Value input, const Arguments&) {
  return input.is_numeric();
}
bool is_string(Runtime&, Value input, const Arguments&) {
  return input.is_text();
}
bool is_mapping(Runtime&, Value input, const Arguments&) {
  return input.kind() == Kind::mapping;
}
bool is_callable(Runtime&, Value input, const Arguments&) {
  // Python finds a __call__ on jinja2's Undefined as well.
  return input.is_undefined() || (input.kind() == Kind::object && input.as_object().callable());
}

// Python: has a length and subscripts.
bool is_sequence(Runtime&, Value input, const Arguments&) {
  switch (input.kind()) {
    case Kind::undefined:
    case Kind::text:
    case Kind::mapping: return true;
    case Kind::sequence:
      return input.as_sequence().kind != SequenceKind::view &&
             input.as_sequence().kind != SequenceKind::generator;
    default: return false;
  }
}
bool is_iterable(Runtime&, Value input, const Arguments&) {
  return input.is_undefined() || input.is_text() || input.kind() == Kind::mapping ||
         input.kind() == Kind::sequence;
}

// str.isupper and islower: at least one character has case, and none the other.
template <bool kUpper>
bool has_case(Runtime& runtime, Value input, const Arguments&) {
  const std::string& bytes = str(runtime, input).bytes();
  runtime.read(bytes.size() * 4);
  bool any = false;
  for (std::size_t at = 0; at < bytes.size();) {
    const Character c = character_at(bytes, at);
    if (kUpper ? is_lower(c.code) : is_upper(c.code)) return false;
    any |= kUpper ? is_upper(c.code) : is_lower(c.code);
    at += c.n_bytes;
  }
  return any;
}

Value remainder(Runtime& runtime, Value input, Value divisor) {
  return arithmetic(runtime, ArithmeticOperator::modulo, input, divisor);
}
template <std::int64_t kRemainder>
bool is_parity(Runtime& runtime, Value input, const Arguments&) {
  return equal(runtime, remainder(runtime, input, Value::integer(2)), Value::integer(kRemainder));
}
bool is_divisible(Runtime& runtime, Value input, const Arguments& arguments) {
  const auto bound = bind(runtime, "divisibleby", arguments, {"num"}, 1);
  return equal(runtime, remainder(runtime, input, *bound[0]), Value::integer(0));
}

Value other(Runtime& runtime, const Arguments& arguments) {
  return *bind(runtime, "comparison", arguments, {"other"}, 1)[0];
}
bool is_equal(Runtime& runtime, Value input, const Arguments& arguments) {
  return equal(runtime, input, other(runtime, arguments));
}
bool is_not_equal(Runtime& runtime, Value input, const Arguments& arguments) {
  return !equal(runtime, input, other(runtime, arguments));
}
bool is_less(Runtime& runtime, Value input, const Arguments& arguments) {
  return less(runtime, input, other(runtime, arguments));
}
bool is_greater(Runtime& runtime, Value input, const Arguments& arguments) {
  return less(runtime, other(runtime, arguments), input);
}
bool is_less_or_equal(Runtime& runtime, Value input, const Arguments& arguments) {
  const Value right = other(runtime, arguments);
  return less(runtime, input, right) || equal(runtime, input, right);
}
bool is_greater_or_equal(Runtime& runtime, Value input, const Arguments& arguments) {
  const Value right = other(runtime, arguments);
  return less(runtime, right, input) || equal(runtime, input, right);
}
bool is_in(Runtime& runtime, Value input, const Arguments& arguments) {
  return contains(runtime, input, *bind(runtime, "in", arguments, {"seq"}, 1)[0]);
}
// Python's `is`: for what has no identity here, equality of kind and value.
bool is_same(Runtime& runtime, Value input, const Arguments& arguments) {
  const Value right = other(runtime, arguments);
  return input.kind() == right.kind() && equal(runtime, input, right);
}

bool is_filter(Runtime& runtime, Value input, const Arguments&) {
  return find_filter(str(runtime, input).bytes()) != nullptr;
}
bool is_test(Runtime& runtime, Value input, const Arguments&) {
  return find_test(str(runtime, input).bytes()) != nullptr;
}

constexpr Test kTests[] = {
    {"!=", 1, is_not_equal},
    {"<", 1, is_less},
    {"<=", 1, is_less_or_equal},
    {"==", 1, is_equal},
    {">", 1, is_greater},
    {">=", 1, is_greater_or_equal},
    {"boolean", 0, is_boolean},
    {"callable", 0, is_callable},
    {"defined", 0, is_defined},
    {"divisibleby", 1, is_divisible},
    {"eq", 1, is_equal},
    {"equalto", 1, is_equal},
    {"even", 0, is_parity<0>},
    {"false", 0, is_false},
    {"filter", 0, is_filter},
    {"float", 0, is_float},
    {"ge", 1, is_greater_or_equal},
    {"greaterthan", 1, is_greater},
    {"gt", 1, is_greater},
    {"in", 1, is_in},
    {"integer", 0, is_integer},
    {"iterable", 0, is_iterable},
    {"le", 1, is_less_or_equal},
    {"lessthan", 1, is_less},
    {"lower", 0, has_case<false>},
    {"lt", 1, is_less},
    {"mapping", 0, is_mapping},
    {"ne", 1, is_not_equal},
    {"none", 0, is_none},
    {"number", 0, is_number},
    {"odd", 0, is_parity<1>},
    {"sameas", 1, is_same},
    {"sequence", 0, is_sequence},
    {"string", 0, is_string},
    {"test", 0, is_test},
    {"true", 0, is_true},
    {"undefined", 0, is_undefined},
    {"upper", 0, has_case<true>},
};

}  // namespace

const Test* find_test(std::string_view name) {
  const auto found = std::find_if(std::begin(kTests), std::end(kTests),
                                  [&](const Test& test) { return test.name == name; });
  return found == std::end(kTests) ? nullptr : found;
}

bool passes(Runtime& runtime, const Test& test, Value input, const Arguments& arguments) {
  const std::size_t given = arguments.positional.size() + arguments.named.size();
  if (given != test.n_arguments) {
    runtime.fail("the test '{}' takes {} argument(s), {} were given", test.name, test.n_arguments,
                 given);
  }
  return test.apply(runtime, input, arguments);
}

}  // namespace outrider::jinja

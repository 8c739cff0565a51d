// The filters, tests, methods, operators and global functions of templates.

#pragma once

#include <span>
#include <string>
#include <string_view>

#include "jinja/value.h"

namespace outrider::jinja {

// {{ input | name(arguments) }}
struct Filter {
  std::string_view name;
  Value (*apply)(Runtime& runtime, Value input, const Arguments& arguments);
};
const Filter* find_filter(std::string_view name);  // null if there is none

// {{ input is name(arguments) }}
struct Test {
  std::string_view name;
  std::size_t n_arguments;
  bool (*apply)(Runtime& runtime, Value input, const Arguments& arguments);
};
const Test* find_test(std::string_view name);
// Fails if the test takes no such number of arguments.
bool passes(Runtime& runtime, const Test& test, Value input, const Arguments& arguments);

// A method of a string, list or dict as a callable value; undefined (without a hint) if its type
// has none of this name.
Value method(Runtime& runtime, Value receiver, std::string_view name);

// range, dict, namespace, raise_exception, strftime_now; undefined for other names.
Value global(Runtime& runtime, std::string_view name);

enum class ArithmeticOperator { add, subtract, multiply, divide, floor_divide, modulo, power };
Value arithmetic(Runtime& runtime, ArithmeticOperator op, Value left, Value right);
Value negative(Runtime& runtime, Value value);

// object.name, and object[index]: undefined, with a hint, where there is no such thing.
Value get_attribute(Runtime& runtime, Value object, std::string_view name);
Value get_item(Runtime& runtime, Value object, Value index);
// object[start:stop:step]; none for what is not given.
Value get_slice(Runtime& runtime, Value object, Value start, Value stop, Value step);

// Arguments by the parameters' names, like those of a Python function. result[i] is null where
// parameter i was not given. Fails if one of the first n_required is missing, or an argument fits
// no parameter.
std::vector<const Value*> bind(const Runtime& runtime, std::string_view function,
                               const Arguments& arguments,
                               std::initializer_list<std::string_view> parameters,
                               std::size_t n_required = 0);
// Whether a parameter of bind() was given, and not as none.
inline bool given(const Value* value) {
  return value && !value->is_none();
}

}  // namespace outrider::jinja

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "jinja/builtins.h"
#include "jinja/runtime.h"
#include "jinja/text_operations.h"
#include "jinja/unicode.h"

namespace outrider::jinja {
namespace {

using Kind = Value::Kind;

std::string_view spelling(ArithmeticOperator op) {
  switch (op) {
    case ArithmeticOperator::add: return "+";
    case ArithmeticOperator::subtract: return "-";
    case ArithmeticOperator::multiply: return "*";
    case ArithmeticOperator::divide: return "/";
    case ArithmeticOperator::floor_divide: return "//";
    case ArithmeticOperator::modulo: return "%";
    case ArithmeticOperator::power: return "**";
  }
  CHECK(false);
}

[[noreturn]] void fail_operands(Runtime& runtime, ArithmeticOperator op, Value left, Value right) {
  runtime.fail("unsupported operand types for {}: '{}' and '{}'", spelling(op), type_name(left),
               type_name(right));
}

Value power(Runtime& runtime, std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  bool overflow = false;
  // Bits of the exponent, the highest first: at most 63 squarings.
  for (int bit = 62; bit >= 0 && !overflow; --bit) {
    overflow |= __builtin_mul_overflow(result, result, &result);
    if (exponent >> bit & 1) overflow |= __builtin_mul_overflow(result, base, &result);
  }
  if (overflow) runtime.fail("{} ** {} does not fit 64 bits", base, exponent);
  return Value::integer(result);
}

// The double nearest to a / b: the operands may not be doubles.
double quotient(std::int64_t a, std::int64_t b) {
  using Wide = unsigned __int128;
  const auto magnitude = [](std::int64_t i) {
    return i < 0 ? 0 - static_cast<std::uint64_t>(i) : static_cast<std::uint64_t>(i);
  };
  if (a == 0) return b < 0 ? -0.0 : 0.0;
  const int shift = 64 + std::countl_zero(magnitude(a));
  const Wide numerator = static_cast<Wide>(magnitude(a)) << shift;
  // At least 64 bits; the last says whether there are more, so that rounding is right.
  const Wide exact = numerator / magnitude(b) | (numerator % magnitude(b) != 0 ? 1 : 0);
  const double result = std::ldexp(static_cast<double>(exact), -shift);
  return (a < 0) != (b < 0) ? -result : result;
}

Value integer_arithmetic(Runtime& runtime, ArithmeticOperator op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case ArithmeticOperator::add: overflow = __builtin_add_overflow(a, b, &result); break;
    case ArithmeticOperator::subtract: overflow = __builtin_sub_overflow(a, b, &result); break;
    case ArithmeticOperator::multiply: overflow = __builtin_mul_overflow(a, b, &result); break;
    case ArithmeticOperator::divide:
      if (b == 0) runtime.fail("division by zero");
      return Value::number(quotient(a, b));
    case ArithmeticOperator::floor_divide:
    case ArithmeticOperator::modulo: {
      if (b == 0) runtime.fail("integer division or modulo by zero");
      if (b == -1) {  // the least integer has no negative
        overflow = __builtin_sub_overflow(std::int64_t{0}, a, &result);
        if (op == ArithmeticOperator::modulo) return Value::integer(0);
        break;
      }
      // Python rounds down; C++ rounds to zero.
      const std::int64_t remainder = a % b;
      const bool down = remainder != 0 && (remainder < 0) != (b < 0);
      return Value::integer(op == ArithmeticOperator::modulo ? remainder + (down ? b : 0)
                                                             : a / b - (down ? 1 : 0));
    }
    case ArithmeticOperator::power:
      if (b >= 0) return power(runtime, a, b);
      if (a == 0) runtime.fail("0 cannot be raised to a negative power");
      return Value::number(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
  if (overflow) runtime.fail("{} {} {} does not fit 64 bits", a, spelling(op), b);
  return Value::integer(result);
}

double float_modulo(double a, double b) {
  double remainder = std::fmod(a, b);
  if (remainder != 0) {
    if ((remainder < 0) != (b < 0)) remainder += b;
  } else {
    remainder = std::copysign(0.0, b);
  }
  return remainder;
}

Value float_arithmetic(Runtime& runtime, ArithmeticOperator op, double a, double b) {
  switch (op) {
    case ArithmeticOperator::add: return Value::number(a + b);
    case ArithmeticOperator::subtract: return Value::number(a - b);
    case ArithmeticOperator::multiply: return Value::number(a * b);
    case ArithmeticOperator::divide:
      if (b == 0) runtime.fail("float division by zero");
      return Value::number(a / b);
    case ArithmeticOperator::floor_divide: {
      if (b == 0) runtime.fail("float floor division by zero");
      // As CPython does it: from the exact remainder, then to the nearest whole number.
      const double quotient = (a - float_modulo(a, b)) / b;
      const double floored = std::floor(quotient);
      return Value::number(quotient - floored > 0.5 ? floored + 1 : floored);
    }
    case ArithmeticOperator::modulo:
      if (b == 0) runtime.fail("float modulo by zero");
      return Value::number(float_modulo(a, b));
    case ArithmeticOperator::power:
      if (a == 0 && b < 0) runtime.fail("0.0 cannot be raised to a negative power");
      if (a < 0 && b != std::floor(b)) runtime.fail("complex numbers are not supported");
      return Value::number(std::pow(a, b));
  }
  CHECK(false);
}

bool is_list_or_tuple(Value value) {
  return value.kind() == Kind::sequence && (value.as_sequence().kind == SequenceKind::list ||
                                            value.as_sequence().kind == SequenceKind::tuple);
}

Value repeat_items(Runtime& runtime, const Sequence& sequence, std::int64_t times) {
  const std::size_t n = times > 0 ? sequence.items.size() : 0;
  std::size_t cost = 0;
  if (n > 0 && __builtin_mul_overflow(n * sizeof(Value), static_cast<std::size_t>(times), &cost))
    cost = static_cast<std::size_t>(-1);
  runtime.charge(cost);
  std::vector<Value> items;
  for (; n > 0 && times > 0; --times)
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  return runtime.sequence(sequence.kind, std::move(items));
}

Value multiply(Runtime& runtime, Value left, Value right) {
  if (left.is_integral()) std::swap(left, right);
  if (right.is_integral()) {
    if (left.is_text()) return repeat(runtime, left.as_text(), right.as_integer());
    if (is_list_or_tuple(left))
      return repeat_items(runtime, left.as_sequence(), right.as_integer());
  }
  fail_operands(runtime, ArithmeticOperator::multiply, left, right);
}

Value add(Runtime& runtime, Value left, Value right) {
  if (left.is_text() && right.is_text()) {
    TextBuilder out(runtime);
    out.append(left.as_text());
    out.append(right.as_text());
    return out.finish_value();
  }
  if (is_list_or_tuple(left) && is_list_or_tuple(right) &&
      left.as_sequence().kind == right.as_sequence().kind) {
    const std::vector<Value>&a = left.as_sequence().items, &b = right.as_sequence().items;
    runtime.charge((a.size() + b.size()) * sizeof(Value));
    std::vector<Value> items = a;
    items.insert(items.end(), b.begin(), b.end());
    return runtime.sequence(left.as_sequence().kind, std::move(items));
  }
  fail_operands(runtime, ArithmeticOperator::add, left, right);
}

// "'dict object'" in jinja2's messages.
std::string object_name(Value value) {
  return value.is_none() ? "None" : fmt::format("{} object", type_name(value));
}

// Attributes that Python keeps for itself; jinja2's sandbox hides them.
bool is_private(std::string_view name) {
  return name.starts_with('_');
}

}  // namespace

Value arithmetic(Runtime& runtime, ArithmeticOperator op, Value left, Value right) {
  if (left.is_undefined()) runtime.fail_undefined(left);
  if (op == ArithmeticOperator::modulo && left.is_text())
    return format_percent(runtime, left.as_text(), right);
  if (right.is_undefined()) runtime.fail_undefined(right);
  if (left.is_integral() && right.is_integral())
    return integer_arithmetic(runtime, op, left.as_integer(), right.as_integer());
  if (left.is_numeric() && right.is_numeric()) {
    if (left.kind() != Kind::number && right.kind() != Kind::number) {
      runtime.check_narrow(left);
      runtime.check_narrow(right);
    }
    return float_arithmetic(runtime, op, to_float(runtime, left), to_float(runtime, right));
  }
  if (op == ArithmeticOperator::add) return add(runtime, left, right);
  if (op == ArithmeticOperator::multiply) return multiply(runtime, left, right);
  fail_operands(runtime, op, left, right);
}

Value negative(Runtime& runtime, Value value) {
  if (value.is_undefined()) runtime.fail_undefined(value);
  if (value.is_integral() && value.as_integer() != INT64_MIN)
    return Value::integer(-value.as_integer());
  if (value.kind() != Kind::number && value.is_numeric()) {
    const std::string& digits = str(runtime, value).bytes();
    return runtime.integer(digits[0] == '-' ? digits.substr(1) : "-" + digits);
  }
  if (value.is_numeric()) return Value::number(-value.as_number());
  runtime.fail("bad operand type for unary -: '{}'", type_name(value));
}

Value get_attribute(Runtime& runtime, Value object, std::string_view name) {
  runtime.step();
  if (object.is_undefined()) runtime.fail_undefined(object);
  if (object.kind() == Kind::object) {
    const Value value = object.as_object().attribute(runtime, name);
    if (!value.is_undefined() || value.hint()) return value;
  } else if (!is_private(name)) {
    const Value value = method(runtime, object, name);
    if (!value.is_undefined()) return value;
  }
  if (object.kind() == Kind::mapping) {
    for (const auto& [key, value] : object.as_mapping().entries) {
      runtime.step();
      if (key.is_text() && key.as_text().bytes() == name) return value;
    }
  }
  return runtime.undefined(fmt::format("'{}' has no attribute '{}'", object_name(object), name));
}

Value get_item(Runtime& runtime, Value object, Value index) {
  runtime.step();
  if (object.is_undefined()) runtime.fail_undefined(object);
  if (object.kind() == Kind::mapping) {
    if (const Value* const value = find(runtime, object.as_mapping(), index)) return *value;
  } else if (index.is_integral()) {
    std::int64_t i = index.as_integer();
    if (object.is_text()) {
      const Text& text = object.as_text();
      runtime.read(text.size());
      if (i < 0) i += static_cast<std::int64_t>(count_characters(text.bytes()));
      const std::size_t begin =
          i < 0 ? text.size() : byte_of_character(text.bytes(), static_cast<std::size_t>(i));
      if (begin < text.size())
        return runtime.slice(text, begin, begin + character_at(text.bytes(), begin).n_bytes);
    } else if (object.kind() == Kind::sequence) {
      const Sequence& sequence = object.as_sequence();
      const auto n = static_cast<std::int64_t>(sequence.items.size());
      const bool indexed =
          sequence.kind != SequenceKind::view && sequence.kind != SequenceKind::generator;
      if (i < 0) i += n;
      if (indexed && i >= 0 && i < n) return sequence.items[static_cast<std::size_t>(i)];
    }
  }
  if (index.is_text()) {
    const std::string& name = index.as_text().bytes();
    if (object.kind() == Kind::object) return get_attribute(runtime, object, name);
    const Value value = is_private(name) ? Value() : method(runtime, object, name);
    if (!value.is_undefined()) return value;
    return runtime.undefined(fmt::format("'{}' has no attribute '{}'", object_name(object),
                                         std::string_view(name).substr(0, 100)));
  }
  const std::string_view element = str(runtime, index).bytes();
  return runtime.undefined(
      fmt::format("{} has no element {}", object_name(object), element.substr(0, 100)));
}

namespace {

// Python's slice(start, stop, step).indices(n): the items are first, first + step, ... `count` of
// them.
struct Indices {
  std::int64_t first, step, count;
};

Indices indices(Runtime& runtime, std::int64_t n, Value start, Value stop, Value step_value) {
  const auto integer = [&](Value value) {
    runtime.check_narrow(value);
    if (!value.is_integral())
      runtime.fail("slice indices must be integers or None, not {}", type_name(value));
    return value.as_integer();
  };
  // Steps longer than the sequence all mean the same.
  const std::int64_t step =
      step_value.is_none() ? 1 : std::clamp(integer(step_value), -n - 1, n + 1);
  if (step == 0) runtime.fail("slice step cannot be zero");
  const std::int64_t lower = step < 0 ? -1 : 0, upper = step < 0 ? n - 1 : n;
  const auto bound = [&](Value value, std::int64_t otherwise) {
    if (value.is_none()) return otherwise;
    const std::int64_t i = integer(value);
    return i < 0 ? std::max(i + n, lower) : std::min(i, upper);
  };
  const std::int64_t first = bound(start, step < 0 ? upper : lower);
  const std::int64_t last = bound(stop, step < 0 ? lower : upper);
  if (step < 0) return {first, step, first > last ? (first - last - 1) / -step + 1 : 0};
  return {first, step, first < last ? (last - first - 1) / step + 1 : 0};
}

}  // namespace

Value get_slice(Runtime& runtime, Value object, Value start, Value stop, Value step) {
  if (object.is_undefined()) runtime.fail_undefined(object);
  for (const Value value : {start, stop, step}) {
    if (value.is_undefined()) runtime.fail_undefined(value);
  }
  if (object.is_text()) {
    const Text& text = object.as_text();
    const std::string_view bytes = text.bytes();
    runtime.read(bytes.size() * 2);
    const Indices at =
        indices(runtime, static_cast<std::int64_t>(count_characters(bytes)), start, stop, step);
    if (at.count == 0) return runtime.text("");
    if (at.step == 1) {
      const std::size_t begin = byte_of_character(bytes, static_cast<std::size_t>(at.first));
      return runtime.slice(
          text, begin,
          begin + byte_of_character(bytes.substr(begin), static_cast<std::size_t>(at.count)));
    }
    runtime.charge(bytes.size() * sizeof(std::size_t));
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < bytes.size(); i += character_at(bytes, i).n_bytes)
      places.push_back(i);
    TextBuilder out(runtime);
    for (std::int64_t i = 0; i < at.count; ++i) {
      const std::size_t place = places[static_cast<std::size_t>(at.first + i * at.step)];
      out.append(text, place, place + character_at(bytes, place).n_bytes);
    }
    return out.finish_value();
  }
  const bool sliced = object.kind() == Kind::sequence &&
                      object.as_sequence().kind != SequenceKind::view &&
                      object.as_sequence().kind != SequenceKind::generator;
  if (!sliced) runtime.fail("'{}' object has no slices", type_name(object));
  const Sequence& sequence = object.as_sequence();
  const Indices at =
      indices(runtime, static_cast<std::int64_t>(sequence.items.size()), start, stop, step);
  runtime.charge(static_cast<std::size_t>(at.count) * sizeof(Value));
  std::vector<Value> items;
  for (std::int64_t i = 0; i < at.count; ++i)
    items.push_back(sequence.items[static_cast<std::size_t>(at.first + i * at.step)]);
  return runtime.sequence(
      sequence.kind == SequenceKind::tuple ? SequenceKind::tuple : SequenceKind::list,
      std::move(items));
}

std::vector<const Value*> bind(const Runtime& runtime, std::string_view function,
                               const Arguments& arguments,
                               std::initializer_list<std::string_view> parameters,
                               std::size_t n_required) {
  if (arguments.positional.size() > parameters.size()) {
    runtime.fail("{}() takes at most {} arguments, {} were given", function, parameters.size(),
                 arguments.positional.size());
  }
  std::vector<const Value*> bound(parameters.size(), nullptr);
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) bound[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(parameters.begin(), parameters.end(), name);
    if (found == parameters.end()) runtime.fail("{}() has no argument named '{}'", function, name);
    const Value*& place = bound[static_cast<std::size_t>(found - parameters.begin())];
    if (place) runtime.fail("{}() got two values for '{}'", function, name);
    place = &value;
  }
  for (std::size_t i = 0; i < n_required; ++i) {
    if (!bound[i])
      runtime.fail("{}() needs the argument '{}'", function, *(parameters.begin() + i));
  }
  return bound;
}

}  // namespace outrider::jinja

#include <algorithm>
#include <array>

#include "jinja/builtins.h"
#include "jinja/runtime.h"

namespace outrider::jinja {
namespace {

struct Function {
  std::string_view name;
  Value (*apply)(Runtime& runtime, const Arguments& arguments);
};

class GlobalFunction final : public Object {
 public:
  explicit GlobalFunction(const Function& function) : function_(function) {}
  std::string_view type_name() const override { return "function"; }
  bool callable() const override { return true; }
  Value call(Runtime& runtime, const Arguments& arguments) override {
    return function_.apply(runtime, arguments);
  }

 private:
  const Function& function_;
};

Value range_function(Runtime& runtime, const Arguments& arguments) {
  std::vector<std::int64_t> bounds;
  for (const Value& value : arguments.positional) {
    if (value.is_undefined()) runtime.fail_undefined(value);
    runtime.check_narrow(value);
    if (!value.is_integral()) runtime.fail("range() needs integers, not '{}'", type_name(value));
    bounds.push_back(value.as_integer());
  }
  if (bounds.empty() || bounds.size() > 3 || !arguments.named.empty())
    runtime.fail("range() takes 1 to 3 arguments");
  const std::int64_t start = bounds.size() > 1 ? bounds[0] : 0;
  const std::int64_t stop = bounds.size() > 1 ? bounds[1] : bounds[0];
  const std::int64_t step = bounds.size() > 2 ? bounds[2] : 1;
  if (step == 0) runtime.fail("range() arg 3 must not be zero");
  std::vector<Value> numbers;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<std::int64_t>(numbers.size()) == kMaxRange)
      runtime.fail("range too big: at most {} numbers", kMaxRange);
    numbers.push_back(Value::integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  const std::string label = step == 1 ? fmt::format("range({}, {})", start, stop)
                                      : fmt::format("range({}, {}, {})", start, stop, step);
  return runtime.sequence(SequenceKind::range, std::move(numbers), label);
}

// dict(mapping or pairs, name=value, ...)
Value dict_function(Runtime& runtime, const Arguments& arguments) {
  if (arguments.positional.size() > 1) runtime.fail("dict() takes at most one positional argument");
  std::vector<std::pair<Value, Value>> entries;
  if (!arguments.positional.empty()) {
    const Value from = arguments.positional[0];
    if (from.kind() == Value::Kind::mapping) {
      entries = from.as_mapping().entries;
    } else {
      for (const Value& item : items(runtime, from)) {
        const std::span<const Value> pair = items(runtime, item);
        if (pair.size() != 2) runtime.fail("dict() needs pairs");
        entries.emplace_back(pair[0], pair[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) entries.emplace_back(runtime.text(name), value);
  return runtime.mapping(entries);
}

Value namespace_function(Runtime& runtime, const Arguments& arguments) {
  const Value entries = dict_function(runtime, arguments);
  Namespace& created = runtime.object<Namespace>();
  for (const auto& [key, value] : entries.as_mapping().entries) {
    if (!key.is_text()) runtime.fail("the attributes of a namespace are named by strings");
    created.set(runtime, key.as_text().bytes(), value);
  }
  return Value(created);
}

Value raise_exception_function(Runtime& runtime, const Arguments& arguments) {
  const auto bound = bind(runtime, "raise_exception", arguments, {"message"}, 1);
  runtime.fail("{}", str(runtime, *bound[0]).bytes());
}

Value strftime_now_function(Runtime& runtime, const Arguments& arguments) {
  const auto bound = bind(runtime, "strftime_now", arguments, {"format"}, 1);
  if (!bound[0]->is_text()) runtime.fail("strftime_now() needs a string");
  const Text& format = bound[0]->as_text();
  std::array<char, 1024> buffer;
  const std::size_t n =
      std::strftime(buffer.data(), buffer.size(), format.bytes().c_str(), &runtime.now());
  if (n == 0 && format.size() > 0) runtime.fail("strftime_now() gives nothing, or too much");
  return runtime.text({buffer.data(), n}, format.any_user());
}

constexpr Function kFunctions[] = {
    {"dict", dict_function},
    {"namespace", namespace_function},
    {"raise_exception", raise_exception_function},
    {"range", range_function},
    {"strftime_now", strftime_now_function},
};

}  // namespace

Value global(Runtime& runtime, std::string_view name) {
  for (const Function& candidate : kFunctions) {
    if (candidate.name == name) return Value(runtime.object<GlobalFunction>(candidate));
  }
  return Value();
}

}  // namespace outrider::jinja

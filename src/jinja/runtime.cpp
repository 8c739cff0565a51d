#include "jinja/runtime.h"

#include <algorithm>
#include <charconv>

namespace outrider::jinja {
namespace {

// base + per_byte * bytes, without overflow: a caller's limits may be as large as they like.
std::size_t allowance(std::size_t base, std::size_t per_byte, std::size_t bytes) {
  const std::size_t most = static_cast<std::size_t>(-1) / 2;
  if (per_byte != 0 && bytes > (most - base) / per_byte) return most;
  return base + per_byte * bytes;
}

}  // namespace

Runtime::Runtime(std::string_view origin, const TemplateLimits& limits, std::size_t input_bytes,
                 std::tm now)
    : origin_(origin),
      limits_(limits),
      steps_left_(limits.steps),
      value_bytes_left_(
          allowance(limits.value_bytes, limits.value_bytes_per_input_byte, input_bytes)),
      output_bytes_left_(
          allowance(limits.output_bytes, limits.output_bytes_per_input_byte, input_bytes)),
      depth_left_(limits.depth),
      now_(now) {}

void Runtime::fail_undefined(Value value) const {
  fail("{}", value.hint() ? *value.hint() : "the value is undefined");
}
void Runtime::fail_steps() const {
  fail("the template takes more than {} steps; it may loop for ever", limits_.steps);
}
void Runtime::fail_value_bytes() const {
  fail("the template's values need too much memory");
}
void Runtime::fail_output_bytes() const {
  fail("the template writes too much text");
}
void Runtime::fail_depth() const {
  fail("more than {} levels of calls and expressions; a macro may call itself for ever",
       limits_.depth);
}

Value Runtime::text(std::string_view bytes, bool user) {
  charge(sizeof(Text) + bytes.size() + (user ? sizeof(Text::Run) : 0));
  return Value(arena_.keep(Text(std::string(bytes), user)));
}

Value Runtime::integer(std::string_view digits) {
  read(digits.size());
  std::int64_t value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (result.ec == std::errc()) return Value::integer(value);
  std::string bare(digits);
  bare.erase(bare[0] == '-', bare.find_first_not_of('0', bare[0] == '-') - (bare[0] == '-'));
  charge(sizeof(Text) + bare.size());
  return Value::wide_integer(arena_.keep(Text(std::move(bare), false)));
}

Value Runtime::slice(const Text& text, std::size_t begin, std::size_t end) {
  if (begin == 0 && end == text.size()) return Value(text);
  charge(sizeof(Text) + (end - begin));
  Text part;
  part.append(text, begin, end);
  charge(part.user_runs().size() * sizeof(Text::Run));
  return Value(arena_.keep(std::move(part)));
}

Value Runtime::sequence(SequenceKind kind, std::vector<Value> items, std::string label) {
  charge(sizeof(Sequence) + items.size() * sizeof(Value));
  step(static_cast<std::int64_t>(items.size()));
  return Value(arena_.keep(Sequence{kind, std::move(items), std::move(label)}));
}

Value Runtime::mapping(const std::vector<std::pair<Value, Value>>& entries) {
  charge(sizeof(Mapping) + entries.size() * sizeof(entries[0]));
  Mapping mapping;
  for (const auto& given : entries) {
    const Value key = given.first;
    if (!hashable(key)) fail("unhashable type: '{}'", type_name(key));
    const auto known =
        std::find_if(mapping.entries.begin(), mapping.entries.end(),
                     [&](const auto& entry) { return equal(*this, entry.first, key); });
    if (known != mapping.entries.end()) {
      known->second = given.second;
    } else {
      mapping.entries.push_back(given);
    }
  }
  return Value(arena_.keep(std::move(mapping)));
}

Value Runtime::undefined(std::string hint) {
  charge(sizeof(std::string) + hint.size());
  return Value(&arena_.keep(std::move(hint)));
}

}  // namespace outrider::jinja

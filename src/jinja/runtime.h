// The state of one rendering: its values, its limits, and the place it has reached.

#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/position.h"
#include "jinja/template_limits.h"
#include "jinja/value.h"

namespace outrider::jinja {

class Runtime {
 public:
  // `input_bytes` are those of the messages; `now` is what strftime_now formats.
  Runtime(std::string_view origin, const TemplateLimits& limits, std::size_t input_bytes,
          std::tm now);

  // The place that is being evaluated, for messages. Code that evaluates a node of the tree sets
  // it.
  Position at;

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_at(origin_, at, fmt::format(format, std::forward<Args>(args)...));
  }
  // Uses an undefined value: fails with its hint.
  [[noreturn]] void fail_undefined(Value value) const;
  // Where an integer must be one of 64 bits: fails for a wide one.
  void check_narrow(Value value) const {
    if (value.is_wide())
      fail("the integer {} does not fit 64 bits",
           std::string_view(value.as_digits()).substr(0, 40));
  }

  void step(std::int64_t n = 1) {
    if ((steps_left_ -= n) < 0) fail_steps();
  }
  // An operation reads this many bytes.
  void read(std::size_t bytes) { step(static_cast<std::int64_t>(bytes / 64)); }
  // Values grow by this many bytes. To be called before they are allocated.
  void charge(std::size_t bytes) {
    if (bytes > value_bytes_left_) fail_value_bytes();
    value_bytes_left_ -= bytes;
  }
  void charge_output(std::size_t bytes) {
    if (bytes > output_bytes_left_) fail_output_bytes();
    output_bytes_left_ -= bytes;
  }

  // New values, charged.
  Value text(std::string_view bytes, bool user = false);
  // Of any size, in decimal: digits, after a '-' or not.
  Value integer(std::string_view digits);
  Value slice(const Text& text, std::size_t begin, std::size_t end);
  Value sequence(SequenceKind kind, std::vector<Value> items, std::string label = {});
  Value list(std::vector<Value> items) { return sequence(SequenceKind::list, std::move(items)); }
  Value tuple(std::vector<Value> items) { return sequence(SequenceKind::tuple, std::move(items)); }
  // Of equal keys the last value is kept, at the first one's place.
  Value mapping(const std::vector<std::pair<Value, Value>>& entries);
  Value undefined(std::string hint);
  template <typename T, typename... Args>
  T& object(Args&&... args) {
    charge(sizeof(T));
    return arena_.keep(std::make_unique<T>(std::forward<Args>(args)...));
  }
  // A text built and charged elsewhere (TextBuilder).
  const Text& keep(Text text) { return arena_.keep(std::move(text)); }

  const std::tm& now() const { return now_; }

 private:
  friend class Level;
  [[noreturn]] void fail_steps() const;
  [[noreturn]] void fail_value_bytes() const;
  [[noreturn]] void fail_output_bytes() const;
  [[noreturn]] void fail_depth() const;

  const std::string_view origin_;
  const TemplateLimits limits_;
  std::int64_t steps_left_;
  std::size_t value_bytes_left_, output_bytes_left_;
  int depth_left_;
  const std::tm now_;
  Arena arena_;
};

// One level of recursion for as long as it lives.
class Level {
 public:
  explicit Level(Runtime& runtime) : runtime_(runtime) {
    if (runtime.depth_left_ == 0) runtime.fail_depth();
    --runtime.depth_left_;
  }
  ~Level() { ++runtime_.depth_left_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Runtime& runtime_;
};

// Makes a text piece by piece, charged as it grows.
class TextBuilder {
 public:
  explicit TextBuilder(Runtime& runtime) : runtime_(runtime) { runtime.charge(sizeof(Text)); }

  void append(std::string_view bytes, bool user = false) {
    runtime_.charge(bytes.size() + (user ? sizeof(Text::Run) : 0));
    text_.append(bytes, user);
  }
  void append(const Text& text, std::size_t begin, std::size_t end) {
    runtime_.charge(end - begin);
    const std::size_t runs_before = text_.user_runs().size();
    text_.append(text, begin, end);
    runtime_.charge((text_.user_runs().size() - runs_before) * sizeof(Text::Run));
  }
  void append(const Text& text) { append(text, 0, text.size()); }
  const Text& finish() { return runtime_.keep(std::move(text_)); }
  Value finish_value() { return Value(finish()); }

 private:
  Runtime& runtime_;
  Text text_;
};

}  // namespace outrider::jinja

// A string that remembers which of its bytes a user wrote.
//
// A prompt mixes the template's text, in which "<|im_end|>" is a special token, with users' text,
// in which it is ten ordinary characters. After rendering the two look the same, so every string of
// the interpreter carries its provenance: the byte ranges ("runs") that came from messages. The
// rules:
//   - copying, slicing, splitting, joining, replacing, trimming, repeating: bytes keep origins;
//   - changing characters (case, escapes of tojson): a replacement has its character's origin;
//   - where an operation cannot tell (only strftime_now so far), a result that depends on any user
//     byte counts as the user's as a whole, which is safe: special tokens in it are not recognised;
//   - numbers and booleans have no origin: their spelling is the program's.
// Comparisons and look-ups see the bytes alone.

#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace outrider::jinja {

class Text {
 public:
  // [begin, end) in bytes; not empty.
  struct Run {
    std::size_t begin, end;
  };

  Text() = default;
  explicit Text(std::string bytes, bool user = false);

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  // In ascending order, neither overlapping nor touching.
  std::span<const Run> user_runs() const { return user_runs_; }
  bool any_user() const { return !user_runs_.empty(); }
  // Memory behind this string, for accounting.
  std::size_t cost() const {
    return sizeof(Text) + bytes_.size() + user_runs_.size() * sizeof(Run);
  }

  void append(std::string_view bytes, bool user);
  void append(const Text& other) { append(other, 0, other.size()); }
  // Bytes [begin, end) of `other`, which must not be this string.
  void append(const Text& other, std::size_t begin, std::size_t end);

  // Calls visit(std::string_view, bool user) for the stretches of one origin within [begin, end),
  // in order.
  template <typename Visit>
  void stretches(std::size_t begin, std::size_t end, Visit&& visit) const {
    const std::string_view all = bytes_;
    for (std::size_t run = first_run_past(begin); begin < end; ++run) {
      const bool none_left = run == user_runs_.size() || user_runs_[run].begin >= end;
      const std::size_t user_begin = none_left ? end : user_runs_[run].begin;
      if (begin < user_begin) {
        visit(all.substr(begin, user_begin - begin), false);
        begin = user_begin;
      }
      if (none_left) return;
      const std::size_t user_end = user_runs_[run].end < end ? user_runs_[run].end : end;
      visit(all.substr(begin, user_end - begin), true);
      begin = user_end;
    }
  }
  template <typename Visit>
  void stretches(Visit&& visit) const {
    stretches(0, size(), visit);
  }

 private:
  // The place of the first run that ends after `position`.
  std::size_t first_run_past(std::size_t position) const;

  std::string bytes_;
  std::vector<Run> user_runs_;
};

}  // namespace outrider::jinja

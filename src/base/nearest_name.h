// "Did you mean" for names that people type.

#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace outrider {

// How many insertions, deletions, replacements and swaps of neighbouring bytes turn `a` into `b`,
// if no byte changes twice (optimal string alignment). ASCII letters match in either case.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The name that `typed` was probably meant to be: the first of those with the least edit distance,
// if that is at most a third of the name's length; else the only name that begins with `typed`.
std::optional<std::string> nearest_name(std::string_view typed, std::span<const std::string> names);

// "; did you mean "x"?" or nothing: the end of a message.
std::string did_you_mean(std::string_view typed, std::span<const std::string> names);

}  // namespace outrider

// "Did you mean" for names that people type.

#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace outrider {

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`, each part of
// the text changed at most once (optimal string alignment); bytes, case ignored for ASCII.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The name that `typed` was probably meant to be: the nearest, the first of equals, if at most a
// third of its length differs or if it is the only one that begins with `typed`.
std::optional<std::string> nearest_name(std::string_view typed, std::span<const std::string> names);

// "; did you mean "x"?" or nothing: the end of a message.
std::string did_you_mean(std::string_view typed, std::span<const std::string> names);

}  // namespace outrider

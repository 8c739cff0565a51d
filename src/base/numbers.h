// Numbers from text and as text, the same in every locale.

#pragma once

#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace outrider {

// The whole text as a number (floats finite), or nothing. A leading '+' is accepted.
template <typename T>
std::optional<T> parse_number(std::string_view text) {
  if (text.size() > 1 && text.front() == '+' && text[1] != '-') text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) return {};
  }
  return value;
}

// As Python spells a float: the shortest digits that read back as the same number, with an exponent
// below 1e-4 and from 1e16 on; "nan", "inf" and "-inf".
std::string spell(double number);

}  // namespace outrider

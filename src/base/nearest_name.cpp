#include "base/nearest_name.h"

#include <algorithm>
#include <vector>

namespace outrider {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the table are alive: row i depends on i - 1, and on i - 2 for swaps.
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(above);
    above.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const char x = lower(a[i - 1]), y = lower(b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (x != y)});
      if (i > 1 && j > 1 && x == lower(b[j - 2]) && y == lower(a[i - 2])) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::optional<std::string> nearest_name(std::string_view typed,
                                        std::span<const std::string> names) {
  constexpr std::size_t kTypedMax = 256;  // the table is quadratic, and no name is that long
  if (typed.empty() || typed.size() > kTypedMax) return std::nullopt;
  const std::string* best = nullptr;
  std::size_t best_distance = 0;
  for (const std::string& name : names) {
    const std::size_t distance = edit_distance(typed, name);
    if (best == nullptr || distance < best_distance) {
      best = &name;
      best_distance = distance;
    }
  }
  if (best != nullptr && best_distance * 3 <= best->size()) return *best;
  const auto begins = [&](const std::string& name) {
    return name.compare(0, typed.size(), typed) == 0;
  };
  if (std::count_if(names.begin(), names.end(), begins) == 1) {
    return *std::find_if(names.begin(), names.end(), begins);
  }
  return std::nullopt;
}

std::string did_you_mean(std::string_view typed, std::span<const std::string> names) {
  const auto name = nearest_name(typed, names);
  return name ? "; did you mean \"" + *name + "\"?" : "";
}

}  // namespace outrider

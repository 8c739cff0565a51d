#include "cli/reliability.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/console.h"

namespace outrider {

std::string reliability_text(const Reliability& reliability) {
  Table table({"expected", "came true", "drafted tokens"}, "rrr");
  for (const Reliability::Range& range : reliability.ranges) {
    const double n = static_cast<double>(range.n);
    if (range.n > 0)
      table.add({fmt::format("{:.0f}%", 100 * range.predicted / n),
                 fmt::format("{:.0f}%", 100 * range.accepted / n), fmt::format("{}", range.n)});
  }
  constexpr int kWidth = 60;
  return fmt::format("drafts came true as expected within {:.1f}%\n{}",
                     100 * reliability.expected_error(), table.text(kWidth));
}

Json reliability_json(const Reliability& reliability) {
  Json ranges = Json::array();
  for (const Reliability::Range& range : reliability.ranges) {
    const double n = static_cast<double>(std::max(range.n, 1L));
    ranges.push_back({{"guesses", range.n},
                      {"expected", range.predicted / n},
                      {"came_true", range.accepted / n}});
  }
  return {{"guesses", reliability.n()},
          {"expected_error", reliability.expected_error()},
          {"ranges", ranges}};
}

}  // namespace outrider

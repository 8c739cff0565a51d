#include "speculation/drafter_kind.h"

#include <algorithm>

#include "base/error.h"

namespace outrider {

std::string_view flag_value(const DrafterKind& kind, const DrafterFlagValues& values,
                            std::string_view flag) {
  if (const auto given = values.find(flag); given != values.end()) return given->second;
  const auto row = std::ranges::find(kind.flags, flag, &DrafterFlag::name);
  CHECK(row != kind.flags.end());
  return row->standard;
}

}  // namespace outrider

#include "server/ignored_fields.h"

#include <fmt/format.h>

#include <utility>

#include "base/bytes.h"

namespace outrider {

void IgnoredFields::add(std::string_view name) {
  const std::string shown = printable(name, kBytesMax);
  const std::lock_guard lock(mutex_);
  if (known_.size() < kNamesMax && known_.insert(shown).second) new_.push_back(shown);
}

std::vector<std::string> IgnoredFields::take_lines() {
  std::vector<std::string> names;
  bool is_full;
  {
    const std::lock_guard lock(mutex_);
    names = std::exchange(new_, {});
    is_full = known_.size() == kNamesMax;
  }
  std::vector<std::string> lines;
  for (const std::string& name : names)
    lines.push_back(
        fmt::format("requests have the field \"{}\", which is not known and ignored", name));
  if (!names.empty() && is_full) lines.emplace_back("further unknown fields are ignored unsaid");
  return lines;
}

}  // namespace outrider

#include "server/ignored_fields.h"

#include <fmt/format.h>

#include <utility>

namespace outrider {
namespace {

// In ASCII, so that no name forges a line or turns its direction; long ones are cut.
std::string shown_name(std::string_view name) {
  std::string shown;
  for (const char c : name.substr(0, IgnoredFields::kBytesMax)) {
    const bool is_plain = c >= ' ' && c < 0x7f && c != '"';
    shown += is_plain ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return name.size() > IgnoredFields::kBytesMax ? shown + "..." : shown;
}

}  // namespace

void IgnoredFields::add(std::string_view name) {
  if (is_full_) return;
  const std::string shown = shown_name(name);
  const std::lock_guard lock(mutex_);
  if (known_.size() < kNamesMax && known_.insert(shown).second) new_.push_back(shown);
  is_full_ = known_.size() == kNamesMax;
}

std::vector<std::string> IgnoredFields::take_lines() {
  std::vector<std::string> names;
  {
    const std::lock_guard lock(mutex_);
    names = std::exchange(new_, {});
  }
  std::vector<std::string> lines;
  for (const std::string& name : names)
    lines.push_back(
        fmt::format("requests have the field \"{}\", which is not known and ignored", name));
  if (!names.empty() && is_full_)
    lines.emplace_back("further unknown fields are ignored without a line");
  return lines;
}

}  // namespace outrider

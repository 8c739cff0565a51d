#include "base/progress.h"

#include <fmt/format.h>

namespace outrider {

std::string human_bytes(std::uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} bytes", bytes);
  double value = static_cast<double>(bytes);
  const char* unit = nullptr;
  for (const char* next : {"kB", "MB", "GB", "TB", "PB", "EB"}) {
    value /= 1000;
    unit = next;
    if (value < 999.5) break;
  }
  return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, unit);
}

}  // namespace outrider

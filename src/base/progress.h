// How work that takes long reports its progress.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace outrider {

// All callbacks may be empty. The thread that does the work calls them, some ten times per second
// at most.
struct Progress {
  std::function<void(std::string_view activity, std::uint64_t bytes_done,
                     std::uint64_t bytes_total)>
      advance;
  std::function<void(std::string_view line)> note;    // something worth a line of its own
  std::function<void(std::string_view line)> detail;  // the same for those who ask for more
  std::function<bool()> interrupted;  // asked often; true ends the work with an Error
};

// "98.4 MB": three digits, powers of 1000.
std::string human_bytes(std::uint64_t bytes);

}  // namespace outrider

// How long work tells whoever started it how far it is.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace outrider {

// All callbacks may be empty. They are called on the thread that does the work, at most some ten
// times a second.
struct Progress {
  std::function<void(std::string_view activity, std::uint64_t bytes_done,
                     std::uint64_t bytes_total)>
      advance;
  std::function<void(std::string_view line)> note;  // something worth a line of its own
  std::function<bool()> interrupted;                // asked often; true ends the work with an Error
};

// "98.4 MB": three digits, powers of 1000.
std::string human_bytes(std::uint64_t bytes);

}  // namespace outrider

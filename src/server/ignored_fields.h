// Which unknown fields of requests were ignored, for a server's log.

#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace outrider {

// Each name once, and no more than a hundred, so that no client fills memory or a log. Thread-safe.
class IgnoredFields {
 public:
  static constexpr std::size_t kNamesMax = 100, kBytesMax = 80;

  // `name` may be any bytes.
  void add(std::string_view name);

  // Lines for those that came since the last call, in the order in which they came.
  std::vector<std::string> take_lines();

 private:
  std::atomic<bool> is_full_ = false;  // further names are no work
  std::mutex mutex_;                   // of what follows
  std::set<std::string> known_;
  std::vector<std::string> new_;
};

}  // namespace outrider

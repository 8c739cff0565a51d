#include "runtime/memory.h"

#include <algorithm>

#include "base/machine.h"

namespace outrider {

std::uint64_t plannable_memory_bytes() {
  const std::uint64_t bytes = available_memory_bytes();
  // What plans do not count: the program, stacks, the allocator's slack, and the machine's other
  // needs.
  const std::uint64_t margin = (128 << 20) + bytes / 32;
  return bytes - std::min(bytes, margin);
}

int context_that_fits(const std::function<std::uint64_t(int context)>& need, int most,
                      std::uint64_t available) {
  constexpr int kPage = 64;
  const auto fits = [&](int context) { return need(context) <= available; };
  if (fits(most)) return most;
  int least = 0, too_long = most / kPage + 1;  // in pages
  while (too_long - least > 1) {
    const int middle = least + (too_long - least) / 2;
    (fits(middle * kPage) ? least : too_long) = middle;
  }
  return least * kPage;
}

}  // namespace outrider

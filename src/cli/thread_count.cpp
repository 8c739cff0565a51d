#include "cli/thread_count.h"

#include <algorithm>

#include "base/machine.h"

namespace outrider {
namespace {

std::string count_of(int n, const char* word) {
  return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s");
}

}  // namespace

int thread_count(const Settings& settings, Console& console) {
  const int cores = usable_cores();
  const int n_threads = settings.threads.value_or(cores);
  if (n_threads > cores) {
    console.note(fmt::format(
        "--threads {}: more than the {} that this process may use; this is many times slower",
        n_threads, count_of(cores, "core")));
  }
  return n_threads;
}

std::string threads_text(int n_threads) {
  const int cores = std::min(n_threads, usable_cores());
  return fmt::format("{} on {}{}", count_of(n_threads, "thread"), count_of(cores, "core"),
                     n_threads > cores ? ", so more than one per core" : "");
}

}  // namespace outrider

// How many threads compute, and what they run on.

#pragma once

#include <string>

#include "cli/console.h"

namespace outrider {

// --threads, or a thread for each core that this process may use. Says on the console if there are
// more threads than cores: they wait for each other at every barrier, and decoding takes many times
// as long.
int thread_count(const Settings& settings, Console& console);

// "2 threads on 2 cores", "3 threads on 2 cores, so more than one per core".
std::string threads_text(int n_threads);

}  // namespace outrider

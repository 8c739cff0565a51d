// Ctrl-C and termination as something that commands ask about.

#pragma once

#include <atomic>

namespace outrider {

// From now on SIGINT and SIGTERM are remembered; a second one while the first waits ends the
// program at once. A closed pipe is an error of writing.
void watch_signals();

// True while a signal waits; for work that looks at a flag.
const std::atomic<bool>& interrupt_flag();

// The signal that came and was not taken yet; 0 if none.
int pending_signal();
// The same, and forgets it.
int take_signal();
// Throws Interrupted if a signal came.
void stop_if_interrupted();

}  // namespace outrider

// Ctrl-C and termination as something that commands ask about, and a start on sound descriptors.

#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>

namespace outrider {

// Fills the places of standard streams that the program was started without, so that no file that
// it opens is taken for one. Reading and writing there fails.
void open_standard_streams();

// From now on SIGINT and SIGTERM are remembered; a second one while the first waits ends the
// program at once. A closed pipe is an error of writing. A model file that cannot be read any more
// while it is in use ends the program with one line and status 1.
void watch_signals();

// True while a signal waits; for work that looks at a flag.
const std::atomic<bool>& interrupt_flag();

// The signal that came and was not taken yet; 0 if none.
int pending_signal();
// The same, and forgets it.
int take_signal();
// Throws Interrupted if a signal came.
void stop_if_interrupted();

// read() that gives up, with -1 and EINTR, once a signal waits, even one that came just before. A
// window that changes its size does not end it.
ssize_t read_unless_signalled(int file, void* buffer, std::size_t size);

}  // namespace outrider

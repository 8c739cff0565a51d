// SIGINT and SIGTERM as state that commands ask for; and standard streams that are always open.

#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>

namespace outrider {

// Opens the standard streams that the program was started without, so that no file opened later
// gets the number of one. Reading and writing there fails.
void open_standard_streams();

// From now on SIGINT and SIGTERM are remembered; a second one before the first is taken ends the
// program at once. A closed pipe becomes an error of write(). A model file that cannot be read any
// more while it is in use ends the program with one line and status 1.
void watch_signals();

// True while a signal waits to be taken; for work that takes a flag to look at.
const std::atomic<bool>& interrupt_flag();

// The signal that came and was not taken yet; 0 if none.
int pending_signal();
// The same, and forgets it.
int take_signal();
// Throws Interrupted if a signal came.
void stop_if_interrupted();

// read() that returns -1 and EINTR as soon as SIGINT or SIGTERM waits, even if it came just before
// the call. Other signals, such as a change of the window's size, do not end it.
ssize_t read_unless_signalled(int file, void* buffer, std::size_t size);

}  // namespace outrider

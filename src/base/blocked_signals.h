// Keeps signals away from threads that the program starts.

#pragma once

#include <signal.h>

namespace outrider {

// While an object lives, the calling thread blocks all signals but SIGBUS. Threads that it starts
// meanwhile block them for their whole life, so that a signal interrupts the thread that waits for
// it. SIGBUS is caused by the thread itself (base/mapped_file.h); blocked, it would end the program
// at once.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace outrider

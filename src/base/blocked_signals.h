// For whoever starts a thread.

#pragma once

#include <signal.h>

namespace outrider {

// While one lives, the calling thread blocks signals, and threads that it starts block them for
// ever: a signal is to interrupt the thread that waits for it. SIGBUS stays: a thread causes it
// itself (base/mapped_file.h), and blocked it would end the program at once.
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

#include "cli/signals.h"

#include <signal.h>
#include <unistd.h>

#include "cli/failure.h"

namespace outrider {
namespace {

volatile sig_atomic_t pending = 0;
std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // or a handler could not write it

void remember(int signal) {
  if (pending) _exit(128 + signal);
  pending = signal;
  interrupted = true;
}

void ignore(int) {}

}  // namespace

void watch_signals() {
  struct sigaction action = {};
  sigemptyset(&action.sa_mask);
  // No SA_RESTART: a read that waits for the keyboard returns.
  action.sa_handler = remember;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // A handler and not SIG_IGN, which programs that we start would inherit.
  action.sa_handler = ignore;
  action.sa_flags = SA_RESTART;
  sigaction(SIGPIPE, &action, nullptr);
}

const std::atomic<bool>& interrupt_flag() {
  return interrupted;
}

int pending_signal() {
  return pending;
}

int take_signal() {
  const int signal = pending;
  pending = 0;
  interrupted = false;
  return signal;
}

void stop_if_interrupted() {
  if (pending) throw Interrupted{pending};
}

}  // namespace outrider

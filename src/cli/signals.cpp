#include "cli/signals.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "base/mapped_file.h"
#include "cli/failure.h"

namespace outrider {
namespace {

// Whether a signal waits to be taken. `waiting_signal` is read only while this is true, and then
// does not change, so a handler that runs between any two instructions leaves both in agreement.
std::atomic<bool> is_waiting = false;
std::atomic<int> waiting_signal = 0;
// Or a handler must not write them.
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

// Runs with SIGINT and SIGTERM blocked.
void remember(int signal) {
  if (is_waiting) _exit(128 + signal);
  waiting_signal = signal;
  is_waiting = true;
}

void ignore(int) {}

// Reading a mapped file failed: it was cut short meanwhile, or its disk fails. There is nothing to
// return to, and only calls that are allowed in a handler say so.
void report_lost_file(int signal, siginfo_t* cause, void*) {
  const char* file = mapped_file_at(cause->si_addr);
  if (file == nullptr) {  // a fault of our own or of the memory
    ::signal(signal, SIG_DFL);
    raise(signal);
    return;
  }
  static std::atomic_flag is_reported;
  if (is_reported.test_and_set()) {
    for (;;) pause();  // until the thread that came first ends the program
  }
  static char line[8192];
  std::size_t size = 0;
  // The cursor may stand behind a part of a line.
  if (isatty(STDERR_FILENO)) line[size++] = '\n';
  for (const char* part : {"outrider: ", file, ": was changed or became unreadable while in use"}) {
    for (; *part != 0 && size + 1 < sizeof line; ++part) {
      line[size++] = is_control(*part) ? ' ' : *part;
    }
  }
  line[size++] = '\n';
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line, size);
  _exit(kFailed);
}

}  // namespace

void open_standard_streams() {
  // open() returns the lowest free number. The wrong direction makes reading or writing fail.
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(file, F_GETFD) == -1) {
      [[maybe_unused]] const int opened =
          ::open("/dev/null", file == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    }
  }
}

void watch_signals() {
  struct sigaction action = {};
  sigemptyset(&action.sa_mask);
  sigaddset(&action.sa_mask, SIGINT);
  sigaddset(&action.sa_mask, SIGTERM);
  // No SA_RESTART: a read that waits for the keyboard returns.
  action.sa_handler = remember;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  sigemptyset(&action.sa_mask);
  // A handler and not SIG_IGN, which programs that we start would inherit.
  action.sa_handler = ignore;
  action.sa_flags = SA_RESTART;
  sigaction(SIGPIPE, &action, nullptr);
  action.sa_sigaction = report_lost_file;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

const std::atomic<bool>& interrupt_flag() {
  return is_waiting;
}

int pending_signal() {
  return is_waiting ? waiting_signal.load() : 0;
}

int take_signal() {
  const int signal = pending_signal();
  if (signal) is_waiting = false;
  return signal;
}

void stop_if_interrupted() {
  if (const int signal = pending_signal()) throw Interrupted{signal};
}

ssize_t read_unless_signalled(int file, void* buffer, std::size_t size) {
  // Blocked except while ppoll sleeps, so that none comes between the check and the sleep. Other
  // threads have them blocked always (base/threads.cpp).
  sigset_t watched, before;
  sigemptyset(&watched);
  sigaddset(&watched, SIGINT);
  sigaddset(&watched, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &watched, &before);
  pollfd input = {file, POLLIN, 0};
  while (!is_waiting && ppoll(&input, 1, nullptr, &before) < 0 && errno == EINTR) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!is_waiting) return ::read(file, buffer, size);
  errno = EINTR;
  return -1;
}

}  // namespace outrider

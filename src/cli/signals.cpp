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

volatile sig_atomic_t pending = 0;
std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // or a handler could not write it

void remember(int signal) {
  if (pending) _exit(128 + signal);
  pending = signal;
  interrupted = true;
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
  // Behind half a line of text or progress.
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
  // Opening takes the lowest that is free. The wrong direction makes reading or writing fail.
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
  // No SA_RESTART: a read that waits for the keyboard returns.
  action.sa_handler = remember;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // A handler and not SIG_IGN, which programs that we start would inherit.
  action.sa_handler = ignore;
  action.sa_flags = SA_RESTART;
  sigaction(SIGPIPE, &action, nullptr);
  action.sa_sigaction = report_lost_file;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
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

ssize_t read_unless_signalled(int file, void* buffer, std::size_t size) {
  // Held back but while ppoll sleeps, so that none falls between the look and the sleep. The other
  // threads take none (base/threads.cpp).
  sigset_t watched, before;
  sigemptyset(&watched);
  sigaddset(&watched, SIGINT);
  sigaddset(&watched, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &watched, &before);
  pollfd input = {file, POLLIN, 0};
  while (!pending && ppoll(&input, 1, nullptr, &before) < 0 && errno == EINTR) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!pending) return ::read(file, buffer, size);
  errno = EINTR;
  return -1;
}

}  // namespace outrider

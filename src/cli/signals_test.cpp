#include "cli/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define SANITIZED 0
#endif

namespace outrider {
namespace {

constexpr int kTaken = 0, kLost = 1, kNotTraced = 2, kEnded = 128 + SIGTERM;

// Takes a waiting SIGINT between two stops, while the tracer sends SIGTERM: kTaken if both are
// remembered one after the other.
[[noreturn]] void take_while_traced() {
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(kNotTraced);
  watch_signals();
  raise(SIGINT);
  raise(SIGSTOP);
  const bool first = take_signal() == SIGINT;
  raise(SIGSTOP);
  const bool second = interrupt_flag() && take_signal() == SIGTERM && !interrupt_flag();
  _exit(first && second ? kTaken : kLost);
}

int wait_for(pid_t process) {
  int status = 0;
  EXPECT_EQ(waitpid(process, &status, 0), process);
  return status;
}

bool stopped_for(int status, int signal) {
  return WIFSTOPPED(status) && WSTOPSIG(status) == signal;
}

TEST(Signals, OneThatComesWhileAnotherIsTakenIsNotLost) {
  if (SANITIZED) GTEST_SKIP() << "sanitizers hold signals back";
  int n_taken = 0, n_ended = 0;
  bool is_beyond = false;  // the step is behind the taking
  for (int n_steps = 0; !is_beyond; ++n_steps) {
    SCOPED_TRACE(n_steps);
    const pid_t process = fork();
    ASSERT_GE(process, 0);
    if (process == 0) take_while_traced();
    int status = wait_for(process);
    if (WIFEXITED(status) && WEXITSTATUS(status) == kNotTraced) GTEST_SKIP() << "ptrace is refused";
    ASSERT_TRUE(stopped_for(status, SIGINT));
    ptrace(PTRACE_CONT, process, nullptr, SIGINT);
    ASSERT_TRUE(stopped_for(wait_for(process), SIGSTOP));
    for (int step = 0; step < n_steps && !is_beyond; ++step) {
      ptrace(PTRACE_SINGLESTEP, process, nullptr, 0);
      is_beyond = stopped_for(wait_for(process), SIGSTOP);
    }
    for (ptrace(PTRACE_CONT, process, nullptr, SIGTERM); WIFSTOPPED(status = wait_for(process));) {
      ptrace(PTRACE_CONT, process, nullptr, 0);
    }
    ASSERT_TRUE(WIFEXITED(status));
    n_taken += WEXITSTATUS(status) == kTaken;
    n_ended += WEXITSTATUS(status) == kEnded;
    ASSERT_NE(WEXITSTATUS(status), kLost);
  }
  EXPECT_GT(n_taken, 0);
  EXPECT_GT(n_ended, 0);
}

}  // namespace
}  // namespace outrider

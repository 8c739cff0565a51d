// Which core each thread of a team keeps to, and what becomes of it when another process wants one.

#pragma once

#include <sched.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace outrider {

// The cores that this thread may use; empty if the system does not say.
std::vector<int> allowed_cores();

// A core for each thread where a team takes all that there are. A scheduler that finds a neighbour
// on one core likes to wake a thread on the core of the thread that woke it, and leaves both there:
// a pass then takes twice its time. So threads are kept apart; but one whose core a neighbour has
// for a few milliseconds would hold up all others, and these give it a core of theirs.
class TeamCores {
 public:
  // As many cores as threads, or none: threads then go where the system puts them.
  explicit TeamCores(const std::vector<int>& cores);
  bool are_kept() const { return !seats_.empty(); }

  // The calling thread is `thread` of the team from now on, on that one's core.
  void enter(std::size_t thread);
  // It no longer is, and may use all these.
  void leave(std::size_t thread, const cpu_set_t& cores);
  // The calling thread, the team's `thread`, has passed so many barriers.
  void passed(std::size_t thread, std::uint64_t barriers) {
    if (are_kept()) seats_[thread].passed.store(barriers, std::memory_order_relaxed);
  }

  // What a thread that waits for a barrier does from time to time: it looks for one that is late,
  // and changes places with it where that has not run since the last look.
  class Watch {
   public:
    Watch(TeamCores& cores, std::size_t thread, std::uint64_t barrier)
        : cores_(cores), thread_(thread), barrier_(barrier) {}
    // waited: how long by now.
    void operator()(std::chrono::nanoseconds waited);

   private:
    TeamCores& cores_;
    const std::size_t thread_;
    const std::uint64_t barrier_;
    std::chrono::nanoseconds last_look_{};
    std::size_t late_ = 0;
    std::optional<timespec> ran_;  // of the late thread, at the last look
  };

 private:
  struct alignas(64) Seat {
    int core = 0;
    unsigned node = 0;    // of memory, near the core
    pid_t sitter = 0;     // a thread's id; 0: nobody sits here
    clockid_t clock = 0;  // the sitter's processor time
    std::atomic<std::uint64_t> passed{0};
  };

  std::vector<Seat> seats_;
  std::mutex changing_;  // guards all but `passed`
};

}  // namespace outrider

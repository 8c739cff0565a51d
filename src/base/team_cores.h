// Which processor each thread of a team keeps to, and what becomes of it when somebody else wants
// one.

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

// The processors, as the system counts them, that this thread may use; empty if it does not say.
std::vector<int> allowed_processors();

// A processor for each thread where a team takes all that there are. A scheduler that finds a
// neighbour on one likes to wake a thread on the processor of the thread that woke it, and leaves
// both there: a pass then takes twice its time. So threads are kept apart; but one whose processor
// a neighbour has for a few milliseconds would hold up all others, and these give it one of theirs.
class TeamCores {
 public:
  // As many processors as threads, or none: threads then go where the system puts them.
  explicit TeamCores(const std::vector<int>& processors);
  bool are_kept() const { return !seats_.empty(); }

  // The calling thread is `thread` of the team from now on, on that one's processor.
  void enter(std::size_t thread);
  // It no longer is, and may use all these.
  void leave(std::size_t thread, const cpu_set_t& processors);
  // The calling thread, the team's `thread`, has come to so many barriers.
  void arrived(std::size_t thread, std::uint64_t barriers) {
    if (are_kept()) seats_[thread].arrived.store(barriers, std::memory_order_relaxed);
  }

  // What a thread that waits for a barrier does from time to time: it looks for one that is late,
  // the next one by number, and changes seats with it where that has not run since the last look.
  class Watch {
   public:
    Watch(TeamCores& cores, std::size_t thread, std::uint64_t barrier)
        : cores_(cores), thread_(thread), barrier_(barrier) {}
    // waited: how long by now.
    void operator()(std::chrono::nanoseconds waited);

   private:
    friend TeamCores;
    struct Look {
      std::size_t late;
      timespec ran;           // the late thread's processor time
      std::uint64_t changes;  // of seats, before this look
    };

    TeamCores& cores_;
    const std::size_t thread_;
    const std::uint64_t barrier_;
    std::chrono::nanoseconds last_look_{};
    std::optional<Look> seen_;
  };

 private:
  struct Sitter {
    pid_t id;
    clockid_t clock;  // of its processor time
  };
  struct alignas(64) Seat {
    std::atomic<int> processor{0};
    unsigned node = 0;  // of memory, near the processor
    std::optional<Sitter> sitter;
    std::atomic<std::uint64_t> arrived{0};
  };

  // The calling thread, the team's `thread`, moves to where it is to sit.
  void go_to_seat(std::size_t thread);
  // One look of `thread`; whether it sits elsewhere now.
  bool gives_its_seat(std::size_t thread, std::uint64_t barrier, std::optional<Watch::Look>& seen);

  std::vector<Seat> seats_;
  std::uint64_t changes_ = 0;
  std::mutex changing_;  // guards all of seats_ but `arrived`, and changes_
};

}  // namespace outrider

// Pins each thread of a team to a processor of its own, and exchanges processors within the team
// where another process keeps one of the threads from running.

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

// The processors, by Linux's numbers, that the calling thread may use; empty if Linux does not say.
std::vector<int> allowed_processors();

// For a team with as many threads as there are processors. If threads are not pinned and another
// process uses one of the processors, Linux tends to wake a thread on the processor of the thread
// that woke it, and leaves both there: a pass then takes twice its time. So each thread is pinned.
// A pinned thread loses its processor to other processes for a few milliseconds at a time, and all
// other threads would wait for it: so a thread that waits exchanges processors with it.
class TeamCores {
 public:
  // As many processors as threads; with none, threads run where Linux puts them.
  explicit TeamCores(const std::vector<int>& processors);
  bool pins_threads() const { return !threads_.empty(); }

  // The calling thread becomes the team's `thread` and is pinned.
  void enter(std::size_t thread);
  // It leaves the team and may use all of `processors`.
  void leave(std::size_t thread, const cpu_set_t& processors);
  // The calling thread, the team's `thread`, has arrived at so many barriers.
  void arrived(std::size_t thread, std::uint64_t barriers) {
    if (pins_threads()) threads_[thread].arrived.store(barriers, std::memory_order_relaxed);
  }

  // What a thread does now and then while it waits at a barrier: it looks at the next thread by
  // number that has not arrived, and exchanges processors with it if that one has not run since the
  // last look.
  class Watch {
   public:
    Watch(TeamCores& cores, std::size_t thread, std::uint64_t barrier)
        : cores_(cores), thread_(thread), barrier_(barrier) {}
    // waited: how long the thread has waited so far.
    void operator()(std::chrono::nanoseconds waited);

   private:
    friend TeamCores;
    struct Look {
      std::size_t late;         // the thread that had not arrived
      timespec ran;             // its processor time
      std::uint64_t exchanges;  // before this look
    };

    TeamCores& cores_;
    const std::size_t thread_;
    const std::uint64_t barrier_;
    std::chrono::nanoseconds last_look_{};
    std::optional<Look> seen_;
  };

 private:
  struct Running {
    pid_t id;
    clockid_t clock;  // of its processor time
  };
  struct alignas(64) Thread {
    std::atomic<int> processor{0};
    unsigned node = 0;               // of memory, near the processor
    std::optional<Running> running;  // set between enter() and leave()
    std::atomic<std::uint64_t> arrived{0};
  };

  // Pins the calling thread, the team's `thread`, to its processor.
  void pin(std::size_t thread);
  // One look of `thread`; true: it has exchanged processors and must pin itself again.
  bool exchange_with_late(std::size_t thread, std::uint64_t barrier,
                          std::optional<Watch::Look>& seen);

  std::vector<Thread> threads_;
  std::uint64_t exchanges_ = 0;
  std::mutex mutex_;  // guards all of threads_ except `arrived`, and exchanges_
};

}  // namespace outrider

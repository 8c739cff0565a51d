// A team of threads that do one piece of work together, and an even division of that work.

#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace outrider {

struct Range {
  std::size_t begin = 0, end = 0;
};

// Part `part` of `parts` of [0, count), cut at multiples of `grain`; parts differ by at most one
// grain and may be empty.
inline Range share(std::size_t count, std::size_t part, std::size_t parts, std::size_t grain = 1) {
  const std::size_t units = (count + grain - 1) / grain;
  return {std::min(count, units * part / parts * grain),
          std::min(count, units * (part + 1) / parts * grain)};
}

// Every thread runs the same body; barrier() inside it waits for all threads. The caller is thread
// 0. Threads round to nearest even and keep subnormals (docs/arithmetic.md, rule 1).
class ThreadTeam {
 public:
  // n_threads >= 1. Throws Error if the system cannot start as many.
  explicit ThreadTeam(int n_threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  // The process's team of that size; made if nobody holds one. A model and its draft model run in
  // turn, and the threads of a second team would spin, waiting for work, on the first one's cores.
  static std::shared_ptr<ThreadTeam> shared(int n_threads);

  int size() const;
  // Calls body(thread) on each thread, 0 <= thread < size(). A body that throws ends the program,
  // because the other threads would wait for its thread for ever. Callers in several threads take
  // turns, in the order in which they came. A body must not call run().
  void run(const std::function<void(int thread)>& body) noexcept;
  // Returns once every thread of the running body has called it.
  void barrier() {
    std::span<const std::byte> nothing_soon;
    barrier(nothing_soon);
  }
  // `soon`: memory that this thread reads next. While it waits, it prefetches that into its
  // second-level cache, and leaves in `soon` what it has not prefetched.
  void barrier(std::span<const std::byte>& soon) {
    barrier([] {}, soon);
  }
  // The same, and the last thread to arrive calls its `between` before any thread goes on. So small
  // work for one thread needs no second barrier.
  template <std::invocable Between>
  void barrier(const Between& between, std::span<const std::byte>& soon) {
    const Arrival arrival = arrive();
    if (arrival.is_last) {
      between();
      open(arrival);
    } else {
      wait(arrival, soon);
    }
  }
  // Calls f(run) for runs of at most `most` items, which together are [0, count). Each thread
  // begins with an even share, in order; one that is done takes items that others have not begun.
  // Runs get shorter towards the end of a share, so that all threads finish at about the same time.
  // Every thread of the running body calls it with the same count; there is a barrier between two
  // calls.
  template <std::invocable<Range> F>
  void share_out(int thread, std::size_t count, std::size_t most, const F& f) {
    const int turn = begin_sharing(thread);
    for (int other = 0; other < size(); ++other) {
      const int owner = (thread + other) % size();
      const Range items = share(count, owner, size());
      for (Range run; take(owner, turn, items, most, run);) f(run);
    }
  }

 private:
  struct Arrival {
    std::uint64_t barrier;  // its number, from 1 on
    bool is_last;
  };
  Arrival arrive();
  void open(const Arrival& arrival);
  void wait(const Arrival& arrival, std::span<const std::byte>& soon);

  // Which of two sets of counters belongs to this call.
  int begin_sharing(int thread);
  // Takes the next run of `items`, the share of `owner`; false if none is left.
  bool take(int owner, int turn, const Range& items, std::size_t most, Range& run);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace outrider

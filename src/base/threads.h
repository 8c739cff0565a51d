// A team of threads that walks through one piece of work together, and an even division of that
// work.

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

// Every thread runs the same body; barrier() inside it waits for all. The caller is thread 0.
// Threads round to nearest even and keep subnormals (docs/arithmetic.md, rule 1).
class ThreadTeam {
 public:
  // n_threads >= 1. Throws Error if the system has no room for as many.
  explicit ThreadTeam(int n_threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  // The process's team of that size, made where nobody holds it: a model and the one that drafts
  // for it answer in turn, and a second team's threads, waiting for work, would be in the way.
  static std::shared_ptr<ThreadTeam> shared(int n_threads);

  int size() const;
  // body(thread) on each thread, 0 <= thread < size(). A body that throws ends the program: others
  // would wait for its thread for ever. Callers in several threads take turns; a body calls no
  // run().
  void run(const std::function<void(int thread)>& body) noexcept;
  // Returns once every thread of the running body has called it.
  void barrier() {
    std::span<const std::byte> nothing_soon;
    barrier(nothing_soon);
  }
  // `soon`: memory that this thread reads next. It brings that into its second-level cache while it
  // waits, and leaves in `soon` what it did not come to.
  void barrier(std::span<const std::byte>& soon) {
    barrier([] {}, soon);
  }
  // The same, and the last thread to come has run its `between`: the others wait for that too.
  // Small work that one thread can do alone needs no second barrier in this way.
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
  // Calls f(run) for runs of at most `most` items, which together are [0, count): threads begin
  // with even shares, in order, and one that is done takes from others what they have not begun.
  // Runs get shorter as a share comes to its end, so that all are done at about one time. Every
  // thread of the running body calls it with one count; between two calls there is a barrier.
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
    std::uint64_t barrier;  // how many there were before, and this one
    bool is_last;
  };
  Arrival arrive();
  void open(const Arrival& arrival);
  void wait(const Arrival& arrival, std::span<const std::byte>& soon);

  // Which of two sets of counters belongs to this call.
  int begin_sharing(int thread);
  // The next of `items`, the share of `owner`; false: none is left.
  bool take(int owner, int turn, const Range& items, std::size_t most, Range& run);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace outrider

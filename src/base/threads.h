// A team of threads that walks through one piece of work together, and an even division of that
// work.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

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
    barrier([] {});
  }
  // The same, and the last thread to come has run its `between`: the others wait for that too.
  // Small work that one thread can do alone needs no second barrier in this way.
  template <typename Between>
  void barrier(const Between& between) {
    const Arrival arrival = arrive();
    if (arrival.is_last) {
      between();
      open(arrival);
    } else {
      wait(arrival);
    }
  }
  // Calls f(item) once for every item in [0, count), each on one thread: threads begin with even
  // shares, in order, and one that is done takes from others what they have not begun. Every
  // thread of the running body calls it with one count; between two calls there is a barrier.
  template <typename F>
  void share_out(int thread, std::size_t count, const F& f) {
    const SharedItems items = begin_sharing(thread, count);
    for (int other = 0; other < size(); ++other) {
      const int owner = (thread + other) % size();
      std::size_t item;
      while (take(items, owner, item)) f(item);
    }
  }

 private:
  struct Arrival {
    std::uint64_t barrier;  // how many there were before, and this one
    bool is_last;
  };
  Arrival arrive();
  void open(const Arrival& arrival);
  void wait(const Arrival& arrival);

  struct SharedItems {
    std::size_t count;
    int turn;  // which of the counters belong to this call
  };
  SharedItems begin_sharing(int thread, std::size_t count);
  // The next item of `owner`'s share; false: it has none left.
  bool take(const SharedItems& items, int owner, std::size_t& item);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace outrider

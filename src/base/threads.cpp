#include "base/threads.h"

#include <sched.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/blocked_signals.h"
#include "base/error.h"
#include "base/processor.h"
#include "base/team_cores.h"

namespace outrider {
namespace {

// How long a thread spins before it sleeps. Waking a sleeper takes 50 to 100 microseconds on a
// virtual machine, so a thread that slept comes late to the next barrier, where the others would
// fall asleep in turn, and so on: with 40 microseconds here and a niced compiler as neighbour,
// passes took 2.5 times as long.
constexpr std::chrono::milliseconds kSpin{1};

// Prefetches the first two lines of `soon` and removes them from it; false if it has no two. No
// more at a time: the load that tells whether the wait is over would queue behind them.
bool prefetch_some(std::span<const std::byte>& soon) {
  constexpr std::size_t kLine = 64, kStep = 2 * kLine;
  if (soon.size() < kStep) return false;
  constexpr int kRead = 0, kSecondLevel = 2;
  __builtin_prefetch(soon.data(), kRead, kSecondLevel);
  __builtin_prefetch(soon.data() + kLine, kRead, kSecondLevel);
  soon = soon.subspan(kStep);
  return true;
}

// Threads wait here until a condition holds, which others make true and then announce. Announcing
// costs one load while nobody sleeps.
class EventCount {
 public:
  explicit EventCount(bool spins) : spins_(spins) {}

  // Returns once done() holds, which must stay so from then on. look(time spent here) is called
  // every few microseconds while the thread spins.
  template <typename Done, typename Look>
  void wait(const Done& done, std::span<const std::byte>& soon, Look look) {
    if (spins_ ? spin_until(done, soon, look) : done()) return;
    // Sequentially consistent, as the condition itself must be: either this thread sees it or
    // announce() sees the sleeper.
    sleepers_.fetch_add(1);
    for (;;) {
      const std::uint32_t seen = wakes_.load();
      if (done()) break;
      wakes_.wait(seen);
    }
    sleepers_.fetch_sub(1);
  }
  void announce() {
    if (sleepers_.load() == 0) return;
    wakes_.fetch_add(1);
    wakes_.notify_all();
  }

 private:
  // Whether done() holds; false only after kSpin.
  template <typename Done, typename Look>
  bool spin_until(const Done& done, std::span<const std::byte>& soon, Look& look) {
    constexpr int kChecks = 256;  // some 6 microseconds between two looks at the clock
    const auto start = std::chrono::steady_clock::now();
    for (std::chrono::nanoseconds spun{}; spun < kSpin;
         spun = std::chrono::steady_clock::now() - start) {
      look(spun);
      for (int i = 0; i < kChecks; ++i) {
        if (done()) return true;
        if (!prefetch_some(soon)) spin_pause();
      }
    }
    return done();
  }

  const bool spins_;
  alignas(64) std::atomic<std::uint32_t> sleepers_{0}, wakes_{0};
};

// Which thread of its team the calling one is; 0 for callers of run().
thread_local std::size_t this_thread = 0;

// A lock that its callers get in the order in which they came. A mutex may go back to the thread
// that has just left it for as long as that wants it.
class Turns {
 public:
  void lock() {
    const std::uint32_t own = n_came_.fetch_add(1);
    for (std::uint32_t now = n_left_.load(); now != own; now = n_left_.load()) n_left_.wait(now);
  }
  void unlock() {
    n_left_.fetch_add(1);
    n_left_.notify_all();
  }

 private:
  std::atomic<std::uint32_t> n_came_ = 0, n_left_ = 0;
};

}  // namespace

struct ThreadTeam::State {
  explicit State(std::size_t n_threads, const std::vector<int>& allowed)
      : size(n_threads),
        cores(n_threads == allowed.size() && n_threads > 1 ? allowed : std::vector<int>{}),
        shares(n_threads),
        events(n_threads <= allowed.size()) {}

  // Before the threads are joined.
  ~State() {
    stopping = true;
    next_job();
  }

  void next_job() {
    jobs.fetch_add(1);
    events.announce();
  }

  void worker(ThreadTeam& team, int thread) {
    const IeeeFloats floats;
    this_thread = static_cast<std::size_t>(thread);
    cores.enter(this_thread);
    std::span<const std::byte> nothing_soon;
    for (std::uint64_t done = 0;; ++done) {
      events.wait([&] { return jobs.load() > done; }, nothing_soon, [](auto) {});
      if (stopping) return;
      (*body)(thread);
      team.barrier();
    }
  }

  const std::uint64_t size;
  TeamCores cores;
  Turns turns;                                     // of run()'s callers
  const std::function<void(int)>* body = nullptr;  // written before `jobs` changes
  bool stopping = false;                           // written before `jobs` changes
  alignas(64) std::atomic<std::uint64_t> jobs{0};
  alignas(64) std::atomic<std::uint64_t> arrivals{0};  // at all barriers so far
  alignas(64) std::atomic<std::uint64_t> opened{0};    // barriers
  // How many items of each thread's share are taken. Calls of share_out() use two counters in turn:
  // a thread clears the next one when no thread can still be in the last call that used it.
  struct alignas(64) Share {
    std::array<std::atomic<std::size_t>, 2> taken{};
    int turn = 0;  // of the thread's next call
  };
  std::vector<Share> shares;
  EventCount events;
  std::vector<std::jthread> threads;
};

ThreadTeam::ThreadTeam(int n_threads)
    : state_(std::make_unique<State>(static_cast<std::size_t>(n_threads), allowed_processors())) {
  CHECK(n_threads >= 1);
  const BlockedSignals blocked;
  for (int thread = 1; thread < n_threads; ++thread) {
    try {
      state_->threads.emplace_back([this, thread] { state_->worker(*this, thread); });
    } catch (const std::system_error& error) {
      throw Error(Remedy::threads, "thread {} of {} cannot be started: {}; use fewer threads",
                  thread + 1, n_threads, error.code().message());
    }
  }
}

ThreadTeam::~ThreadTeam() = default;

std::shared_ptr<ThreadTeam> ThreadTeam::shared(int n_threads) {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<ThreadTeam>> teams;
  const std::lock_guard lock(mutex);
  std::shared_ptr<ThreadTeam> team = teams[n_threads].lock();
  if (!team) teams[n_threads] = team = std::make_shared<ThreadTeam>(n_threads);
  return team;
}

int ThreadTeam::size() const {
  return static_cast<int>(state_->size);
}

void ThreadTeam::run(const std::function<void(int)>& body) noexcept {
  const std::lock_guard lock(state_->turns);
  const IeeeFloats floats;
  // Afterwards the caller may use the same processors as before, and so may processes that it
  // starts.
  cpu_set_t callers_cores;
  const bool moves = state_->cores.pins_threads() &&
                     sched_getaffinity(0, sizeof callers_cores, &callers_cores) == 0;
  if (moves) state_->cores.enter(0);
  state_->body = &body;
  state_->next_job();
  body(0);
  barrier();
  if (moves) state_->cores.leave(0, callers_cores);
}

int ThreadTeam::begin_sharing(int thread) {
  State::Share& own = state_->shares[static_cast<std::size_t>(thread)];
  const int turn = own.turn;
  own.turn = 1 - turn;
  own.taken[static_cast<std::size_t>(own.turn)].store(0, std::memory_order_relaxed);
  return turn;
}

bool ThreadTeam::take(int owner, int turn, const Range& items, std::size_t most, Range& run) {
  std::atomic<std::size_t>& taken =
      state_->shares[static_cast<std::size_t>(owner)].taken[static_cast<std::size_t>(turn)];
  std::size_t before = taken.load(std::memory_order_relaxed), count = 0;
  do {
    const std::size_t left = items.end - items.begin - before;
    if (left == 0) return false;
    count = std::min(most, (left + 1) / 2);
  } while (!taken.compare_exchange_weak(before, before + count, std::memory_order_relaxed));
  run = {items.begin + before, items.begin + before + count};
  return true;
}

ThreadTeam::Arrival ThreadTeam::arrive() {
  const std::uint64_t before = state_->arrivals.fetch_add(1);
  const Arrival arrival = {.barrier = before / state_->size + 1,
                           .is_last = before % state_->size == state_->size - 1};
  if (!arrival.is_last) state_->cores.arrived(this_thread, arrival.barrier);
  return arrival;
}

void ThreadTeam::open(const Arrival& arrival) {
  state_->cores.arrived(this_thread, arrival.barrier);
  state_->opened.store(arrival.barrier);
  state_->events.announce();
}

void ThreadTeam::wait(const Arrival& arrival, std::span<const std::byte>& soon) {
  state_->events.wait([&] { return state_->opened.load() >= arrival.barrier; }, soon,
                      TeamCores::Watch(state_->cores, this_thread, arrival.barrier));
}

}  // namespace outrider

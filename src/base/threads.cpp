#include "base/threads.h"

#include <signal.h>
#include <xmmintrin.h>

#include <atomic>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"

namespace outrider {
namespace {

// Rounding to nearest even, subnormals kept, no exception traps: MXCSR's state at power-on.
constexpr unsigned kControlWord = 0x1f80;

// Some 20 to 50 microseconds: longer than a phase's skew, short enough to leave the core to a busy
// neighbour.
constexpr int kSpins = 1500;

// Returns once `value` differs from `old`.
void wait_for_change(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (value.load(std::memory_order_acquire) != old) return;
    _mm_pause();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

// Threads started meanwhile take no signals: they interrupt the thread that waits for them. Only
// SIGBUS is about what a thread itself did (base/mapped_file.h), and would end the program at once
// if it were held back.
class SignalsHeldBack {
 public:
  SignalsHeldBack() {
    sigset_t all;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsHeldBack() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeldBack(const SignalsHeldBack&) = delete;
  SignalsHeldBack& operator=(const SignalsHeldBack&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

struct ThreadTeam::State {
  explicit State(int n_threads) : size(n_threads) {}

  // Before the threads are joined.
  ~State() {
    stopping = true;
    job.fetch_add(1, std::memory_order_seq_cst);
    job.notify_all();
  }

  void worker(int thread) {
    _mm_setcsr(kControlWord);
    for (std::uint32_t seen = 0;;) {
      wait_for_change(job, seen);
      seen = job.load(std::memory_order_acquire);
      if (stopping) return;
      (*body)(thread);
      barrier();
    }
  }

  // Arrivals are counted; the last one opens the next generation. That store is sequentially
  // consistent: a notification looks for waiters, and were the look to overtake a store still in
  // the core's buffer, a thread could fall asleep on the old generation for good.
  void barrier() {
    if (size == 1) return;
    const std::uint32_t now = generation.load(std::memory_order_relaxed);
    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == size) {
      arrived.store(0, std::memory_order_relaxed);
      generation.store(now + 1, std::memory_order_seq_cst);
      generation.notify_all();
    } else {
      wait_for_change(generation, now);
    }
  }

  const int size;
  const std::function<void(int)>* body = nullptr;  // written before `job` changes
  bool stopping = false;                           // likewise
  alignas(64) std::atomic<std::uint32_t> job{0};
  alignas(64) std::atomic<int> arrived{0};
  alignas(64) std::atomic<std::uint32_t> generation{0};
  std::vector<std::jthread> threads;
};

ThreadTeam::ThreadTeam(int n_threads) : state_(std::make_unique<State>(n_threads)) {
  CHECK(n_threads >= 1);
  const SignalsHeldBack held_back;
  for (int thread = 1; thread < n_threads; ++thread) {
    try {
      state_->threads.emplace_back([state = state_.get(), thread] { state->worker(thread); });
    } catch (const std::system_error& error) {
      throw Error("thread {} of {} cannot be started: {}; use fewer with -t", thread + 1, n_threads,
                  error.code().message());
    }
  }
}

ThreadTeam::~ThreadTeam() = default;

int ThreadTeam::size() const {
  return state_->size;
}

void ThreadTeam::run(const std::function<void(int)>& body) noexcept {
  const unsigned callers_control_word = _mm_getcsr();
  _mm_setcsr(kControlWord);
  state_->body = &body;
  state_->job.fetch_add(1, std::memory_order_seq_cst);
  if (state_->size > 1) state_->job.notify_all();
  body(0);
  state_->barrier();
  _mm_setcsr(callers_control_word);
}

void ThreadTeam::barrier() {
  state_->barrier();
}

}  // namespace outrider

#include "base/team_cores.h"

#include <pthread.h>
#include <unistd.h>

#include <utility>

namespace outrider {
namespace {

// Between two looks, and before the first. Two of them take longer than waking a sleeping thread,
// and less than a scheduler's time slice of some milliseconds.
constexpr std::chrono::microseconds kBetweenLooks{100};

cpu_set_t only(int processor) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processor, &one);
  return one;
}

// Returns once the calling thread runs there. A refusal is ignored: passes would be slower, not
// wrong.
void pin_to(int processor) {
  const cpu_set_t one = only(processor);
  sched_setaffinity(0, sizeof one, &one);
}

bool operator==(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

}  // namespace

std::vector<int> allowed_processors() {
  cpu_set_t allowed;
  std::vector<int> processors;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return processors;
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (CPU_ISSET(processor, &allowed)) processors.push_back(processor);
  }
  return processors;
}

TeamCores::TeamCores(const std::vector<int>& processors) : threads_(processors.size()) {
  for (std::size_t i = 0; i < processors.size(); ++i) threads_[i].processor = processors[i];
}

void TeamCores::enter(std::size_t thread) {
  if (!pins_threads()) return;
  pin(thread);
  const std::lock_guard lock(mutex_);
  Thread& own = threads_[thread];
  getcpu(nullptr, &own.node);
  clockid_t clock;
  if (pthread_getcpuclockid(pthread_self(), &clock) == 0) own.running = Running{gettid(), clock};
}

void TeamCores::leave(std::size_t thread, const cpu_set_t& processors) {
  if (!pins_threads()) return;
  const std::lock_guard lock(mutex_);
  threads_[thread].running.reset();  // from here on no other thread pins it
  sched_setaffinity(0, sizeof processors, &processors);
}

// Without the lock: the call may take as long as another process runs there. Meanwhile another
// thread may have exchanged processors with this one, hence the loop.
void TeamCores::pin(std::size_t thread) {
  const std::atomic<int>& processor = threads_[thread].processor;
  for (int pinned = -1; pinned != processor;) {
    pinned = processor;
    pin_to(pinned);
  }
}

bool TeamCores::exchange_with_late(std::size_t thread, std::uint64_t barrier,
                                   std::optional<Watch::Look>& seen) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  const std::optional<Watch::Look> before = std::exchange(seen, std::nullopt);
  std::size_t late = thread;
  do {
    late = (late + 1) % threads_.size();
    if (late == thread) return false;
  } while (threads_[late].arrived.load(std::memory_order_relaxed) >= barrier);

  Thread &own = threads_[thread], &other = threads_[late];
  timespec ran;
  if (!other.running || clock_gettime(other.running->clock, &ran) != 0) return false;
  seen = {late, ran, exchanges_};
  const bool has_not_run =
      before && before->late == late && before->ran == ran && before->exchanges == exchanges_;
  if (!has_not_run || own.node != other.node) return false;
  const int processor = own.processor;
  own.processor = other.processor.load();
  other.processor = processor;
  ++exchanges_;
  const cpu_set_t one = only(processor);
  sched_setaffinity(other.running->id, sizeof one, &one);
  return true;
}

void TeamCores::Watch::operator()(std::chrono::nanoseconds waited) {
  if (!cores_.pins_threads() || waited < last_look_ + kBetweenLooks) return;
  last_look_ = waited;
  if (cores_.exchange_with_late(thread_, barrier_, seen_)) cores_.pin(thread_);
}

}  // namespace outrider

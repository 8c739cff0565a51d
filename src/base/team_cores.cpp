#include "base/team_cores.h"

#include <pthread.h>
#include <unistd.h>

#include <utility>

namespace outrider {
namespace {

// Between two looks, and before the first: together longer than a sleeping thread takes to wake up,
// and short against a scheduler's turns of some milliseconds.
constexpr std::chrono::microseconds kBetweenLooks{100};

cpu_set_t only(int processor) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processor, &one);
  return one;
}

// A wish: without it a pass is slower, not wrong. Returns once the calling thread runs there.
void keep_here(int processor) {
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

TeamCores::TeamCores(const std::vector<int>& processors) : seats_(processors.size()) {
  for (std::size_t i = 0; i < processors.size(); ++i) seats_[i].processor = processors[i];
}

void TeamCores::enter(std::size_t thread) {
  if (!are_kept()) return;
  go_to_seat(thread);
  const std::lock_guard lock(changing_);
  Seat& seat = seats_[thread];
  getcpu(nullptr, &seat.node);
  clockid_t clock;
  if (pthread_getcpuclockid(pthread_self(), &clock) == 0) seat.sitter = Sitter{gettid(), clock};
}

void TeamCores::leave(std::size_t thread, const cpu_set_t& processors) {
  if (!are_kept()) return;
  const std::lock_guard lock(changing_);
  seats_[thread].sitter.reset();  // nobody moves it from here on
  sched_setaffinity(0, sizeof processors, &processors);
}

// Without the lock, for a neighbour may let this thread wait. Meanwhile another may have given it a
// better place.
void TeamCores::go_to_seat(std::size_t thread) {
  const std::atomic<int>& processor = seats_[thread].processor;
  for (int kept = -1; kept != processor;) {
    kept = processor;
    keep_here(kept);
  }
}

bool TeamCores::gives_its_seat(std::size_t thread, std::uint64_t barrier,
                               std::optional<Watch::Look>& seen) {
  const std::unique_lock lock(changing_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  const std::optional<Watch::Look> before = std::exchange(seen, std::nullopt);
  std::size_t late = thread;
  do {
    late = (late + 1) % seats_.size();
    if (late == thread) return false;
  } while (seats_[late].arrived.load(std::memory_order_relaxed) >= barrier);

  Seat &own = seats_[thread], &other = seats_[late];
  timespec ran;
  if (!other.sitter || clock_gettime(other.sitter->clock, &ran) != 0) return false;
  seen = {late, ran, changes_};
  const bool has_not_run =
      before && before->late == late && before->ran == ran && before->changes == changes_;
  if (!has_not_run || own.node != other.node) return false;
  const int processor = own.processor;
  own.processor = other.processor.load();
  other.processor = processor;
  ++changes_;
  const cpu_set_t one = only(processor);
  sched_setaffinity(other.sitter->id, sizeof one, &one);
  return true;
}

void TeamCores::Watch::operator()(std::chrono::nanoseconds waited) {
  if (!cores_.are_kept() || waited < last_look_ + kBetweenLooks) return;
  last_look_ = waited;
  if (cores_.gives_its_seat(thread_, barrier_, seen_)) cores_.go_to_seat(thread_);
}

}  // namespace outrider

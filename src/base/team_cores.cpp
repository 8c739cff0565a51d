#include "base/team_cores.h"

#include <pthread.h>
#include <unistd.h>

#include <utility>

namespace outrider {
namespace {

// Between two looks, and before the first. Short against a scheduler's turns of some milliseconds,
// long against the time in which a sleeping thread wakes up by itself.
constexpr std::chrono::microseconds kBetweenLooks{100};

// A wish: without it a pass is slower, not wrong.
void keep_to(pid_t thread, int core) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  sched_setaffinity(thread, sizeof one, &one);
}

}  // namespace

std::vector<int> allowed_cores() {
  cpu_set_t allowed;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  }
  return cores;
}

TeamCores::TeamCores(const std::vector<int>& cores) : seats_(cores.size()) {
  for (std::size_t i = 0; i < cores.size(); ++i) seats_[i].core = cores[i];
}

void TeamCores::enter(std::size_t thread) {
  if (!are_kept()) return;
  const std::lock_guard lock(changing_);
  Seat& seat = seats_[thread];
  keep_to(0, seat.core);
  getcpu(nullptr, &seat.node);
  if (pthread_getcpuclockid(pthread_self(), &seat.clock) == 0) seat.sitter = gettid();
}

void TeamCores::leave(std::size_t thread, const cpu_set_t& cores) {
  if (!are_kept()) return;
  const std::lock_guard lock(changing_);
  seats_[thread].sitter = 0;
  sched_setaffinity(0, sizeof cores, &cores);
}

void TeamCores::Watch::operator()(std::chrono::nanoseconds waited) {
  if (!cores_.are_kept() || waited < last_look_ + kBetweenLooks) return;
  last_look_ = waited;
  const std::unique_lock lock(cores_.changing_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  std::size_t late = 0;
  while (late < cores_.seats_.size() && cores_.seats_[late].passed.load() >= barrier_) ++late;
  if (late == cores_.seats_.size()) return;

  Seat &own = cores_.seats_[thread_], &other = cores_.seats_[late];
  timespec ran = {};
  if (other.sitter == 0 || clock_gettime(other.clock, &ran) != 0) return;
  const bool has_not_run =
      ran_ && late == late_ && ran.tv_sec == ran_->tv_sec && ran.tv_nsec == ran_->tv_nsec;
  late_ = late;
  ran_ = ran;
  if (!has_not_run || own.node != other.node) return;
  std::swap(own.core, other.core);
  keep_to(other.sitter, other.core);
  keep_to(0, own.core);
  ran_.reset();
}

}  // namespace outrider

#include "base/team_cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <set>
#include <stop_token>
#include <thread>
#include <vector>

#include "base/threads.h"

namespace outrider {
namespace {

// A busy thread on that core, of equal right, for as long as this lives.
class Neighbour {
 public:
  explicit Neighbour(int core)
      : thread_([core](const std::stop_token& stop) {
          cpu_set_t one;
          CPU_ZERO(&one);
          CPU_SET(core, &one);
          sched_setaffinity(0, sizeof one, &one);
          while (!stop.stop_requested()) {
          }
        }) {}

 private:
  std::jthread thread_;
};

// The scheduler takes the core from its thread for milliseconds, again and again, while the others
// have nothing to do but wait: one of them gives it its own.
TEST(TeamCores, AThreadThatWaitsChangesPlacesWithOneThatIsKeptFromRunning) {
  const std::vector<int> cores = allowed_cores();
  if (cores.size() < 2) GTEST_SKIP() << "one core";
  ThreadTeam team(static_cast<int>(cores.size()));
  std::vector<int> now(cores.size());
  std::set<int> of_the_last;
  {
    const Neighbour neighbour(cores.back());
    constexpr int kMostJobs = 30'000;  // of some 0.2 ms: the scheduler's turns are shorter by far
    for (int job = 0; job < kMostJobs && of_the_last.size() < 2; ++job) {
      team.run([&](int thread) {
        for (std::atomic<int> i = 0; i < 30'000; ++i) continue;
        now[static_cast<std::size_t>(thread)] = sched_getcpu();
      });
      of_the_last.insert(now.back());
    }
  }
  EXPECT_EQ(of_the_last.size(), 2u);
  team.run([&](int thread) { now[static_cast<std::size_t>(thread)] = sched_getcpu(); });
  EXPECT_EQ(std::set<int>(now.begin(), now.end()).size(), cores.size());
  EXPECT_EQ(allowed_cores(), cores);
}

}  // namespace
}  // namespace outrider
